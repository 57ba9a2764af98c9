"""Roaring bitmaps of 64-bit numbers in their portable form, as Delta writes deletion vectors: bytes become numbers."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_MAGIC = 1681511377
_NO_RUNS, _RUNS = 12346, 12347
_BITMAP_BYTES = 8192
_ARRAY_MOST = 4096  # numbers in a container; one with more is a bitmap
_OFFSETS_FROM = 4  # a bitmap with runs states offsets only from that many containers on


def decode(data: bytes | memoryview, most: int) -> NDArray[np.int64]:
    """Return the numbers in a deletion vector.

    Args:
        data: A little-endian magic number and the bitmap.
        most: How many numbers there may be; few bytes can stand for very many.

    Returns:
        int64 array of shape (n,): the numbers, >= 0, ascending.

    Raises:
        ValueError: It is no such bitmap.
    """
    try:
        (magic,) = struct.unpack_from("<I", data, 0)
        if magic != _MAGIC:
            raise ValueError(f"its format {magic} is not known (known: {_MAGIC})")
        (n_bitmaps,) = struct.unpack_from("<Q", data, 4)
        at, found, before = 12, [], -1
        for _ in range(n_bitmaps):
            (high,) = struct.unpack_from("<I", data, at)
            if not before < high < 1 << 31:
                raise ValueError("its bitmaps are out of order")
            before = high
            low, at = _bitmap(data, at + 4, most)
            found.append(low + (high << 32))
            most -= len(low)
    except struct.error as error:
        raise ValueError(f"it ends early: {error}") from error
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow it")
    numbers = np.concatenate(found) if found else np.empty(0, np.int64)
    if (np.diff(numbers) <= 0).any():
        raise ValueError("its numbers are out of order")
    return numbers


def _bitmap(data: bytes | memoryview, at: int, most: int) -> tuple[NDArray[np.int64], int]:
    """Return the numbers of one 32-bit bitmap and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    if cookie & 0xFFFF == _RUNS:
        n = (cookie >> 16) + 1
        bits = _array(data, "u1", -(-n // 8), at).astype(np.uint8)
        with_runs = np.unpackbits(bits, count=n, bitorder="little").astype(bool)
        at += len(bits)
    elif cookie == _NO_RUNS:
        (n,) = struct.unpack_from("<I", data, at)
        if n > 1 << 16:
            raise ValueError(f"it has {n} containers")
        with_runs = np.zeros(n, bool)
        at += 4
    else:
        raise ValueError(f"its cookie {cookie} is not known")
    header = _array(data, "<u2", 2 * n, at).reshape(n, 2).astype(np.int64)
    if header[:, 1].sum() + n > most:
        raise ValueError(f"it has {header[:, 1].sum() + n} numbers, where more than {most} are too many")
    at += 4 * n
    if cookie == _NO_RUNS or n >= _OFFSETS_FROM:
        at += 4 * n
    found = []
    for (key, last), has_runs in zip(header.tolist(), with_runs.tolist(), strict=True):
        numbers, at = _container(data, at, last + 1, has_runs)
        if len(numbers) != last + 1:
            raise ValueError(f"a container has {len(numbers)} numbers instead of {last + 1}")
        found.append(numbers + (key << 16))
    return (np.concatenate(found) if found else np.empty(0, np.int64)), at


def _container(data: bytes | memoryview, at: int, n: int, has_runs: bool) -> tuple[NDArray[np.int64], int]:
    if has_runs:
        (n_runs,) = struct.unpack_from("<H", data, at)
        runs = _array(data, "<u2", 2 * n_runs, at + 2).reshape(n_runs, 2).astype(np.int64)
        lengths = runs[:, 1] + 1
        if (runs.sum(axis=1) >= 1 << 16).any():
            raise ValueError("a run leaves its container")
        begins = np.cumsum(lengths) - lengths
        return np.repeat(runs[:, 0] - begins, lengths) + np.arange(lengths.sum()), at + 2 + 4 * n_runs
    if n > _ARRAY_MOST:
        bits = _array(data, "u1", _BITMAP_BYTES, at).astype(np.uint8)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BITMAP_BYTES
    return _array(data, "<u2", n, at).astype(np.int64), at + 2 * n


def _array(data: bytes | memoryview, kind: str, n: int, at: int) -> NDArray[np.int_]:
    if at + n * np.dtype(kind).itemsize > len(data):
        raise ValueError("it ends early")
    return np.frombuffer(data, kind, n, at)
