"""The scheduler against a model: whatever workers do, each row comes once, in one order, within bounds."""

from bisect import bisect_right
from itertools import count, groupby
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyloader_delta.engine.ahead import Ahead
from pyloader_delta.engine.kinds import Kinds
from pyloader_delta.engine.progress import Progress
from pyloader_delta.engine.scheduler import Scheduler
from pyloader_delta.engine.space import Cursors
from pyloader_delta.engine.tasks import Limits, MixTask, ReadTask, RunTask
from pyloader_delta.errors import BudgetError, IncompleteEpochError, ReadError
from pyloader_delta.permute import permuted
from pyloader_delta.plan.epoch import Order, plan_epoch, split
from pyloader_delta.plan.ranks import Place
from pyloader_delta.plan.resume import group_start, resumed, window_starts
from pyloader_delta.values import Chunk, WindowSize

ROW_BYTES = 10


@pytest.fixture(autouse=True, scope="module")
def _small_units():
    with mock.patch("pyloader_delta.plan.epoch.UNIT_BYTES", 300):
        yield


@st.composite
def plans(draw):
    """Units of chunks, an order, and whether lengths are known."""
    known = draw(st.booleans())
    sizes = draw(st.lists(st.integers(0, 40), min_size=0, max_size=12))
    units = []
    cursor = draw(st.sampled_from([0, 100, 2000]))
    for number, n in enumerate(sizes):
        if known:
            of_group = {"row_group": 0, "row_group_rows": range(n), "cursor_bytes": cursor}
            chunk = Chunk(f"f{number}", n * ROW_BYTES, range(n), **of_group)
            units += split([chunk], draw(st.sampled_from([50, 10_000])))
        else:
            units.append([Chunk(f"f{number}", draw(st.integers(0, 400)))])
    window = draw(st.sampled_from([WindowSize("bytes", 150), WindowSize("bytes", 1), WindowSize("chunk", 1)]))
    together = draw(st.sampled_from([0, 60, 10_000]))
    flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    order = Order(flags[0], 3, flags[1], 4, window, window_bytes=together, joins_files=flags[2])
    return units, dict(enumerate(sizes)), order


class World:
    """Carries out tasks as a worker would, in memory, and counts what it does."""

    def __init__(self, rows_of_file, epochs):
        self.rows_of_file, self.epochs = rows_of_file, epochs
        self.blocks = {}
        self.out = {}
        self.given = {}  # task that mixes → the reads that it found
        self.unmixed = {}  # (epoch, window) → numbers of reads that wait for it to be mixed

    def n_rows(self, chunk):
        return len(chunk.rows) if chunk.rows is not None else self.rows_of_file[int(chunk.path[1:])]

    def read(self, task):
        blocks = []
        for chunk in task.chunks:
            start = chunk.rows.start if chunk.rows is not None else 0
            blocks += [(task.epoch, chunk.path, start + i) for i in range(self.n_rows(chunk))]
        self.blocks[task.number] = blocks
        return [self.n_rows(chunk) for chunk in task.chunks]

    def give(self, task):
        if isinstance(task, MixTask):
            self.given[task.number] = set(self.unmixed[task.epoch, task.window])
        return task

    def let_go(self, scheduler):
        for number in scheduler.freed:
            del self.blocks[number]
            for held in self.unmixed.values():
                held.discard(number)
        scheduler.freed.clear()

    def read_done(self, scheduler, worker, task, mixes):
        rows = self.read(task)
        mix = mixes and task.window_rows is not None
        if mix:
            self.unmixed.setdefault((task.epoch, task.window), set()).add(task.number)
            chunk_rows = sum(rows)
            assert 0 <= task.first_row <= task.first_row + chunk_rows <= task.window_rows
        scheduler.read_done(worker, task, rows, sum(rows) * ROW_BYTES, mix=mix)

    def run(self, task):
        rows = []
        for segment in task.segments:
            assert not set(segment.reads) & self.unmixed.get((task.epoch, segment.window), set())
            held = [row for number in segment.reads for row in self.blocks[number]]
            assert len(held) == segment.n_rows
            places = range(segment.n_rows) if segment.key is None else permuted(segment.n_rows, segment.key)
            rows += [held[i] for i in places[segment.start : segment.stop]]
        assert len(rows) == task.n_rows
        self.out[task.number] = rows


