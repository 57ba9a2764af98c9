"""Nothing is left behind: no process, thread, descriptor, shared memory or file, however a loader or program ends."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import CountedNumbers, number_files, numbers, xs

PATIENCE_S = 5.0  # the promise
REPOSITORY = Path(__file__).parents[2]


def until(true: Any) -> bool:
    """Wait until something is so, at most as long as is promised."""
    deadline = time.monotonic() + PATIENCE_S
    while not true() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return bool(true())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 4, 5, 6])


# One loader in this process; the leak guard of every test looks for processes, threads, memory and files -------------


def closed(loader: Any) -> None:
    next(iter(loader))
    loader.close()


def left_by_with(loader: Any) -> None:
    with loader:
        for _ in zip(loader, range(3), strict=False):
            pass


def deleted(loader: Any) -> None:
    batches = iter(loader)
    next(batches)


def deleted_in_its_own_pass(loader: Any) -> None:
    next(loader)


def fail_in(loader: Any) -> None:
    with loader:
        for _ in loader:
            raise ZeroDivisionError


def ended_by_an_error(loader: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_in(loader)


def never_used(loader: Any) -> None:
    assert len(loader) == 9


def begun_and_closed_at_once(loader: Any) -> None:
    iter(loader)
    loader.close()


ENDS = [closed, left_by_with, deleted, deleted_in_its_own_pass, ended_by_an_error, never_used, begun_and_closed_at_once]


@pytest.mark.parametrize("end", ENDS)
def test_a_loader_leaves_nothing(root, executor, end):
    numbers(root, num_workers=0).close()
    before = descriptors()
    end(numbers(root, num_epoch=None if end is deleted else 1, **executor))
    assert until(lambda: descriptors() <= before)


def test_batches_that_are_kept_hold_no_process_and_give_their_descriptors_back(root):
    before = descriptors()
    with numbers(root, num_workers=1, workers="process") as loader:
        kept = list(loader)
    assert not psutil.Process().children()
    assert sum(len(batch) for batch in xs(kept)) == 18
    del kept
    assert until(lambda: descriptors() <= before)


def test_after_a_break_workers_wait_idle_and_the_next_pass_goes_on(tmp_path, executor):
    root = number_files(tmp_path / "numbers", [2] * 50)
    with numbers(root, max_queue_size=1, num_epoch=None, **executor) as loader:
        for i, _ in enumerate(loader):
            if i == 3:
                break
        if executor["num_workers"]:  # else nobody is there to do anything
            assert until(lambda: not loader.stats()["tasks_in_flight"])
            stats = loader.stats()
            assert stats["store_bytes"] == stats["ready_runs"] == 0
        batches = iter(loader)
        assert xs(next(batches) for _ in range(3)) == [[0, 1], [2, 3], [4, 5]]
        assert loader.get_epoch() == 2


# Programs ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from pathlib import Path
from pyloader_delta import DataLoader, DataReader, Dataset, NumpyDataCollator

class Lines(DataReader):
    batch_size = 2
    def read_file(self, path):
        return {{"x": [int(line) for line in Path(path).read_text().split()]}}

class Through(Dataset):
    def batch_encode(self, batch_data):
        return batch_data

loader = DataLoader(Lines(), Through(), NumpyDataCollator(), {root!r}, num_epoch=None, **{options!r})
batches = iter(loader)
for _ in range(3):
    next(batches)
print("ready", flush=True)
{end}
"""
ENDINGS = {
    "exit": "",
    "sys.exit": "sys.exit(3)",
    "error": "raise ValueError('the program fails')",
    "wait": "for _ in batches: pass",
}


def program(folder: Path, root: str, end: str, **options: Any) -> Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(PROGRAM).format(root=root, options=options, end=ENDINGS[end]))
    return path


def run(path: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path.parent, env=environment, process_group=0,
    )  # fmt: skip


@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("sys.exit", 3), ("error", 1)])
def test_a_program_that_ends_leaves_no_process_and_says_nothing(tmp_path, root, executor, end, code):
    with run(program(tmp_path, root, end, **executor)) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == "ready\n"
    if end == "error":
        assert err.rstrip().endswith("ValueError: the program fails")
        assert err.count("Traceback") == 1
    else:
        assert err == ""
    assert not group(process.pid)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_a_program_that_is_ended_by_a_signal(tmp_path, root, sent):
    with run(program(tmp_path, root, "wait", num_workers=2, workers="process")) as process:
        assert process.stdout.readline() == "ready\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) == 2
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    if sent == signal.SIGINT:
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert err.count("Traceback") == 1
    assert until(lambda: not any(worker.is_running() for worker in workers))


def test_ctrl_c_in_a_terminal_reaches_the_whole_group_and_is_one_traceback(tmp_path, root):
    with run(program(tmp_path, root, "wait", num_workers=2, workers="process")) as process:
        assert process.stdout.readline() == "ready\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert err.count("Traceback") == 1
    assert until(lambda: not any(worker.is_running() for worker in workers))


def test_workers_end_with_a_program_that_was_forked_and_killed(tmp_path, root):
    """A forked child holds copies of the parent's descriptors: the end of a channel alone would not tell."""
    path = program(tmp_path, root, "wait", num_workers=1, workers="process")
    fork = "import time\nif not os.fork():\n    time.sleep(60)\n"
    path.write_text(path.read_text().replace("print(", fork + "print(", 1))
    with run(path) as process:
        assert process.stdout.readline() == "ready\n"
        children = psutil.Process(process.pid).children(recursive=True)
        workers = [child for child in children if "-c" in child.cmdline()]
        assert (len(children), len(workers)) == (2, 1)
        process.kill()
        process.wait(60)
        try:
            assert until(lambda: not any(worker.is_running() for worker in workers))
        finally:
            for child in children:
                if child not in workers:
                    child.kill()


def group(leader: int) -> list[psutil.Process]:
    """Return the processes whose group or parent was that of a program."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            pass
    return found


def test_workers_do_not_import_what_the_users_class_does_not(tmp_path):
    """No framework in a worker, and not the program that started it."""

    class Imported(CountedNumbers):
        batch_size = 3

        def read_file(self, path):
            heavy = {"torch", "tensorflow", "pandas", "deltalake", "pytest"} & set(sys.modules)
            assert not heavy, heavy
            return super().read_file(path)

    with numbers(number_files(tmp_path / "n", [3]), reader=Imported(), num_workers=1, workers="process") as loader:
        assert xs(loader) == [list(range(3))]
