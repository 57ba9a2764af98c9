"""`to_keras`: a loader as Keras 3 takes it, by the form that the backend takes without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from pyloader_delta.adapters.arrange import Arrange, plain
from pyloader_delta.errors import ConfigError
from pyloader_delta.outputs import map_leaves

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader


def to_keras(loader: DataLoader[Any], label: Any, weight: Any, signature: Any) -> Any:
    """Return what `fit` takes; see `DataLoader.to_keras`."""
    arrange = Arrange("to_keras", label, weight)
    backend = import_module("keras").backend.backend()
    if backend == "torch":
        from pyloader_delta.adapters.torch import to_torch

        return to_torch(loader, _Tupled(arrange))
    if backend != "tensorflow":
        base = _adapter_class()
        if base is not None:
            return _adapter(base, loader, arrange)
        if find_spec("tensorflow") is None:
            raise ConfigError(
                f"to_keras() cannot feed this release of Keras on {backend} without TensorFlow: install it"
            )
    from pyloader_delta.adapters.tensorflow import to_tf

    return to_tf(loader, label, weight, signature)


class _Tupled:
    """Makes (x,), (x, y) or (x, y, weight) of a batch: Keras takes a dict alone for no x."""

    def __init__(self, arrange: Arrange) -> None:
        self._arrange = arrange

    def __call__(self, batch: Any) -> Any:
        found = self._arrange(plain(batch))
        return found if isinstance(found, tuple) else (found,)


def _adapter_class() -> Any:
    """Return Keras' base of what feeds its trainers; None where Keras has it no more: it is private to Keras."""
    try:
        return import_module("keras.src.trainers.data_adapters.data_adapter").DataAdapter
    except (ImportError, AttributeError):
        return None


def _adapter(base: Any, loader: DataLoader[Any], arrange: Arrange) -> Any:
    batches = _Batches(loader, _Tupled(arrange))
    n_rows = loader.rows_per_epoch
    short = 0 if n_rows is None or loader.drop_last else n_rows % loader.batch_size

    class LoaderAdapter(base):  # type: ignore[misc]
        """Feeds Keras with a loader's batches as NumPy has them."""

        num_batches = property(lambda self: _length(loader))
        batch_size = property(lambda self: loader.batch_size)
        has_partial_batch = property(lambda self: short > 0)
        partial_batch_size = property(lambda self: short or None)

        def get_numpy_iterator(self) -> Any:
            return batches

        def get_jax_iterator(self) -> Any:
            return batches

    return LoaderAdapter()


class _Batches:
    """One `iter()` of the loader an iteration, begun with the first batch that is asked for."""

    def __init__(self, loader: DataLoader[Any], arrange: Callable[[Any], Any]) -> None:
        self._loader, self._arrange = loader, arrange

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield map_leaves(np.asarray, self._arrange(batch))


def _length(loader: DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except TypeError:  # known only at the end, or there is none
        return None