def expected(units, rows_of_file, order, n_epochs, batch_size, drop_last):
    batches = []
    for epoch in range(n_epochs):
        plan = plan_epoch(units, order, epoch)
        rows = []
        for window in plan.windows:
            held = []
            for position in window:
                chunk = plan.chunks[position]
                n = len(chunk.rows) if chunk.rows is not None else rows_of_file[int(chunk.path[1:])]
                start = chunk.rows.start if chunk.rows is not None else 0
                held += [(epoch, chunk.path, start + i) for i in range(n)]
            key = ("rows", order.row_seed, epoch, len(rows))
            places = permuted(len(held), key) if order.shuffle_rows else np.arange(len(held))
            rows += [held[i] for i in places]
        cut = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        batches += [b for b in cut if len(b) == batch_size or not drop_last]
    return batches


def expected_groups(units, rows_of_file, order, epoch, batch_size, drop_last, most):
    """Return the batches of each group: neighbours inside one unit, or neighbours that all cross a border of units.

    A group has one batch more than there are before it, at most.
    """
    plan = plan_epoch(units, order, epoch)
    unit_of_row = []
    for number, window in enumerate(plan.windows):
        for position in window:
            chunk = plan.chunks[position]
            n = len(chunk.rows) if chunk.rows is not None else rows_of_file[int(chunk.path[1:])]
            unit_of_row += [plan.units[number]] * n
    batches = [set(unit_of_row[i : i + batch_size]) for i in range(0, len(unit_of_row), batch_size)]
    if drop_last and len(unit_of_row) % batch_size:
        batches.pop()
    alike = [str(batch.pop()) if len(batch) == 1 else "several" for batch in batches]
    found = []
    for _, members in groupby(alike):
        left = len(list(members))
        while left:
            found.append(min(most, sum(found) + 1, left))
            left -= found[-1]
    return found


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    plans(), st.data(), st.integers(1, 9), st.booleans(), st.integers(1, 4), st.integers(1, 3),
    st.integers(1, 6), st.sampled_from([600, 2000, 10**9]), st.integers(1, 3), st.integers(1, 5), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_every_row_comes_once_in_one_order_whatever_workers_do(
    plan, data, batch_size, drop_last, n_workers, n_epochs, queue, store_bytes, pending, group, mixes, a_pass_each
):
    units, rows_of_file, order = plan
    known = all(chunk.rows is not None for unit in units for chunk in unit)
    group = (
        group if known else 1
    )  # as `options.group_size` has it: which batch is a unit's last is unknown before reading
    stated, real = sum(c.size_bytes for unit in units for c in unit), sum(rows_of_file.values()) * ROW_BYTES
    largest = max(400, max(stated, real) + batch_size * ROW_BYTES * group)  # all may be one window
    store_bytes = max(store_bytes, 2 * largest + max([0, *(unit[0].cursor_bytes for unit in units)]))
    small = {"run_bytes": 200, "run_rows": 16, "read_bytes": 300, "read_chunks": 3}
    limits = Limits(n_workers, store_bytes, 4000, queue, pending, **small)
    epochs = (plan_epoch(units, order, e) for e in (count() if a_pass_each else range(n_epochs)))
    kind = Ahead if a_pass_each else Scheduler
    scheduler = kind(epochs, limits, batch_size=batch_size, drop_last=drop_last, group=group)
    world = World(rows_of_file, n_epochs)
    working = {w: [] for w in range(n_workers)}
    got, lasts, groups, crashes, idle_steps = [], [], {}, 0, 0
    passes = count(1)
    while not scheduler.done or (a_pass_each and (n := next(passes)) < n_epochs and scheduler.go_on(n)):
        moved = False
        for worker, tasks in working.items():
            if not tasks and data.draw(st.booleans(), label="asks"):
                task = scheduler.next_task(worker)
                if task is not None:
                    tasks.append(world.give(task))
                    moved = True
        assert not known or scheduler.store_bytes <= store_bytes
        busy = [w for w, tasks in working.items() if tasks]
        if busy:
            worker = data.draw(st.sampled_from(busy), label="ends")
            moved = True
            if crashes < 5 and data.draw(st.integers(0, 9), label="crash") == 0:
                crashes += 1
                assert scheduler.lost(worker) == working[worker]
                working[worker] = []
            else:
                task = working[worker].pop()
                if isinstance(task, ReadTask):
                    world.read_done(scheduler, worker, task, mixes)
                elif isinstance(task, MixTask):
                    scheduler.mix_done(worker, task)
                    if world.unmixed[task.epoch, task.window] == world.given[task.number]:
                        world.unmixed[task.epoch, task.window].clear()
                else:
                    world.run(task)
                    scheduler.run_done(worker, task, task.n_rows * ROW_BYTES, 0.001)
        world.let_go(scheduler)
        if scheduler.delivered_runs in world.out and data.draw(st.booleans(), label="takes"):
            task, _ = scheduler._undelivered[scheduler.delivered_runs]
            rows = world.out.pop(scheduler.delivered_runs)
            assert len(scheduler._undelivered) <= max(pending, 1)
            scheduler.delivered(scheduler.delivered_runs)
            assert sum(task.groups) == len(task.batch_rows)
            groups.setdefault(task.epoch, []).extend(task.groups)
            for n in task.batch_rows:
                got.append(rows[:n])
                rows = rows[n:]
            if task.last:
                lasts.append((len(got), task.epoch_rows, task.dropped_rows))
            moved = True
        assert scheduler.failure is None
        idle_steps = 0 if moved else idle_steps + 1
        if idle_steps > 3:  # every worker asks: something must come, or something must be there to take
            for worker in scheduler.cursors.turns(n_workers):
                task = None if working[worker] else scheduler.next_task(worker)
                if task is not None:
                    working[worker].append(world.give(task))
                    idle_steps = 0
            assert idle_steps == 0 or scheduler.delivered_runs in world.out or scheduler.done, repr(scheduler)
    assert got == expected(units, rows_of_file, order, n_epochs, batch_size, drop_last)
    for epoch, found in groups.items():
        assert found == expected_groups(units, rows_of_file, order, epoch, batch_size, drop_last, group)
    n_rows = sum(rows_of_file.values())
    assert [(rows, dropped) for _, rows, dropped in lasts] == [(n_rows, n_rows % batch_size if drop_last else 0)] * len(
        lasts
    )
    assert len(lasts) == (n_epochs if got else 0)
    for worker, tasks in working.items():
        for task in tasks:
            if isinstance(task, ReadTask):
                scheduler.read_done(worker, task, world.read(task), 0)
            else:
                scheduler.mix_done(worker, task)
    world.let_go(scheduler)
    if a_pass_each:
        assert {row[0] for block in world.blocks.values() for row in block} <= {n_epochs}
        return
    assert not world.blocks
    assert scheduler.store_bytes == 0


