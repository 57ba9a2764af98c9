"""Deletion vectors' bytes become row numbers."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import MAGIC, vector

from pyloader_delta.delta.roaring import decode

NEAR = st.integers(0, 300_000)
FAR = st.integers(0, (1 << 63) - 1)
RUN = st.tuples(NEAR, st.integers(0, 20_000)).map(lambda run: range(run[0], sum(run)))


@given(st.lists(NEAR | FAR, max_size=50), st.lists(RUN, max_size=4), st.booleans())
def test_numbers_come_back_from_arrays_bitmaps_and_runs(singles, ranges, runs):
    numbers = sorted({*singles, *(n for found in ranges for n in found)})
    decoded = decode(vector(numbers, runs=runs), len(numbers))
    assert decoded.dtype == np.int64
    assert decoded.tolist() == numbers


@pytest.mark.parametrize(
    "numbers", [[], [0], [(1 << 63) - 1], range(1 << 17), range(0, 1 << 16, 2), range(65535, 65537)]
)
@pytest.mark.parametrize("runs", [False, True])
def test_borders_of_containers(numbers, runs):
    assert decode(vector(numbers, runs=runs), len(numbers)).tolist() == list(numbers)


GOOD = vector([1, 2, 70_000, 1 << 40])
DENSE = vector(range(5000))
RUNS = vector(range(5000), runs=True)


@pytest.mark.parametrize("data", [GOOD, DENSE, RUNS], ids=["arrays", "bitmap", "runs"])
def test_each_vector_that_is_cut_is_refused(data):
    step = max(len(data) // 60, 1)
    for size in range(0, len(data), step):
        with pytest.raises(ValueError, match="ends early"):
            decode(data[:size], 5000)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<I", 1681511376) + GOOD[4:], "its format 1681511376 is not known"),
        (GOOD + b"\0", "1 bytes follow it"),
        (GOOD[:16] + struct.pack("<I", 7) + GOOD[20:], "its cookie 7 is not known"),
        (GOOD[:20] + struct.pack("<I", 70_000) + GOOD[24:], "it has 70000 containers"),
        (struct.pack("<IQII", MAGIC, 1, 1 << 31, 12346), "out of order"),
        (struct.pack("<IQ", MAGIC, 2) + 2 * vector([1])[12:], "its bitmaps are out of order"),
        (vector([1, 2])[:-4] + struct.pack("<HH", 2, 2), "its numbers are out of order"),
        (DENSE[:-1] + b"\x01", "a container has 5001 numbers instead of 5000"),
        (RUNS[:-4] + struct.pack("<HH", 65_000, 4999), "a run leaves its container"),
        (RUNS[:-4] + struct.pack("<HH", 0, 4000), "a container has 4001 numbers instead of 5000"),
    ],
)
def test_what_is_no_vector_is_refused_with_the_reason(data, reason):
    with pytest.raises(ValueError, match=reason):
        decode(data, 1 << 40)


@pytest.mark.parametrize("numbers", [range(70_000), [1, 2, 1 << 40]])
def test_more_numbers_than_there_may_be_are_refused_before_they_are_made(numbers):
    for runs in (False, True):
        assert len(decode(vector(numbers, runs=runs), len(numbers))) == len(numbers)
        with pytest.raises(ValueError, match="are too many"):
            decode(vector(numbers, runs=runs), len(numbers) - 1)
