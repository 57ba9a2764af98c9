"""`to_tf`: a loader as a tf.data.Dataset. Small batches cross to TensorFlow many at a time and are cut there again."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.adapters.arrange import Arrange, plain
from pyloader_delta.adapters.slabs import aligned_array, slabs
from pyloader_delta.collate.rows import Kinds, finished
from pyloader_delta.collate.tensorflow import TFDataCollator, _ragged
from pyloader_delta.errors import ConfigError
from pyloader_delta.outputs import Output, map_leaves
from pyloader_delta.passes import PEEK
from pyloader_delta.ragged import RaggedBatch, texts
from pyloader_delta.stages import finalized

if TYPE_CHECKING:
    from pyloader_delta.loader import DataLoader

_AHEAD = 2  # batches that TensorFlow takes ahead, once an iterator is no peek any more
_ALONE = PEEK + 1  # batches that are taken only when asked for


def to_tf(loader: DataLoader[Any], label: Any, weight: Any, signature: Any) -> Any:
    """Return a tf.data.Dataset of the loader's batches; see `DataLoader.to_tf`."""
    import tensorflow as tf

    arrange = Arrange("to_tf", label, weight)
    learned = signature is None
    if learned:
        schema = loader.schema
        if any(output.dtype is None or output.shape is None for output in schema.values()):
            schema = loader.learned_schema()
        signature = arrange(map_leaves(_spec, plain(schema.tree)))
    else:
        _without_rows(tf.nest.flatten(signature))
    feed = _Feed(loader, arrange, signature, learned=learned)

    def batches(number: Any) -> Any:
        head = tf.data.Dataset.from_generator(feed.head, args=(number,), output_signature=signature)
        tail = tf.data.Dataset.from_generator(feed.tail, args=(number,), output_signature=signature)
        return head.concatenate(_cut(tail, loader.batch_size, signature).prefetch(_AHEAD))

    # Each iteration has a number of its own, under which its head and its tail find the same pass.
    number = tf.data.Dataset.from_tensors(0).map(lambda _: tf.numpy_function(feed.begin, [], tf.int64))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # a peek must not take more than it is asked for
    dataset = number.flat_map(batches).with_options(options)
    try:
        length = len(loader)
    except TypeError:  # known only at the end, or there is none
        length = tf.data.UNKNOWN_CARDINALITY if loader.num_epoch is not None else tf.data.INFINITE_CARDINALITY
    if length != tf.data.UNKNOWN_CARDINALITY:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(length))
    dataset._loader = loader  # which lives as long as this does, and no longer: TensorFlow never forgets a function
    return dataset


class _Feed:
    """The passes that TensorFlow's iterators draw from, by number."""

    def __init__(self, loader: DataLoader[Any], arrange: Arrange, signature: Any, *, learned: bool) -> None:
        self._loader, self._arrange, self._signature = weakref.ref(loader), arrange, signature
        self._learned = learned
        self._batch_size, self._finalize = loader.batch_size, _finalize(loader.datacollator)
        self._numbers = itertools.count()
        self._passes: dict[int, Iterator[Any]] = {}

    def begin(self) -> Any:
        return np.int64(next(self._numbers))

    def head(self, number: Any) -> Iterator[Any]:
        """Yield the first batches one by one: an iterator dropped among them may have been a peek."""
        with _Told():
            loader = self._loader()
            assert loader is not None  # the dataset holds it
            self._passes[int(number)] = batches = loader.iterate_with(self._finalize)
            del loader
        over = False
        try:
            for _ in range(_ALONE):
                with _Told():
                    batch = next(batches, None)
                if batch is None:
                    return
                yield self._given(batch)
            over = True
        finally:
            del batches
            if not over:
                del self._passes[int(number)]

    def tail(self, number: Any) -> Iterator[Any]:
        """Yield all other batches, small ones of one shape joined."""
        batches = self._passes.pop(int(number), None)
        if batches is None:  # the head had all
            return
        joined = slabs(batches, self._batch_size)
        del batches
        while True:
            with _Told():
                batch = next(joined, None)
            if batch is None:
                return
            yield self._given(batch)

    def _given(self, batch: Any) -> Any:
        batch = self._arrange(plain(batch))
        if self._learned:
            return map_leaves(_checked, batch, self._signature)
        _refuse_casts(batch, self._signature)
        return map_leaves(aligned_array, batch)


