"""`DataCollator`: the numbers of one batch become arrays or tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from pyloader_delta.rng import KeyedRng

T_co = TypeVar("T_co", covariant=True)


class DataCollator(ABC, Generic[T_co]):
    """Collates the encoded rows of a batch. Subclass it and write `collate_batch`. Each worker has its own copy."""

    rng: ClassVar[Any] = KeyedRng()
    """numpy.random.Generator keyed by (seed, epoch, batch): the same for any number of workers."""

    rowwise: bool = False
    """A promise that a row's place in the arrays depends on that row alone: where the dataset's encoding is rowwise as
    well, several batches may then be collated as one and cut afterwards."""

    @abstractmethod
    def collate_batch(self, features: Any) -> Any:
        """Return the batch; runs in a worker.

        Args:
            features: What `Dataset.batch_encode` returned, for the rows of one batch.

        Returns:
            A NumPy array, a CPU tensor, or dicts, lists, tuples, named tuples and dataclasses of them, nested as you
            like; other values inside travel pickled. Never None.
        """

    def finalize(self, batch: Any) -> Any:
        """Return the batch as the training loop gets it; runs in the training process.

        The place for what a worker must not do: make tensors of arrays so that workers need no framework, or move
        them to a device.
        """
        return batch

    def open(self) -> None:
        """Prepare what this worker's copy needs; called once in each worker before its first batch."""

    def close(self) -> None:
        """Release what `open` acquired; called once in each worker when it ends."""