def drive(scheduler, world, fails=()):
    """Carry out everything with one worker; return the numbers of the runs delivered before the end or a failure."""
    delivered = []
    while not scheduler.done:
        task = scheduler.next_task(0)
        if isinstance(task, ReadTask):
            if broken := [c.path for c in task.chunks if c.path in fails or (task.epoch, c.path) in fails]:
                scheduler.read_failed(0, task, ReadError(f"cannot read {broken[0]}"))
            else:
                rows = world.read(task)
                scheduler.read_done(0, task, rows, sum(rows) * ROW_BYTES)
        elif task is not None:
            world.run(task)
            scheduler.run_done(0, task, task.n_rows, 0.0)
        elif scheduler.delivered_runs in world.out:
            delivered += world.out.pop(scheduler.delivered_runs)
            scheduler.delivered(scheduler.delivered_runs)
        else:
            return delivered, scheduler.failure
    return delivered, scheduler.failure


def test_a_unit_that_begins_with_a_file_without_rows_is_not_the_unit_before_it():
    def file(number, n_rows):
        return [Chunk(f"f{number}", n_rows * ROW_BYTES, range(n_rows), row_group=0, row_group_rows=range(n_rows))]

    sizes = {0: 31, 1: 0, 2: 2}  # what is larger than a unit of 300 bytes is one; the two after it are another
    units = [file(number, n_rows) for number, n_rows in sizes.items()]
    order = Order(False, 0, False, 0, WindowSize("bytes", 150), joins_files=True)
    plan = plan_epoch(units, order, 0)
    assert plan.units == (0, 1, 1)
    scheduler = Scheduler(iter([plan]), Limits(1, 10**9, 4000, 9, 1), batch_size=8, group=2)
    world, groups = World(sizes, 1), []
    while not scheduler.done:
        task = world.give(scheduler.next_task(0))
        if isinstance(task, ReadTask):
            world.read_done(scheduler, 0, task, False)
        else:
            world.run(task)
            scheduler.run_done(0, task, task.n_rows * ROW_BYTES, 0.001)
            scheduler.delivered(task.number)
            groups += task.groups
        world.let_go(scheduler)
    assert groups == expected_groups(units, sizes, order, 0, 8, False, 2) == [1, 2, 1, 1]
    assert [group_start(plan, batch, 8, 2) for batch in range(5)] == [0, 1, 1, 3, 4]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans(), st.data(), st.integers(1, 9), st.booleans(), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_the_rest_of_an_epoch_comes_as_it_would_have_without_a_break(
    plan, data, batch_size, drop_last, group, ranks, reread
):
    units, rows_of_file, order = plan
    known = all(chunk.rows is not None for unit in units for chunk in unit)
    group, ranks = (group, ranks) if known else (1, 1)
    place = Place(data.draw(st.integers(0, ranks - 1)), ranks, data.draw(st.sampled_from(["pad", "drop"])))
    whole = plan_epoch(units, order, 5, place)

    def delivered(plan):
        limits = Limits(1, 10**6, 10**6, 2, 2, run_rows=16)
        scheduler = Scheduler(iter([plan]), limits, batch_size=batch_size, drop_last=drop_last, group=group)
        world, reads, batches = World(rows_of_file, 1), [], {}
        while not scheduler.done:
            task = scheduler.next_task(0)
            if isinstance(task, ReadTask):
                reads += task.positions
                scheduler.read_done(0, task, (rows := world.read(task)), sum(rows) * ROW_BYTES)
            elif task is not None:
                world.run(task)
                scheduler.run_done(0, task, task.n_rows, 0.0)
            elif scheduler.delivered_runs not in world.out:
                assert scheduler.done, repr(scheduler)
            else:
                run, _ = scheduler._undelivered[scheduler.delivered_runs]
                rows, number = world.out.pop(scheduler.delivered_runs), run.first_batch
                for n_batches in run.groups:  # what is encoded in one call, and where the call begins
                    for i in range(n_batches):
                        n = run.batch_rows[number + i - run.first_batch]
                        batches[number + i] = (number, rows[:n], run.last and run.epoch_rows)
                        rows = rows[n:]
                    number += n_batches
                scheduler.delivered(scheduler.delivered_runs)
            world.let_go(scheduler)
        return batches, reads

    batches, _ = delivered(whole)
    for batch in range(len(batches)):
        rest, again = resumed(whole, batch, batch_size=batch_size, group=group, reread=reread)
        found, reads = delivered(rest)
        assert 0 <= again < group
        assert list(found) == list(range(batch - again, len(batches)))
        for number, (start, rows, _) in found.items():
            assert (start, rows) == batches[number][:2]
        assert [end for _, _, end in found.values()][-1] == [end for _, _, end in batches.values()][-1]
        if known and not reread:
            starts = window_starts(whole)
            window = bisect_right(starts, (batch - again) * batch_size) - 1
            assert min(reads, default=whole.windows[window].start) == whole.windows[window].start


