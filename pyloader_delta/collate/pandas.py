"""`PandasDataCollator`: data frames of Arrow's columns. Imports pandas only when it is needed."""

from __future__ import annotations

from typing import Any

from pyloader_delta.collate.arrow import ArrowDataCollator
from pyloader_delta.collate.base import T_co


class PandasDataCollator(ArrowDataCollator[T_co]):
    """Makes a pandas.DataFrame of Arrow's columns, which keep their types beside nulls; its index is 0, 1, ...

    Every column is of a pandas.ArrowDtype, on the memory of what `ArrowDataCollator` gives.
    """

    def finalize(self, batch: Any) -> Any:
        """Return the batch as a pandas.DataFrame.

        Raises:
            ContractError: It is no dict whose keys are str.
        """
        import pandas

        array = pandas.arrays.ArrowExtensionArray
        columns = self.columns(batch)
        return pandas.DataFrame({n: array(column) for n, column in zip(batch, columns, strict=True)}, copy=False)
