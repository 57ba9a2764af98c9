"""A loader as a real `torch.utils.data.DataLoader`, which hands out batches that the loader has made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info

from pyloader_delta.errors import ConfigError

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader

_AGAIN = (
    "batches of this DataLoader have been cut or shared out again, by another batch_size, a sampler or a trainer that "
    "shards: rows would be lost. Switch that off there (Lightning: use_distributed_sampler=False; Accelerate: do not "
    "prepare this DataLoader)"
)


class LoaderDataset(IterableDataset[Any]):
    """Rows of one epoch of a loader, as torch counts them: `len` is rows, and each row stands for its whole batch.

    torch takes `batch_size` rows and calls `WholeBatch` on them, so that `len(dataset)`, `batch_size`, `drop_last` and
    `len(dataloader)` mean what they mean in torch, while the batches are the loader's own.

    Args:
        loader: One with `num_epoch=1`.
    """

    # No set_epoch here: Accelerate calls a dataset's with 0 after every start, which would undo a loaded state.

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self._ours = False

    def __len__(self) -> int:
        """Return the rows of this rank.

        Raises:
            TypeError: The length of a file is unknown before reading it.
        """
        len(self.loader)  # says why there is none
        return self.loader.rows_per_epoch or 0

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator that gives each batch as often as it has rows.

        Raises:
            ConfigError: A worker process of torch's asks, or what shares batches out among ranks once more.
        """
        if get_worker_info() is not None:
            raise ConfigError(
                "a worker process of torch's would read all rows once more: leave num_workers of torch's DataLoader at "
                "0; num_workers of pyloader_delta's loader, or of create_pytorch_dataloader, sets the loader's own"
            )
        if not self._ours and self.loader._place().world_size > 1:
            raise ConfigError(_AGAIN)
        return self._rows()

    def _rows(self) -> Iterator[Any]:
        loader, size = self.loader, self.loader.batch_size
        n_rows = loader.rows_per_epoch
        short = size if n_rows is None or loader.drop_last else n_rows % size or size
        for number, batch in enumerate(loader):
            last = loader._pass is not None and loader._pass.at_epoch_end
            yield from repeat(_Rows(batch, number, short if last else size), short if last else size)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state: where the batches are that were given."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was taken; see `DataLoader.load_state_dict`."""
        self.loader.load_state_dict(state)


class LoaderDataLoader(TorchDataLoader[Any]):
    """torch's DataLoader with the protocol of torchdata's `StatefulDataLoader`. It has no `__init__` of its own, so
    that what makes DataLoaders again (Lightning) can make this one."""

    dataset: LoaderDataset

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        self.dataset._ours = True
        try:
            return super().__iter__()
        finally:
            self.dataset._ours = False

    def state_dict(self) -> dict[str, Any]:
        """Return where the training loop is; see `DataLoader.state_dict`."""
        return self.dataset.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a state was taken, at the next `iter()`; see `DataLoader.load_state_dict`."""
        self.dataset.load_state_dict(state_dict)

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with an epoch, from 0; see `DataLoader.set_epoch`."""
        self.dataset.loader.set_epoch(epoch)


class WholeBatch:
    """The `collate_fn` that goes with `LoaderDataset`: rows of one batch become that batch.

    Args:
        arrange: What is then made of it; None: nothing.
    """

    def __init__(self, arrange: Callable[[Any], Any] | None) -> None:
        self._arrange, self._next = arrange, 0

    def __call__(self, rows: list[Any]) -> Any:
        """Return the batch.

        Raises:
            ConfigError: The rows are not one whole batch, or it is not the one that follows the last: a sampler or a
                trainer has cut or shared out what each process is given as its own.
        """
        first = rows[0]
        one = type(first) is _Rows and len(rows) == first.n_rows and rows[-1] is first
        if not one or first.number not in (0, self._next):
            raise ConfigError(_AGAIN)
        self._next = first.number + 1
        return first.batch if self._arrange is None else self._arrange(first.batch)


class _Rows:
    """What torch gets for each row of a batch: the same object as often as the batch has rows."""

    __slots__ = ("batch", "n_rows", "number")

    def __init__(self, batch: Any, number: int, n_rows: int) -> None:
        self.batch, self.number, self.n_rows = batch, number, n_rows


def to_torch(loader: DataLoader[Any], arrange: Callable[[Any], Any] | None = None, **options: Any) -> LoaderDataLoader:
    """Return torch's DataLoader of one epoch of a loader an iteration; see `DataLoader.to_torch`.

    Args:
        loader: One with `num_epoch=1`.
        arrange: What is made of each batch; None: nothing.
        options: `pin_memory` and `pin_memory_device` of torch's DataLoader.

    Raises:
        ConfigError: `num_epoch` is not 1.
    """
    if loader.num_epoch != 1:
        raise ConfigError(
            f"torch's DataLoader gives one epoch an iteration: make the loader with num_epoch=1, not "
            f"{loader.num_epoch}, and iterate as often as you want epochs"
        )
    return LoaderDataLoader(
        LoaderDataset(loader),
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        collate_fn=WholeBatch(arrange),
        **options,
    )
