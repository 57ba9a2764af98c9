"""`TorchDataCollator`, and how torch tensors cross to the training process. Imports torch only when it is needed."""

from __future__ import annotations

import functools
from typing import Any

from numpy.typing import NDArray

from pyloader_delta.collate.base import T_co
from pyloader_delta.collate.nested import map_arrays, on_device
from pyloader_delta.collate.numpy import NumpyDataCollator
from pyloader_delta.collate.rows import Kinds, arrays_of, finished, is_number
from pyloader_delta.errors import ValueTypeError
from pyloader_delta.ragged import RaggedBatch, bounds_of, texts


class TorchDataCollator(NumpyDataCollator[T_co]):
    """Makes a torch tensor of each entry, of the entry's own type, without copying what the loader delivers.

    The worker makes arrays (see `NumpyDataCollator`), the training process tensors on the same memory, so workers do
    not import torch.

    Args:
        device: Where tensors are moved to, in the training process: a device of torch's, or its name; None: nowhere.
        pin_memory: Take them through pinned memory, so that they are copied to a GPU while the CPU goes on. Nothing
            where there is no CUDA.
    """

    device: Any = None
    """Where tensors are moved to; a subclass may set it as a class attribute."""
    pin_memory: bool = False
    """Whether through pinned memory."""

    def __init__(self, device: Any = None, pin_memory: bool = False) -> None:
        if device is not None:  # as text: a worker that gets a torch.device would import torch
            self.device = device if isinstance(device, int) else str(device)
        if pin_memory:
            self.pin_memory = True

    def collate_batch(self, features: Any) -> Any:
        """Return name → array of a type that torch has.

        Raises:
            ValueTypeError: An entry holds text or times, which torch has no type for.
        """
        arrays = super().collate_batch(features)
        for name, array in arrays_of(arrays):
            if not is_number(array.dtype):
                raise ValueTypeError(
                    f"{name!r} has dtype {array.dtype}, which torch cannot hold: turn it into numbers in batch_encode, "
                    "leave it out there, or use NumpyDataCollator"
                )
        return arrays

    def finalize(self, batch: Any) -> Any:
        """Return the batch with a tensor in the place of each array; texts are lists."""
        found = finished(batch, _kinds())
        return found if self.device is None and not self.pin_memory else self._moved(found)

    def _moved(self, batch: Any) -> Any:
        import torch

        pinned = self.pin_memory and torch.cuda.is_available()

        def move(tensor: Any) -> Any:
            tensor = tensor.pin_memory() if pinned else tensor
            return tensor if self.device is None else tensor.to(self.device, non_blocking=pinned)

        return map_arrays(move, batch, torch.Tensor)


@functools.cache
def _kinds() -> Kinds:
    import torch

    return Kinds(array=torch.from_numpy, jagged=_jagged, text=texts)


def _jagged(batch: RaggedBatch) -> Any:
    import torch

    (lengths,) = batch.lengths
    offsets = torch.from_numpy(bounds_of(lengths))
    return torch.nested.nested_tensor_from_jagged(torch.from_numpy(batch.values), offsets)


def to_array(value: Any) -> tuple[NDArray[Any], Any] | None:
    """Return a tensor's memory as an array and a note for `from_array`; None where it is no plain tensor.

    Raises:
        ContractError: The tensor is not in the CPU's memory.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    if value.device.type != "cpu":
        raise on_device(value.device)
    if value.layout != torch.strided or value.is_quantized:
        return None
    value = value.detach().resolve_conj().resolve_neg()
    try:
        return value.numpy(), None
    except TypeError:  # bfloat16 and its kind, which NumPy has no name for: as bytes
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return raw, (str(value.dtype).removeprefix("torch."), value.shape)


def from_array(array: NDArray[Any], note: Any) -> Any:
    """Return the tensor of `to_array` on the array's memory."""
    import torch

    if note is None:
        return torch.from_numpy(array)
    dtype, shape = getattr(torch, note[0]), note[1]
    if not array.size:  # torch cannot view nothing as another type
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(array).view(dtype).reshape(shape)
