"""A short soak: a few disturbed epochs are right, and nothing is left."""

import json

import numpy as np
import pytest
from programs import python

from benchmarks.soak_figures import slope
from benchmarks.soak_loaders import SETUPS, Loaders, Wrong
from benchmarks.soak_work import Traps


@pytest.mark.slow
def test_a_few_disturbed_epochs_are_right_and_leave_nothing():
    done = python("-m", "benchmarks.soak", "--minutes", 9, "--acts", 4, "--seed", 3)
    document = json.loads(done.stdout)
    assert document["failures"] == []
    assert document["left"] == []
    assert document["epochs"] >= document["acts"] == 4


def test_the_soak_sees_lost_and_swapped_rows(tmp_path):
    loaders = Loaders(tmp_path)
    right = loaders.order(True, 1)
    loaders.check_rows(SETUPS[0], 1, right, whole=True)
    swapped = right.copy()
    swapped[[5, 6]] = swapped[[6, 5]]
    for wrong in (swapped, right[:-1], np.append(right, 0)):
        with pytest.raises(Wrong):
            loaders.check_rows(SETUPS[0], 1, wrong, whole=True)


def test_a_slope_and_its_error():
    assert slope([0, 1, 2, 3], [1.0, 3.0, 5.0, 7.0]) == pytest.approx((2.0, 0.0))
    assert slope([1], [5.0]) == (0.0, 0.0)


def test_a_trap_that_kills_waits_for_a_worker_process(tmp_path):
    traps = Traps(tmp_path)
    traps.set("encode", "kill")
    traps.spring("encode")  # a worker thread's: it would end the soak itself
    assert (tmp_path / "encode").read_text() == "kill"
