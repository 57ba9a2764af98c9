"""Loaders in company: two at once, nested, in threads, after forks, of two users, inside torch's workers."""

import json
import os
import shutil
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import CountedNumbers, Through, number_files, numbers, xs
from programs import ROOT, python
from writing import number_table

from pyloader_delta import DataLoader

ALL = [[0, 1], [2, 3], [4, 5], [6]]
NOBODY = 65534

forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 4])


# Two at once, and one inside the other -------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_two_loaders_take_turns_on_one_table(tmp_path, executor, shuffle):
    table = number_table(tmp_path / "table", [10, 10, 10])
    options = {"framework": "numpy", "shuffle": shuffle, "num_epoch": 2}
    with DataLoader.from_delta(table, 4, num_workers=0, **options) as alone:
        expected = xs(alone)
    with (
        DataLoader.from_delta(table, 4, **options, **executor) as one,
        DataLoader.from_delta(table, 4, **options, num_workers=1, workers="thread") as other,
    ):
        found = [(a["x"].tolist(), b["x"].tolist()) for a, b in zip(one, other, strict=True)]
    assert found == [(batch, batch) for batch in expected]


class Nests(Through):
    """Reads another loader for each batch, with workers of its own."""

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        self.root, self.options = root, options

    def batch_encode(self, batch_data: Any) -> Any:
        with numbers(self.root, **self.options) as inner:
            n_rows = sum(len(batch["x"]) for batch in inner)
        return {"x": batch_data["x"], "inner": [n_rows] * len(batch_data["x"])}


@pytest.mark.parametrize("inner", [{"num_workers": 1, "workers": "thread"}, {"num_workers": 1, "workers": "process"}])
def test_a_loader_inside_a_worker_of_another(root, executor, inner):
    options = {"reader": CountedNumbers(batch_size=7), "dataset": Nests(root, inner)}
    with numbers(root, **options, **executor) as outer:
        (batch,) = outer
    assert batch["x"].tolist() == list(range(7))
    assert batch["inner"].tolist() == [7] * 7


def test_a_loop_inside_the_loop_of_one_loader_is_refused_by_the_older_one(root, executor):
    with numbers(root, **executor) as loader:
        outer = iter(loader)
        next(outer)
        assert xs(loader) == ALL
        with pytest.raises(RuntimeError, match="a newer iter"):
            next(outer)


# Threads -------------------------------------------------------------------------------------------------------------


def test_a_thread_that_is_not_the_main_one_may_iterate(root, executor):
    found: list[Any] = []

    def work() -> None:
        with numbers(root, num_epoch=2, **executor) as loader:
            found.append(xs(loader))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(300)
    assert found == [ALL + ALL]


def test_workers_outlive_the_thread_that_began_the_pass(root):
    """The kernel's parent-death signal goes off when the thread ends that started a process."""
    with numbers(root, num_epoch=3, num_workers=1, workers="process") as loader:
        begun: list[Any] = []
        thread = threading.Thread(target=lambda: begun.append(iter(loader)))
        thread.start()
        thread.join(300)
        assert xs(begun[0]) == ALL * 3


def test_several_threads_may_share_one_iterator(tmp_path, executor):
    root = number_files(tmp_path / "many", [2] * 40)
    with numbers(root, **executor) as loader:
        batches, found = iter(loader), []
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                found.append(batch["x"].tolist())

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    assert sorted(found) == [[2 * i, 2 * i + 1] for i in range(40)]


# Forks ---------------------------------------------------------------------------------------------------------------


