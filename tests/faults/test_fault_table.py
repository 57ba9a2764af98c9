"""The table of faults: its rows by name, the module that proves each, and the same rows in docs/reliability.md."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"

ROWS = {
    "a worker is killed by SIGKILL, whatever it does": "test_fault_killed_workers",
    "a chunk or batch kills its worker each time": "test_fault_deadly_rows",
    "your code raises": "test_fault_raised_errors",
    "a batch cannot be pickled, is huge, or there are a million tiny ones": "test_fault_odd_batches",
    "a worker is stuck": "test_fault_stuck_workers",
    "the main process is killed, or its terminal closed": "test_fault_main_process_killed",
    "Ctrl-C, `del`, `close()`, leaving `with`, an error, the program's end": "test_fault_endings",
    "`break`, an iterator dropped, a second `iter()`": "test_fault_breaks",
    "the training loop sleeps, keeps every batch, or forgets the loader": "test_fault_training_loops",
    "two loaders, nested ones, threads, forks, users, torch's workers": "test_fault_company",
    "small `/dev/shm`, no memfd, full disk, few descriptors, `ulimit -v`": "test_fault_small_systems",
    "the clock jumps, a worker gets 1 % of a CPU, everything stalls": "test_fault_bad_timing",
}


def test_every_row_has_its_module_and_every_module_its_row():
    modules = {path.stem for path in HERE.glob("test_*.py")} - {Path(__file__).stem}
    assert sorted(ROWS.values()) == sorted(modules)


@pytest.mark.parametrize("module", ROWS.values())
def test_a_module_of_the_table_has_tests(module):
    tree = ast.parse((HERE / f"{module}.py").read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [name for name in names if name.startswith("test_")]


def test_the_page_has_the_same_rows_and_names_the_same_modules():
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if "tests/faults/test_" in line]
    found = {row[0]: re.findall(r"tests/faults/(\w+)\.py", row[-1])[0] for row in rows}
    assert all(len(row) == 4 for row in rows)
    assert found == ROWS
