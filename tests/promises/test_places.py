"""Where a loader works: a script, a notebook, any thread, after deltalake, before and after a fork."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from fakes import CountedNumbers, NumpyThrough, Through, number_files, numbers, xs

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

REPOSITORY = Path(__file__).parents[2]
ALL = [[0, 1], [2, 3], [4, 5], [6]]

CELL = """
from pathlib import Path
from pyloader_delta import DataLoader, DataReader, Dataset, NumpyDataCollator

FACTOR = 10

def scaled(values):
    return [FACTOR * value for value in values]

class Lines(DataReader):
    def read_file(self, path):
        return {{"x": [int(line) for line in Path(path).read_text().split()]}}

class Scales(Dataset):
    def batch_encode(self, batch_data):
        return {{"x": scaled(batch_data["x"])}}

with DataLoader(Lines(batch_size=2), Scales(), NumpyDataCollator(), {root!r}, num_workers=2) as loader:
    print([batch["x"].tolist() for batch in loader], repr(loader).count("2 process"))
"""
PRINTED = "[[0, 10], [20, 30], [40, 50], [60]] 1\n"


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 4])


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **options)


def test_a_script_without_a_main_guard_works(tmp_path, root):
    script = tmp_path / "script.py"
    script.write_text(CELL.format(root=root))
    done = run(str(script))
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED, "", 0)


def test_a_program_from_standard_input_works(root):
    done = run("-", input=CELL.format(root=root))
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED, "", 0)


def test_classes_of_a_module_beside_the_script_work(tmp_path, root):
    source = CELL.format(root=root)
    classes, program = source.split("with DataLoader")
    (tmp_path / "my_classes.py").write_text(classes)
    (tmp_path / "script.py").write_text("from my_classes import *\nwith DataLoader" + program)
    done = run(str(tmp_path / "script.py"), cwd=REPOSITORY)
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED, "", 0)


@pytest.mark.filterwarnings("ignore")
def test_classes_defined_in_a_cell_of_a_notebook_work(root, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    cells = [nbformat.v4.new_code_cell(source) for source in (CELL.format(root=root), "loader")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (printed,) = notebook.cells[0].outputs
    assert (printed.name, printed.text) == ("stdout", PRINTED)
    assert "rows=unknown batch_size=2 epoch=1" in notebook.cells[1].outputs[0].data["text/plain"]


def test_a_thread_that_is_not_the_main_one_may_iterate(root, executor):
    found: list[Any] = []

    def work() -> None:
        with numbers(root, num_epoch=2, **executor) as loader:
            found.append(xs(loader))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [ALL + ALL]


def test_workers_outlive_the_thread_that_began_the_pass(root):
    """The kernel's parent-death signal goes off when the thread ends that started a process."""
    with numbers(root, num_epoch=3, num_workers=1, workers="process") as loader:
        begun: list[Any] = []
        thread = threading.Thread(target=lambda: begun.append(iter(loader)))
        thread.start()
        thread.join(60)
        assert xs(begun[0]) == ALL * 3


def test_two_loaders_take_turns_and_threads_share_one(root, executor):
    with numbers(root, **executor) as one, numbers(root, num_workers=1, workers="thread") as other:
        assert [(xs([a])[0], xs([b])[0]) for a, b in zip(one, other, strict=True)] == [(b, b) for b in ALL]


def test_a_process_that_has_used_deltalake_may_have_workers(tmp_path, executor):
    root = str(tmp_path / "table")
    write_deltalake(root, pa.table({"x": [*range(7)]}))
    table = DeltaTable(root)
    assert table.to_pyarrow_table().num_rows == 7
    assert pa.table(QueryBuilder().register("t", table).execute("select * from t").read_all()).num_rows == 7
    with DataLoader(DeltaDataReader(batch_size=2), NumpyThrough(), NumpyDataCollator(), root, **executor) as loader:
        assert xs(loader) == ALL
        assert table.to_pyarrow_table().num_rows == 7
        assert xs(loader) == ALL


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


forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


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


def test_workers_have_the_directory_and_path_of_the_program(tmp_path, root, monkeypatch):
    (tmp_path / "only_here.py").write_text(textwrap.dedent("ANSWER = 42"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    class Looks(Through):
        def batch_encode(self, batch_data):
            import only_here

            return {"x": [only_here.ANSWER] * len(batch_data["x"]), "cwd": [os.getcwd()] * len(batch_data["x"])}

    with numbers(root, dataset=Looks(), num_workers=1, workers="process") as loader:
        batch = next(iter(loader))
    assert batch["x"].tolist() == [42, 42]
    assert batch["cwd"].tolist() == [str(tmp_path)] * 2
