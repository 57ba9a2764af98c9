"""The loaders that the soak disturbs, what their epochs must hold, and how that is checked."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from benchmarks.soak_work import TrapCollator, TrapDataset, TrapReader, Traps
from pyloader_delta import DataLoader, DeltaDataReader

N_ROWS, BATCH_SIZE = 60_000, 100
N_BATCHES = N_ROWS // BATCH_SIZE
BAD = frozenset((17, 18, 20_000, 59_999))
_WINDOW = "1MiB"
_KEPT_ORDERS = 6


class Wrong(AssertionError):
    """Something did not come as it must."""


@dataclass(frozen=True)
class Setup:
    """One way to read the table."""

    name: str
    workers: str
    shuffle: bool
    own_reader: bool = False
    skips: bool = False
    audit: bool = False


SETUPS = (
    Setup("process, shuffled", "process", shuffle=True),
    Setup("process, own reader", "process", shuffle=False, own_reader=True),
    Setup("process, own reader, shuffled, audit", "process", shuffle=True, own_reader=True, audit=True),
    Setup("process, shuffled, skipping", "process", shuffle=True, skips=True),
    Setup("thread, shuffled", "thread", shuffle=True, audit=True),
    Setup("thread, own reader", "thread", shuffle=False, own_reader=True),
    Setup("thread, skipping", "thread", shuffle=False, skips=True),
)


def write_table(folder: Path) -> Path:
    """Write 60,000 rows of 136 bytes: three files of small row groups, and one that is a single large one."""
    rng = np.random.default_rng(0)
    table = folder / "table"
    ids = np.arange(N_ROWS)
    for number, part in enumerate(np.array_split(ids, 4)):
        columns = {"id": part} | {f"x{i}": rng.random(len(part)) for i in range(16)}
        writer = WriterProperties(max_row_group_size=1500 if number < 3 else len(part))
        write_deltalake(table, pa.table(columns), mode="append", writer_properties=writer)
    return table


class Loaders:
    """The loaders of all setups, opened when they are asked for, and the orders that they must give.

    Args:
        folder: Where the table and the traps go.
    """

    def __init__(self, folder: Path) -> None:
        self.table = write_table(folder)
        (folder / "traps").mkdir()
        self.traps = Traps(folder / "traps")
        self._open: dict[str, DataLoader[Any]] = {}
        self._orders: OrderedDict[tuple[bool, int], np.ndarray] = OrderedDict()
        self._digests: set[str | None] = set()

    def get(self, setup: Setup, num_workers: int = 2) -> DataLoader[Any]:
        """Return a setup's loader, a new one if there is none."""
        if setup.name not in self._open:
            self._open[setup.name] = self.make(setup, num_workers)
        return self._open[setup.name]

    def make(self, setup: Setup, num_workers: int) -> DataLoader[Any]:
        """Return another loader of a setup."""
        if setup.own_reader:
            reader: DeltaDataReader[Any] = TrapReader(self.traps, BATCH_SIZE, shuffle=setup.shuffle)
        else:
            reader = DeltaDataReader(BATCH_SIZE, shuffle=setup.shuffle)
        return DataLoader(
            reader,
            TrapDataset(self.traps, BAD if setup.skips else frozenset()),
            TrapCollator(self.traps),
            str(self.table),
            shuffle=setup.shuffle,
            shuffle_window=_WINDOW,
            memory_budget="16MiB",
            num_workers=num_workers,
            workers=setup.workers if num_workers else "thread",
            on_error="skip" if setup.skips else "raise",
            audit=setup.audit,
        )

    def put(self, setup: Setup, loader: DataLoader[Any]) -> None:
        """Let a loader take the place of a setup's, which was let go."""
        self._open[setup.name] = loader

    def let_go(self, setup: Setup) -> DataLoader[Any]:
        """Return a setup's loader and forget it."""
        return self._open.pop(setup.name)

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].close()

    @property
    def n_processes(self) -> int:
        """Worker processes that there should be."""
        started = [loader for loader in self._open.values() if loader.get_epoch()]
        return sum(2 for loader in started if " process " in repr(loader))

    def order(self, shuffle: bool, epoch: int) -> np.ndarray:
        """Return the ids of an epoch, from 1, in the order of an undisturbed pass in the caller's thread."""
        key = shuffle, epoch
        if key not in self._orders:
            plain = Setup("undisturbed", "thread", shuffle=shuffle)
            with self.make(plain, 0) as loader:
                loader.set_epoch(epoch - 1)
                self._orders[key] = np.concatenate([batch["id"] for batch in loader])
            if len(self._orders) > _KEPT_ORDERS:
                self._orders.popitem(last=False)
        return self._orders[key]

    def check_rows(self, setup: Setup, epoch: int, ids: np.ndarray, *, whole: bool) -> None:
        """Raise where the ids that came are not those of an epoch, or of its beginning.

        Raises:
            Wrong: They are not.
        """
        expected = self.order(setup.shuffle, epoch)
        if setup.skips:
            if np.isin(ids, list(BAD)).any():
                raise Wrong(f"epoch {epoch} of {setup.name}: a row came that cannot be encoded")
            expected = np.where(np.isin(expected, list(BAD)), -1, expected)
            ids = np.where(expected[: len(ids)] < 0, -1, ids) if len(ids) <= len(expected) else ids
        if whole and len(ids) != N_ROWS:
            raise Wrong(f"epoch {epoch} of {setup.name}: {len(ids)} rows came of {N_ROWS}")
        if ids.sum() != expected[: len(ids)].sum() or digest(ids) != digest(expected[: len(ids)]):
            raise Wrong(f"epoch {epoch} of {setup.name}: other rows or another order came than undisturbed")

    def check_receipt(self, setup: Setup, loader: DataLoader[Any], epoch: int, n_rows: int = N_ROWS) -> None:
        """Raise where the receipt of an epoch that came to its end does not account for each row.

        Raises:
            Wrong: It does not.
        """
        receipt = loader.receipt()
        skipped = len(BAD) if setup.skips else 0
        found = (receipt.epoch, receipt.complete, receipt.delivered, receipt.skipped, receipt.dropped)
        wanted = (epoch, True, n_rows, skipped, 0)
        if n_rows != N_ROWS:  # the part that came after a resume may have fewer of the rows that are skipped
            found, wanted = found[:3], wanted[:3]
        if found != wanted or (n_rows == N_ROWS and not receipt.whole):
            raise Wrong(f"epoch {epoch} of {setup.name}: the receipt says {found}, not {wanted}")
        if setup.audit and n_rows == N_ROWS:
            self._digests.add(receipt.digest)
            if len(self._digests) > 1 or receipt.digest is None:
                raise Wrong(f"epoch {epoch} of {setup.name}: the receipt's digest is another one than before")


def digest(ids: np.ndarray) -> str:
    """Return a hash of ids in their order."""
    return hashlib.sha256(np.ascontiguousarray(ids, np.int64)).hexdigest()
