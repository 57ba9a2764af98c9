"""The public names, and what `import pyloader_delta` costs."""

import json
from importlib.metadata import version
from pathlib import Path

from programs import python

import pyloader_delta

PUBLIC = (
    "ArrowDataCollator",
    "BudgetError",
    "Chunk",
    "ConfigError",
    "ContractError",
    "DataCollator",
    "DataFile",
    "DataLoader",
    "DataReader",
    "Dataset",
    "DeltaDataReader",
    "FieldSpec",
    "IncompleteEpochError",
    "JaxDataCollator",
    "JsonLineDataReader",
    "LoaderError",
    "LoaderTimeout",
    "NumpyDataCollator",
    "PandasDataCollator",
    "ParquetDataReader",
    "ReadError",
    "Receipt",
    "ScratchError",
    "Snapshot",
    "StageError",
    "StateError",
    "TFDataCollator",
    "TableError",
    "TextDataset",
    "TorchDataCollator",
    "ValueTypeError",
    "WorkerDied",
    "create_pytorch_dataloader",
)

_MEASURE = """
import json, sys, time
start = time.process_time()
import pyloader_delta
print(json.dumps([time.process_time() - start, sorted(sys.modules)]))
"""


def imported_fresh() -> tuple[float, set[str]]:
    """Return the CPU seconds that the import takes in a fresh interpreter, and the modules it brings."""
    cpu_s, modules = json.loads(python("-c", _MEASURE).stdout)
    return cpu_s, set(modules)


def test_public_names_are_pinned_and_sorted():
    assert tuple(pyloader_delta.__all__) == PUBLIC
    assert list(PUBLIC) == sorted(PUBLIC)


def test_every_public_name_exists():
    assert set(PUBLIC) <= set(dir(pyloader_delta))


def test_import_brings_no_framework():
    _, modules = imported_fresh()
    assert not modules & {"torch", "tensorflow", "keras", "jax", "pandas", "deltalake", "tqdm"}


def test_import_takes_less_than_a_second():
    # CPU time and the best of three: the machine may be busy, the import is what is judged
    assert min(imported_fresh()[0] for _ in range(3)) < 1.0


def test_the_version_is_the_installed_one():
    assert version("pyloader_delta") == pyloader_delta.__version__


def test_every_folder_of_the_package_is_installed_and_its_types_are_too():
    package = Path(pyloader_delta.__file__).parent
    folders = {path.parent for path in package.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []  # find_packages would skip it
    assert (package / "py.typed").exists()
