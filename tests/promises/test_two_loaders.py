"""A validation loader in fixed order beside a training loader, each with its part of one budget."""

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake
from fakes import NumpyThrough, xs

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

ROWS, BUDGET = 60_000, 24 << 20  # what is open in row groups that are read in parts counts


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("two") / "t")
    rows = pa.table({"x": np.arange(ROWS), "y": np.arange(10 * ROWS).reshape(ROWS, 10).tolist()})
    write_deltalake(path, rows, writer_properties=WriterProperties(max_row_group_size=5000))
    return path


def loader(root, part, *, shuffle, **options):
    options = {"num_workers": 2, "workers": "thread", "shuffle": shuffle, "memory_budget": BUDGET * part // 4} | options
    reader = DeltaDataReader(500 if shuffle else 1000, shuffle=shuffle)
    return DataLoader(reader, NumpyThrough(), NumpyDataCollator(), root, shuffle_window="1MiB", **options)


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_validation_beside_training_disturbs_nothing_and_both_keep_to_one_budget(root, workers):
    with loader(root, 3, shuffle=True, num_workers=0) as alone:
        expected = xs(alone)
    most, checked = 0, []
    with (
        loader(root, 3, shuffle=True, workers=workers, num_workers=1) as training,
        loader(root, 1, shuffle=False, workers=workers, num_workers=1) as validation,
    ):

        def held():
            return sum(
                one.stats().get(name, 0) for one in (training, validation) for name in ("store_bytes", "leased_bytes")
            )

        found = []
        for step, batch in enumerate(training):
            found.append(batch["x"].tolist())
            if step % 40 == 7:
                one = []
                for other in validation:
                    one += other["x"].tolist()
                    most = max(most, held())
                checked.append(one)
            most = max(most, held())
        assert validation.receipt().epoch == len(checked)
    assert found == expected
    assert checked == [list(range(ROWS))] * 3
    assert 0 < most <= BUDGET
