"""What the soak's workers run: a reader, a dataset and a collator in which faults wait to be met."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyloader_delta import Dataset, DeltaDataReader, NumpyDataCollator

STALL_S = 0.2
_SOON_S = 0.002
_ENCODE_S = 0.002  # so that an epoch takes long enough to be disturbed in the middle


class Sabotage(Exception):
    """What a worker raises that was told to."""


class Traps:
    """Faults that wait in a folder for the first worker that comes by. Each happens once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._soak = os.getpid()

    def set(self, place: str, kind: str) -> None:
        """Let "kill", "kill soon", "stall" or "raise" wait at "read", "encode" or "collate"."""
        new = self.folder / f".{place}"
        new.write_text(kind)
        new.rename(self.folder / place)

    def clear(self, kind: str = "") -> None:
        """Remove what nobody has met, all whose kind begins so."""
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                if path.read_text().startswith(kind):
                    path.unlink()

    def spring(self, place: str) -> None:
        """Let happen what waits here, if anything does."""
        path = self.folder / place
        try:
            kind = path.read_text()
            if kind.startswith("kill") and os.getpid() == self._soak:
                return  # a worker thread: it would end the soak itself
            path.unlink()
        except FileNotFoundError:
            return  # nothing waits, or another worker has met it
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "kill soon":  # while it sends what it is about to make
            threading.Timer(_SOON_S, os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif kind == "stall":
            time.sleep(STALL_S)
        else:
            raise Sabotage(place)


class TrapReader(DeltaDataReader[Any]):
    """A user's own reader."""

    def __init__(self, traps: Traps, batch_size: int, *, shuffle: bool) -> None:
        super().__init__(batch_size, shuffle=shuffle)
        self.traps = traps

    def read_chunk(self, chunk):
        self.traps.spring("read")
        return super().read_chunk(chunk)


class TrapDataset(Dataset[Any]):
    """Hands columns on; with some rows it always fails.

    Args:
        traps: What may happen.
        bad: Ids of the rows that cannot be encoded.
    """

    input_format = "numpy"
    rowwise = True

    def __init__(self, traps: Traps, bad: frozenset[int]) -> None:
        self.traps, self.bad = traps, bad

    def batch_encode(self, batch):
        self.traps.spring("encode")
        time.sleep(_ENCODE_S)
        if self.bad and not self.bad.isdisjoint(batch["id"].tolist()):
            raise Sabotage("a row that cannot be encoded")
        return batch


class TrapCollator(NumpyDataCollator):
    """Columns as arrays."""

    rowwise = True

    def __init__(self, traps: Traps) -> None:
        self.traps = traps

    def collate_batch(self, features):
        self.traps.spring("collate")
        return super().collate_batch(features)