def make(units, *, store_bytes=10**6, batch_size=4, order=None, **options):
    order = order or Order(False, 0, False, 0, WindowSize("bytes", 100))
    limits = Limits(1, store_bytes, 10**6, 2, 2)
    return Scheduler(iter([plan_epoch(units, order, 0)]), limits, batch_size=batch_size, **options)


def test_batches_before_an_unreadable_chunk_are_delivered_before_its_error():
    for lengths_known in (True, False):
        rows = range(10) if lengths_known else None
        units = [[Chunk(f"f{i}", 100, rows)] for i in range(4)]
        scheduler = make(units)
        delivered, failure = drive(scheduler, World(dict.fromkeys(range(4), 10), 1), fails={"f2"})
        assert [row[1:] for row in delivered] == [(f"f{i}", r) for i in (0, 1) for r in range(10)]
        assert failure is not None
        assert str(failure[1]) == "cannot read f2"


@pytest.mark.parametrize("fails", [{"f0"}, {"f4"}, {"f4", "f5"}, {"f6", "f1"}, {"f6"}])
def test_a_window_of_several_files_ends_before_the_one_that_cannot_be_read(fails):
    units = [[Chunk(f"f{i}", 100, range(10), row_group=0, row_group_rows=range(10))] for i in range(7)]
    order = Order(False, 0, False, 0, WindowSize("bytes", 1), window_bytes=1000, joins_files=True)
    plan = plan_epoch(units, order, 0)
    assert [len(window) for window in plan.windows] == [3, 3, 1]
    scheduler = Scheduler(iter([plan]), Limits(1, 10**6, 10**6, 50, 2), batch_size=5)
    delivered, failure = drive(scheduler, World(dict.fromkeys(range(7), 10), 1), fails)
    first = min(fails)
    assert [row[1:] for row in delivered] == [(f"f{i}", r) for i in range(int(first[1])) for r in range(10)]
    assert str(failure[1]) == f"cannot read {first}"


