"""A folder of chunk files as PyLoader's programs want it, and the vocabulary of its words."""

import json
from pathlib import Path

import pytest

ROWS_PER_FILE = (7, 10, 3, 12, 1, 9)
N_ROWS = sum(ROWS_PER_FILE)


@pytest.fixture
def n_rows() -> int:
    """Rows of `chunk_files`, which are numbered from 0."""
    return N_ROWS


@pytest.fixture
def chunk_files(tmp_path: Path) -> str:
    """Return a folder of JSON lines; the first word of each text of row 17 is "row17"."""
    folder = tmp_path / "chunk_files"
    folder.mkdir()
    row = 0
    for number, n_rows in enumerate(ROWS_PER_FILE):
        lines = []
        for _ in range(n_rows):
            text = f"row{row} is a row of file {number}"
            lines.append(
                {"id": row, "input_text": text, "label": row % 2, "post": text, "response": f"row{row} indeed"}
            )
            row += 1
        (folder / f"part-{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


@pytest.fixture
def vocab_file(tmp_path: Path) -> str:
    """Return a vocabulary in which "row17" has id 17; the words that follow have others."""
    path = tmp_path / "vocab.txt"
    words = [f"row{row}" for row in range(N_ROWS)] + ["is", "a", "row", "of", "file", "indeed"]
    path.write_text("".join(f"{word}\t1\n" for word in words))
    return str(path)
