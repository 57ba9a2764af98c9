"""Our loader as a user would write it for this work: with classes for plain columns, in one line for the rest."""

from pathlib import Path
from typing import Any

from benchmarks import tables
from pyloader_delta import DataLoader, Dataset, DeltaDataReader, TorchDataCollator


class Columns(Dataset):
    """Passes numpy columns on as they come."""

    input_format = "numpy"
    rowwise = True

    def batch_encode(self, batch):
        return batch


def loader(
    table: Path, collator, *, batch_size: int, shuffle: bool | str, num_workers: int = 2, **options
) -> DataLoader:
    """Return a loader over the whole table; `options` are the DataLoader's own."""
    reader = DeltaDataReader(batch_size, shuffle=bool(shuffle))
    return DataLoader(reader, Columns(), collator, str(table), shuffle=shuffle, num_workers=num_workers, **options)


def tensors(workload: str, table: Path, *, num_workers: int = 2, **options) -> DataLoader:
    """Return a loader of torch tensors for a workload of `benchmarks.workloads`."""
    if workload == "tabular":
        return loader(table, TorchDataCollator(), num_workers=num_workers, **options)
    from pyloader_delta import FieldSpec

    ints = [FieldSpec(name) for name in tables.INTS]
    outputs: dict[str, dict[str, Any]] = {
        "images": {"fields": [FieldSpec("image", (28, 28)), *ints]},
        "tokens": {"fields": [FieldSpec("tokens", ragged="pad"), *ints]},
        "matrix": {"fields": ints, "features": tables.FLOATS},
    }
    return DataLoader.from_delta(str(table), framework="torch", num_workers=num_workers, **outputs[workload], **options)