def test_a_chunk_of_another_length_than_planned_is_an_incomplete_epoch():
    units = [[Chunk("f0", 100, range(10))], [Chunk("f1", 100, range(10))]]
    world = World({}, 1)
    world.n_rows = lambda chunk: 7 if chunk.path == "f1" else 10
    _, failure = drive(make(units), world)
    assert failure is not None
    assert isinstance(failure[1], IncompleteEpochError)
    assert "f1" in str(failure[1])
    assert "10 rows" in str(failure[1])
    assert "gave 7" in str(failure[1])


def test_windows_that_cannot_be_held_together_are_a_budget_error():
    units = [[Chunk(f"f{i}", 100, range(10))] for i in range(4)]
    _, failure = drive(make(units, store_bytes=150, batch_size=15), World({}, 1))
    assert failure is not None
    assert isinstance(failure[1], BudgetError)
    assert "memory_budget" in str(failure[1])


def test_the_chunks_of_one_row_group_stay_with_one_worker():
    chunk = Chunk("f", 1000, range(100), row_group=0, row_group_rows=range(100))
    units = split([chunk], 100)
    plan = plan_epoch(units, Order(False, 0, False, 0, WindowSize("bytes", 800)), 0)
    scheduler = Scheduler(iter([plan]), Limits(2, 10**6, 10**6, 50, 2), batch_size=4)
    first = scheduler.next_task(0)
    assert scheduler.next_task(1) is None
    scheduler.read_done(0, first, [10], 100)
    assert isinstance(scheduler.next_task(1), RunTask)
    after = scheduler.next_task(0)
    assert isinstance(after, RunTask)
    scheduler.run_done(0, after, 100, 0.0)
    assert scheduler.lost(1) is not None


def of_parts(n_files, n_parts, read_bytes=100):
    """Return a scheduler of mixed windows, each of which has one part of each file's row group."""
    whole = [Chunk(f"f{i}", 4 * n_parts, range(n_parts), 0, range(n_parts), cursor_bytes=1) for i in range(n_files)]
    plan = plan_epoch(split(whole, 4), Order(True, 3, True, n_files, WindowSize("bytes", 4 * n_files)), 0)
    return Scheduler(iter([plan]), Limits(2, 10**6, 10**6, 50, 2, read_bytes=read_bytes), batch_size=1)


def positions(scheduler, workers):
    """Return which chunks these workers get, one after the other."""
    return [scheduler.next_task(worker).positions for worker in workers]


def test_parts_of_row_groups_are_read_together_by_the_worker_that_reads_on_in_them():
    scheduler = of_parts(8, 3)
    assert positions(scheduler, [0, 1, 0, 1]) == [range(4), range(4, 8), range(8, 12), range(12, 16)]


def test_parts_that_another_worker_has_passed_over_are_read_together():
    scheduler = of_parts(8, 3)
    assert positions(scheduler, [0, 1, 1, 0]) == [range(4), range(4, 8), range(12, 16), range(8, 12)]


