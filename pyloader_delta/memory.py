"""How much memory there is, and sizes as people write them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import numpy as np

from pyloader_delta.errors import ConfigError

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {f"{_letter}": 1024**_power, f"{_letter}IB": 1024**_power, f"{_letter}B": 1000**_power}


def parse_bytes(value: int | str, name: str) -> int:
    """Return a number of bytes given as an int or as text such as "128MiB", "1.5 GB" or "64K".

    KiB, MiB, GiB, TiB and K, M, G, T are powers of 1024; KB, MB, GB, TB powers of 1000.

    Raises:
        ConfigError: It is neither, or below 1; names the argument.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        unit = _UNITS.get(match[2].upper()) if match else None
        if match is None or unit is None:
            raise ConfigError(f"{name} must be a size such as '128MiB', got {value!r}")
        value = int(float(match[1]) * unit)
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} must be a number of bytes or a size such as '128MiB', got {value!r}")
    if value < 1:
        raise ConfigError(f"{name} must be at least one byte, got {value!r}")
    return int(value)


def usable_bytes() -> tuple[int, int]:
    """Return what this process may use, and what of it is free now, in bytes; its cgroups (v1, v2) counted."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _available(total)
    for limit, used in _cgroup_limits():
        total = min(total, limit)
        free = min(free, max(limit - used, 0))
    return total, free


def usable_cpus() -> int:
    """Return the CPUs this process may use, divided by the training processes on this machine (LOCAL_WORLD_SIZE)."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cpus // local_world_size(), 1)


def local_world_size() -> int:
    """Return the training processes on this machine by LOCAL_WORLD_SIZE, 1 where that is not set."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(int(text), 1) if text.isdigit() else 1


def default_budget(needed: int) -> int:
    """Return the memory budget where the user gave none: a quarter of what there is, at most 4 GiB, for each process.

    It is what the order needs, if that is more but under three quarters of what is free.
    """
    total, free = usable_bytes()
    n_processes = local_world_size()
    budget = min(total // 4 // n_processes, 4 << 30)
    return max(budget, needed) if needed < free * 3 // 4 // n_processes else budget


def keep_freed() -> None:
    """Have the C library keep up to 64 MiB that is freed for the next arrays, of NumPy and of user code.

    Else new arrays of some MiB are new pages again and again, which the system clears first: a tenth of what making
    token ids of texts takes. glibc adapts to what a program frees, up to blocks of 32 MiB, of which it keeps two: one
    such block tells it (M_MMAP_THRESHOLD in https://man7.org/linux/man-pages/man3/mallopt.3.html).
    Where its thresholds are set, and with another allocator, nothing changes.
    """
    with suppress(MemoryError):
        np.empty(_LARGEST_ADAPTED, np.uint8)


_LARGEST_ADAPTED = (32 << 20) - 8192  # with what the C library puts before it, and whole pages of any usual size


def _available(otherwise: int) -> int:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return otherwise


def _cgroup_limits() -> list[tuple[int, int]]:
    """Return (limit, used without reclaimable cache) of this process's memory cgroups and of those above them."""
    found = []
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            root, limits = "/sys/fs/cgroup/memory", ["memory.limit_in_bytes"]
            usage, cached = "memory.usage_in_bytes", "total_inactive_file"
        elif controllers == "":
            root, limits = "/sys/fs/cgroup", ["memory.max", "memory.high"]  # the second slows down, and does not kill
            usage, cached = "memory.current", "inactive_file"
        else:
            continue
        folder = Path(root + path)
        for place in (folder, *folder.parents):
            used = _text(place / usage).strip()
            for limit in (_text(place / name).strip() for name in limits if used.isdigit()):
                if limit.isdigit():
                    cache = re.search(rf"^{cached} (\d+)$", _text(place / "memory.stat"), re.MULTILINE)
                    found.append((int(limit), int(used) - (int(cache[1]) if cache else 0)))
            if str(place) == root:
                break
    return found


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
