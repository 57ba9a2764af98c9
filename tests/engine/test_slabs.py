"""Slabs: what they cost is known, and what waits for use is given back as soon as there is no place for it."""

import os

import numpy as np
import pytest

from pyloader_delta.engine.processes import expected_bytes
from pyloader_delta.engine.slabs import SlabPool, put

MIB = 1 << 20


@pytest.fixture
def pool():
    found = SlabPool(shared=True, max_bytes=10 * MIB)
    yield found
    found.close()


def taken(pool, size_bytes):
    """Return a slab, filled."""
    number = pool.take(size_bytes)
    pool[number].array[:size_bytes] = 1
    pool.touch(number, size_bytes)
    return number


def real(pool, number):
    return os.fstat(pool[number].fd).st_blocks * 512


def test_a_free_slab_is_emptied_when_another_grows_beyond_what_there_is_room_for(pool):
    free, other = taken(pool, 6 * MIB), taken(pool, 2 * MIB)
    pool.give(free)
    assert real(pool, free) == 6 * MIB
    pool.touch(other, 5 * MIB)
    assert real(pool, free) == 0
    assert pool.cost_bytes == 5 * MIB


def test_what_is_small_does_not_take_a_slab_that_costs_much_more(pool):
    large = taken(pool, 9 * MIB)
    pool.give(large)
    assert pool.find(MIB) is None
    assert pool.find(8 * MIB) == large


def test_a_slab_that_was_emptied_serves_whatever_fits_in(pool):
    large, other = taken(pool, 9 * MIB), taken(pool, MIB)
    pool.give(large)
    pool.touch(other, 2 * MIB)
    assert pool.find(MIB) == large


def test_one_short_run_between_long_ones_does_not_have_the_next_one_take_a_new_slab():
    expected = 0
    for size in (9 * MIB, MIB // 4, 9 * MIB, 100, 9 * MIB):
        expected = expected_bytes(size, expected)
        assert expected >= 7 * MIB
    for _ in range(60):
        expected = expected_bytes(MIB, expected)
    assert expected == MIB


@pytest.mark.parametrize("dtype", [*"bBhHiIlLqQefdg?FD", ">i4", ">f8", "M8[us]", "m8[s]", "S5", "U3", "V8"])
@pytest.mark.parametrize("shape", [(0,), (7,), (3, 5), (1 << 16,)])
def test_arrays_of_any_dtype_are_put_bit_for_bit(dtype, shape):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    values = np.frombuffer(np.random.default_rng(0).bytes(size) if size else b"", dtype).reshape(shape)
    target = np.empty(shape, dtype)
    put(target, values)
    assert target.view(np.uint8).tobytes() == values.view(np.uint8).tobytes()


def test_numbers_of_one_dtype_with_two_names_are_put():
    target = np.zeros(3, "q")
    put(target, np.arange(3, dtype="l"))
    assert target.tolist() == [0, 1, 2]
