"""What is left of an epoch for another number of ranks: each row that nobody was given, shared out anew. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyloader_delta.permute import row_key
from pyloader_delta.plan.epoch import EpochPlan, Order, lay_out, ordered, plan_share
from pyloader_delta.plan.ranks import Piece, Place, Remnant, Uneven, cut, rows_in, rows_of
from pyloader_delta.values import Chunk, Rest


@dataclass(frozen=True, slots=True)
class Past:
    """Ranks that delivered a part of an epoch, up to the same step, and are no more."""

    world_size: int
    rows: int
    """Rows that each of them delivered, fewer than its share has."""
    uneven: Uneven


def plan_rest(
    units: Sequence[Sequence[Chunk]], order: Order, epoch: int, place: Place, history: Sequence[Past] = ()
) -> EpochPlan:
    """Return the plan of an epoch, 0-based, for one rank, over what earlier ranks have left of it.

    Takes time by the number of chunks and ranks. The lengths of all chunks must be known where there is a history.

    Args:
        units: As `split` gives them.
        order: What fixes the order.
        epoch: 0-based.
        place: The rank.
        history: Those that were at work before, in order.
    """
    pieces: Sequence[Piece] = ordered(units, order, epoch)
    origin = 0
    for past in history:
        pieces, origin = _left(pieces, order, epoch, past, origin)
    return plan_share(pieces, order, epoch, place, origin)


def _left(pieces: Sequence[Piece], order: Order, epoch: int, past: Past, origin: int) -> tuple[list[Piece], int]:
    """Return what some ranks have left: of each its window in progress and the chunks after it, then nobody's rows."""
    n_rows = sum(map(rows_in, pieces))
    places = [Place(rank, past.world_size, past.uneven) for rank in range(past.world_size)]
    *shares, nobodys = cut(pieces, [*(place.rows(n_rows).stop for place in places), n_rows])
    steps = places[0].steps(n_rows)
    found: list[Piece] = []
    for rank, share in enumerate(shares):
        found += _undelivered(share, order, epoch, past.rows, origin + rank * steps)
    return found + nobodys, origin + past.world_size * steps


def _undelivered(share: Sequence[Piece], order: Order, epoch: int, rows: int, origin: int) -> list[Piece]:
    chunks, windows, _, rests = lay_out(share, order)
    found: list[Piece] = []
    start = 0
    for number, window in enumerate(windows):
        within = chunks[window.start : window.stop]
        held = sum(chunk.n_rows or 0 for chunk in within)
        rest = rests.get(number) or Rest(row_key(order.row_seed, epoch, origin + start), 0, held)
        n = rest.stop - rest.start
        done = min(max(rows - start, 0), n)
        start += n
        if done == n:
            continue
        if number in rests or (done and order.shuffle_rows):
            found.append(Remnant(tuple(within), replace(rest, start=rest.start + done)))
        elif done:
            found.append(rows_of(within, done, held, held))
        else:
            found += [[chunk] for chunk in within] if order.shuffle_rows else [within]
    return found
