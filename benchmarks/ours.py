"""Our loader as a user would write it for this work: with classes for plain columns, in one line for the rest."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import handmade
from pyloader_delta import DataLoader, Dataset, DeltaDataReader, TorchDataCollator


class Columns(Dataset):
    """Passes numpy columns on as they come."""

    input_format = "numpy"
    rowwise = True

    def batch_encode(self, batch):
        return batch


class Texts(Dataset):
    """Makes token ids of texts, a whole column at a time."""

    input_format = "arrow"
    rowwise = True

    def batch_encode(self, batch):
        ints = {name: np.array(batch[name]) for name in handmade.INTS}
        return {"text": handmade.token_ids(batch["text"]), **ints}


def loader(
    table: Path, collator, dataset=None, *, batch_size: int, shuffle: bool | str, num_workers: int = 2, **options
) -> DataLoader:
    """Return a loader over the whole table; `options` are the DataLoader's own."""
    reader = DeltaDataReader(batch_size, shuffle=bool(shuffle))
    return DataLoader(
        reader, dataset or Columns(), collator, str(table), shuffle=shuffle, num_workers=num_workers, **options
    )


def tensors(workload: str, table: Path, *, num_workers: int = 2, **options) -> DataLoader:
    """Return a loader of torch tensors for a workload of `benchmarks.workloads`."""
    if workload in ("tabular", "text"):
        dataset = Texts() if workload == "text" else Columns()
        return loader(table, TorchDataCollator(), dataset, num_workers=num_workers, **options)
    from pyloader_delta import FieldSpec

    ints = [FieldSpec(name) for name in handmade.INTS]
    outputs: dict[str, dict[str, Any]] = {
        "images": {"fields": [FieldSpec("image", (28, 28)), *ints]},
        "jpeg": {"fields": [FieldSpec("image", decode="jpeg", resize=handmade.JPEG_SIZE), *ints]},
        "tokens": {"fields": [FieldSpec("tokens", ragged="pad"), *ints]},
        "matrix": {"fields": ints, "features": handmade.FLOATS},
        "wide": {"fields": ints, "features": handmade.WIDE},
    }
    return DataLoader.from_delta(str(table), framework="torch", num_workers=num_workers, **outputs[workload], **options)
