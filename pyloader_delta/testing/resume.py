"""`check_resume`: a loader is restored at every batch, in every place where work can be done, and the rest compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from pyloader_delta.errors import ConfigError
from pyloader_delta.loader import DataLoader
from pyloader_delta.options import whole
from pyloader_delta.testing.compare import difference

EXECUTORS: Mapping[str, Mapping[str, Any]] = {
    "the caller's thread": {"num_workers": 0},
    "1 thread": {"num_workers": 1, "workers": "thread"},
    "3 threads": {"num_workers": 3, "workers": "thread"},
    "2 processes": {"num_workers": 2, "workers": "process"},
}
"""Options of a loader for each place where `check_resume` tries it."""


def check_resume(
    make_loader: Callable[..., DataLoader[Any]],
    *,
    executors: Mapping[str, Mapping[str, Any]] = EXECUTORS,
    every: int = 1,
    max_batches: int | None = None,
) -> None:
    """Check that a loader gives the same batches everywhere, and goes on from any state with the same rest.

    The first executor's batches are what the others must give, bit for bit. On each executor a new loader is restored
    after every batch, one after the other, and also at the end of the pass, after which the next pass must follow. Let
    the table be small: with n batches, about n² / 2 are made for each executor.

    Args:
        make_loader: Returns a new loader, with all that it is given as options: `num_workers=` and `workers=`. Seeds,
            table and all else must be the same each time.
        executors: Name → options of the loader, at least one.
        every: Restore after every so many batches only, >= 1.
        max_batches: Look at so many batches of a pass at most, >= 1; needed where `num_epoch` is None.

    Raises:
        AssertionError: Something differs; names the executor, the batch after which it was restored, the batch, the
            output and the first value.
        ConfigError: An argument is wrong, or the loader gives no batch.
    """
    whole(every, "every", at_least=1)
    most = None if max_batches is None else whole(max_batches, "max_batches", at_least=1)
    if not executors:
        raise ConfigError("executors must name at least one")
    names = list(executors)
    with make_loader(**executors[names[0]]) as loader:
        if loader.num_epoch is None and most is None:
            raise ConfigError("num_epoch=None has no end: give max_batches=")
        states, batches = _stream(loader, most)
        following = list(islice(loader, len(batches))) if most is None else []
    if not batches:
        raise ConfigError("the loader gives no batch, so there is nothing to compare")
    for name in names:
        with make_loader(**executors[name]) as loader:
            _compare(list(islice(loader, most)), batches, f"on {name}", 0)
            for done in range(0, len(states), every):
                _restored(loader, states[done], f"on {name}", done)
                rest = batches[done:] if done < len(batches) else following
                where = f"restored after {done} of {len(batches)} batches on {name}"
                _compare(list(islice(loader, len(rest) + (most is None))), rest, where, done)


def _stream(loader: DataLoader[Any], most: int | None) -> tuple[list[Any], list[Any]]:
    """Return the states before each batch, and after the last where the pass ends, and the batches."""
    states, batches = [loader.state_dict()], []
    for batch in islice(loader, most):
        batches.append(batch)
        states.append(json.loads(json.dumps(loader.state_dict())))
    return (states if most is None else states[:-1]), batches


def _restored(loader: DataLoader[Any], state: Any, where: str, done: int) -> None:
    loader.load_state_dict(state)
    found = loader.state_dict()
    if found != state:
        raise AssertionError(f"{where}: after loading the state of {done} batches, state_dict() gives another: {found}")


def _compare(found: list[Any], expected: list[Any], where: str, first: int) -> None:
    for number, (batch, other) in enumerate(zip(found, expected, strict=False), first):
        text = difference(batch, other)
        if text is not None:
            raise AssertionError(f"{where}: batch {number} differs: {text}")
    if len(found) != len(expected):
        raise AssertionError(f"{where}: {len(found)} batches came, expected {len(expected)}")
