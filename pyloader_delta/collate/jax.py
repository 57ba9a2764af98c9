"""`JaxDataCollator`: JAX arrays, made in the training process. Imports JAX only when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.collate.base import T_co
from pyloader_delta.collate.nested import map_arrays
from pyloader_delta.collate.numpy import NumpyDataCollator
from pyloader_delta.collate.rows import Kinds, arrays_of, finished, is_number
from pyloader_delta.errors import ConfigError, ValueTypeError
from pyloader_delta.ragged import RaggedBatch, texts


class JaxDataCollator(NumpyDataCollator[T_co]):
    """Makes a JAX array of each entry, of the entry's own type, on JAX's default device.

    The worker makes arrays (see `NumpyDataCollator`), so workers do not import JAX. On the CPU JAX takes arrays that
    begin at a multiple of 64 bytes without a copy. Lengths beside padded lists are int32. 64-bit numbers are an error
    while `jax_enable_x64` is off: JAX would narrow them.
    """

    def collate_batch(self, features: Any) -> Any:
        """Return name → array of a type that JAX has.

        Raises:
            ValueTypeError: An entry holds text or times, which JAX has no type for.
        """
        arrays = super().collate_batch(features)
        for name, array in arrays_of(arrays):
            if not is_number(array.dtype):
                raise ValueTypeError(
                    f"{name!r} has dtype {array.dtype}, which JAX cannot hold: turn it into numbers in batch_encode, "
                    "leave it out there, or use NumpyDataCollator"
                )
        return {name: _short(entry) if type(entry) is RaggedBatch else entry for name, entry in arrays.items()}

    def finalize(self, batch: Any) -> Any:
        """Return the batch with a JAX array in the place of each array; texts are lists.

        Raises:
            ValueTypeError: JAX would narrow numbers to 32 bits; names the entries and the remedies.
        """
        import jax

        batch = finished(batch, _KINDS)
        found: list[NDArray[Any]] = []
        map_arrays(found.append, batch)
        if not jax.config.jax_enable_x64 and any(array.dtype in _WIDE for array in found):
            raise _narrowed(batch)
        placed = iter(jax.device_put(found))  # all at once: one by one takes twice as long
        return map_arrays(lambda _: next(placed), batch)


def _refused(batch: RaggedBatch) -> Any:
    raise ConfigError("JAX has no ragged arrays: take ragged='pad'")


_KINDS = Kinds(array=None, jagged=_refused, text=texts)
_WIDE = tuple(map(np.dtype, ("i8", "u8", "f8", "c16")))


def _short(batch: RaggedBatch) -> RaggedBatch:
    """Return ragged rows with lengths of 32 bits, as JAX itself counts."""
    if batch.form != "pad":
        return batch
    return batch._replace(lengths=tuple(level.astype(np.int32) for level in batch.lengths))


def _narrowed(batch: Any) -> ValueTypeError:
    named = batch.items() if isinstance(batch, dict) else [("a batch", batch)]
    wide = [f"{k!r} ({v.dtype})" for k, v in named if isinstance(v, np.ndarray) and v.dtype in _WIDE]
    return ValueTypeError(
        f"JAX would make these numbers 32 bits wide, as jax_enable_x64 is off: {', '.join(wide) or 'nested arrays'}. "
        "Call jax.config.update('jax_enable_x64', True) before JAX is used, or choose a type by FieldSpec(…, "
        "dtype='int32' or 'float32')"
    )
