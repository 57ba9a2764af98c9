"""The leak guard: after each test no thread, child process, shared memory or temporary file of ours is left."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from leaks import LOOKS, left_over

# Workers and programs of tests would compile the package anew each time: a third of what it takes to start one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("patient", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("patient")

_PASSED = pytest.StashKey[bool]()
_OWN_FOLDER = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this process a folder of its own for temporary files, so that what its neighbours make is no leak of ours.

    Short, since sockets of Unix may lie in it. `tmp_path` stays where pytest puts it.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    config.stash[_OWN_FOLDER] = os.environ["TMPDIR"] = tempfile.mkdtemp(
        prefix="t", dir=os.environ["PYTEST_DEBUG_TEMPROOT"]
    )
    tempfile.tempdir = None  # tempfile remembers its first answer
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; programs of tests inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_OWN_FOLDER], ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run modules with slow tests first, then those with many: of two processes none waits long for the other's last.

    For `-n 2 --dist loadfile --no-loadscope-reorder`; by itself it begins with many tests, and ends in slow ones.
    """
    weights: Counter[Path] = Counter()
    for item in items:
        weights[item.path] += 100 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -weights[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves something behind; a test that failed already is kept alive by its own traceback."""
    before = [look() for look in LOOKS]
    yield
    if request.node.stash.get(_PASSED, False) and (left := left_over(before)):
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Let the collector pass over what is there already: torch and TensorFlow alone cost it 0.3 s each time."""
    gc.collect()  # garbage of the module before would stay for ever
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep counts of rows out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


EXECUTORS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "threads": {"num_workers": 2, "workers": "thread"},
    "processes": {"num_workers": 1, "workers": "process"},
}


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of a loader for each place where its work is done."""
    return dict(EXECUTORS[request.param])
