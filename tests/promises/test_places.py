"""Where a loader works: a script, a notebook, after deltalake; threads and forks are in tests/faults."""

import os
import subprocess
import sys
import textwrap
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from fakes import CountedNumbers, NumpyThrough, Through, number_files, numbers, xs
from programs import ROOT, python

from pyloader_delta import DataLoader, DeltaDataReader, NumpyDataCollator

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


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return python("-W", "error", *arguments, env={"PYTHONPATH": str(ROOT)}, **options)


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
    done = run(str(tmp_path / "script.py"), cwd=ROOT)
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED, "", 0)


@pytest.mark.filterwarnings("ignore")
def test_classes_defined_in_a_cell_of_a_notebook_work(root, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [nbformat.v4.new_code_cell(source) for source in (CELL.format(root=root), "loader")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    (printed,) = notebook.cells[0].outputs
    assert (printed.name, printed.text) == ("stdout", PRINTED)
    assert "rows=unknown batch_size=2 epoch=1" in notebook.cells[1].outputs[0].data["text/plain"]


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


def test_workers_do_not_import_what_the_users_class_does_not(tmp_path):
    """No framework in a worker, and not the program that started it."""

    class Imported(CountedNumbers):
        batch_size = 3

        def read_file(self, path):
            heavy = {"torch", "tensorflow", "pandas", "deltalake", "pytest"} & set(sys.modules)
            assert not heavy, heavy
            return super().read_file(path)

    with numbers(number_files(tmp_path / "n", [3]), reader=Imported(), num_workers=1, workers="process") as loader:
        assert xs(loader) == [list(range(3))]
