"""Memory that several processes map: without a name, one descriptor each, taken at once where a full disk kills."""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import tempfile
import weakref
from typing import Any

from pyloader_delta.errors import BudgetError

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
_FAILED = ctypes.c_void_p(-1).value
_PUNCH_HOLE_KEEP_SIZE = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, linux/falloc.h
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@functools.cache
def has_memfd() -> bool:
    """Return whether the system has memory without a file system; a sandbox may refuse it."""
    try:
        os.close(os.memfd_create("pyloader_delta", os.MFD_CLOEXEC))
    except OSError as error:
        return error.errno in _FULL
    return True


def new_memory(size_bytes: int) -> int:
    """Return the descriptor of new memory, zero.

    Without `has_memfd` it is a file without a name, in /dev/shm or among the temporary files, and its bytes are taken
    at once: a file system that is full when a page is written ends the process by SIGBUS.

    Raises:
        BudgetError: There is no room for it anywhere; the text says what to raise.
    """
    if not has_memfd():
        return _file(size_bytes)
    try:
        fd = os.memfd_create("pyloader_delta", os.MFD_CLOEXEC)
    except OSError as error:
        raise refused(error, f"{size_bytes} bytes of memory for workers") from error
    os.ftruncate(fd, size_bytes)
    return fd


def _file(size_bytes: int) -> int:
    texts = []
    for folder in dict.fromkeys(["/dev/shm", tempfile.gettempdir()]):
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, size_bytes)
                return os.dup(file.fileno())
        except OSError as error:
            texts.append(f"{folder}: {error.strerror}")
    raise BudgetError(
        f"no {size_bytes} bytes that worker processes could share (no memfd; {'; '.join(texts)}): give /dev/shm more "
        "room (docker run --shm-size=2g), lower memory_budget, or use workers='thread'"
    )


def map_memory(fd: int, size_bytes: int) -> Any:
    """Return memory of a descriptor as a writable buffer; unmapped with the last view of it. The descriptor may go.

    Raises:
        BudgetError: The system gives this process no more address space or maps.
    """
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _LIBC.mmap(None, size_bytes, protection, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        raise refused(error, f"{size_bytes} bytes of memory for workers") from error
    found = _kind(size_bytes).from_address(address)
    weakref.finalize(found, _LIBC.munmap, address, size_bytes).atexit = False
    return found


def private_memory(size_bytes: int) -> mmap.mmap:
    """Return memory of this process alone, zero.

    Raises:
        BudgetError: The system gives it no more.
    """
    try:
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise refused(error, f"{size_bytes} bytes of memory for batches") from error


def empty(fd: int, size_bytes: int) -> None:
    """Give the bytes of a descriptor back to the system, for every process that maps it; they read as zero."""
    if _LIBC.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, 0, size_bytes):
        raise OSError(ctypes.get_errno(), "fallocate")


def refused(error: BaseException, what: str) -> BudgetError:
    """Return an error that says what the system refused, and which limit to raise.

    Args:
        error: What the system said.
        what: What was asked for.
    """
    code = error.errno if isinstance(error, OSError) and error.errno else errno.ENOMEM
    return BudgetError(f"the system refuses {what}: {os.strerror(code)}; {_ADVICE.get(code, _ADVICE[errno.ENOMEM])}")


def advise(error: BaseException) -> None:
    """Note with an error that the system has no more memory or descriptors, which limit to raise."""
    if isinstance(error, BudgetError):
        return
    code = error.errno if isinstance(error, OSError) else errno.ENOMEM if _lacks_memory(error) else None
    note = f"pyloader_delta: {_ADVICE[code]}" if code in _FULL else None
    if note is not None and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _lacks_memory(error: BaseException) -> bool:
    unmapped = isinstance(error, ImportError) and "failed to map segment" in str(error)  # the dynamic linker's words
    return unmapped or isinstance(error, MemoryError)


_ADVICE = {
    errno.ENOMEM: "raise the limit on memory (`ulimit -v`, the container's), or lower memory_budget or num_workers",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`), or use fewer workers, or workers='thread'",
    errno.ENFILE: "the whole system has no more open files (`sysctl fs.file-max`)",
    errno.EAGAIN: "raise the limit on processes (`ulimit -u`, the container's pids limit), or use fewer workers",
}


@functools.lru_cache(maxsize=64)
def _kind(size_bytes: int) -> Any:
    return type("_Mapped", (ctypes.c_char * size_bytes,), {})  # of a class of Python's: those can be referred to weakly
