"""Ctrl-C, `del`, `close()`, leaving `with`, an error, the program's end, in the middle of anything: nothing is left."""

import dis
import os
import signal
import sys
import threading
from typing import Any

import pytest
from fakes import CountedNumbers, number_files, numbers, until_error, xs
from leaks import until
from under_fire import FOREVER, descriptors, nothing_left, program, run, workers

import pyloader_delta

ALL = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15], [16, 17]]
PACKAGE = os.path.dirname(pyloader_delta.__file__)


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 4, 5, 6])


# A loader in this process; the leak guard of every test looks for processes, threads, memory and files --------------


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


def closed_in_another_thread(loader: Any) -> None:
    batches = iter(loader)
    next(batches)
    thread = threading.Thread(target=loader.close)
    thread.start()
    thread.join()
    assert isinstance(until_error(batches)[1], RuntimeError)


def its_whole_pass_taken_and_kept(loader: Any) -> None:
    for _ in zip(kept := list(zip(loader, range(9), strict=False)), range(3), strict=False):
        pass
    assert len(kept) == 9


ENDS = [
    closed, left_by_with, deleted, deleted_in_its_own_pass, ended_by_an_error, never_used, begun_and_closed_at_once,
    closed_in_another_thread, its_whole_pass_taken_and_kept,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_loader_leaves_nothing(root, executor, end, capfd):
    numbers(root, num_workers=0).close()
    before = descriptors()
    end(numbers(root, num_epoch=None if end is deleted else 1, **executor))
    assert until(lambda: descriptors() <= before)
    assert capfd.readouterr() == ("", "")


def test_batches_that_are_kept_hold_no_process_and_give_their_descriptors_back(root):
    before = descriptors()
    with numbers(root, num_workers=1, workers="process") as loader:
        kept = list(loader)
    assert not workers()
    assert xs(kept) == ALL
    del kept
    assert until(lambda: descriptors() <= before)


# Ctrl-C --------------------------------------------------------------------------------------------------------------


class CtrlC:
    """Raises KeyboardInterrupt in this thread at the n-th line of the package's that it comes to."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __enter__(self) -> "CtrlC":
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name in ("__del__", "_announce"):
            return None  # an error in a finalizer goes nowhere
        if event == "line" and not (self.left == 1 and leaves_a_with(frame)):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.trace


def leaves_a_with(frame: Any) -> bool:
    """Return whether a frame is about to call `__exit__(None, None, None)`.

    Python traces the line of `with` once more there, outside of what it protects, but runs no handler of a signal
    before the call of a lock's own, which is C, is over: an error raised there would leave it taken, as no Ctrl-C can.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    return list(code[at : at + 6 : 2]) == [dis.opmap["LOAD_CONST"]] * 3


def begin_and_take(loader: Any, n: int) -> tuple[int, bool]:
    """Take batches until Ctrl-C comes at the n-th line; return how many lines were left, and whether it came."""
    interrupt = CtrlC(n)
    try:
        with interrupt:
            for _ in loader:
                pass
    except KeyboardInterrupt:
        return 0, True
    return interrupt.left, False


@pytest.mark.parametrize("workers", ["inline", "thread", "process"])
def test_ctrl_c_anywhere_in_a_loop_leaves_a_loader_that_works(root, workers, capfd):
    """As in a notebook: the loop is interrupted, and the cell is run again."""
    options = {"num_workers": 0} if workers == "inline" else {"num_workers": 1, "workers": workers}
    step = {"inline": 97, "thread": 71, "process": 1009}[workers]
    with numbers(root, **options) as loader:
        assert xs(loader) == ALL
        n, came = 1, True
        while came:
            _, came = begin_and_take(loader, n)
            assert xs(loader) == ALL, f"after Ctrl-C at line {n} of a pass"
            n += step
    assert n > 2 * step  # there were places to be interrupted at; how many depends on how long it waits
    assert capfd.readouterr() == ("", "")


def taken_until_signal(lock: Any, seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        with lock:
            pass


def test_ctrl_c_never_leaves_the_lock_taken(root):
    """A Condition enters and leaves in Python, where a signal may come between: half of these would leave it taken."""
    with numbers(root, num_workers=0) as loader:
        next(iter(loader))
        lock = loader._engine.lock
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            for i in range(500):
                with pytest.raises(KeyboardInterrupt):
                    taken_until_signal(lock, (20 + i % 50) * 1e-6)
                assert not lock._is_owned()
        finally:
            signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("n", [1, 5, 9, 14, 20, 27, 35, 44, 60, 90])
def test_ctrl_c_while_it_is_closed(root, n):
    for options in ({"num_workers": 0}, {"num_workers": 1, "workers": "thread"}):
        loader = numbers(root, **options)
        next(iter(loader))
        try:
            with CtrlC(n):
                loader.close()
        except KeyboardInterrupt:
            pass
        del loader


class Interrupted(CountedNumbers):
    batch_size = 1

    def read_file(self, path: str) -> Any:
        if path.endswith("03.txt"):
            raise KeyboardInterrupt
        return super().read_file(path)


def test_ctrl_c_in_user_code_of_the_callers_own_thread_is_raised_at_once(tmp_path):
    root = number_files(tmp_path / "n", [1] * 8)
    with numbers(root, reader=Interrupted(), num_workers=0) as loader:
        delivered, error = until_error(loader)
    assert isinstance(error, KeyboardInterrupt)
    assert len(delivered) < 4


# Programs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "code"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError('the program fails')", 1)], ids=str
)
def test_a_program_that_ends_leaves_no_process_and_says_nothing(tmp_path, root, executor, after, code):
    path = program(tmp_path, root, after, **executor)
    with run(path) as process:
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (code, "ready\n")
    if code == 1:
        assert err.rstrip().endswith("ValueError: the program fails")
        assert err.count("Traceback") == 1
    else:
        assert err == ""
    assert nothing_left(process.pid, [], tmp_path)


@pytest.mark.parametrize("whole_group", [False, True], ids=["the process", "the whole group, as a terminal does"])
def test_ctrl_c_ends_a_program_with_one_traceback(tmp_path, root, whole_group):
    with run(program(tmp_path, root, FOREVER, num_workers=2, workers="process")) as process:
        assert process.stdout.readline() == "ready\n"
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert nothing_left(process.pid, [], tmp_path)


def test_a_second_ctrl_c_while_the_program_ends_says_nothing_and_leaves_nothing(tmp_path, root):
    before = (
        "from pyloader_delta.engine.processes import ProcessExecutor\n"
        "def interrupted(self, *, wait):\n"
        "    raise KeyboardInterrupt\n"
        "ProcessExecutor.close = interrupted"
    )
    with run(program(tmp_path, root, "", before, num_workers=2, workers="process")) as process:
        assert process.communicate(timeout=600) == ("ready\n", "")
    assert process.returncode == 0
    assert nothing_left(process.pid, [], tmp_path)


def test_a_program_that_is_ended_while_its_workers_are_stuck(tmp_path, root):
    """`del`, then the program's end: user code of three workers never comes back."""
    before = (
        "import threading\n"
        "def encode(self, batch_data):\n"
        "    if Path('stuck').exists():\n"
        "        os.write(os.open('stuck', os.O_WRONLY), b'x')\n"
        "        threading.Event().wait()\n"
        "    return batch_data\n"
        "Through.batch_encode = encode"
    )
    after = (
        "os.mkfifo('stuck')\n"
        "told = os.open('stuck', os.O_RDWR)\n"
        "batches = iter(loader)\n"
        "for _ in range(3):\n"
        "    os.read(told, 1)\n"
        "del batches, loader\n"
    )
    for kind in ("thread", "process"):
        path = tmp_path / kind
        path.mkdir()
        with run(program(path, root, after, before, num_workers=3, workers=kind)) as process:
            assert process.communicate(timeout=600) == ("ready\n", "")
        assert process.returncode == 0
        assert nothing_left(process.pid, [], path)
