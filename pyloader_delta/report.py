"""What bounds a run, in plain words, by the seconds that each stage took; and where the bytes are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_KEEPS_UP = 0.1  # share of the time that the loop waits, below which the loader keeps up
_BUSY = 0.7  # share of the workers' time in tasks, above which work itself is the bound

_WORDS = {
    "nothing": "no batch was delivered yet",
    "training loop": "the training loop bounds the run: the loader keeps up",
    "start": "the start bounds the run so far: most of the time passed before the first batch",
    "finalize": "finalize, in the training loop's thread, bounds the run",
    "reading": "reading bounds the run",
    "shuffling": "mixing and gathering rows bound the run",
    "encoding": "batch_encode bounds the run",
    "collating": "collate_batch bounds the run",
    "delivery": "handing batches over bounds the run",
    "limits": "limits bound the run: workers had nothing to do while the training loop waited",
}

_ADVICE = {
    "nothing": ("iterate first, then ask again",),
    "training loop": ("nothing is to be gained in the loader",),
    "start": ("a longer run will tell more; a smaller shuffle_window gives the first batch sooner",),
    "finalize": ("do in collate_batch, which runs in workers, what needs no device and no framework",),
    "reading": (
        "read fewer columns (columns=) or rows (filter=)",
        "row groups of 8 to 128 MB are read fastest; thousands of small files cost a request each",
    ),
    "shuffling": ("read fewer columns; numbers without nulls are mixed cheapest, text and lists dearest",),
    "encoding": (
        "let batch_encode work on whole columns: input_format='numpy' or 'arrow' in place of 'python'",
        "rowwise = True, where a row's encoding depends on that row alone, has several batches encoded in one call",
    ),
    "collating": ("let collate_batch work on arrays rather than rows; rowwise = True where it holds",),
    "delivery": (
        "a larger batch_size means fewer batches to hand over; workers='thread' sends nothing between processes",
    ),
    "limits": ("raise memory_budget, max_queue_size or prefetch_factor, whichever you have set low",),
}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one loader so far."""

    total: float
    """From each pass's beginning to its latest batch."""
    waited: float
    """The training loop waited for batches."""
    first_wait: float
    """Of these: for the first batch of each pass."""
    finalizing: float
    """`finalize`, in the training loop's thread."""
    stages: Mapping[str, float]
    """Of all workers together: reading, shuffling, encoding, collating, delivery."""
    n_workers: int
    """Workers; 1 where all is done while the training loop waits."""
    inline: bool
    """Whether it is."""


@dataclass(frozen=True, slots=True)
class Report:
    """What bounds a run, and what to change. Print it."""

    bound: str
    """One of "nothing", "training loop", "start", "finalize", "reading", "shuffling", "encoding", "collating",
    "delivery", "limits"."""
    times: Times
    ready: float
    """Share of the runs of batches that were ready when the training loop asked for them."""
    advice: tuple[str, ...]
    """What to change, most useful first."""

    def __str__(self) -> str:
        times = self.times
        lines = [_WORDS[self.bound]]
        if times.total:
            loop = max(times.total - times.waited - times.finalizing, 0.0)
            lines.append(
                f"  of {times.total:.1f} s: training loop {_percent(loop, times.total)}, waiting "
                f"{_percent(times.waited, times.total)}, finalize {_percent(times.finalizing, times.total)}; "
                f"{self.ready:.0%} of the runs of batches were ready when asked for"
            )
            room = times.n_workers * (times.waited if times.inline else times.total)
            stages = ", ".join(f"{name} {_percent(seconds, room)}" for name, seconds in times.stages.items())
            who = "the caller's thread, while it waits" if times.inline else f"{times.n_workers} workers"
            lines.append(f"  {who}: {stages}")
        return "\n".join([*lines, *(f"  → {text}" for text in self.advice)])

    __repr__ = __str__


def reported(times: Times, ready: float, *, n_cpus: int, in_threads: bool, python: bool) -> Report:
    """Return what the times say.

    Args:
        times: Seconds so far.
        ready: Share of the runs that were ready.
        n_cpus: CPUs that this process may use.
        in_threads: Whether the workers are threads.
        python: Whether `batch_encode` gets Python values, so that threads wait for each other.
    """
    bound = _bound(times)
    advice = list(_ADVICE[bound])
    if bound in ("reading", "shuffling", "encoding", "collating") and times.n_workers < n_cpus:
        advice.append(f"num_workers={n_cpus}: there are {times.n_workers} now, and this process may use {n_cpus} CPUs")
    if bound in ("encoding", "collating") and in_threads and python:
        advice.append("workers='process': Python code in threads waits for one lock")
    if bound == "training loop" and not times.inline and sum(times.stages.values()) < times.total * 0.3:
        advice.append("its workers are idle most of the time: num_workers=1 would do")
    return Report(bound, times, ready, tuple(advice))


def _bound(times: Times) -> str:
    if not times.total:
        return "nothing"
    loop = times.total - times.waited - times.finalizing
    if times.inline:
        everything = {**times.stages, "finalize": times.finalizing, "training loop": loop}
        return max(everything, key=lambda name: everything[name])
    if times.first_wait > times.total / 2:
        return "start"
    if times.waited - times.first_wait < _KEEPS_UP * (times.total - times.first_wait):
        return "finalize" if times.finalizing > loop else "training loop"
    busy = sum(times.stages.values()) / (times.n_workers * times.total)
    return max(times.stages, key=lambda name: times.stages[name]) if busy >= _BUSY else "limits"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a loader's bytes are now."""

    budget: int
    """What `memory_budget` allows for all of it."""
    chunks: int
    """Decoded chunks held, and those being read by their estimates."""
    batches: int
    """Batches made and not yet delivered."""
    lent: int
    """Batches in the training loop's hands that lie in the loader's memory; of a window all, however little it is."""
    slabs: int
    """What slabs cost: memory that is used again and again. With processes chunks and batches lie in them, with threads
    mixed windows and batches that were packed."""
    cursors: int
    """How many large row groups are being read piece by piece."""
    cursor_bytes: int = 0
    """What these hold in workers, by estimates: about a page of each column."""
    total: int = 0
    """All of it, each byte once, as far as is known: what is read and held, cursors, slabs that wait for use."""

    def __str__(self) -> str:
        parts = [f"{name} {_size(getattr(self, name))}" for name in ("chunks", "batches", "lent", "slabs")]
        return (
            f"{', '.join(parts)}; {self.cursors} open cursors {_size(self.cursor_bytes)}; total {_size(self.total)}; "
            f"budget {_size(self.budget)}"
        )


def _size(n: int) -> str:
    return f"{n / (1 << 20):.1f} MiB"
