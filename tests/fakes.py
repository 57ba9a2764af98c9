"""Readers, datasets and collators written for the tests. Imports little, so that worker processes start fast."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pyloader_delta import DataCollator, DataLoader, DataReader, Dataset, NumpyDataCollator


class Numbers(DataReader):
    """Reads files of `number_files`: column x."""

    def read_file(self, path: str) -> Any:
        return {"x": [int(line) for line in Path(path).read_text().split()]}


class CountedNumbers(Numbers):
    """The same, with lengths known before reading."""

    def count_samples(self, path: str) -> int:
        return len(Path(path).read_text().split())


class Through(Dataset):
    """Hands its input through."""

    def batch_encode(self, batch_data: Any) -> Any:
        return batch_data


class NumpyThrough(Through):
    input_format = "numpy"


class ArrowThrough(Through):
    """Gives each column as NumPy has it, without a copy where there is none to make."""

    input_format = "arrow"

    def batch_encode(self, batch_data: Any) -> Any:
        return {name: batch_data[name].to_numpy(zero_copy_only=False) for name in batch_data.schema.names}


class AsIs(DataCollator):
    """Hands its input through."""

    def collate_batch(self, features: Any) -> Any:
        return features


def number_files(folder: Path, lengths: Iterable[int]) -> str:
    """Write files that together hold 0, 1, 2, ...; return the folder."""
    folder.mkdir(exist_ok=True)
    start = 0
    for i, n in enumerate(lengths):
        (folder / f"{i:02}.txt").write_text("\n".join(str(x) for x in range(start, start + n)))
        start += n
    return str(folder)


def numbers(
    root: str, *, reader: DataReader | None = None, dataset: Dataset | None = None, **options: Any
) -> DataLoader:
    """Return a loader over `number_files`, in batches of 2 rows if the reader does not say otherwise."""
    return DataLoader(
        reader or CountedNumbers(batch_size=2), dataset or Through(), NumpyDataCollator(), root, **options
    )


def xs(batches: Iterable[Any]) -> list[list[int]]:
    """Return column x of each batch."""
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def until_error(batches: Iterable[Any]) -> tuple[list[Any], BaseException | None]:
    """Return what was delivered, and the error that ended it."""
    found = []
    try:
        for batch in batches:
            found.append(batch)
    except BaseException as error:
        return found, error
    return found, None


def text_of(error: BaseException) -> str:
    """Return an error's text with its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


# A program of errors: a row is a number, or [stage, name of an error] that is raised there --------------------------


class OwnError(Exception):
    """An error of the user's own."""


class FalseError(Exception):
    """One of several errors, none of which is there: false, and an error all the same."""

    def __len__(self) -> int:
        return 0


class UnpicklableError(Exception):
    def __init__(self, text: str = "cannot cross") -> None:
        super().__init__(text)
        self.lock = __import__("threading").Lock()


class TwoArgumentsError(Exception):
    """Pickles, but does not come back: the commonest mistake in an exception class."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class NoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error has no text")


def _error(name: str) -> BaseException:
    if name == "TwoArgumentsError":
        return TwoArgumentsError(7, "two arguments")
    if name in globals():
        return globals()[name]()
    return getattr(__import__("builtins"), name)("as the row says")


def play(stage: str, rows: Iterable[Any]) -> None:
    for row in rows:
        if isinstance(row, list) and row[0] == stage:
            raise _error(row[1])


class Scripted(DataReader):
    batch_size = 2

    def read_file(self, path: str) -> Any:
        rows = json.loads(Path(path).read_text())
        play("read_file", rows)
        return {"row": rows}, len(rows)


class ScriptedDataset(Dataset):
    def batch_encode(self, batch_data: Any) -> Any:
        play("batch_encode", batch_data["row"])
        return batch_data


class ScriptedCollator(DataCollator):
    def collate_batch(self, features: Any) -> Any:
        play("collate_batch", features["row"])
        return features["row"]

    def finalize(self, batch: Any) -> Any:
        play("finalize", batch)
        return batch


def script(folder: Path, **files: list[Any]) -> str:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    return str(folder)
