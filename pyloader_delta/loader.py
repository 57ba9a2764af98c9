"""`DataLoader`: the user's reader, dataset and collator wired to plan and engine. Wiring only."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

from pyloader_delta import budget
from pyloader_delta.collate.base import DataCollator
from pyloader_delta.encode.base import Dataset
from pyloader_delta.engine.ahead import Ahead
from pyloader_delta.engine.core import Engine
from pyloader_delta.engine.executor import Executor
from pyloader_delta.engine.local import InlineExecutor, ThreadExecutor
from pyloader_delta.engine.numbered import FIELD as ROW_NUMBER
from pyloader_delta.engine.processes import ProcessExecutor
from pyloader_delta.engine.region import learn_schema
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.epochs import epoch_plans
from pyloader_delta.errors import ConfigError
from pyloader_delta.facade import Facade
from pyloader_delta.insight import Insight
from pyloader_delta.ledger import Ledger, base_of
from pyloader_delta.lengths import Lengths
from pyloader_delta.options import check_parts, check_root, group_size, make_options, own_reader
from pyloader_delta.passes import BatchIterator, Pass
from pyloader_delta.plan.epoch import Order, split, total_rows
from pyloader_delta.plan.ranks import Uneven
from pyloader_delta.progress import Shown
from pyloader_delta.progress import wanted as progress_wanted
from pyloader_delta.ranks import check_place
from pyloader_delta.read.base import DataReader, checked_chunks
from pyloader_delta.read.delta import DeltaDataReader
from pyloader_delta.resume import Resumable
from pyloader_delta.shuffling.full import full_shuffle
from pyloader_delta.skips import SkippingStages
from pyloader_delta.stages import Stages, finalized, named
from pyloader_delta.state import Position
from pyloader_delta.stats import Stats
from pyloader_delta.values import Snapshot
from pyloader_delta.words import many

T_co = TypeVar("T_co", covariant=True)

_open_loaders: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()


class DataLoader(Lengths, Insight, Facade, Resumable, Generic[T_co]):
    """Streams a Delta table, or a folder of chunk files, that is larger than memory as batches for training.

    A re-iterable: one `iter()` yields `num_epoch` epochs, the next goes on with the next epoch. The sequence of batches
    depends on the table's version, the reader's options, both seeds, the epoch and `shuffle_window` alone, never on
    workers, queue, budget or timing. Use it in `with`, or call `close()`; what is left is cleaned up at the latest when
    the loader is garbage or the program ends.

    Args:
        datareader: Reads chunks; sets `batch_size`, and mixes rows inside a window if its `shuffle` is set.
        dataset: Encodes rows.
        datacollator: Collates batches.
        root_dir: A folder of chunk files, or a table's path or URI for `DeltaDataReader`.
        num_epoch: Epochs that one `iter()` yields, >= 1; None for no end.
        max_queue_size: Chunks read ahead beyond those that complete the window being delivered and the next, >= 1.
        shuffle: Permute the order of chunks (files or row groups), each epoch anew. "full": all rows, whatever the
            reader says: before each epoch the table is read once and dealt out to buckets of `shuffle_window` on disk.
        random_seed: Seed of that permutation, and of `rng` in dataset and collator; any int, 0 included.
        num_workers: Workers, >= 0; 0 does all in the caller's thread. None: the CPUs this process may use, divided by
            LOCAL_WORLD_SIZE.
        workers: "process", "thread", or "auto": processes if `input_format` is "python", `read_file` or `read_chunk` is
            the user's own, or a `FieldSpec` has a `transform`; else threads.
        shuffle_window: How much is mixed together where the reader shuffles: decoded bytes as text ("128MiB"), rows as
            an int, "chunk", or None for the whole table. Part of the order.
        memory_budget: Bytes that decoded chunks, batches and what workers hold may take, as an int or text. None: a
            quarter of what this process may use (cgroups counted), at most 4 GiB.
        drop_last: Leave out an epoch's last batch if it is short.
        rank: Which of `world_size` training processes this is, from 0. Each epoch's order is cut into equal shares,
            exact to the row, one a rank. None for both: `torch.distributed` where it is initialised, else RANK and
            WORLD_SIZE, else 0 of 1; found at each `iter()`.
        world_size: Number of training processes, >= 1.
        uneven: Where the rows are no multiple of `world_size`: "pad", each rank with a row less repeats one at its end;
            "mask", the same, and each batch, a dict, has a bool array "_valid", False for that row; "drop", the last
            rows of the epoch's order, fewer than `world_size`, are left out. Every rank has as many batches always.
        prefetch_factor: Runs of batches made ahead for each worker, >= 1. A run is a batch, or as many small ones as
            make about 4 MiB or 20 ms of work.
        timeout: Seconds that a task of a worker may take before LoaderTimeout; 0 for no limit. Not with num_workers=0.
        limit: Batches after which each epoch ends, for smoke runs: the first of the same order. None for no limit.
        scratch_dir: Folder for the buckets of shuffle="full", which take the decoded size of an epoch; None for the
            system's folder of temporary files.
        on_error: "raise" what cannot be read or encoded, or "skip" its rows: others stand in their places, and
            `receipt` lists them.
        trace: Keep when each task began and ended, for `to_chrome_trace`.
        audit: Follow each row by its number in its file, and check it off when it is delivered (see `receipt`).
        progress: Show a bar for each loop, with the time left; on rank 0 alone.

    Raises:
        ConfigError: An argument is wrong, or the folder is missing or empty.
        TableError: There is no such table or version, or it needs a feature that is not supported.
    """

    def __init__(
        self,
        datareader: DataReader[T_co],
        dataset: Dataset[T_co],
        datacollator: DataCollator[T_co],
        root_dir: str | os.PathLike[str],
        num_epoch: int | None = 1,
        max_queue_size: int = 10,
        shuffle: bool | Literal["full"] = False,
        random_seed: int = 42,
        *,
        num_workers: int | None = None,
        workers: str = "auto",
        shuffle_window: int | str | None = "128MiB",
        memory_budget: int | str | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Uneven = "pad",
        prefetch_factor: int = 2,
        timeout: float = 0,
        limit: int | None = None,
        scratch_dir: str | os.PathLike[str] | None = None,
        on_error: str = "raise",
        audit: bool = False,
        trace: bool = False,
        progress: bool = False,
        **unknown: Any,
    ) -> None:
        self._engine: Engine | None = None
        self._closed = False
        _refuse(unknown, datareader)
        check_parts(datareader, dataset, datacollator)
        self._options = make_options(
            datareader, dataset, num_epoch=num_epoch, max_queue_size=max_queue_size, shuffle=shuffle,
            random_seed=random_seed, num_workers=num_workers, workers=workers, shuffle_window=shuffle_window,
            memory_budget=memory_budget, drop_last=drop_last, prefetch_factor=prefetch_factor, timeout=timeout,
            audit=audit, limit=limit, on_error=on_error, scratch_dir=scratch_dir, trace=trace,
        )  # fmt: skip
        check_place(rank, world_size, uneven)
        self._asked_place = rank, world_size, uneven
        self._progress = progress_wanted(progress)
        datareader = own_reader(datareader)
        datareader._numbered = self._options.numbered
        self.datareader, self.dataset, self.datacollator = datareader, dataset, datacollator
        self.root_dir = check_root(root_dir)
        options = self._options
        self._order = Order(
            options.shuffle, options.random_seed, bool(datareader.shuffle), int(datareader.random_seed), options.window,
            joins_files=datareader._is_ours,
        )  # fmt: skip
        with named(datareader, "chunks"):
            chunks = checked_chunks(datareader.chunks(self.root_dir), type(datareader).__name__)
        if datareader.shuffle and options.window.unit == "rows" and total_rows(chunks) is None:
            raise ConfigError(
                f"shuffle_window in rows needs the length of each file before reading: {datareader.length_advice} "
                f"in {type(datareader).__name__}, or give a size such as '128MiB'"
            )
        most, part = budget.cut_bytes(options, self._order.shuffle_rows and not options.full, chunks)
        self._order = replace(self._order, window_bytes=part)
        self._units = split(chunks, most, part)
        self._n_rows, parts = total_rows(chunks), (datareader, dataset, datacollator)
        self._full = full_shuffle(parts, self._units, options, self.root_dir, self._n_rows)
        self._order = self._order if self._full is None else self._full.order
        units = self._units if self._full is None else self._full.units
        self._needed = budget.needs(self._order, units, options.batch_size)
        self._group = group_size(options, sum(chunk.size_bytes for chunk in chunks), self._n_rows)
        self._stats = Stats()
        base, version = base_of(datareader, self.root_dir), chunks[0].version if chunks else None
        self._ledger = Ledger(self.root_dir, base, self._n_rows, version, audited=options.audit)
        self._pass: Pass | None = None
        self._iterator: weakref.ref[BatchIterator] | None = None
        self._hidden: BatchIterator | None = None
        self._next_epoch = 0
        self._set_epoch: int | None = None
        self._pid = os.getpid()

    # Iteration ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the next `num_epoch` epochs; an older iterator ends."""
        batches = self._iterate(self)
        return Shown(self, batches) if self._progress and self._place().rank == 0 else batches

    def iterate_with(self, finalize: Callable[[Any], Any]) -> BatchIterator:
        """Return what `iter()` returns, with another last step in the place of the collator's `finalize`."""
        return self._iterate(self, finalize)

    def _iterate(self, keep: DataLoader[Any] | None, finalize: Callable[[Any], Any] | None = None) -> BatchIterator:
        if self._closed:
            raise RuntimeError("this DataLoader is closed")
        engine = self._running_engine()
        older = self._iterator() if self._iterator is not None else None
        if older is not None:
            older.replace()
        finalize = finalize or partial(finalized, self.datacollator)
        live, replay = self._pass, None
        if live is not None and self._set_epoch is None and not (older is not None and older.waits):
            replay = live.peeked()
            if replay is None and live.is_peek and self._loaded is None:
                self._loaded = live.begins
        if live is None or replay is None:
            live, replay = self._begin(engine, live, finalize), []
        live.finalize = finalize
        iterator = BatchIterator(live, replay, engine, keep)
        self._iterator = weakref.ref(iterator)
        self._hidden = None
        return iterator

    def __next__(self) -> Any:
        """Return the next batch of a pass of the loader's own; after its StopIteration the next pass begins."""
        if self._hidden is None:
            self._hidden = self._iterate(None)
        try:
            return next(self._hidden)
        except BaseException:
            self._hidden = None
            raise

    def get_batch(self) -> Any:
        """Return the next batch; the same as `next(loader)`."""
        return next(self)

    def get_epoch(self) -> int:
        """Return the epoch of the batch delivered last, from 1; 0 before any."""
        return self._stats.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin the next pass with an epoch, from 0 as in torch. Naming the epoch under way changes nothing."""
        if isinstance(epoch, bool) or not hasattr(epoch, "__index__") or epoch < 0:
            raise ConfigError(f"epoch must be an int >= 0, got {epoch!r}")
        if self._loaded is not None:
            self._loaded = self._loaded if self._loaded.epoch == epoch else None
            self._set_epoch = None if self._loaded is not None else int(epoch)
            return
        live = self._pass
        held = self._iterator is not None and self._iterator() is not None
        under_way = (
            live is not None and not live.finished and not live.at_epoch_end and live.epoch == epoch
            and (held or live.is_peek)
        )  # fmt: skip
        self._set_epoch = None if under_way else int(epoch)

    # Looking in and ending ------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """The table's state that every worker and epoch reads; None for a folder of files."""
        return getattr(self.datareader, "snapshot", None)

    def stats(self) -> dict[str, float]:
        """Return counters by name (see `pyloader_delta.stats.Stats`), and what the engine holds now."""
        return self._stats.flat() | (self._engine.waiting if self._engine is not None else {})

    def close(self) -> None:
        """End everything: workers, memory, the live iterator. The loader cannot be used afterwards."""
        self._closed = True
        if self._pass is not None:
            self._pass.end()
        if self._engine is not None and self._pid == os.getpid():
            self._engine.close()
        if self._full is not None:
            self._full.close()

    def __enter__(self) -> DataLoader[T_co]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        options = self._options
        rows = "unknown" if self._n_rows is None else self._n_rows
        state = "closed" if self._closed else "idle" if self._pass is None or self._pass.finished else "iterating"
        workers = "the caller's thread" if options.workers == "inline" else f"{options.n_workers} {options.workers}"
        return (
            f"<DataLoader {self.root_dir!r} rows={rows} batch_size={self.batch_size} epoch={self.get_epoch()} "
            f"batches_delivered={self._stats.batches_delivered} workers={workers} {state}>"
        )

    # Inside ---------------------------------------------------------------------------------------------------------

    def _begin(self, engine: Engine, older: Pass | None, finalize: Callable[[Any], Any]) -> Pass:
        options = self._options
        place = self._place()
        begins = self._loaded
        if begins is not None:
            begins = self._beginning(begins, place)
            self._next_epoch = begins.epoch
        elif self._set_epoch is not None:
            self._next_epoch = self._set_epoch
        elif older is not None and older.delivered:
            self._next_epoch = older.epoch + (0 if older.is_peek else 1)
        begins = begins or Position(self._next_epoch, 0, self._next_epoch)
        if older is not None and (live := older.next_pass(begins, place, finalize)) is not None:
            self._pass, self._loaded, self._set_epoch = live, None, None
            return live
        order, full = self._order, self._full  # the engine must not hold the loader: it could never be garbage
        reread = self.datareader.missing_as_none  # which columns files have had so far must be learned
        plan, others, again = epoch_plans(
            begins, place, self._units if full is None else full.units, order, options, self._group, reread=reread
        )
        size_bytes = engine.memory_bytes
        budget.check_windows(plan, size_bytes, self._needed)
        kind = Ahead if options.reads_ahead else Scheduler
        make = partial(
            kind, limits=budget.limits(options, size_bytes, self._needed), batch_size=options.batch_size,
            drop_last=options.drop_last, group=self._group, strict_types=self.dataset.input_format != "python",
            missing_as_none=self.datareader.missing_as_none, lost=self._ledger.lost if options.skips else None,
        )  # fmt: skip
        noted, rest = self._ledger.noted, chain([plan], others)
        schedulers = (
            (make(noted(rest)) for _ in range(1))
            if full is None
            else (make(iter([plan])) for plan in noted(full.dealt(rest, size_bytes)))
        )
        self._pass = Pass(
            engine, schedulers, finalize, self._stats, self._nothing(), begins, again, place, self._ledger
        )
        self._loaded = self._set_epoch = None  # not before: an error must not lose where to begin
        return self._pass

    def _nothing(self) -> str:
        if self._n_rows and self.drop_last:
            return f"drop_last leaves no batch of the {many(self._n_rows, 'row')} of {self.root_dir}"
        return (
            f"{self.root_dir} has no rows{' for a whole batch' if self.drop_last else ''}: the loader yields no batch"
        )

    def _running_engine(self) -> Engine:
        if self._engine is not None and self._pid == os.getpid():
            if not self._engine.interrupted:
                return self._engine
            self._engine.close()
            if self._pass is not None:
                self._pass.finished = True
        else:  # a forked child starts workers of its own; the parent's are not its to close
            self._pid = os.getpid()
            self._pass = self._iterator = self._hidden = None
        size_bytes = budget.budget_bytes(self._options, self._needed)
        engine = Engine(
            self._executor(),
            memory_bytes=size_bytes,
            lease_bytes=budget.lease_bytes(size_bytes),
            timeout_s=self._options.timeout_s,
            layout=_known_layout(self.datareader, numbered=self._options.numbered),
            skips=self._options.skips,
            trace=self._options.trace,
        )
        self._engine = engine
        weakref.finalize(self, engine.close, wait=False).atexit = False
        _open_loaders.add(self)
        return engine

    def _stages(self) -> Stages:
        seed, numbered = self._options.random_seed, self._options.numbered
        kind = SkippingStages if self._options.skips else Stages
        return kind(self.datareader, self.dataset, self.datacollator, seed=seed, numbered=numbered)

    def _executor(self) -> Executor:
        options = self._options
        stages = self._stages()
        if options.workers == "inline":
            return InlineExecutor(stages)
        if options.workers == "process":
            return ProcessExecutor(stages, options.n_workers)
        return ThreadExecutor(stages, options.n_workers)


def _known_layout(datareader: DataReader[Any], *, numbered: bool) -> bytes | None:
    """Return what shuffled windows will hold, where the reader's own schema tells it before anything is read."""
    if type(datareader).read_chunk is not DeltaDataReader.read_chunk:
        return None
    schema = datareader.one_schema  # type: ignore[attr-defined]
    return None if schema is None else learn_schema(schema.append(ROW_NUMBER) if numbered else schema)


def _refuse(unknown: dict[str, Any], datareader: Any) -> None:
    if "batch_size" in unknown:
        name = type(datareader).__name__
        raise ConfigError(f"batch_size belongs to the reader: {name}(batch_size={unknown['batch_size']!r})")
    if unknown:
        raise TypeError(f"DataLoader.__init__() got an unexpected keyword argument {sorted(unknown)[0]!r}")


@atexit.register
def _close_open_loaders() -> None:
    for loader in list(_open_loaders):
        with suppress(KeyboardInterrupt):  # a second Ctrl-C while it waits: workers end with this process in any case
            loader.close()
