"""Messages between the training process and one worker: pickled objects and descriptors over a socket pair."""

from __future__ import annotations

import array
import errno
import os
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_HEADER = struct.Struct("<QI")  # bytes of the message, descriptors with it
_MAX_FDS = 200  # the kernel takes 253 in one message


class Channel:
    """One end of a socket pair. Both ends belong to processes of one user that trust each other.

    Args:
        sock: The end; the channel owns it from now on.
        dumps: Pickles what is sent.
    """

    def __init__(self, sock: socket.socket, dumps: Callable[[Any], bytes] = pickle.dumps) -> None:
        self._sock, self._dumps = sock, dumps

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._sock.fileno()

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Send an object, and descriptors that the other end gets duplicates of."""
        body = self._dumps(message)
        first, more = fds[:_MAX_FDS], range(_MAX_FDS, len(fds), _MAX_FDS)
        parts = [_HEADER.pack(len(body), len(fds)), *([] if more else [body])]  # at once: the other end wakes up once
        sent = self._sock.sendmsg(parts, _descriptors(first))
        for start in more:
            self._sock.sendmsg([b"\0"], _descriptors(fds[start : start + _MAX_FDS]))
        if sent < _HEADER.size + len(body):
            self._sock.sendall(memoryview(body)[sent - _HEADER.size :])

    def recv(self) -> tuple[Any, list[int]]:
        """Return the next object and its descriptors.

        Raises:
            EOFError: The other end is gone.
            OSError: This process may open no more descriptors.
        """
        fds: list[int] = []
        try:
            size, n_fds = _HEADER.unpack(self._recv_with_fds(_HEADER.size, fds))
            while len(fds) < n_fds:
                self._recv_with_fds(1, fds)
            body = bytearray(size)
            view = memoryview(body)
            while view:
                n = self._sock.recv_into(view)
                if not n:
                    raise EOFError("the other end closed in the middle of a message")
                view = view[n:]
            return pickle.loads(body), fds  # what the other end of our own socket pair sent
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def shut(self) -> None:
        """End the channel for both sides, also where a forked process holds copies of its descriptors."""
        with suppress(OSError):  # the other side may be gone
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def _recv_with_fds(self, size: int, fds: list[int]) -> bytes:
        found = b""
        while len(found) < size:
            room = socket.CMSG_SPACE(4 * (_MAX_FDS + 1))
            part, ancillary, flags, _ = self._sock.recvmsg(size - len(found), room, socket.MSG_CMSG_CLOEXEC)
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds += array.array("i", data[: len(data) - len(data) % 4])
            if flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if not part:
                raise EOFError("the other end is closed")
            found += part
        return found


def _descriptors(fds: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
