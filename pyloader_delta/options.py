"""The arguments of a loader, checked: every mistake is found before anything is opened or started."""

from __future__ import annotations

import copy
import inspect
import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pyloader_delta.collate.base import DataCollator
from pyloader_delta.encode.base import Dataset, InputFormat
from pyloader_delta.errors import ConfigError
from pyloader_delta.memory import parse_bytes, usable_cpus
from pyloader_delta.ours import is_ours
from pyloader_delta.read.base import DataReader
from pyloader_delta.values import WindowSize

WorkerKind = Literal["inline", "thread", "process"]

GROUP_ROWS, GROUP_BYTES = 1 << 17, 16 << 20
"""Rows, and bytes of them by the chunks' own estimates, that a `rowwise` dataset gets in one call, at most."""
_GROUPS_OF_WINDOW = 4
"""Such calls for a window, at least: who asks for a small window has little memory for batches, too."""
PYTHON_GROUP_ROWS = 4096
"""Rows that one of Python values gets in one call, at most: they take so long that workers should share them."""

_ENDLESS_S = 1e9  # locks cannot wait much longer: a timeout of 32 years is none


@dataclass(frozen=True, slots=True)
class Options:
    """What a loader was asked for."""

    num_epoch: int | None
    max_queue_size: int
    shuffle: bool
    random_seed: int
    n_workers: int
    """Workers, >= 1; one for "inline"."""
    workers: WorkerKind
    window: WindowSize
    memory_budget: int | None
    drop_last: bool
    prefetch_factor: int
    timeout_s: float
    batch_size: int
    group_rows: int
    """Rows that may be encoded in one call, if several batches may be; else 0."""
    full: bool = False
    """Whether all rows are mixed, by way of a scratch file."""
    scratch_dir: str | None = None
    """Where that is; None for the system's folder of temporary files."""
    audit: bool = False
    """Whether each row is checked off by its number."""
    skips: bool = False
    """Whether rows that cannot be read or encoded are skipped."""
    trace: bool = False
    """Whether each task is kept for a trace."""
    limit: int | None = None
    """Batches after which an epoch ends; None for no limit."""
    may_read_ahead: bool = False
    """Whether the reader lets chunks of the next pass be read before that is asked for."""

    @property
    def numbered(self) -> bool:
        """Whether each row is followed by its number."""
        return self.audit or self.skips

    @property
    def reads_ahead(self) -> bool:
        """Whether the beginning of the next pass is read as one ends: that of a loop an epoch, by workers."""
        asked = self.may_read_ahead and self.num_epoch == 1 and self.limit is None
        return asked and not self.full and self.workers != "inline"

    @property
    def max_rows(self) -> int | None:
        """Rows after which an epoch ends; None for no limit."""
        return None if self.limit is None else self.limit * self.batch_size


def check_parts(datareader: Any, dataset: Any, datacollator: Any) -> None:
    """Raise ConfigError where one of the three objects is not what it must be."""
    for value, kind, name in (
        (datareader, DataReader, "datareader"),
        (dataset, Dataset, "dataset"),
        (datacollator, DataCollator, "datacollator"),
    ):
        if isinstance(value, type):
            raise ConfigError(f"{name} must be an instance: {name}={value.__name__}(), not the class {value.__name__}")
        if not isinstance(value, kind):
            raise ConfigError(f"{name} must be a pyloader_delta.{kind.__name__}, got {type(value).__name__}")
    if type(datareader).read_file is DataReader.read_file and type(datareader).read_chunk is DataReader.read_chunk:
        raise ConfigError(f"{type(datareader).__name__} must define read_file(self, path)")
    if type(dataset).batch_encode is Dataset.batch_encode:
        raise ConfigError(f"{type(dataset).__name__} must define batch_encode(self, batch_data)")
    if dataset.input_format not in get_args(InputFormat):
        raise ConfigError(
            f"{type(dataset).__name__}.input_format must be 'python', 'numpy' or 'arrow', got {dataset.input_format!r}"
        )
    for method, argument in (
        (datareader.read_file, "path"), (datareader.read_chunk, "chunk"), (dataset.batch_encode, "batch_data"),
        (datacollator.collate_batch, "features"), (datacollator.finalize, "batch"),
    ):  # fmt: skip
        _check_takes_one(method, argument)
    whole(datareader.batch_size, f"{type(datareader).__name__}.batch_size", at_least=1)
    whole(datareader.random_seed, f"{type(datareader).__name__}.random_seed")
    flag(datareader.shuffle, f"{type(datareader).__name__}.shuffle")


