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
        found = 0
        for shift in range(0, 70, 7):
            byte = self.data[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        raise ValueError("a number has more than 10 bytes")

    def integer(self) -> int:
        """Return the value of a field of integers."""
        zigzag = self.number()
        return (zigzag >> 1) ^ -(zigzag & 1)

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
                self._pass(kind)
        self.at += 1

    def fields(self) -> dict[int, bytes]:
        """Return the values of a struct as they are written, by their fields' numbers."""
        found = {}
        for name, kind in self.each():
            start = self.at
            if kind not in _BOOLS:
                self._pass(kind)
            found[name] = self.data[start : self.at]
        return found

    def items(self) -> tuple[int, int]:
        """Return the number and the kind of the items of a list, which follow."""
        byte = self.data[self.at]
        self.at += 1
        n, kind = byte >> 4, byte & 0xF
        return (self.number() if n == _MANY else n), kind

    def _pass(self, kind: int) -> None:
        """Go behind a value."""
        if kind in _INTEGERS:
            self.number()
        elif kind == BINARY:
            length = self.number()
            self.at += length
        elif kind == STRUCT:
            while byte := self.data[self.at]:
                self.at += 1
                if byte < 0x10:
                    self.number()
                if byte & 0xF not in _BOOLS:
                    self._pass(byte & 0xF)
            self.at += 1
        elif kind in (LIST, _SET):
            n, of = self.items()
            if of in _SIZES:
                self.at += n * _SIZES[of]  # not one by one: damaged bytes may state any number
            else:
                for _ in range(n):
                    self._pass(of)
        elif kind in _SIZES:
            self.at += _SIZES[kind]
        else:
            raise ValueError(f"no footers have values of kind {kind}")


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
