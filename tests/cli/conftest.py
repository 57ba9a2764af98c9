"""The commands as they are installed: the entry point's function in this process, or its script in another one."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="the extra 'cli' is not installed")
pytest.importorskip("rich", reason="the extra 'cli' is not installed")

SCRIPT = Path(sys.executable).parent / "pyloader-delta"


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Return what runs a command through the installed entry point, in this process."""
    (entry,) = entry_points(group="console_scripts", name="pyloader-delta")
    main = entry.load()

    def call(*args: object) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        status = ended.value.code or 0
        assert isinstance(status, int)
        captured = capsys.readouterr()
        return Ended(status, captured.out, captured.err)

    return call
