"""What the tests of faults share: a small table, faults that a file arms, programs to be ended from outside."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from leaks import LOOKS, left_over, until
from programs import ROOT

from benchmarks.soak_figures import lives
from pyloader_delta import DataLoader, DataReader, Dataset, NumpyDataCollator

N_FILES, ROWS = 4, 50_000  # windows of more than 1 MiB are mixed in place
BATCH = 20_000


class Armed:
    """Faults that happen once, wherever they are met first: `arm` them before a pass."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, name: str, times: int = 1) -> None:
        for number in range(times):
            (self.folder / f"{name}.{number}").touch()

    def disarm(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def met(self, name: str) -> bool:
        """Return whether this fault is to happen now; of several processes, to one of them."""
        for path in sorted(self.folder.glob(f"{name}.*")):
            try:
                path.unlink()
            except FileNotFoundError:
                continue
            return True
        return False

    def die(self, name: str) -> None:
        if self.met(name):
            os.kill(os.getpid(), signal.SIGKILL)


class Numbered(DataReader):
    """Files that hold nothing but their numbers: 50,000 rows each."""

    input_format = "numpy"

    def read_file(self, path: str) -> Any:
        first = int(Path(path).stem) * ROWS
        return {"x": np.arange(first, first + ROWS), "y": np.arange(first, first + ROWS) * 2}

    def count_samples(self, path: str) -> int:
        return ROWS


class AsNumbers(Dataset):
    input_format = "numpy"

    def batch_encode(self, batch_data: Any) -> Any:
        return batch_data


def numbered_files(folder: Path, n_files: int = N_FILES) -> str:
    folder.mkdir()
    for number in range(n_files):
        (folder / f"{number:03}.txt").touch()
    return str(folder)


def numbered(root: str, reader: DataReader | None = None, dataset: Dataset | None = None, **options: Any) -> DataLoader:
    """Return a shuffled loader of `numbered_files`, ten batches an epoch."""
    options = {"shuffle_window": 3 * ROWS, "shuffle": True} | options
    collator = options.pop("collator", None) or NumpyDataCollator()
    reader = reader or Numbered()
    reader.batch_size, reader.shuffle = BATCH, True
    return DataLoader(reader, dataset or AsNumbers(), collator, root, **options)


def seen(batches: Any) -> list[bytes]:
    """Return the bytes of column x of each batch; column y must belong to it."""
    found = []
    for batch in batches:
        assert (batch["y"] == 2 * batch["x"]).all()
        found.append(batch["x"].tobytes())
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "-c" in _command(child)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # it has just died; a zombie is one as well
        return []


@contextmanager
def nothing_stays() -> Iterator[None]:
    """Do for a loader that several tests share what the guard does for each test: what comes and goes is its own."""
    before = [look() for look in LOOKS]
    yield
    assert left_over(before) == []


# Programs ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from pathlib import Path
from pyloader_delta import BudgetError, DataLoader, DataReader, Dataset, NumpyDataCollator, ScratchError

class Lines(DataReader):
    batch_size = 2
    def read_file(self, path):
        return {{"x": [int(line) for line in Path(path).read_text().split()]}}
    def count_samples(self, path):
        return len(Path(path).read_text().split())

class Through(Dataset):
    def batch_encode(self, batch_data):
        return batch_data

{before}
loader = DataLoader(Lines(), Through(), NumpyDataCollator(), {root!r}, **{options!r})
batches = iter(loader)
for _ in range(3):
    next(batches)
print("ready", flush=True)
{after}
"""
FOREVER = "for _ in batches: pass"


def program(folder: Path, root: str, after: str, before: str = "", **options: Any) -> Path:
    """Write a program that takes three batches, says "ready" and goes on as told."""
    path = folder / "program.py"
    path.write_text(PROGRAM.format(root=root, options={"num_epoch": None} | options, before=before, after=after))
    return path


@contextmanager
def run(path: Path, wrapper: tuple[str, ...] = (), **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program as the leader of a group, its temporary files in `tmp` beside it; a test that fails ends it."""
    temporary = path.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)} | options.pop("env", {})
    prepare = options.pop("preexec_fn", None)

    def prepared() -> None:
        for number in (signal.SIGHUP, signal.SIGINT):  # the suite itself may run under nohup
            signal.signal(number, signal.SIG_DFL)
        if prepare is not None:
            prepare()

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "process_group": 0, "preexec_fn": prepared} | options
    command = [*wrapper, sys.executable, "-W", "error", str(path)]
    with subprocess.Popen(command, text=True, cwd=path.parent, env=environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def output(path: Path, **options: Any) -> tuple[int, str, str]:
    """Run a program to its end; return its exit code, output and errors."""
    with run(path, **options) as process:
        out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def nothing_left(process: int, workers: list[psutil.Process], folder: Path) -> bool:
    """Return whether a program's workers and temporary files are gone in time."""
    gone = until(lambda: not any(lives(worker) for worker in workers) and not group(process))
    return gone and not list((folder / "tmp").iterdir())


def group(leader: int) -> list[psutil.Process]:
    """Return the processes of a group."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader and lives(process):
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            pass
    return found