def test_parts_are_read_together_in_equal_shares_up_to_a_size():
    """32 bytes of a window's 64 are a worker's, and 20 may be read at once: twice 16."""
    scheduler = of_parts(16, 2, read_bytes=20)
    first = [range(4), range(4, 8), range(8, 12), range(12, 16)]
    assert positions(scheduler, [0, 1, 0, 1]) == first
    assert positions(scheduler, [0, 1, 0, 1]) == [range(p.start + 16, p.stop + 16) for p in first]


def test_what_was_granted_is_not_read_once_more_with_what_was_passed_over():
    plan = plan_epoch(
        [[Chunk(f"f{i}", 1, range(1), 0, range(1))] for i in range(6)],
        Order(False, 0, False, 0, WindowSize("bytes", 1)),
        0,
    )
    progress = Progress(plan, 0, Kinds(strict=False, missing_as_none=False))
    progress.next_read, progress.skipped = 4, [1]
    assert [Cursors().may_read(0, progress, position) for position in range(6)] == [
        False,
        True,
        False,
        False,
        True,
        True,
    ]


def test_what_a_dead_worker_was_to_read_together_is_read_one_by_one():
    scheduler = of_parts(4, 2)
    assert positions(scheduler, [0]) == [range(2)]
    scheduler.lost(0)
    assert positions(scheduler, [1, 1, 1]) == [range(1), range(1, 2), range(2, 4)]


@pytest.mark.parametrize("n_workers", [1, 3])
def test_cursors_are_closed_and_opened_again_where_not_all_have_a_place(n_workers):
    whole = [Chunk(f"f{i}", 400, range(40), 0, range(40), cursor_bytes=1000) for i in range(4)]
    order = Order(True, 3, True, 4, WindowSize("bytes", 200))
    plan = plan_epoch(split(whole, 50), order, 0)
    scheduler = Scheduler(iter([plan]), Limits(n_workers, 2500, 10**6, 50, 2), batch_size=10)
    world, kept, most = World({}, 1), {}, 0
    while not scheduler.done:
        moved = False
        for worker in scheduler.cursors.turns(n_workers):
            task = scheduler.next_task(worker)
            moved = moved or task is not None
            if isinstance(task, ReadTask):
                assert scheduler.store_bytes <= 2500
                ended = {(c.path, 0) for c in task.chunks if c.rows.stop == c.row_group_rows.stop}
                kept[worker] = {*task.cursors, *((c.path, 0) for c in task.chunks)} - ended
                most = max(most, sum(map(len, kept.values())))
                scheduler.read_done(worker, task, world.read(task), 50 * len(task.chunks))
            elif isinstance(task, RunTask):
                world.run(task)
                scheduler.run_done(worker, task, 100, 0.0)
        if scheduler.delivered_runs in world.out:
            scheduler.delivered(scheduler.delivered_runs)
            moved = True
        assert moved, scheduler.failure
    assert most <= 2


def test_a_worker_is_asked_to_close_what_another_has_no_place_for():
    whole = [Chunk(f"f{i}", 100, range(10), 0, range(10), cursor_bytes=1000) for i in range(3)]
    plan = plan_epoch(split(whole, 50), Order(False, 0, True, 4, WindowSize("bytes", 150)), 0)
    scheduler = Scheduler(iter([plan]), Limits(2, 2200, 10**6, 50, 2, read_chunks=1), batch_size=10)
    first, second = scheduler.next_task(0), scheduler.next_task(1)
    assert [task.chunks[0].path for task in (first, second)] == ["f0", "f1"]
    scheduler.read_done(0, first, [5], 50)
    scheduler.read_done(1, second, [5], 50)
    assert scheduler.next_task(0) is None
    assert list(scheduler.cursors.turns(2)) == [0, 1, 0, 1]
    closes = scheduler.next_task(1)
    assert (closes.chunks, closes.cursors, str(closes)) == ((), (), "closing files")
    assert scheduler.next_task(0) is None  # not before it is closed
    scheduler.read_done(1, closes, [], 0)
    assert scheduler.freed == [closes.number]
    third = scheduler.next_task(0)
    assert (third.chunks[0].path, third.cursors) == ("f2", (("f0", 0),))
    assert list(scheduler.cursors.turns(2)) == [0, 1]
    assert scheduler.store_bytes == 100 + 50 + 2000


