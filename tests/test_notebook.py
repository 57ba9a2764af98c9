"""The notebook among the examples runs without a screen, and what its cells show is right."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")


def shown(cell) -> str:
    """Return what a cell printed and what its last line gave, as text."""
    texts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(texts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs_headless(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(ROOT / "examples" / "look_and_train.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    cells = {cell.source.splitlines()[-1]: cell for cell in notebook.cells if cell.cell_type == "code"}
    assert "float32 (None, 2) numpy" in shown(cells["loader.schema"])
    assert "<table" in cells["loader.preview(5)"].outputs[0].data["text/html"]
    assert "12,000 rows in 4 row groups" in shown(cells['print(loader.preview_shuffle("label"))'])
    training = next(cell for cell in notebook.cells if cell.source.startswith("weights"))
    (right,) = re.findall(r"([\d.]+)% of the last epoch are right", shown(training))
    assert float(right) > 80
    assert "180/180" in shown(training)
    assert "'epochs_completed_total': 3" in shown(cells["stats"])
