"""`TFDataCollator`, and how TensorFlow tensors cross to the training process. Imports it only when it is needed."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from pyloader_delta.collate.base import T_co
from pyloader_delta.collate.nested import on_device
from pyloader_delta.collate.numpy import NumpyDataCollator
from pyloader_delta.collate.rows import Kinds, arrays_of, finished
from pyloader_delta.errors import ValueTypeError
from pyloader_delta.ragged import RaggedBatch, texts


class TFDataCollator(NumpyDataCollator[T_co]):
    """Makes a TensorFlow tensor of each entry, of the entry's own type; text becomes string tensors.

    The worker makes arrays (see `NumpyDataCollator`), the training process tensors, so workers do not import
    TensorFlow. Outside of tf.data TensorFlow copies what it is given; that copy is made in the training process.
    """

    def collate_batch(self, features: Any) -> Any:
        """Return name → array of a type that TensorFlow has.

        Raises:
            ValueTypeError: An entry holds times, which TensorFlow has no type for.
        """
        arrays = super().collate_batch(features)
        for name, array in arrays_of(arrays):
            if array.dtype.kind not in "biufcUSO":
                raise ValueTypeError(
                    f"{name!r} has dtype {array.dtype}, which TensorFlow cannot hold: turn it into numbers in "
                    "batch_encode, for times by .astype('int64') of a stated unit"
                )
        return arrays

    def finalize(self, batch: Any) -> Any:
        """Return the batch with a tensor in the place of each array."""
        import tensorflow as tf

        return finished(batch, Kinds(array=tf.convert_to_tensor, jagged=_ragged, text=_strings))


def _ragged(batch: RaggedBatch) -> Any:
    import tensorflow as tf

    return tf.RaggedTensor.from_nested_row_lengths(batch.values, batch.lengths)


def _strings(batch: RaggedBatch) -> Any:
    import tensorflow as tf

    return tf.constant(texts(batch._replace(form="bytes")), dtype=tf.string)


def to_array(value: Any) -> tuple[NDArray[Any], Any] | None:
    """Return a tensor's values as an array and a note for `from_array`; None where it is no plain tensor.

    Raises:
        ContractError: The tensor is not in the CPU's memory.
    """
    import tensorflow as tf

    if not (isinstance(value, tf.Tensor) and hasattr(value, "numpy")):
        return None
    if value.dtype not in (tf.string, tf.resource, tf.variant) and "CPU" not in (value.device or "CPU"):
        raise on_device(value.device)
    array = value.numpy()
    if not hasattr(array, "dtype") or isinstance(array, bytes):  # a scalar string
        return None
    return array, None


def from_array(array: NDArray[Any], note: Any) -> Any:
    """Return a tensor of the array's values."""
    import tensorflow as tf

    return tf.convert_to_tensor(array)
