"""A memory cgroup: a limit on what a process tree may use, kept by the kernel, and what it came to (cgroup v1)."""

import os
import time
from pathlib import Path

_MEMORY = Path("/sys/fs/cgroup/memory")


class NoCgroup(Exception):
    """Memory cgroups cannot be used here; the text says why."""


class MemoryCgroup:
    """A cgroup of our own, removed when left."""

    def __init__(self, name: str) -> None:
        self._path = _MEMORY / f"{name}-{os.getpid()}"

    def __enter__(self) -> "MemoryCgroup":
        try:
            self._path.mkdir()
            (self._path / "memory.limit_in_bytes").read_text()
        except OSError as error:
            raise NoCgroup(f"cannot make a memory cgroup of version 1: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        for _try in range(50):  # the kernel lets go of ended processes a moment later
            try:
                return self._path.rmdir()
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{self._path} still holds processes {(self._path / 'cgroup.procs').read_text().split()}")

    def command(self, command: list[str]) -> list[str]:
        """Return the command that runs `command` inside the cgroup from its first instruction."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._path / "cgroup.procs"), *command]

    def limit(self, size_bytes: int) -> None:
        (self._path / "memory.limit_in_bytes").write_text(str(size_bytes))
        swap = self._path / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text(str(size_bytes))

    def usage(self) -> dict[str, int]:
        """Return bytes by kind: `anonymous`, `shared` (shared memory) and `files` (page cache, can be dropped)."""
        lines = (line.split() for line in (self._path / "memory.stat").read_text().splitlines())
        stat = {name: int(value) for name, value in lines}
        shared = stat.get("total_shmem", 0)
        return {"anonymous": stat["total_rss"], "shared": shared, "files": stat["total_cache"] - shared}

    def peak_bytes(self) -> int:
        """Return the highest use of all kinds together, page cache included."""
        return int((self._path / "memory.max_usage_in_bytes").read_text())

    def oom_kills(self) -> int:
        lines = (line.split() for line in (self._path / "memory.oom_control").read_text().splitlines())
        return {name: int(value) for name, value in lines}["oom_kill"]
