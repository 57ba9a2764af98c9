"""The leak guard: after each test no thread, child process, shared memory or temporary file of ours is left."""

import gc
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("patient")

_OURS = "pyloader_delta"
_PATIENCE_S = 5.0  # the promise: everything is gone within five seconds
_SHARED_MEMORY = Path("/dev/shm")
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


def _threads() -> set[str]:
    """Python threads of ours; torch, TensorFlow and Arrow keep pools of their own, which are no leak."""
    return {f"thread {t.name} ({t.ident})" for t in threading.enumerate() if t.name.startswith(_OURS)}


def _children() -> set[str]:
    """Child processes, zombies too, but for Python's own resource tracker, which lives as long as the interpreter."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if "multiprocessing.resource_tracker" not in command:
                found.add(f"process {child.pid} ({command[:100] or child.name()})")  # no status: that changes
        except psutil.NoSuchProcess:
            pass
    return found


def _shared_memory() -> set[str]:
    """Named shared memory; torch puts its process's number into the name, so that others' can be told from ours."""
    if not _SHARED_MEMORY.is_dir():
        return set()
    mine = {os.getpid()}
    names = (entry.name for entry in _SHARED_MEMORY.iterdir())
    others = re.compile(r"torch_(\d+)_")
    return {
        f"shared memory /dev/shm/{name}"
        for name in names
        if not ((found := others.match(name)) and int(found[1]) not in mine)
    }


def _temp_files() -> set[str]:
    return {f"temporary file {path}" for path in Path(tempfile.gettempdir()).glob(f"{_OURS}*")}


LOOKS: tuple[Callable[[], set[str]], ...] = (_threads, _children, _shared_memory, _temp_files)


def left_over(before: list[set[str]]) -> list[str]:
    """Return what is there now and was not before, after waiting for it to go."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        left = sorted(thing for look, old in zip(LOOKS, before, strict=True) for thing in look() - old)
        if not left or time.monotonic() > deadline:
            return left
        gc.collect()  # a loader that is garbage closes itself, but cycles have to be found first
        time.sleep(0.02)


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
