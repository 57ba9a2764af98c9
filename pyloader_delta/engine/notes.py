"""What is known of a run of batches beside the batches themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes on one run."""

    numbers: NDArray[np.int64] | None = None
    """The number of each row that was gathered (see `numbered`), in order of delivery; None where they are not asked
    for."""
    skipped: tuple[tuple[int, str], ...] = ()
    """(row of the run, error) of each row that was skipped; another row of its batch stands in its place."""
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Time that gathering, encoding and collating took."""


NOTHING = Notes()