def in_child(work: Any) -> str:
    """Return what a forked child answers; its exit handlers do not run, as in multiprocessing."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        answer = answers.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


@forks
@pytest.mark.parametrize("kind", [{"num_workers": 0}, {"num_workers": 1, "workers": "process"}])
def test_a_forked_child_makes_its_own_loader_and_the_parent_goes_on(root, kind):
    def other() -> Any:
        with numbers(root, **kind) as loader:
            return xs(loader)

    with numbers(root, num_epoch=2, **kind) as loader:
        batches = iter(loader)
        found = [next(batches)]
        assert in_child(other) == repr(ALL)
        assert xs(found + list(batches)) == ALL + ALL


@forks
def test_a_forked_child_may_iterate_the_parents_loader_anew(root, executor):
    with numbers(root, **executor) as loader:
        batches = iter(loader)
        found = [next(batches)]

        def again() -> Any:
            batches = xs(loader)
            loader.close()
            return batches

        assert in_child(again) == repr(ALL)
        assert xs(found + list(batches)) == ALL


@forks
def test_an_iterator_of_the_parent_does_not_hang_in_a_forked_child(root, executor):
    with numbers(root, **executor) as loader:
        batches = iter(loader)
        found = [next(batches)]
        answer = in_child(lambda: next(batches))
        assert answer == "RuntimeError: this iterator belongs to the parent process: call iter(loader) in this one"
        assert xs(found + list(batches)) == ALL


@forks
def test_dropping_the_parents_loader_and_batches_in_a_forked_child_leaves_the_parents_alone(root, executor):
    import gc

    held = {"loader": numbers(root, num_epoch=2, **executor)}
    held["batches"] = iter(held["loader"])
    held["batch"] = next(held["batches"])

    def drop() -> str:
        held.clear()
        gc.collect()
        return "dropped"

    assert in_child(drop) == "'dropped'"
    assert xs([held["batch"], *held["batches"]]) == ALL + ALL
    held["loader"].close()


def test_user_code_of_a_worker_may_start_processes_of_its_own(root):
    class Calls(Through):
        def batch_encode(self, batch_data):
            done = subprocess.run([sys.executable, "-c", "print(40 + 2)"], capture_output=True, text=True, check=True)
            return {"x": batch_data["x"], "answer": [int(done.stdout)] * len(batch_data["x"])}

    with numbers(
        root, reader=CountedNumbers(batch_size=7), dataset=Calls(), num_workers=1, workers="process"
    ) as loader:
        (batch,) = loader
    assert batch["answer"].tolist() == [42] * 7


# Other users, other frameworks ---------------------------------------------------------------------------------------

OF_A_USER = """
import json, os, sys
assert os.getuid() == {user}
sys.path[:] = {path!r}
from pyloader_delta import DataLoader
options = dict(framework="numpy", num_workers=1, shuffle="full", filter="x >= 0", num_epoch=2)
with DataLoader.from_delta({table!r}, 4, workers={workers!r}, **options) as loader:
    batches = iter(loader)
    first = next(batches)["x"].tolist()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(first + [x for batch in batches for x in batch["x"].tolist()]))
"""


# Another user who may read all files (Python may lie in root's home), but write none of another's
AS_NOBODY = [
    "setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip


def can_be_nobody() -> bool:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*AS_NOBODY, sys.executable, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_be_nobody(), reason="only root can be two users, by setpriv")
@pytest.mark.parametrize("workers", ["thread", "process"])
def test_two_processes_of_two_users_on_one_table(tmp_path, workers):
    table = tmp_path / "table"
    write_deltalake(str(table), pa.table({"x": range(10)}))
    running = []
    for user, wrapper in ((0, []), (NOBODY, AS_NOBODY)):
        text = OF_A_USER.format(user=user, path=sys.path, table=str(table), workers=workers)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        home = {"HOME": f"/proc/{user}-has-no-home", "TMPDIR": "/tmp", "XDG_CACHE_HOME": str(tmp_path / "of-root")}
        command = [*wrapper, sys.executable, "-B", "-c", text]
        running.append(subprocess.Popen(command, env=os.environ | home, **pipes))
        assert running[-1].stdout.readline() == "ready\n", running[-1].stderr.read()  # both are in the middle of it
    found = [process.communicate("\n", timeout=600) for process in running]
    assert [process.returncode for process in running] == [0, 0], found
    assert found[0] == found[1]
    assert found[0][1] == ""
    assert sorted(json.loads(found[0][0])) == sorted([*range(10)] * 2)


TORCH = """
import torch
from torch.utils.data import DataLoader as TorchLoader, IterableDataset
from fakes import numbers

class Stream(IterableDataset):
    def __init__(self, root, options):
        self.root, self.options = root, options
    def __iter__(self):
        with numbers(self.root, **self.options) as loader:
            for batch in loader:
                yield batch["x"].tolist()

for options in ({{"num_workers": 1, "workers": "process"}}, {{"num_workers": 1, "workers": "thread"}}):
    batches = TorchLoader(Stream({root!r}, options), batch_size=None, num_workers=1)
    print(list(batches))
    for batch in batches:  # and left in the middle
        break
    del batches
"""


def test_a_loader_made_inside_a_worker_of_torchs_dataloader(tmp_path, root):
    pytest.importorskip("torch")
    done = python("-c", TORCH.format(root=root), env={"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])})
    assert done.stdout == f"{ALL}\n{ALL}\n"
    assert "Traceback" not in done.stderr