def _finalize(collator: Any) -> Callable[[Any], Any]:
    """Return the last step of a batch: the collator's own, or the ready-made one without tensors of plain arrays."""
    if type(collator).finalize is TFDataCollator.finalize:
        return partial(finished, kinds=Kinds(array=None, jagged=_ragged, text=_text))
    return partial(finalized, collator)


def _text(batch: RaggedBatch) -> NDArray[Any]:
    return np.array(texts(batch._replace(form="bytes")), dtype=object)


class _Told:
    """Puts an error's type and notes into its text: TensorFlow hands on no more than that."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            notes = getattr(error, "__notes__", [])
            raise RuntimeError("\n".join([f"{type(error).__name__}: {error}", *notes])) from error


def _cut(dataset: Any, n_rows: int, signature: Any) -> Any:
    """Return a dataset of joined batches as one of batches; an epoch's last one stays short."""
    import tensorflow as tf

    if not all(isinstance(s, tf.TensorSpec) and s.shape.rank for s in tf.nest.flatten(signature)):
        return dataset
    if isinstance(signature, tuple):
        return dataset.flat_map(lambda *batch: tf.data.Dataset.from_tensors(batch).rebatch(n_rows))
    return dataset.flat_map(lambda batch: tf.data.Dataset.from_tensors(batch).rebatch(n_rows))


def _spec(output: Output) -> Any:
    import tensorflow as tf

    if output.kind == "ragged":
        assert output.shape is not None
        return tf.RaggedTensorSpec(output.shape, _dtype(output), ragged_rank=len(output.shape) - 1)
    return tf.TensorSpec(output.shape, _dtype(output))


def _dtype(output: Output) -> Any:
    import tensorflow as tf

    text = output.dtype in ("str", "bytes")
    if output.kind in ("numpy", "tensorflow", "ragged") or (output.kind == "list" and text):
        try:
            return tf.string if text else tf.as_dtype(output.dtype)
        except TypeError:
            pass
    raise ConfigError(
        f"to_tf: an output is {output}, which tf.data cannot hold: make it an array of numbers or text, with "
        "framework='tensorflow' or in the dataset's batch_encode"
    )


def _checked(value: Any, spec: Any) -> Any:
    shape = getattr(value, "shape", None)
    if shape is not None and not spec.shape.is_compatible_with(shape):
        raise RuntimeError(
            f"a batch has an array of shape {tuple(shape)}, but the first ones had {spec.shape}: name the sizes that "
            "differ by None in to_tf(signature=...)"
        )
    return aligned_array(value)


def _refuse_casts(batch: Any, signature: Any) -> None:
    """Refuse arrays of other types than a signature of the user's own: TensorFlow would cut them to those unasked."""
    import tensorflow as tf

    for value, spec in zip(tf.nest.flatten(batch), tf.nest.flatten(signature), strict=False):  # it tells other forms
        dtype = getattr(value, "dtype", None)
        wanted = getattr(getattr(spec, "dtype", None), "as_numpy_dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind in "biufc" and wanted is not None and dtype != wanted:
            raise RuntimeError(
                f"a batch has an array of {dtype}, but to_tf(signature=...) says {np.dtype(wanted)}: name the array's "
                "type there, or cast it by FieldSpec(dtype=...) or in batch_encode"
            )


def _without_rows(specs: list[Any]) -> None:
    for spec in specs:
        shape = getattr(spec, "shape", None)
        if shape is None:
            raise ConfigError(f"to_tf: signature must be made of tf.TypeSpecs, got {spec!r}")
        if shape.rank is None:
            raise ConfigError(
                f"to_tf: {spec} in signature must say how many sizes there are: (None,) is one value a row"
            )
        if shape.rank and shape[0] is not None:
            raise ConfigError(
                f"to_tf: the first size of {spec} in signature counts rows, and must be None: batches are joined and "
                "cut on their way; where it is fixed, by drop_last=True, map tf.ensure_shape over the dataset"
            )