def test_where_a_worker_dies_that_should_close_its_own_they_are_closed():
    whole = [Chunk(f"f{i}", 100, range(10), 0, range(10), cursor_bytes=1000) for i in range(3)]
    plan = plan_epoch(split(whole, 50), Order(False, 0, True, 4, WindowSize("bytes", 150)), 0)
    scheduler = Scheduler(iter([plan]), Limits(2, 2200, 10**6, 50, 2, read_chunks=1), batch_size=10)
    for worker in (0, 1):
        scheduler.read_done(worker, scheduler.next_task(worker), [5], 50)
    assert scheduler.next_task(0) is None
    assert scheduler.lost(1) == []
    assert scheduler.next_task(0).chunks[0].path == "f2"
    assert scheduler.store_bytes == 100 + 50 + 2000


def test_what_is_read_again_opens_no_cursor_that_has_no_place():
    whole = [Chunk(f"f{i}", 100, range(10), 0, range(10), cursor_bytes=1000) for i in range(2)]
    plan = plan_epoch(split(whole, 50), Order(False, 0, True, 4, WindowSize("chunk", 1)), 0)
    scheduler = Scheduler(iter([plan]), Limits(2, 1300, 10**6, 50, 2), batch_size=5)
    for _ in range(2):
        scheduler.read_done(0, scheduler.next_task(0), [5], 50, mix=True)
    assert isinstance(scheduler.next_task(1), MixTask)
    scheduler.read_done(0, scheduler.next_task(0), [5], 50, mix=True)
    assert scheduler.store_bytes == 3 * 50 + 1000  # the second file is open
    scheduler.lost(1)
    assert scheduler.next_task(1) is None
    closes = scheduler.next_task(0)
    assert (closes.chunks, closes.cursors) == ((), ())
    scheduler.read_done(0, closes, [], 0)
    again = scheduler.next_task(1)
    assert again.chunks == plan.chunks[:1]
    assert scheduler.store_bytes == 2 * 50 + 1000


def test_two_windows_of_the_next_pass_are_read_and_none_of_its_runs_made_before_it_begins():
    units = [[Chunk(f"f{i}", 10, range(4))] for i in range(6)]
    order = Order(False, 0, False, 0, WindowSize("bytes", 1))
    scheduler = Ahead((plan_epoch(units, order, e) for e in count()), Limits(1, 10**6, 10**6, 9, 2), batch_size=4)
    world = World({}, 2)
    drive(scheduler, world)
    while (task := scheduler.next_task(0)) is not None:
        assert isinstance(task, ReadTask)
        scheduler.read_done(0, task, world.read(task), 10)
    ahead = [row[:2] for block in world.blocks.values() for row in block[:1] if row[0] == 1]
    assert ahead == [(1, "f0"), (1, "f1")]
    assert scheduler.done
    assert not scheduler.go_on(2)
    assert scheduler.go_on(1)
    assert isinstance(scheduler.next_task(0), RunTask)


def test_a_next_pass_that_could_not_be_read_ahead_begins_anew():
    units = [[Chunk(f"f{i}", 10, range(4))] for i in range(2)]
    order = Order(False, 0, False, 0, WindowSize("bytes", 1))
    scheduler = Ahead((plan_epoch(units, order, e) for e in count()), Limits(1, 10**6, 10**6, 9, 2), batch_size=4)
    delivered, failure = drive(scheduler, World({}, 2), fails={(1, "f1")})
    assert len(delivered) == 8
    assert failure is None
    while scheduler.next_task(0) is not None:
        pass
    assert scheduler.done
    assert not scheduler.go_on(1)


def test_the_queue_bounds_the_chunks_read_while_nothing_is_taken():
    units = [[Chunk(f"f{i}", 1, range(4))] for i in range(50)]
    order = Order(False, 0, False, 0, WindowSize("bytes", 1))
    scheduler = Scheduler(iter([plan_epoch(units, order, 0)]), Limits(1, 10**6, 10**6, 3, 2), batch_size=4)
    world, reads = World({}, 1), 0
    while (task := scheduler.next_task(0)) is not None:
        if isinstance(task, ReadTask):
            reads += len(task.chunks)
            scheduler.read_done(0, task, world.read(task), 1)
        else:
            world.run(task)
            scheduler.run_done(0, task, 1, 0.0)
    assert reads == 1 + 1 + 3
