"""Virtual environments of the rivals that cannot share ours, made once under benchmarks/.envs with what is pinned."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def python(name: str | None) -> Path:
    """Return the interpreter of an environment, made if it is missing or its requirements have changed.

    Args:
        name: What `requirements-<name>.txt` is called after; None: the environment that this runs in. A second file,
            `requirements-<name>-then.txt`, is installed afterwards, where the rival's own bounds forbid what works.

    Raises:
        subprocess.CalledProcessError: It cannot be made.
    """
    if name is None:
        return Path(sys.executable)
    files = [path for end in ("", "-then") if (path := HERE / f"requirements-{name}{end}.txt").exists()]
    wanted = "".join(path.read_text() for path in files)
    folder = HERE / ".envs" / name
    made = folder / "made"
    if not made.exists() or made.read_text() != wanted:
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([HERE.parent / ".ci" / "make-venv", sys.executable, folder], check=True, stdout=sys.stderr)
        for path in files:
            command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", path]
            subprocess.run(command, check=True, stdout=sys.stderr)
        made.write_text(wanted)
    return folder / "bin" / "python"
