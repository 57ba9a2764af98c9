"""Random generators keyed by what they are for, so that chance is the same for any workers, on any machine."""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import numpy as np

Key = tuple[int | str, ...]


class KeyedRng:
    """Gives an object `self.rng`, a generator keyed anew for each call that the loader makes.

    An attribute of that name that the user's class sets for itself takes its place.
    """

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        state = owner.__dict__
        if state.get("_rng") is None:
            state["_rng"] = generator(("alone",) if state.get("_rng_key") is None else state["_rng_key"])
        return state["_rng"]


def key_rng(owner: Any, key: Key) -> None:
    """Key an object's generator; it is made only if it is used."""
    state = owner.__dict__
    state["_rng_key"] = key
    state["_rng"] = None


def generator(key: Key) -> np.random.Generator:
    """Return the generator of a key: the same stream for the same key with one release of NumPy."""
    words = np.frombuffer(_digest(key, 16), "<u8").astype(np.uint64)  # Philox takes twice as long to read an int
    return np.random.Generator(np.random.Philox(key=words))


def seed_globals(key: Key) -> None:
    """Seed `random`, `numpy.random` and an imported torch. Only for worker processes, whose globals are our own."""
    number = int.from_bytes(_digest(key, 8), "little")
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)  # user code that draws from the global state is what this is for
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(number & 0x7FFFFFFFFFFFFFFF)


def _digest(key: Key, n_bytes: int) -> bytes:
    return hashlib.blake2b(repr(key).encode(), digest_size=n_bytes).digest()
