"""What a contender's batches hold, whatever their order: that two did the same work from the same rows, each once."""

from collections.abc import Iterable
from math import isclose
from typing import Any

import numpy as np

Digest = dict[str, Any]


def digest(batches: Iterable[dict[str, Any]]) -> Digest:
    """Return the number of rows, of distinct ids, their sum, and type and sum of each output."""
    ids: list[np.ndarray] = []
    outputs: dict[str, list[Any]] = {}
    for batch in batches:
        ids.append(np.asarray(batch["id"]).copy())
        for name, values in batch.items():
            array = np.asarray(values)
            found = outputs.setdefault(name, [str(array.dtype), 0.0])
            found[1] += float(array.sum(dtype=np.float64))
    every = np.concatenate(ids)
    return {
        "n_rows": len(every),
        "n_distinct": len(np.unique(every)),
        "sum": int(every.sum()),
        "outputs": dict(sorted(outputs.items())),
    }


def difference(found: Digest, wanted: Digest) -> str | None:
    """Return what a contender got wrong; None: nothing."""
    for name, text in (("n_rows", "rows"), ("n_distinct", "distinct rows"), ("sum", "as the sum of ids")):
        if found[name] != wanted[name]:
            return f"gives {found[name]:,} {text}, not {wanted[name]:,}"
    if found["outputs"].keys() != wanted["outputs"].keys():
        return f"gives {sorted(found['outputs'])}, not {sorted(wanted['outputs'])}"
    for name, (dtype, total) in wanted["outputs"].items():
        other, others = found["outputs"][name]
        if other != dtype:
            return f"gives {name} as {other}, not {dtype}"
        if not isclose(total, others, rel_tol=1e-3):  # sums of floats in another order, JPEG by another release
            return f"gives other values for {name}"
    return None
