"""`break`, an iterator dropped, a second `iter()`: reading stops, workers wait idle, the next pass starts at once."""

from pathlib import Path
from typing import Any

import pytest
from fakes import CountedNumbers, number_files, numbers, xs
from leaks import idle, until
from under_fire import workers

N_FILES = 50
MAY_BE_READ = 30  # `max_queue_size=1`, the window under way and the next, and what was taken
LOOKED_AT_S = 0.3


class Read(CountedNumbers):
    """Leaves a mark for each file that it reads."""

    batch_size = 2

    def __init__(self, marks: Path) -> None:
        self.marks = marks

    def read_file(self, path: str) -> Any:
        (self.marks / f"{len(list(self.marks.iterdir()))}-{Path(path).stem}").touch()
        return super().read_file(path)


def breaks(loader: Any) -> None:
    for i, _ in enumerate(loader):
        if i == 3:
            break


def drops_its_iterator(loader: Any) -> None:
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    del batches


def ends_in_an_error(loader: Any) -> None:
    def fail_at_the_fourth() -> None:
        for i, _ in enumerate(loader):
            1 / (3 - i)

    with pytest.raises(ZeroDivisionError):
        fail_at_the_fourth()


def cpu_and_switches(process: Any) -> tuple[float, int]:
    times, switches = process.cpu_times(), process.num_ctx_switches()
    return times.user + times.system, switches.voluntary


@pytest.mark.parametrize("end", [breaks, drops_its_iterator, ends_in_an_error], ids=lambda end: end.__name__)
def test_reading_stops_workers_wait_idle_and_the_next_pass_starts_at_once(tmp_path, executor, end):
    root = number_files(tmp_path / "numbers", [2] * N_FILES)
    marks = tmp_path / "marks"
    marks.mkdir()
    with numbers(root, reader=Read(marks), max_queue_size=1, num_epoch=None, **executor) as loader:
        end(loader)
        if executor["num_workers"]:  # else nobody is there to do anything
            assert idle(loader)
            stats = loader.stats()
            assert stats["store_bytes"] == stats["ready_runs"] == stats["open_cursors"] == 0
        read = len(list(marks.iterdir()))
        assert read <= MAY_BE_READ
        before = workers()
        spent = [cpu_and_switches(worker) for worker in before]
        assert not until(lambda: len(list(marks.iterdir())) > read, LOOKED_AT_S)
        for (cpu_s, switches), (cpu_before, before_that) in zip(map(cpu_and_switches, before), spent, strict=True):
            # An idle worker process wakes once, to give memory back; the kernel counts CPU in ticks of 10 ms
            assert switches - before_that <= 1
            assert cpu_s - cpu_before < LOOKED_AT_S / 3
        batches = iter(loader)
        assert xs(next(batches) for _ in range(3)) == [[0, 1], [2, 3], [4, 5]]
        assert loader.get_epoch() == 2
        assert workers() == before


def test_a_second_iter_ends_the_first_and_begins_at_once(tmp_path, executor):
    root = number_files(tmp_path / "numbers", [2] * N_FILES)
    with numbers(root, reader=CountedNumbers(batch_size=2), num_epoch=None, **executor) as loader:
        begun: list[Any] = []
        for epoch in (1, 2, 3):
            begun.append(iter(loader))
            assert xs(next(begun[-1]) for _ in range(3)) == [[0, 1], [2, 3], [4, 5]]
            assert loader.get_epoch() == epoch
            for older in begun[:-1]:
                with pytest.raises(RuntimeError, match="newer iter"):
                    next(older)
