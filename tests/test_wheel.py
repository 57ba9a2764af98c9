"""The built wheel in an empty environment, without torch or TensorFlow: numpy output, and the command line's extra."""

import os
import re
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
    import sys
    import pyloader_delta
    from pyloader_delta import ConfigError, DataLoader

    assert "site-packages" in pyloader_delta.__file__, pyloader_delta.__file__
    options = {"batch_size": 4, "shuffle": True, "framework": "numpy"}
    for workers in ({"num_workers": 0}, {"num_workers": 1, "workers": "process"}):
        with DataLoader.from_delta("table", **options, **workers) as loader:
            batches = list(loader)
        assert [len(batch["n"]) for batch in batches] == [4, 4, 2]
        assert sorted(n for batch in batches for n in batch["n"].tolist()) == list(range(10))
    for framework in ("torch", "tensorflow"):
        try:
            DataLoader.from_delta("table", framework=framework)
        except ConfigError as error:
            assert f"{framework} is not installed" in str(error)
        else:
            raise AssertionError(framework)
    assert not {"torch", "tensorflow", "click", "tqdm", "pandas"} & set(sys.modules)
    print("all", len(batches))
"""


def sh(*command: object, cwd: Path, status: int = 0) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},  # nothing of the checkout
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built here without a network."""
    if find_spec("wheel") is None and find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "pyloader_delta"):
        (source / name).symlink_to(ROOT / name)
    sh(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        source,
        cwd=folder,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_works_alone_in_an_empty_environment(wheel, tmp_path):
    write_deltalake(tmp_path / "table", pa.table({"n": list(range(10)), "x": [0.5] * 10}))
    sh(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pinned = tmp_path / "pinned.txt"  # as tested; constraints have no extras
    pinned.write_text(re.sub(r"\[.*?\]", "", (ROOT / "requirements.txt").read_text()))
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", "--only-binary", ":all:")
    try:
        sh(*pip, wheel, "-c", pinned, cwd=tmp_path)
    except AssertionError as error:
        if "Temporary failure in name resolution" in str(error) or "Network is unreachable" in str(error):
            pytest.skip("no package index is reached")
        raise
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    assert "all 3" in sh(python, "program.py", cwd=tmp_path)
    script = tmp_path / "venv" / "bin" / "pyloader-delta"
    assert "pip install 'pyloader_delta[cli]'" in sh(script, "inspect", "table", cwd=tmp_path, status=1)
    sh(*pip, f"{wheel}[cli]", "-c", pinned, cwd=tmp_path)
    assert "rows" in sh(script, "inspect", "table", cwd=tmp_path)
