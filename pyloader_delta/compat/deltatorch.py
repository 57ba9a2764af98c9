"""deltatorch's `create_pytorch_dataloader` over our engine; docs/migrating.md has every difference."""

from __future__ import annotations

import importlib.util
import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyloader_delta.compat.samples import BatchedFields, Collated, OfSamples, SampledFields
from pyloader_delta.encode.fields import FieldSpec
from pyloader_delta.errors import ConfigError
from pyloader_delta.loader import DataLoader
from pyloader_delta.oneline import dealt_out
from pyloader_delta.options import flag, whole
from pyloader_delta.read.delta import DeltaDataReader
from pyloader_delta.words import many

if TYPE_CHECKING:
    from torch.utils.data import DataLoader as TorchDataLoader

__all__ = ["FieldSpec", "create_pytorch_dataloader"]

_REFUSED = {
    "worker_init_fn": "do it in the transform, or in open() of a pyloader_delta.Dataset of your own",
    "generator": "random_seed=... sets the order",
    "sampler": "shuffle=True mixes rows; filter=... chooses them",
    "batch_sampler": "batch_size, shuffle and drop_last cut the batches",
}


def create_pytorch_dataloader(
    path: str | os.PathLike[str],
    id_or_length: str | int | None = None,
    fields: Sequence[FieldSpec | str] | None = None,
    partition_filter: Sequence[Any] | None = None,
    version: int | None = None,
    batch_size: int = 32,
    use_fixed_rank: bool = False,
    rank: int | None = None,
    num_ranks: int | None = None,
    num_workers: int | None = 2,
    shuffle: bool | Literal["full"] = False,
    drop_last: bool = False,
    storage_options: dict[str, str] | None = None,
    *,
    id_field: str | None = None,
    length: int | None = None,
    src_field: str | None = None,
    target_field: str | None = None,
    load_pil: bool = False,
    apply_src_numpy_shape: tuple[int, ...] | None = None,
    transform: Callable[[Any], Any] | None = None,
    target_transform: Callable[[Any], Any] | None = None,
    queue_size: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    random_seed: int = 42,
    **options: Any,
) -> TorchDataLoader[Any]:
    """Return torch's DataLoader of a Delta table; `len` of it is batches, `len` of its `dataset` rows.

    A batch is a dict as torch's default_collate makes it: ints as int64, floats as float64, texts and bytes as lists.
    With `src_field` it is deltatorch's older form: a batch is the list [X, y].

    Args:
        path: The table's path or URI.
        id_or_length: deltatorch's `id_field`, which is not needed; or, an int, the older form's `length`.
        fields: What becomes of which columns; None: all columns as they are.
        partition_filter: (column, operator, value) tuples, all of which must hold; of any columns.
        version: The table's version; None: the newest, pinned now.
        batch_size: Rows in a batch, >= 1.
        use_fixed_rank: Whether `rank` and `num_ranks` hold.
        rank: Number of this training process, from 0.
        num_ranks: Training processes, >= 1.
        num_workers: Workers of the loader, >= 0; torch's DataLoader has none.
        shuffle: Permute the order of chunks, and mix the rows of each window; "full": all rows; each epoch anew.
        drop_last: Leave out a short last batch.
        storage_options: Access to the object store.
        id_field: Not needed, and not read.
        length: Rows of the table; a warning where that is wrong.
        src_field: Column of X.
        target_field: Column of y.
        load_pil: Decode X as images; without `transform` uint8 (H, W, channels).
        apply_src_numpy_shape: Read the bytes of X as uint8 arrays of this shape.
        transform: Called with each X.
        target_transform: Called with each y.
        queue_size: Not needed: `memory_budget` bounds what is read ahead.
        collate_fn: Gets a list of samples, dicts name → value; in the older form tuples (X, y). Runs in the workers.
        random_seed: Seed of the order.
        options: `prefetch_factor`, `persistent_workers`, `timeout` and `multiprocessing_context` go to the loader's
            workers, `pin_memory` and `pin_memory_device` to torch, `in_order` always holds; all others of
            `DataLoader.from_delta` by name.

    Raises:
        ConfigError: An argument is wrong or cannot be honoured; names it.
        ValueTypeError: torch cannot hold a column's type; names the remedy.
        TableError: There is no such table or version, or it needs a feature that is not supported.
    """
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("create_pytorch_dataloader needs torch: pip install torch")
    if isinstance(id_or_length, int) and not isinstance(id_or_length, bool):
        length = id_or_length
    old = {"src_field": src_field, "target_field": target_field, "load_pil": load_pil or None, "transform": transform,
           "apply_src_numpy_shape": apply_src_numpy_shape, "target_transform": target_transform}  # fmt: skip
    pair = src_field is not None or target_field is not None
    if pair:
        if fields is not None:
            raise ConfigError("src_field and target_field are the older form: give them or fields, not both")
        fields = _pair_fields(**old)
    elif wrong := [name for name, value in old.items() if value is not None]:
        raise ConfigError(f"{wrong[0]} goes with src_field and target_field; for fields set it in FieldSpec")
    whole(batch_size, "batch_size", at_least=1)
    if queue_size is not None:
        whole(queue_size, "queue_size", at_least=1)
    for_torch = {name: options.pop(name) for name in ("pin_memory", "pin_memory_device") if name in options}
    ours = _ours(options, use_fixed_rank, rank, num_ranks)
    call = create_pytorch_dataloader
    named = list(inspect.signature(call).parameters)
    for_reader, for_loader = dealt_out(ours, DataLoader.__init__, call.__name__, named)
    if partition_filter is not None:
        if "filter" in for_reader:
            raise ConfigError("partition_filter and filter exclude each other; filter takes partition columns as well")
        for_reader["filter"] = _unquoted(partition_filter)
    if for_reader.get("exact_length") is False:
        raise ConfigError("exact_length=False has no len(), which torch's DataLoader needs; leave it out")
    collator = Collated(pair) if collate_fn is None else OfSamples(_function(collate_fn), pair)
    dataset = BatchedFields(fields) if collate_fn is None else SampledFields(fields)
    columns = None if dataset.fields is None else list(dict.fromkeys(spec.name for spec in dataset.fields))
    reader: Any = DeltaDataReader(
        batch_size,
        isinstance(shuffle, str) or shuffle,
        random_seed,
        columns=columns,
        version=version,
        storage_options=storage_options,
        **for_reader,
    )
    loader: DataLoader[Any] = DataLoader(
        reader, dataset, collator, path, shuffle=shuffle, random_seed=random_seed, num_workers=num_workers,
        drop_last=drop_last, **for_loader,
    )  # fmt: skip
    dataset.outputs(reader.schema)
    if length is not None:
        _compare(whole(length, "length", at_least=0), loader)
    from pyloader_delta.adapters.torch import to_torch

    return to_torch(loader, **for_torch)


