"""Deletion vectors: the log's descriptor becomes the numbers of a file's deleted rows, checked in every way."""

from __future__ import annotations

import struct
import uuid
import zlib

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.delta import roaring
from pyloader_delta.delta.paths import data_path
from pyloader_delta.delta.store import Store
from pyloader_delta.errors import ReadError
from pyloader_delta.values import DeletionVector
from pyloader_delta.words import many

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_UUID_DIGITS = 20
_AROUND = 8  # bytes: the size before a vector and the checksum behind it
_FIRST_OFFSET = 1  # a file of vectors begins with a byte that is its version


def deleted_rows(
    store: Store, vector: DeletionVector, n_rows: int, *, file: str, version: int | None
) -> NDArray[np.int64]:
    """Return which rows of a data file are deleted.

    Args:
        store: The table's store.
        vector: What the log says of it.
        n_rows: Rows in the data file.
        file: Path of the data file, for errors.
        version: Version of the table, for errors.

    Returns:
        int64 array of shape (cardinality,): row numbers in the file, ascending.

    Raises:
        ReadError: The vector is missing, corrupt or not the one that the log describes.
    """
    place = "the log itself"
    try:
        if vector.storage_type != "i":
            place = vector_path(vector)
        rows = roaring.decode(_bytes(store, vector, place), n_rows)
        if len(rows) != vector.cardinality:
            raise ValueError(f"it has {many(len(rows), 'row')}, but the log says {vector.cardinality}")
        if len(rows) and rows[-1] >= n_rows:
            raise ValueError(f"it deletes row {rows[-1]} of a file with {many(n_rows, 'row')}")
    except FileNotFoundError as error:
        raise ReadError(
            f"the deletion vector of {file} at version {version} is missing: {place}; was the table vacuumed? "
            "Read a newer version, or restore the file from a copy of the table"
        ) from error
    except (ValueError, OSError) as error:
        raise ReadError(
            f"the deletion vector of {file} at version {version} cannot be read from {place}: {error}; "
            "restore it from a copy of the table"
        ) from error
    return rows


def vector_path(vector: DeletionVector) -> str:
    """Return the path of a vector's file: relative to the table, or absolute."""
    text = vector.path_or_inline_dv
    if vector.storage_type == "p":
        return data_path("", text)
    if vector.storage_type != "u":
        raise ValueError(f"it is stored in way {vector.storage_type!r}, which is not supported")
    folder, name = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    path = f"deletion_vector_{uuid.UUID(bytes=_z85(name))}.bin"
    return f"{folder}/{path}" if folder else path


def _bytes(store: Store, vector: DeletionVector, path: str) -> bytes:
    size = vector.size_in_bytes
    if vector.storage_type == "i":
        data = _z85(vector.path_or_inline_dv)
        if not size <= len(data) < size + 4:
            raise ValueError(f"it has {len(data)} bytes, but the log says {size}")
        return data[:size]
    with store.open(path) as file:
        offset = _FIRST_OFFSET if vector.offset is None else vector.offset
        if offset + size + _AROUND > file.size():
            raise ValueError(f"its file ends before the {size} bytes that the log says")
        found = file.read_at(size + _AROUND, offset)
    (stated,) = struct.unpack_from(">I", found)
    (checksum,) = struct.unpack_from(">I", found, size + 4)
    if stated != size:
        raise ValueError(f"its file states {stated} bytes, but the log says {size}")
    data = bytes(found[4 : size + 4])
    if zlib.crc32(data) != checksum:
        raise ValueError("its checksum is wrong")
    return data


def _z85(text: str) -> bytes:
    """Return the bytes that a text in Z85 stands for: four for each five digits."""
    if len(text) % 5:
        raise ValueError(f"{text[:40]!r} is no Z85")
    out = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            if digit not in _VALUES:
                raise ValueError(f"{text[:40]!r} is no Z85")
            number = number * 85 + _VALUES[digit]
        if number >= 1 << 32:
            raise ValueError(f"{text[:40]!r} is no Z85")
        out += number.to_bytes(4, "big")
    return bytes(out)