def make_options(
    datareader: DataReader[Any], dataset: Dataset[Any], *, num_epoch: Any, max_queue_size: Any, shuffle: Any,
    random_seed: Any, num_workers: Any, workers: Any, shuffle_window: Any, memory_budget: Any, drop_last: Any,
    prefetch_factor: Any, timeout: Any, audit: Any, limit: Any, on_error: Any, scratch_dir: Any,
    trace: Any,
) -> Options:  # fmt: skip
    """Return the checked options.

    Raises:
        ConfigError: An argument has a wrong type or value; names it.
    """
    if workers not in ("auto", "thread", "process"):
        raise ConfigError(f"workers must be 'auto', 'thread' or 'process', got {workers!r}")
    n_workers = usable_cpus() if num_workers is None else whole(num_workers, "num_workers", at_least=0)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ConfigError(f"timeout must be a number of seconds >= 0 (0: no limit), got {timeout!r}")
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    batch_size = int(datareader.batch_size)
    full = isinstance(shuffle, str) and shuffle == "full"
    return Options(
        num_epoch=None if num_epoch is None else whole(num_epoch, "num_epoch", at_least=1),
        max_queue_size=whole(max_queue_size, "max_queue_size", at_least=1),
        shuffle=full or flag(shuffle, "shuffle, if not 'full',"),
        full=full,
        scratch_dir=None if scratch_dir is None else _folder(scratch_dir),
        random_seed=whole(random_seed, "random_seed"),
        n_workers=max(n_workers, 1),
        workers="inline" if n_workers == 0 else _kind(workers, datareader, dataset),
        window=_window(shuffle_window),
        memory_budget=None if memory_budget is None else parse_bytes(memory_budget, "memory_budget"),
        drop_last=flag(drop_last, "drop_last"),
        prefetch_factor=whole(prefetch_factor, "prefetch_factor", at_least=1),
        timeout_s=float(timeout) if timeout < _ENDLESS_S else 0.0,
        batch_size=batch_size,
        group_rows=_group_rows(dataset),
        audit=flag(audit, "audit"),
        trace=flag(trace, "trace"),
        skips=on_error == "skip",
        limit=None if limit is None else whole(limit, "limit", at_least=1),
        may_read_ahead=datareader._is_ours or flag(datareader.reads_ahead, "the reader's reads_ahead"),
    )


def _group_rows(dataset: Dataset[Any]) -> int:
    if not dataset.rowwise:
        return 0
    most = PYTHON_GROUP_ROWS if dataset.input_format == "python" else GROUP_ROWS
    return dataset._rows_at_once or most


def group_size(options: Options, size_bytes: int, n_rows: int | None) -> int:
    """Return the batches encoded in one call: fixed by the plan alone, as `rng` is keyed by it.

    Args:
        size_bytes: Estimated decoded size of all chunks.
        n_rows: Their rows; None where unknown before reading.
    """
    if not options.group_rows or not n_rows:
        return 1
    window = GROUP_BYTES if options.window.unit == "chunk" else options.window.size_bytes(size_bytes, n_rows)
    rows = min(options.group_rows, min(GROUP_BYTES, window // _GROUPS_OF_WINDOW) * n_rows // max(size_bytes, 1))
    return max(rows // options.batch_size, 1)


def check_root(root_dir: Any) -> str:
    """Return the root as text."""
    if not isinstance(root_dir, (str, os.PathLike)) or not os.fspath(root_dir):
        raise ConfigError(f"root_dir must be the path of a folder or the URI of a table, got {root_dir!r}")
    return str(os.fspath(root_dir))


def own_reader(datareader: DataReader[Any]) -> DataReader[Any]:
    """Return a reader that no other loader has: the first loader takes the user's own, later ones copies of it.

    A reader knows the table that its chunks come from, so two loaders must not share one.
    """
    if not vars(datareader).get("_in_loader"):
        datareader._in_loader = True
        return datareader
    return copy.copy(datareader)


def whole(value: Any, name: str, *, at_least: int | None = None) -> int:
    """Return an int; numpy's ints count, bools do not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} must be an int, got {value!r}")
    if at_least is not None and value < at_least:
        raise ConfigError(f"{name} must be >= {at_least}, got {value!r}")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """Return a bool; 0 and 1 count as well."""
    if getattr(value, "shape", None) == ():
        value = value.item()  # NumPy's own bool
    if not isinstance(value, int) or value not in (True, False):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _folder(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ConfigError(f"scratch_dir must be the path of a folder or None, got {value!r}")
    return os.path.abspath(str(os.fspath(value)))


def _window(value: Any) -> WindowSize:
    if value is None:
        return WindowSize("table", 1 << 62)
    if isinstance(value, str) and value == "chunk":
        return WindowSize("chunk", 1)
    if isinstance(value, str):
        return WindowSize("bytes", parse_bytes(value, "shuffle_window"))
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ConfigError(
            f"shuffle_window must be a size such as '128MiB', a number of rows >= 1, 'chunk', or None, got {value!r}"
        )
    return WindowSize("rows", int(value))


def _kind(workers: str, datareader: DataReader[Any], dataset: Dataset[Any]) -> WorkerKind:
    if workers == "thread" or workers == "process":
        return "thread" if workers == "thread" else "process"
    own = not is_ours(type(datareader)) and any(
        name in vars(kind)
        for kind in type(datareader).__mro__
        if not is_ours(kind)
        for name in ("read_file", "read_chunk")
    )
    python = dataset.input_format == "python" or getattr(dataset, "runs_python", False)
    return "process" if own or python else "thread"


def _check_takes_one(method: Any, argument: str) -> None:
    name = getattr(method, "__qualname__", repr(method))
    try:
        inspect.signature(method).bind(None)
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError) and not inspect.isfunction(getattr(method, "__func__", None)):
            return  # a builtin without a signature
        raise ConfigError(f"{name} must take one argument: def {method.__name__}(self, {argument})") from error
