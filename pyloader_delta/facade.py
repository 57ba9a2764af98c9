"""What a loader offers beside its loop: the one-liner that makes one, a look at its rows, other forms of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Self

from pyloader_delta.encode.fields import Features, FieldSpec
from pyloader_delta.encode.spec import Framework
from pyloader_delta.errors import ConfigError
from pyloader_delta.ledger import Ledger
from pyloader_delta.oneline import collator, dealt_out, encoder, outputs
from pyloader_delta.options import whole
from pyloader_delta.outputs import Outputs, outputs_of
from pyloader_delta.preview import Preview, first_batches
from pyloader_delta.read.delta import DeltaDataReader
from pyloader_delta.receipt import Receipt
from pyloader_delta.shuffling.preview import ShufflePreview, preview_shuffle
from pyloader_delta.stages import Stages
from pyloader_delta.values import Chunk
from pyloader_delta.views import Views


class Facade(Views):
    """Base of `DataLoader`."""

    root_dir: str
    _units: list[list[Chunk]]
    _schema: Outputs | None = None
    _ledger: Ledger

    @property
    def batch_size(self) -> int:
        """Rows in a batch."""
        raise NotImplementedError

    @property
    def drop_last(self) -> bool:
        """Whether a short last batch is left out."""
        raise NotImplementedError

    def _stages(self) -> Stages:
        raise NotImplementedError

    @classmethod
    def from_delta(
        cls,
        uri: str | os.PathLike[str],
        batch_size: int = 16,
        *,
        columns: Sequence[str] | None = None,
        fields: Sequence[str | FieldSpec] | None = None,
        features: Features | None = None,
        features_dtype: Any = None,
        shuffle: bool | Literal["full"] = False,
        random_seed: int = 42,
        framework: Framework = "torch",
        device: Any = None,
        pin_memory: bool = False,
        **options: Any,
    ) -> Self:
        """Return a loader of a Delta table's columns as arrays or tensors; no class need be written.

        A batch is a dict: name → array or tensor, first axis rows, as `schema` says before anything is read; with Arrow
        and pandas it is a record batch or a data frame.

        Args:
            uri: The table's path or URI.
            batch_size: Rows in a batch, >= 1.
            columns: Names of the columns to give. None: those of `fields`; without `fields`, all.
            fields: What becomes of which columns (`FieldSpec`); a name alone is a column as it is.
            features: Columns of numbers that become one row-major matrix (rows, columns), under the name "features"; or
                name → columns, for several. They are not given apart from it.
            features_dtype: Type of the matrices, such as "float32"; None: their columns' own, which must be one.
            shuffle: Permute the order of chunks, and mix the rows of each window (`shuffle_window`); "full": all rows.
            random_seed: Seed of both.
            framework: What a batch is: a dict of "torch", "tensorflow", "jax" or "numpy", "arrow"'s RecordBatch, or
                "pandas"' DataFrame.
            device: Where torch's tensors are moved to, in this process: a device of torch's, or its name.
            pin_memory: Take them through pinned memory; nothing where there is no CUDA.
            options: All others of `DataLoader` and `DeltaDataReader`, by their names.

        Raises:
            ConfigError: An argument is wrong, there is no such option or column, or the framework is not installed.
            ValueTypeError: The framework cannot hold a column's type; names the remedy.
            TableError: There is no such table or version, or it needs a feature that is not supported.
        """
        dataset, names = encoder(columns, fields, features, features_dtype, framework)
        for_reader, for_loader = dealt_out(options, cls.__init__)
        mixed = True if isinstance(shuffle, str) else shuffle
        reader: Any = DeltaDataReader(batch_size, mixed, random_seed, columns=names, **for_reader)
        make: Any = cls
        made = collator(framework, device, pin_memory)
        loader: Self = make(reader, dataset, made, uri, shuffle=shuffle, random_seed=random_seed, **for_loader)
        loader._schema = outputs(dataset, reader.schema)
        return loader

    @property
    def schema(self) -> Outputs:
        """What each output of a batch will be: name → dtype, shape (None: differs), what holds it.

        Known from the table's own schema, before anything is read, where `from_delta` made the loader; "unknown" is
        there what a `transform` of yours or the images decide. Of classes of your own it is learned once, from the
        first rows: encoded as batches of `batch_size`, of half as many, and of 1.

        Raises:
            ConfigError: There is no row to learn from.
        """
        if self._schema is None:
            self._schema = self.learned_schema()
        return self._schema

    def learned_schema(self) -> Outputs:
        """Return what the outputs are by the first rows.

        Raises:
            ConfigError: There is no row to learn from.
        """
        size = self.batch_size
        sizes = [size] if self.drop_last else [size, (size + 1) // 2, 1]
        batches = [batch for batch, _ in first_batches(self._stages(), self._units, sizes)]
        if not batches:
            raise ConfigError(f"{self.root_dir} has no row to learn the schema of batches from")
        return outputs_of(batches)

    def preview(self, n: int = 5) -> Preview:
        """Return the first `n` rows as one batch, made at once in this thread; prints as a table, also in notebooks.

        They are the first of the table or folder in its own order. A pass that is under way is not disturbed.

        Raises:
            ConfigError: `n` is no int >= 1.
        """
        sizes = [whole(n, "n", at_least=1)]
        return Preview(*next(iter(first_batches(self._stages(), self._units, sizes)), (None, 0)))

    def preview_shuffle(self, label: str | None = None, *, epoch: int = 0, batches: int = 64) -> ShufflePreview:
        """Return how an epoch's batches mix the table, before any training; `print` it, or `.save("shuffle.png")`.

        By the plan alone: nothing is read but a label column, and that only where the batches looked at have rows.

        Args:
            label: A column of the table, to compare the batches' mixes of it.
            epoch: Which epoch, from 0.
            batches: How many batches to look at, spread over the epoch, >= 1.

        Raises:
            ConfigError: Lengths are unknown, there are no rows, or the label is no such column.
        """
        this: Any = self
        return preview_shuffle(this, label, epoch=epoch, batches=batches)

    def receipt(self) -> Receipt:
        """Return what came of the rows of the epoch of the batch delivered last; print it, or `to_dict()` it.

        With `audit=True` rows are counted by file where they are handed over, and the receipt has a digest of them that
        is the same for any order. Receipts of all ranks add up: `sum(receipts).whole`. That an epoch has all its rows
        is checked in any case, with its last batch.

        Raises:
            ConfigError: No batch was delivered yet.
        """
        return self._ledger.receipt()
