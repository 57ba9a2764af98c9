"""A chunk or batch that kills its worker each time: after two deaths an error names it, or its rows are skipped."""

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fakes import AsIs, CountedNumbers, Through, number_files, text_of, until_error, xs
from under_fire import nothing_stays

from pyloader_delta import DataLoader, WorkerDied
from pyloader_delta.engine.deaths import Deaths

ALL = [[0, 1], [2, 3], [4, 5], [6, 7]]
LIMITED = Path("/sys/fs/cgroup/memory")


def segmentation_fault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def ends_by_itself() -> None:
    os._exit(7)


def out_of_address_space_in_c() -> None:
    """What a C library does that cannot have memory: it aborts."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
    ctypes.CDLL(None).malloc.restype = ctypes.c_void_p
    if not ctypes.CDLL(None).malloc(ctypes.c_size_t(1 << 30)):
        os.abort()


def out_of_memory() -> None:
    """The kernel's out-of-memory killer, of a cgroup of this worker's own."""
    group = LIMITED / f"pyloader_delta-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    (group / "memory.limit_in_bytes").write_text(str(16 << 20))
    b"x" * (256 << 20)


DEATHS = {
    segmentation_fault: "was ended by signal SIGSEGV",
    abort: "was ended by signal SIGABRT",
    ends_by_itself: "ended with exit code 7",
    out_of_address_space_in_c: "was ended by signal SIGABRT",
    out_of_memory: "was ended by signal SIGKILL",
}


class Deadly:
    """Of what is to be killed and how, as two files say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.parent = folder, os.getpid()

    def arm(self, stage: str, how: str) -> None:
        (self.folder / stage).write_text(how)

    def disarm(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def meets(self, stage: str) -> None:
        if os.getpid() != self.parent and (self.folder / stage).exists():
            (self.folder / f"{os.getpid()} has died").touch()
            next(death for death in DEATHS if death.__name__ == (self.folder / stage).read_text())()


class DeadlyFile(CountedNumbers):
    batch_size = 2

    def __init__(self, deadly: Deadly) -> None:
        self.deadly = deadly

    def read_file(self, path: str) -> Any:
        if path.endswith("01.txt"):
            self.deadly.meets("reading")
        return super().read_file(path)


class DeadlyRow(Through):
    def __init__(self, deadly: Deadly) -> None:
        self.deadly = deadly

    def batch_encode(self, batch_data: Any) -> Any:
        if {5, 9} & set(batch_data["x"]):
            self.deadly.meets("encoding")
        return batch_data


class DeadlyBatch(AsIs):
    def __init__(self, deadly: Deadly) -> None:
        self.deadly = deadly

    def collate_batch(self, features: Any) -> Any:
        if 5 in features["x"]:
            self.deadly.meets("collating")
        return features


@pytest.fixture(scope="module")
def deadly(tmp_path_factory):
    return Deadly(tmp_path_factory.mktemp("deadly"))


def made(deadly: Deadly, root: str, **options: Any) -> DataLoader:
    parts = DeadlyFile(deadly), DeadlyRow(deadly), DeadlyBatch(deadly)
    return DataLoader(*parts, root, num_workers=1, workers="process", **options)


@pytest.fixture(scope="module")
def loader(deadly, tmp_path_factory):
    with nothing_stays(), made(deadly, number_files(tmp_path_factory.mktemp("rows") / "n", [4, 4])) as loader:
        yield loader


@pytest.fixture(autouse=True)
def leak_guard():
    """Not for each test: workers of the one loader come and go."""


@pytest.fixture(autouse=True)
def disarmed(deadly):
    yield
    deadly.disarm()
    for group in LIMITED.glob("pyloader_delta-*"):
        with suppress(OSError):  # another test's, with processes in it
            group.rmdir()


CASES = [
    (segmentation_fault, "reading"), (abort, "encoding"), (ends_by_itself, "collating"),
    (out_of_address_space_in_c, "reading"), (out_of_memory, "encoding"),
]  # fmt: skip


@pytest.mark.parametrize(("death", "stage"), CASES)
def test_is_an_error_naming_file_rows_and_signal_after_the_batches_before_it(loader, deadly, death, stage):
    if death is out_of_memory and not os.access(LIMITED / "cgroup.procs", os.W_OK):
        pytest.skip("no memory cgroups of version 1 here")
    deadly.arm(stage, death.__name__)
    delivered, error = until_error(loader)
    assert isinstance(error, WorkerDied)
    assert str(error).startswith(f"worker 0 {DEATHS[death]} while {'reading' if stage == 'reading' else 'encoding'} ")
    assert str(error).endswith("; so did the worker before it")
    assert ("01.txt rows 0..3" if stage == "reading" else "(rows 4..") in str(error)
    assert "01.txt" in str(error)
    assert "00.txt" not in str(error)
    assert xs(delivered) == ALL[:2]
    deadly.disarm()
    assert xs(loader) == ALL


def test_of_chunks_that_are_read_together_the_one_is_named_and_two_workers_die_of_it(deadly, tmp_path, monkeypatch):
    died_of = []
    enough = Deaths.enough
    monkeypatch.setattr(Deaths, "enough", lambda self, task: died_of.append(len(task.chunks)) or enough(self, task))
    root = number_files(tmp_path / "n", [4] * 8)
    deadly.arm("reading", "abort")
    monkeypatch.setattr(DeadlyFile, "shuffle", True)
    with made(deadly, root, shuffle=True, shuffle_window=32) as loader:
        delivered, error = until_error(loader)
    assert died_of == [8, 1]
    assert delivered == []
    assert isinstance(error, WorkerDied)
    assert f"while reading {root}/01.txt rows 0..3; so did the worker before it" in str(error)
    assert len([*deadly.folder.glob("* has died")]) == 2


@pytest.mark.filterwarnings("ignore:on_error='skip' has skipped:UserWarning")
@pytest.mark.parametrize(("stage", "death"), [("encoding", "abort"), ("reading", "segmentation_fault")])
def test_is_skipped_counted_and_listed(deadly, tmp_path, stage, death):
    root = number_files(tmp_path / "n", [4, 4, 4])
    deadly.arm(stage, death)
    with made(deadly, root, on_error="skip") as loader:
        found = xs(loader)
        receipt = loader.receipt()
        assert loader.stats()["rows_skipped_total"] == receipt.skipped == (2 if stage == "encoding" else 4)
    skips = [(skip.file, skip.first_row, skip.n_rows) for skip in receipt.skips]
    if stage == "encoding":
        assert found == [[0, 1], [2, 3], [4, 4], [6, 7], [8, 8], [10, 11]]
        assert skips == [("01.txt", 1, 1), ("02.txt", 1, 1)]
    else:
        assert found == [[0, 1], [2, 3], [8, 9], [10, 11], [8, 9], [10, 11]]
        assert skips == [("01.txt", 0, 4)]
    for skip in receipt.skips:
        assert "WorkerDied" in skip.error
        assert DEATHS[abort if stage == "encoding" else segmentation_fault].split()[-1] in skip.error
    assert receipt.whole


class DeadlyRows(DeadlyRow):
    def __init__(self, deadly: Deadly, least: int) -> None:
        super().__init__(deadly)
        self.least = least

    def batch_encode(self, batch_data: Any) -> Any:
        if len({4, 5} & set(batch_data["x"])) >= self.least:
            self.deadly.meets("encoding")
        return batch_data


@pytest.mark.filterwarnings("ignore:on_error='skip' has skipped:UserWarning")
@pytest.mark.parametrize("least", [1, 2], ids=["each row", "only together"])
def test_a_whole_batch_is_skipped_and_the_next_file_stands_in(deadly, tmp_path, least):
    root = number_files(tmp_path / "n", [4, 4, 4])
    deadly.arm("encoding", "abort")
    parts = DeadlyFile(deadly), DeadlyRows(deadly, least), AsIs()
    with DataLoader(*parts, root, num_workers=1, workers="process", on_error="skip") as loader:
        assert xs(loader) == [[0, 1], [2, 3], [8, 9], [6, 7], [8, 9], [10, 11]]
        receipt = loader.receipt()
    assert [(skip.file, skip.first_row, skip.n_rows) for skip in receipt.skips] == [("01.txt", 0, 1), ("01.txt", 1, 1)]
    assert all("SIGABRT" in skip.error for skip in receipt.skips)
    assert (receipt.skipped, receipt.whole) == (2, True)


def test_in_the_callers_own_process_memory_that_is_refused_is_an_error_as_any(tmp_path):
    """Nobody can go on for a process that has died; that is what worker processes are for."""

    class Huge(Through):
        def batch_encode(self, batch_data: Any) -> Any:
            return {"x": bytearray(1 << 62)}

    root = number_files(tmp_path / "n", [4])
    for options in ({"num_workers": 0}, {"num_workers": 1, "workers": "thread"}):
        with DataLoader(CountedNumbers(), Huge(), AsIs(), root, **options) as loader:
            _, error = until_error(loader)
        assert type(error) is MemoryError
        assert "ulimit -v" in text_of(error)
