"""How well rows are mixed, and that nothing but seeds and epoch decides how."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake
from fakes import CountedNumbers, NumpyThrough, number_files, numbers, xs

from pyloader_delta import BudgetError, DataLoader, DeltaDataReader, NumpyDataCollator

FILES, ROWS = 10, 10_000
TOTAL = FILES * ROWS


@pytest.fixture(scope="module", params=[10_000, 2000, 1000, 100], ids=lambda rows: f"row groups of {rows}")
def table_by_label(request, tmp_path_factory):
    """A table sorted by its label: 10 files of 10,000 rows, a label each."""
    root = str(tmp_path_factory.mktemp("shuffle") / "table")
    properties = WriterProperties(max_row_group_size=request.param)
    for label in range(FILES):
        rows = pa.table({"x": np.arange(label * ROWS, (label + 1) * ROWS), "label": np.full(ROWS, label)})
        write_deltalake(root, rows, mode="append", writer_properties=properties)
    return root


def positions(root: str, shuffle: Any = True, **options: Any) -> np.ndarray[Any, Any]:
    """Return the source row of each row in order of delivery, shape (batches, 100)."""
    options = {"num_workers": 0, "shuffle_window": TOTAL // 10} | options
    reader = DeltaDataReader(100, shuffle=True)
    with DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, shuffle=shuffle, **options) as loader:
        return np.stack([batch["x"] for batch in loader])


def quality(rows: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the mean number of files in a batch, and the spread inside batches as a fraction of a uniform one's."""
    files = [len(set((batch // ROWS).tolist())) for batch in rows]
    return float(np.mean(files)), float(rows.std(axis=1, ddof=1).mean() / (TOTAL / 12**0.5))


@pytest.mark.parametrize("epoch_of", [1, 2])
def test_T13_batches_of_a_sorted_table_mix_eight_of_ten_files_at_a_window_of_a_tenth(table_by_label, epoch_of):
    rows = positions(table_by_label, random_seed=epoch_of)
    assert sorted(rows.ravel().tolist()) == list(range(TOTAL))
    files, spread = quality(rows)
    assert files >= 8
    assert spread >= 0.94


def test_a_window_of_none_mixes_the_whole_table(table_by_label):
    rows = positions(table_by_label, shuffle_window=None)
    assert sorted(rows.ravel().tolist()) == list(range(TOTAL))
    files, spread = quality(rows)
    assert files > 9.99
    assert spread == pytest.approx(0.994, abs=0.01)
    correlation = np.corrcoef(rows.ravel(), np.arange(TOTAL))[0, 1]
    assert abs(correlation) < 5 / TOTAL**0.5


def test_a_whole_table_beyond_the_budget_is_an_error_that_names_what_to_do(table_by_label):
    with pytest.raises(BudgetError, match=r"Raise memory_budget to \d+ or use shuffle_window='\d+B'"):
        positions(table_by_label, shuffle_window=None, memory_budget="1MiB")


@pytest.mark.parametrize("window", ["1kB", 12, "chunk", None])
def test_T11_epochs_differ_seeds_repeat_and_global_random_states_are_left_alone(tmp_path, window):
    import torch

    root = number_files(tmp_path / "numbers", [5, 1, 0, 9, 2, 7, 3, 4])

    def states() -> tuple[Any, ...]:
        return random.getstate(), [str(part) for part in np.random.get_state()], torch.get_rng_state().tolist()

    def epochs(seed: int) -> list[list[int]]:
        reader = CountedNumbers(batch_size=31, shuffle=True, random_seed=seed)
        options = {"shuffle": True, "random_seed": seed, "shuffle_window": window, "num_epoch": 4}
        with numbers(root, reader=reader, num_workers=0, **options) as loader:
            return xs(loader)

    before = states()
    found = epochs(0)
    assert states() == before
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert epochs(0) == found
    assert all(one != other for one, other in pairwise(found))
    assert len({tuple(order) for order in found + epochs(1)}) == 8
    assert all(sorted(order) == list(range(31)) for order in found)
