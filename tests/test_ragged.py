"""Ragged rows filled up: the same whichever way they are copied, by rows' length and type."""

import numpy as np
import pytest

from pyloader_delta.ragged import RaggedBatch, padded

KINDS = ["bool", "int8", "uint16", "int32", "float16", "float32", "float64", "datetime64[us]", "timedelta64[ns]"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("longest", [3, 700])  # short rows are copied by a mask, long ones one by one
@pytest.mark.parametrize("pad_value", [0, 1])
def test_rows_stand_at_the_front_and_the_rest_is_filled(kind, longest, pad_value):
    lengths = np.array([longest, 0, longest - 1, longest])
    values = (np.arange(lengths.sum()) % 120 + 2).astype("int64").astype(kind)
    array, found = padded(RaggedBatch(values, (lengths,), "pad", np.array(pad_value).astype(kind)))
    assert array.dtype == values.dtype
    assert array.shape == (4, longest)
    rows = np.split(values, np.cumsum(lengths)[:-1])
    for row, n, expected in zip(array, lengths, rows, strict=True):
        np.testing.assert_array_equal(row[:n], expected)
        np.testing.assert_array_equal(row[n:], np.full(longest - n, pad_value).astype(kind))
    np.testing.assert_array_equal(found[0], lengths)
