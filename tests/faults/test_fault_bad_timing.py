"""The clock jumps, a worker has 1 % of a CPU, everything stalls at random places: the same sequence."""

import ast
import os
import random
import threading
import time
from typing import Any

import pytest
from fakes import AsIs, CountedNumbers, NumpyThrough, number_files, xs
from programs import ROOT
from under_fire import workers

from pyloader_delta import DataLoader
from pyloader_delta.engine.channel import Channel
from pyloader_delta.engine.scheduler import Scheduler

STALL_S = 0.2
WALL_CLOCKS = {
    "time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime",
    "datetime.now", "datetime.today", "datetime.utcnow", "date.today",
}  # fmt: skip
OF_THE_TABLE = {"delta/history.py", "delta/retention.py"}  # how old a version is, by the table's own clock


class Stalls:
    """Sleeps at places that a seed chooses, so often and no more."""

    def __init__(self, seed: int, times: int) -> None:
        self.seed, self.times = seed, times
        self.random: random.Random | None = None

    def here(self) -> None:
        self.random = self.random or random.Random(self.seed + os.getpid())
        if self.times and self.random.random() < 0.2:
            self.times -= 1
            time.sleep(STALL_S)


class Reader(CountedNumbers):
    batch_size = 3
    shuffle = True
    stalls: Stalls | None = None
    jumps = False

    def open(self) -> None:
        if self.jumps:
            time.time = jumping(self.jumps)

    def read_file(self, path: str) -> Any:
        if self.stalls is not None:
            self.stalls.here()
        return super().read_file(path)


class Encoder(NumpyThrough):
    stalls: Stalls | None = None

    def batch_encode(self, batch_data: Any) -> Any:
        if self.stalls is not None:
            self.stalls.here()
        return batch_data


def jumping(seed: Any) -> Any:
    """Return a clock that goes by years, forwards and backwards."""
    chance = random.Random(seed)
    return lambda: chance.uniform(-1e9, 4e9)


def made(root: str, stalls: Stalls | None = None, jumps: int = 0, **options: Any) -> DataLoader:
    reader, dataset = Reader(), Encoder()
    reader.stalls = dataset.stalls = stalls
    reader.jumps = jumps
    options = {"shuffle": True, "shuffle_window": 12, "num_epoch": 2, "timeout": 300} | options
    return DataLoader(reader, dataset, AsIs(), root, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return number_files(tmp_path_factory.mktemp("timing") / "n", [5] * 12)


@pytest.fixture(scope="module")
def undisturbed(root):
    with made(root, num_workers=0) as loader:
        return xs(loader)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_clock_jumps(root, undisturbed, executor, monkeypatch, seed):
    monkeypatch.setattr(time, "time", jumping(seed))
    with made(root, jumps=seed, **executor) as loader:
        assert xs(loader) == undisturbed


def test_no_wall_clock_is_asked_but_for_the_age_of_a_table():
    package = ROOT / "pyloader_delta"
    asked = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ".".join(ast.unparse(node).split(".")[-2:]) in WALL_CLOCKS:
                asked.add(str(path.relative_to(package)))
    assert asked == OF_THE_TABLE


def test_a_worker_has_one_percent_of_a_cpu(root, undisturbed):
    with made(root, num_workers=2, workers="process") as loader:
        assert xs(loader) == undisturbed
        loader.set_epoch(0)
        slow, over = workers()[0], threading.Event()

        def hold_up() -> None:
            while not over.is_set():
                slow.suspend()
                over.wait(0.099)
                slow.resume()
                over.wait(0.001)

        thread = threading.Thread(target=hold_up)
        thread.start()
        try:
            assert xs(loader) == undisturbed
        finally:
            over.set()
            thread.join()
        assert slow in workers()


@pytest.mark.parametrize("seed", [11, 12])
def test_user_code_and_the_training_loop_stall_at_random_places(root, undisturbed, executor, seed):
    loop = Stalls(seed, 2)
    with made(root, stalls=Stalls(seed, 3), **executor) as loader:
        found = []
        for batch in loader:
            found += xs([batch])
            loop.here()
    assert found == undisturbed


@pytest.mark.parametrize("seed", [21, 22])
def test_the_loaders_own_code_stalls_at_random_places(root, undisturbed, executor, monkeypatch, seed):
    stalls = Stalls(seed, 6)

    def stalling(function: Any) -> Any:
        def stall(*arguments: Any, **options: Any) -> Any:
            stalls.here()
            return function(*arguments, **options)

        return stall

    for owner, names in ((Channel, ("send", "recv")), (Scheduler, ("next_task", "run_done", "read_done"))):
        for name in names:
            monkeypatch.setattr(owner, name, stalling(getattr(owner, name)))
    with made(root, **executor) as loader:
        assert xs(loader) == undisturbed
    assert stalls.times < 6
