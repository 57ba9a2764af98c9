"""SIGKILL of a worker, whatever it does: it is replaced, its task done again, and the batches are the same."""

import array
import os
import signal
import socket
import subprocess
from typing import Any

import psutil
import pytest
from leaks import idle, until
from under_fire import (
    Armed,
    AsNumbers,
    Numbered,
    descriptors,
    nothing_stays,
    numbered,
    numbered_files,
    seen,
    workers,
)

from pyloader_delta import NumpyDataCollator

LIMIT_S = 500  # a death that is not noticed would end in LoaderTimeout
MOMENTS = [
    "starts", "opens", "reads", "mixes", "encodes", "collates", "sends-nothing", "sends-header", "sends-half",
]  # fmt: skip


class DyingReader(Numbered):
    """Also arms the worker's own code: how it mixes and sends."""

    def __init__(self, armed: Armed) -> None:
        self.armed, self.parent = armed, os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self.parent:
            self.armed.die("starts")

    def open(self) -> None:
        if os.getpid() != self.parent:
            self.armed.die("opens")
            _arm_worker(self.armed)

    def read_file(self, path: str) -> Any:
        self.armed.die("reads")
        return super().read_file(path)


def _arm_worker(armed: Armed) -> None:
    import pyloader_delta.engine.worker as worker
    from pyloader_delta.engine.channel import _HEADER

    mix, send = worker.mix, worker.Channel.send

    def half_mixed(arrays: Any, names: Any, *rest: Any) -> None:
        if armed.met("mixes"):
            mix(arrays, sorted(names)[:1], *rest)
            os.kill(os.getpid(), signal.SIGKILL)
        mix(arrays, names, *rest)

    def half_sent(self: Any, message: Any, fds: Any = ()) -> None:
        for name, part in (("sends-nothing", None), ("sends-header", 0.0), ("sends-half", 0.5)):
            if message[0] == "run" and armed.met(name):
                if part is not None:
                    body = self._dumps(message)
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                    self._sock.sendmsg([_HEADER.pack(len(body), len(fds))], rights)
                    self._sock.sendall(body[: int(len(body) * part)])
                os.kill(os.getpid(), signal.SIGKILL)
        send(self, message, fds)

    worker.mix, worker.Channel.send = half_mixed, half_sent


class DyingDataset(AsNumbers):
    def __init__(self, armed: Armed) -> None:
        self.armed = armed

    def batch_encode(self, batch_data: Any) -> Any:
        self.armed.die("encodes")
        if self.armed.met("encodes-beside-a-program"):  # which inherits every descriptor that can be inherited
            program = subprocess.Popen(["sleep", "1000"], close_fds=False)
            (self.armed.folder / "program").write_text(str(program.pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return batch_data


class DyingCollator(NumpyDataCollator):
    def __init__(self, armed: Armed) -> None:
        self.armed = armed

    def collate_batch(self, features: Any) -> Any:
        self.armed.die("collates")
        return super().collate_batch(features)


@pytest.fixture(scope="module")
def armed(tmp_path_factory):
    return Armed(tmp_path_factory.mktemp("armed"))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return numbered_files(tmp_path_factory.mktemp("killed") / "files")


@pytest.fixture(scope="module")
def undisturbed(root):
    """Batches of an epoch, by its number from 1."""
    epochs = {}
    with numbered(root, num_workers=0) as loader:

        def batches(epoch: int) -> list[bytes]:
            if epoch not in epochs:
                loader.set_epoch(epoch - 1)
                epochs[epoch] = seen(loader)
            return epochs[epoch]

        yield batches


@pytest.fixture(scope="module")
def loader(root, armed):
    """One loader for all deaths: it must go on after each of them."""
    reader, dataset, collator = DyingReader(armed), DyingDataset(armed), DyingCollator(armed)
    options = {"num_workers": 2, "workers": "process", "timeout": LIMIT_S, "collator": collator}
    with nothing_stays(), numbered(root, reader, dataset, **options) as loader:
        seen(loader)
        yield loader


@pytest.fixture(autouse=True)
def settled(request):
    """Both workers of the one loader are up when a test begins."""
    if "loader" in request.fixturenames:
        assert both_ready(request.getfixturevalue("loader"))


@pytest.fixture(autouse=True)
def leak_guard():
    """Not for each test: workers of the one loader come and go."""


def both_ready(loader: Any) -> bool:
    """Wait until no worker is about to start: one killed then counts as one that cannot start."""

    def ready() -> bool:
        members = list(loader._engine._executor._members.values())
        return len(members) == 2 and all(member.started for member in members)

    return until(ready, 60)


def epoch(loader: Any, undisturbed: Any) -> list[bytes]:
    """Return what an undisturbed run has in the epoch of the batch delivered last."""
    return undisturbed(loader.get_epoch())


def test_the_batches_are_those_of_an_undisturbed_run(loader, undisturbed):
    assert seen(loader) == epoch(loader, undisturbed)
    assert len({*undisturbed(1), *undisturbed(2)}) == 20


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_is_killed_while_it(loader, armed, undisturbed, moment):
    before = workers()
    armed.arm(moment)
    if moment in ("starts", "opens"):  # what does so is a new worker
        before[0].kill()
        assert until(lambda: before[0] not in workers() and len(workers()) == 2)
    for _ in range(200):  # the other worker may be quicker
        assert seen(loader) == epoch(loader, undisturbed)
        if not list(armed.folder.iterdir()):
            break
    assert until(lambda: len(workers()) == 2 and workers() != before)
    assert not list(armed.folder.iterdir())
    assert seen(loader) == epoch(loader, undisturbed)


@pytest.mark.parametrize("moment", ["between two passes", "in the middle of a pass"])
def test_workers_that_are_killed_while_they_idle(loader, undisturbed, moment):
    before = workers()
    batches = iter(loader)
    found = seen([next(batches)])
    if moment == "between two passes":
        found += seen(batches)
    else:
        assert idle(loader)
    for worker in workers():
        worker.kill()
    if moment == "between two passes":
        found, batches = [], iter(loader)
    assert found + seen(batches) == epoch(loader, undisturbed)
    assert not set(before) & set(workers())


def test_a_death_is_noticed_though_a_program_of_the_worker_lives_on(loader, armed, undisturbed):
    armed.arm("encodes-beside-a-program")
    try:
        assert seen(loader) == epoch(loader, undisturbed)
    finally:
        psutil.Process(int((armed.folder / "program").read_text())).kill()
        armed.disarm()


def test_deaths_cost_no_descriptor(loader, armed, undisturbed):
    for moment in ("sends-header", "sends-half", "encodes"):
        armed.arm(moment)
        assert seen(loader) == epoch(loader, undisturbed)
        assert until(lambda: len(workers()) == 2)
    before = descriptors()
    for moment in ("sends-header", "sends-half", "encodes"):
        armed.arm(moment)
        assert seen(loader) == epoch(loader, undisturbed)
        assert until(lambda: len(workers()) == 2)
    assert until(lambda: descriptors() <= before + 2)  # slabs of a worker that took over
