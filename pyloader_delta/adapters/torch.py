"""A loader as a real `torch.utils.data.DataLoader`, which hands out batches that the loader has made."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info

from pyloader_delta.errors import ConfigError

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader


class LoaderDataset(IterableDataset[Any]):
    """Rows of one epoch of a loader, as torch counts them: `len` is rows, and each row stands for its whole batch.

    torch takes `batch_size` rows and calls `whole_batch` on them, so that `len(dataset)`, `batch_size`, `drop_last` and
    `len(dataloader)` mean what they mean in torch, while the batches are the loader's own.

    Args:
        loader: One with known length and `num_epoch=1`.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        n_rows = self.loader.rows_per_epoch
        assert n_rows is not None  # known lengths are asked for
        return n_rows

    def __iter__(self) -> Iterator[Any]:
        """Yield each batch as often as it has rows.

        Raises:
            ConfigError: A worker process of torch's asks.
        """
        if get_worker_info() is not None:
            raise ConfigError(
                "a worker process of torch's would read all rows once more: leave num_workers of torch's DataLoader at "
                "0; create_pytorch_dataloader(num_workers=...) sets the loader's own workers"
            )
        left = len(self)
        for number, batch in enumerate(self.loader):
            n_rows = min(self.loader.batch_size, left)
            left -= n_rows
            yield from repeat(_Rows(batch, number, n_rows), n_rows)


class WholeBatch:
    """The `collate_fn` that goes with `LoaderDataset`: rows of one batch become that batch."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, rows: list[Any]) -> Any:
        """Return the batch.

        Raises:
            ConfigError: The rows are not one whole batch, or it is not the one that follows the last: a sampler or a
                trainer has cut or shared out what each process is given as its own.
        """
        first = rows[0]
        one = type(first) is _Rows and len(rows) == first.n_rows and rows[-1] is first
        if not one or first.number not in (0, self._next):
            raise ConfigError(
                "batches of this DataLoader have been cut or shared out again, by another batch_size, a sampler or a "
                "trainer that shards: rows would be lost. Switch that off there (Lightning: "
                "use_distributed_sampler=False; Accelerate: do not prepare this DataLoader)"
            )
        self._next = first.number + 1
        return first.batch


class _Rows:
    """What torch gets for each row of a batch: the same object as often as the batch has rows."""

    __slots__ = ("batch", "n_rows", "number")

    def __init__(self, batch: Any, number: int, n_rows: int) -> None:
        self.batch, self.number, self.n_rows = batch, number, n_rows


def torch_loader(loader: DataLoader[Any], **options: Any) -> TorchDataLoader[Any]:
    """Return torch's DataLoader of one epoch of a loader an iteration.

    Args:
        loader: One with known length and `num_epoch=1`.
        options: `pin_memory` and `pin_memory_device` of torch's DataLoader.
    """
    return TorchDataLoader(
        LoaderDataset(loader),
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        collate_fn=WholeBatch(),
        **options,
    )
