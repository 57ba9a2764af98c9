"""A loader as other libraries take their data. Only said here; each adapter is imported when it is asked for."""

from __future__ import annotations

import importlib.util
from typing import Any

from pyloader_delta.errors import ConfigError
from pyloader_delta.plan.ranks import Uneven


class Views:
    """Base of `DataLoader`."""

    _asked_place: tuple[int | None, int | None, Uneven]

    def to_torch(self, pin_memory: bool = False, pin_memory_device: str = "") -> Any:
        """Return the batches as a `torch.utils.data.DataLoader`, for what takes nothing else.

        One iteration is one epoch. `len` of it is batches, `len` of its `dataset` this rank's rows; `batch_size` and
        `drop_last` are the loader's. It has the methods of torchdata's `StatefulDataLoader`, `state_dict` and
        `load_state_dict`, and `set_epoch`; all three are the loader's own. The batches are what the loader gives; its
        workers make them, and torch has none.

        What cuts these batches anew or shares them out once more, a sampler or `Accelerator.prepare`, gets a
        ConfigError: rows would be lost.

        Args:
            pin_memory: Let torch copy tensors into pinned memory.
            pin_memory_device: For which device; "" for the current accelerator.

        Raises:
            ConfigError: `num_epoch` is not 1, or torch is not installed.
        """
        _installed("torch", "to_torch()")
        from pyloader_delta.adapters.torch import to_torch

        this: Any = self
        return to_torch(this, pin_memory=pin_memory, pin_memory_device=pin_memory_device)

    def to_tf(self, label: Any = None, weight: Any = None, signature: Any = None) -> Any:
        """Return the batches as a tf.data.Dataset; one iteration of it is one `iter()` of the loader.

        Its cardinality is `len(loader)` where that is known. An error of the loader ends it as an error of
        TensorFlow's, with the loader's own text. `get_epoch()` and `stats()` count what TensorFlow was handed, which
        is up to about 1 MiB and two batches ahead of what it gave.

        Args:
            label: Name of the output that is y, or names of several; x is all others, or the one other alone. None:
                batches as they are.
            weight: Name of the output that holds each row's weight: (x, y, weight).
            signature: tf.TypeSpecs of what the dataset gives, nested alike. None: found from `schema`.

        Raises:
            ConfigError: There is no such output, or one that TensorFlow cannot hold; or `uneven` is "mask"; or
                TensorFlow is not installed.
        """
        _installed("tensorflow", "to_tf()")
        self._without_mask("to_tf()")
        from pyloader_delta.adapters.tensorflow import to_tf

        this: Any = self
        return to_tf(this, label, weight, signature)

    def to_keras(self, label: Any = None, weight: Any = None, signature: Any = None) -> Any:
        """Return the batches as Keras 3 takes them on any of its backends, for `fit`, `evaluate` and `predict`.

        Each epoch of `fit` is one `iter()` of the loader, of exactly `len(loader)` steps where that is known; batches
        that Keras takes to build a model come again. It is `to_tf()` on TensorFlow's backend, a torch DataLoader on
        torch's, and on others a data adapter of Keras' own kind; `to_tf()` where Keras has that no more.

        Args:
            label: As in `to_tf`.
            weight: As in `to_tf`.
            signature: As in `to_tf`; counts on TensorFlow's backend alone.

        Raises:
            ConfigError: There is no such output; or `uneven` is "mask"; or Keras 3 is not installed.
        """
        _installed("keras", "to_keras()")
        self._without_mask("to_keras()")
        from pyloader_delta.adapters.keras import to_keras

        this: Any = self
        return to_keras(this, label, weight, signature)

    def _without_mask(self, call: str) -> None:
        if self._asked_place[2] == "mask":
            raise ConfigError(f"{call} cannot give the '_valid' of uneven='mask': take uneven='pad' or 'drop'")


def _installed(package: str, call: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"{call} needs {package}: pip install {package}")
