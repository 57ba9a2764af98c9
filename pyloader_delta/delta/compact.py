"""Thrift's compact protocol, as far as the footers of Parquet files are taken apart and put together with it.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator

I16, I32, I64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12
"""Kinds of values, as the headers of fields and lists name them."""
_TRUE, _FALSE, _BYTE, _DOUBLE, _SET = 1, 2, 3, 7, 10
_BOOLS, _INTEGERS = (_TRUE, _FALSE), (I16, I32, I64)  # bools as fields have no value beside their kind
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}  # bytes of values; bools are bytes in lists
STOP = b"\0"
"""What ends a struct."""
_LAST = 0x7F  # bytes of numbers above it have others after them
_MOST_BITS = 63  # that are behind a byte of a number
_LONG = 0x10  # headers of fields below it have the field's number after them


class Reader:
    """A place in bytes that holds values, one after the other. Damaged ones raise ValueError or IndexError.

    Args:
        data: The bytes.
        at: The place to begin at.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        """Return a number that is no field's value, as it is written: those of fields are zigzag."""
        found, self.at = number(self.data, self.at)
        return found

    def integer(self) -> int:
        """Return the value of a field of integers."""
        found, self.at = integer(self.data, self.at)
        return found

    def each(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the kind of each field of a struct; its value is next, and passed over if not read."""
        name = 0
        while byte := self.data[self.at]:
            self.at += 1
            step, kind = byte >> 4, byte & 0xF
            name = name + step if step else self.integer()
            start = self.at
            yield name, kind
            if self.at == start and kind not in _BOOLS:
                self.at = passed(self.data, self.at, kind)
        self.at += 1

    def fields(self) -> dict[int, bytes]:
        """Return the values of a struct as they are written, by their fields' numbers."""
        found = {}
        for name, kind in self.each():
            start = self.at
            self.at = passed(self.data, start, kind)
            found[name] = self.data[start : self.at]
        return found

    def items(self) -> tuple[int, int]:
        """Return the number and the kind of the items of a list, which follow."""
        n, kind, self.at = items(self.data, self.at)
        return n, kind


def number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that is written at a place, and where it ends."""
    found = shift = 0
    while (byte := data[at]) > _LAST:
        found |= (byte & _LAST) << shift
        shift += 7
        at += 1
        if shift > _MOST_BITS:
            raise ValueError("a number has more than 10 bytes")
    return found | byte << shift, at + 1


def integer(data: bytes, at: int) -> tuple[int, int]:
    """Return the value of a field of integers, and where it ends."""
    zigzag, at = number(data, at)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def passed(data: bytes, at: int, kind: int) -> int:
    """Return where the value ends that begins at a place.

    Footers have dozens of values for each column, so each byte is looked at here, without a call for each value.
    """
    if kind in _INTEGERS:
        while data[at] > _LAST:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = number(data, at)
        return at + length
    if kind == STRUCT:
        while byte := data[at]:
            at += 1
            kind = byte & 0xF
            if byte < _LONG:
                at = passed(data, at, I16)
            if kind in _INTEGERS:
                while data[at] > _LAST:
                    at += 1
                at += 1
            elif kind == BINARY and data[at] <= _LAST:
                at += data[at] + 1
            elif kind not in _BOOLS:
                at = passed(data, at, kind)
        return at + 1
    if kind in (LIST, _SET):
        n, of, at = items(data, at)
        if of in _SIZES:
            return at + n * _SIZES[of]  # not one by one: damaged bytes may state any number
        for _ in range(n):
            at = passed(data, at, of)
        return at
    if kind in _BOOLS:
        return at
    if kind in _SIZES:
        return at + _SIZES[kind]
    raise ValueError(f"no footers have values of kind {kind}")


def items(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the number and the kind of the items of a list, and where they begin."""
    n, kind = data[at] >> 4, data[at] & 0xF
    n, at = number(data, at + 1) if n == _MANY else (n, at + 1)
    return n, kind, at


def structs(data: bytes) -> Iterator[dict[int, bytes]]:
    """Yield the structs of a list, each as `Reader.fields`."""
    reader = Reader(data)
    for _ in range(reader.items()[0]):
        yield reader.fields()


def header(step: int, kind: int) -> bytes:
    """Return what is before a field's value.

    Args:
        step: Its number less that of the field before it, 1 to 15.
        kind: Of its value.
    """
    return bytes([step << 4 | kind])


def list_header(n: int, kind: int) -> bytes:
    """Return what is before the items of a list."""
    return bytes([n << 4 | kind]) if n < _MANY else bytes([_MANY << 4 | kind]) + unsigned(n)


def unsigned(n: int) -> bytes:
    """Return a number that is no field's value, >= 0."""
    found = bytearray()
    while n > 0x7F:
        found.append(n & 0x7F | 0x80)
        n >>= 7
    found.append(n)
    return bytes(found)


def signed(n: int) -> bytes:
    """Return the value of a field of integers, >= 0."""
    return unsigned(n << 1)


_MANY = 15
