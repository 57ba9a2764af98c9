"""A worker that is stuck: user code that never returns, storage that never answers. `timeout` names stage and chunk."""

import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from fakes import CountedNumbers, Through, number_files, numbers, until_error, xs
from leaks import idle, until
from under_fire import workers

from pyloader_delta import ConfigError, LoaderTimeout, ReadError
from pyloader_delta.engine import processes

ALL = [[0, 1], [2, 3], [4, 5], [6, 7]]
TIMEOUT_S = 4
EXECUTORS = [{"num_workers": 1, "workers": "thread"}, {"num_workers": 1, "workers": "process"}]


class NeverReturns(Through):
    """Waits for what nobody writes, for some rows."""

    def __init__(self, pipe: Path, rows: set[int]) -> None:
        self.pipe, self.rows = pipe, rows

    def batch_encode(self, batch_data: Any) -> Any:
        if self.rows & set(batch_data["x"]):
            self.pipe.read_text()
        return batch_data


@pytest.fixture
def pipe(tmp_path):
    """A named pipe: to read it waits for ever, until the test is over."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    release(path)


def release(path: Path) -> None:
    """Give everyone who waits an end, for ever."""
    waiting = [os.open(path, os.O_RDWR)]
    path.rename(path.with_suffix(".old"))
    path.touch()
    os.close(waiting.pop())


def patient(loader: Any) -> Any:
    """Return a loader whose time was over, with time to go on: a busy machine is no fault."""
    loader._engine._timeout_s = 500.0
    return loader


@pytest.mark.parametrize("options", EXECUTORS, ids=["thread", "process"])
def test_user_code_that_never_returns_is_an_error_naming_its_batches(tmp_path, pipe, options):
    root = number_files(tmp_path / "n", [8])
    with numbers(root, dataset=NeverReturns(pipe, {2, 3}), timeout=TIMEOUT_S, **options) as loader:
        delivered, error = until_error(loader)
        assert xs(delivered) == ALL[:1]
        assert isinstance(error, LoaderTimeout)
        assert str(error).startswith(f"worker 0 took longer than timeout={TIMEOUT_S}.0 s, encoding batches 1")
        release(pipe)
        assert idle(loader)  # a thread cannot be ended: it comes back
        assert xs(patient(loader)) == ALL


@pytest.mark.parametrize("options", EXECUTORS, ids=["thread", "process"])
def test_storage_that_never_answers_is_an_error_naming_the_file(tmp_path, options):
    root = number_files(tmp_path / "n", [2, 2, 2])
    path = tmp_path / "n" / "02.txt"
    text = path.read_text()
    with numbers(root, reader=CountedNumbers(batch_size=2), timeout=TIMEOUT_S, max_queue_size=1, **options) as loader:
        path.unlink()
        os.mkfifo(path)
        delivered, error = until_error(loader)
        assert isinstance(error, LoaderTimeout)
        assert f"worker 0 took longer than timeout={TIMEOUT_S}.0 s, reading {path}" in str(error)
        assert xs(delivered) == ALL[:2]
        writer = os.open(path, os.O_RDWR)
        path.rename(path.with_suffix(".pipe"))
        path.write_text(text)
        os.close(writer)
        assert idle(loader)
        (tmp_path / "n" / "02.pipe").unlink()
        assert xs(patient(loader)) == ALL[:3]


def test_workers_that_are_stuck_all_at_once_are_replaced(tmp_path, pipe):
    root = number_files(tmp_path / "n", [2, 2, 2, 2])
    options = {"num_workers": 3, "workers": "process", "timeout": TIMEOUT_S}
    with numbers(root, dataset=NeverReturns(pipe, {0, 2, 4}), **options) as loader:
        for _ in range(2):
            delivered, error = until_error(loader)
            assert delivered == []
            assert isinstance(error, LoaderTimeout)
        release(pipe)
        assert xs(patient(loader)) == ALL


def test_a_worker_that_is_stopped_is_an_error_and_is_replaced(tmp_path):
    root = number_files(tmp_path / "n", [8])
    with numbers(root, num_workers=1, workers="process", timeout=TIMEOUT_S) as loader:
        assert xs(loader) == ALL
        (worker,) = workers()
        worker.send_signal(signal.SIGSTOP)
        delivered, error = until_error(loader)
        assert delivered == []
        assert isinstance(error, LoaderTimeout)
        assert "reading " in str(error)
        assert until(lambda: worker not in workers())
        assert xs(patient(loader)) == ALL


def test_what_a_worker_says_after_it_was_given_up_is_nobodys(tmp_path, monkeypatch):
    """It may have sent its result at the moment when its time was over."""
    root = number_files(tmp_path / "n", [8])
    process = property(lambda member: _Undying(member), lambda member, real: vars(member).update(real=real))
    monkeypatch.setattr(processes._Member, "process", process, raising=False)
    with numbers(root, num_workers=1, workers="process", timeout=TIMEOUT_S) as loader:
        assert xs(loader) == ALL
        (worker,) = workers()
        worker.send_signal(signal.SIGSTOP)
        assert isinstance(until_error(loader)[1], LoaderTimeout)
        worker.send_signal(signal.SIGCONT)  # it does its task and says so, before the kill arrives
        assert until(lambda: worker not in workers())
        assert xs(patient(loader)) == ALL


class _Undying:
    """A process that takes note of its being killed only when it has nothing more to say."""

    def __init__(self, member: Any) -> None:
        self.member, self.real = member, vars(member)["real"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def kill(self) -> None:
        self.member.channel._sock.shutdown(socket.SHUT_WR)


def test_all_workers_have_one_time_to_end_in(tmp_path, pipe, monkeypatch):
    """Not one after the other: eight that are stuck would take eight times as long."""
    root = number_files(tmp_path / "n", [2, 2, 2, 2])
    deadlines = []
    end = processes._end
    monkeypatch.setattr(processes, "_GRACE_S", 0.2)
    monkeypatch.setattr(
        processes, "_end", lambda process, deadline: (deadlines.append(deadline), end(process, deadline))
    )
    loader = numbers(root, dataset=NeverReturns(pipe, {0, 2, 4, 6}), num_workers=3, workers="process")
    iter(loader)
    assert until(lambda: loader.stats()["tasks_in_flight"] == 3, 60)
    loader.close()
    assert not workers()
    assert len(deadlines) == 3
    assert len(set(deadlines)) == 1


def test_a_loader_is_closed_though_a_stopped_worker_is_in_the_middle_of_a_message(tmp_path):
    root = number_files(tmp_path / "n", [8])

    class StopsInAMessage(Through):
        def batch_encode(self, batch_data: Any) -> Any:
            from pyloader_delta.engine.worker import Channel

            def send(self: Any, message: Any, fds: Any = ()) -> None:
                self._sock.sendall(b"\\x01")
                os.kill(os.getpid(), signal.SIGSTOP)

            Channel.send = send
            return batch_data

    loader = numbers(root, dataset=StopsInAMessage(), num_workers=1, workers="process")
    iter(loader)
    assert until(lambda: any(worker.status() == "stopped" for worker in workers()), 60)
    loader.close()
    assert not workers()


def test_a_timeout_is_of_workers_and_not_of_the_training_loop(tmp_path):
    root = number_files(tmp_path / "n", [8])
    with numbers(root, num_workers=1, workers="thread", timeout=0.5, prefetch_factor=1) as loader:
        batches = iter(loader)
        found = [next(batches)]
        threading.Event().wait(0.7)
        assert len([*found, *batches]) == 4


def test_without_workers_nobody_is_there_to_look_at_the_clock(tmp_path):
    """The caller's own thread is in user code; `timeout` has no effect, and storage has its own limit."""
    root = number_files(tmp_path / "n", [8])
    with numbers(root, num_workers=0, timeout=0.001) as loader:
        assert xs(loader) == ALL
    with pytest.raises(ConfigError, match="timeout must be a number of seconds >= 0"):
        numbers(root, timeout=-1)


def test_a_stalled_store_is_a_read_error_whatever_the_executor():
    """Proved against a server that stalls, in tests/stores/test_store_faults.py; this holds its name."""
    assert issubclass(ReadError, OSError)
