"""Which rank this process is: by arguments, by torch.distributed, or by the environment, in that order."""

from __future__ import annotations

import os
import sys
from typing import Any, get_args

from pyloader_delta.errors import ConfigError
from pyloader_delta.options import whole
from pyloader_delta.plan.ranks import Place, Uneven


def check_place(rank: Any, world_size: Any, uneven: Any) -> None:
    """Raise ConfigError where an argument is wrong."""
    if uneven not in get_args(Uneven):
        raise ConfigError(f"uneven must be 'pad', 'mask' or 'drop', got {uneven!r}")
    if (rank is None) != (world_size is None):
        raise ConfigError(f"give both rank and world_size or neither, got rank={rank!r}, world_size={world_size!r}")
    if rank is not None:
        _checked(rank, world_size, "rank", "world_size", uneven)


def found_place(rank: int | None, world_size: int | None, uneven: Uneven) -> Place:
    """Return which rank of how many this process is now; arguments have passed `check_place`.

    Raises:
        ConfigError: RANK or WORLD_SIZE is not what it must be.
    """
    if rank is not None:
        return _checked(rank, world_size, "rank", "world_size", uneven)
    distributed = sys.modules.get("torch.distributed")  # who has not imported it has not initialised it
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Place(distributed.get_rank(), distributed.get_world_size(), uneven)
    texts = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if texts[0] is None and texts[1] in (None, "1"):
        return Place(uneven=uneven)
    if None in texts:
        raise ConfigError(f"RANK={texts[0]!r} and WORLD_SIZE={texts[1]!r} in the environment: set both or neither")
    numbers = [int(text) if text and text.isdecimal() else text for text in texts]
    return _checked(numbers[0], numbers[1], "RANK", "WORLD_SIZE", uneven)


def _checked(rank: Any, world_size: Any, rank_name: str, size_name: str, uneven: Uneven) -> Place:
    world_size = whole(world_size, size_name, at_least=1)
    rank = whole(rank, rank_name, at_least=0)
    if rank >= world_size:
        raise ConfigError(f"{rank_name} must be below {size_name}={world_size}, got {rank}")
    return Place(rank, world_size, uneven)
