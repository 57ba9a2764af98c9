"""Our loader as a user would write it for this work: a table's columns as they are, one tensor each."""

from pathlib import Path

from pyloader_delta import DataLoader, Dataset, DeltaDataReader


class Columns(Dataset):
    """Passes numpy columns on as they come."""

    input_format = "numpy"
    rowwise = True

    def batch_encode(self, batch):
        return batch


def loader(table: Path, collator, *, batch_size: int, shuffle: bool, num_workers: int = 2, **options) -> DataLoader:
    """Return a loader over the whole table; `options` are the DataLoader's own."""
    reader = DeltaDataReader(batch_size, shuffle=shuffle)
    return DataLoader(reader, Columns(), collator, str(table), shuffle=shuffle, num_workers=num_workers, **options)
