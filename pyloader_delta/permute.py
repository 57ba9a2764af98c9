"""Keyed permutations: our own, so that an order is the same on every machine and with every release of NumPy.

`feistel-1` is the name and version of what stands here; golden values in the tests hold it. A permutation of n is
never held as an array: any part of it is computed when it is needed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "feistel-1"

_ROUNDS = 5  # four are enough for an ideal round function (M. Luby, C. Rackoff, 1988); with this short one they leave
# positions sqrt(n) apart 10 % too often near each other, measured; five leave nothing
_SORTED_BELOW = 1024  # a small domain is sorted by hash: uniform, where few Feistel rounds over tiny halves are not
_MIX = 0xFF51AFD7ED558CCD  # of MurmurHash3's finalizer (A. Appleby, public domain)
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, spreads neighbouring integers

_AT_ONCE = 65536  # values worked on: they stay in cache; NumPy gives up the GIL at each step, so not many fewer

Words = NDArray[np.uint32] | NDArray[np.uint64]


def permuted(
    n: int, key: tuple[int | str, ...], start: int = 0, stop: int | None = None, *, out: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return where the positions `start..stop` of a permutation of 0..n-1 come from.

    Args:
        n: Size of the domain, >= 0.
        key: What the permutation depends on besides n, such as (seed, epoch, number of the first row).
        start: First position, 0 <= start <= stop.
        stop: One past the last position, <= n; None for n.
        out: An array of the result's shape to put it into; None for a new one.

    Returns:
        int64 array of shape (stop - start,), distinct values in 0..n-1. Concatenated over all positions it is a
        permutation.
    """
    stop = n if stop is None else stop
    bits = 32 if n < 2**32 - 2**17 else 64  # 32-bit multiplication is twice as fast; the digits must stay below 2**16
    keys = _round_keys(key, bits)
    found = np.empty(stop - start, dtype=np.int64) if out is None else out
    if n < _SORTED_BELOW:
        found[:] = _sorted_by_hash(n, _round_keys(key, 64)[0])[start:stop]
        return found
    for first in range(start, stop, _AT_ONCE):
        values: Any = np.arange(first, min(first + _AT_ONCE, stop)).astype(keys.dtype)
        found[first - start : first - start + len(values)] = _walked(_feistel, values, n, keys)
    return found


def places(n: int, key: tuple[int | str, ...], start: int, stop: int) -> NDArray[np.int64]:
    """Return at which positions of a permutation the values `start..stop` are: the inverse of `permuted`.

    Args:
        n: Size of the domain, >= 0.
        key: What the permutation depends on besides n.
        start: First value, 0 <= start <= stop.
        stop: One past the last value, <= n.

    Returns:
        int64 array of shape (stop - start,), distinct positions in 0..n-1.
    """
    if n < _SORTED_BELOW:
        return np.argsort(permuted(n, key), kind="stable")[start:stop].astype(np.int64)
    keys = _round_keys(key, 32 if n < 2**32 - 2**17 else 64)
    found = np.empty(stop - start, dtype=np.int64)
    for first in range(start, stop, _AT_ONCE):
        values: Any = np.arange(first, min(first + _AT_ONCE, stop)).astype(keys.dtype)
        found[first - start : first - start + len(values)] = _walked(_unfeistel, values, n, keys)
    return found


def row_key(seed: int, epoch: int, first_row: int) -> tuple[int | str, ...]:
    """Return the key by which the rows of a window are mixed.

    Args:
        seed: Of the mixing of rows.
        epoch: 0-based.
        first_row: Number in the epoch of the window's first row.
    """
    return "rows", seed, epoch, first_row


def _round_keys(key: tuple[int | str, ...], bits: int) -> Words:
    digest = hashlib.blake2b(repr((NAME, *key)).encode(), digest_size=8 * _ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(f"u{bits // 8}")


def _hash(values: Words, key: Any) -> Words:
    kind = values.dtype.type
    half = kind(values.dtype.itemsize * 4)
    mask = np.iinfo(kind).max
    values = values * kind(_GOLDEN & mask)
    values ^= key
    values ^= values >> half
    values *= kind(_MIX & mask)
    return values


def _sorted_by_hash(n: int, key: Any) -> NDArray[np.int64]:
    hashed = _hash(np.arange(n, dtype=np.uint64), key)
    return np.argsort(hashed, kind="stable").astype(np.int64)


def _walked(rounds: Callable[[Any, int, int, Words], Words], values: Any, n: int, keys: Words) -> Words:
    """Return values below n, mapped by a permutation of a slightly larger domain to others below n."""
    rows = math.isqrt(n - 1) + 1  # ceil(sqrt(n)); rows * columns >= n, and less than rows of it is waste
    columns = -(-n // rows)
    values = rounds(values, rows, columns, keys)
    outside = np.flatnonzero(values >= n)
    while len(outside):  # cycle walking: a value beyond n is mapped again until it falls below
        values[outside] = rounds(values[outside], rows, columns, keys)
        outside = outside[values[outside] >= n]
    found: Words = values
    return found


def _feistel(values: Words, rows: int, columns: int, keys: Words) -> Words:
    """Return a permutation of 0..rows*columns-1 applied to `values`: an unbalanced Feistel network over two digits."""
    kind = values.dtype.type
    left = values // kind(columns)
    right = values - left * kind(columns)
    for number, key in enumerate(keys):
        if number % 2:
            right = _added(right, _hash(left, key), kind(columns))
        else:
            left = _added(left, _hash(right, key), kind(rows))
    left *= kind(columns)
    left += right
    return left


def _unfeistel(values: Words, rows: int, columns: int, keys: Words) -> Words:
    """Return the inverse of `_feistel`: its rounds from the last to the first."""
    kind = values.dtype.type
    left = values // kind(columns)
    right = values - left * kind(columns)
    for number in reversed(range(len(keys))):
        if number % 2:
            right = _subtracted(right, _hash(left, keys[number]), kind(columns))
        else:
            left = _subtracted(left, _hash(right, keys[number]), kind(rows))
    left *= kind(columns)
    left += right
    return left


def _added(digit: Words, hashed: Words, base: Any) -> Words:
    hashed = _scaled(hashed, base)
    hashed += digit
    found: Words = np.minimum(hashed, hashed - base)  # modulo base: a negative difference wraps to a huge number
    return found


def _subtracted(digit: Words, hashed: Words, base: Any) -> Words:
    digit = digit - _scaled(hashed, base)
    found: Words = np.minimum(digit, digit + base)  # as above
    return found


def _scaled(hashed: Words, base: Any) -> Words:
    """Return the upper half of a hash scaled to 0..base-1 (D. Lemire, 2019: multiply and shift), in place."""
    half = hashed.dtype.type(hashed.dtype.itemsize * 4)
    hashed >>= half
    hashed *= base
    hashed >>= half
    return hashed