def _pair_fields(src_field: Any, target_field: Any, **old: Any) -> list[FieldSpec]:
    """Return the fields of the older form.

    Raises:
        ConfigError: One of the two columns is missing.
    """
    for name, value in (("src_field", src_field), ("target_field", target_field)):
        if value is None:
            raise ConfigError(f"the older form needs both src_field and target_field; {name} is missing")
    return [
        FieldSpec(src_field, old["apply_src_numpy_shape"], bool(old["load_pil"]), old["transform"], "X"),
        FieldSpec(target_field, transform=old["target_transform"], target_name="y"),
    ]


def _ours(options: dict[str, Any], use_fixed_rank: Any, rank: Any, num_ranks: Any) -> dict[str, Any]:
    """Return torch's options as ours.

    Raises:
        ConfigError: One cannot be honoured; says what to do.
    """
    options = dict(options)
    for name, advice in _REFUSED.items():
        if options.pop(name, None) is not None:
            raise ConfigError(f"create_pytorch_dataloader cannot honour {name}: {advice}")
    if "num_epoch" in options:
        raise ConfigError("num_epoch is of pyloader_delta.DataLoader alone: torch's DataLoader gives one epoch a loop")
    if "world_size" in options:
        raise ConfigError("world_size is named num_ranks here, and holds with use_fixed_rank=True")
    flag(options.pop("persistent_workers", False), "persistent_workers")  # ours always are
    flag(options.pop("in_order", True), "in_order")  # ours always is
    if options.get("prefetch_factor", 0) is None:
        del options["prefetch_factor"]
    context = options.pop("multiprocessing_context", None)
    if context is not None:
        options["workers"] = _context(context, options.get("workers", "process"))
    if flag(use_fixed_rank, "use_fixed_rank"):
        if rank is None or num_ranks is None:
            raise ConfigError("use_fixed_rank=True needs rank and num_ranks")
        options |= {"rank": rank, "world_size": num_ranks}
    elif rank is not None or num_ranks is not None:
        text = "rank and num_ranks hold with use_fixed_rank=True alone: without it both are found when a loop begins"
        warnings.warn(text, UserWarning, stacklevel=3)
    return options


def _context(context: Any, workers: Any) -> str:
    method = context if isinstance(context, str) else getattr(context, "get_start_method", lambda: None)()
    if method not in ("spawn", "forkserver") or workers != "process":
        raise ConfigError(
            f"multiprocessing_context must be 'spawn' or 'forkserver', without workers='thread', got {context!r}: "
            "worker processes start anew and are never forked"
        )
    return "process"


def _unquoted(partition_filter: Any) -> Any:
    """Return a filter without the quotes that deltatorch wanted inside of texts: "'a'" is the text a."""
    if isinstance(partition_filter, (list, tuple)):
        parts = [_unquoted(part) for part in partition_filter]
        return tuple(parts) if isinstance(partition_filter, tuple) else parts
    text = partition_filter
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _function(collate_fn: Any) -> Any:
    if not callable(collate_fn):
        raise ConfigError(f"collate_fn must be a function of a list of samples, got {collate_fn!r}")
    return collate_fn


def _compare(length: int, loader: DataLoader[Any]) -> None:
    n_rows = sum(len(chunk.rows) for chunk in loader.datareader.chunks(loader.root_dir) if chunk.rows is not None)
    if n_rows != length:
        text = f"length is {length}, but {loader.root_dir} has {many(n_rows, 'row')} to read: that is what counts"
        warnings.warn(text, UserWarning, stacklevel=3)
