"""README and docs: every Python block is run, tables hold what they say, links lead somewhere, pictures are fresh."""

import ast
import builtins
import importlib.util
import inspect
import json
import re
from itertools import islice
from pathlib import Path

import pytest
from programs import QUIET, ROOT, python

import pyloader_delta
from pyloader_delta import DataLoader, DataReader, Dataset, LoaderError, NumpyDataCollator, errors

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def program(page: Path) -> str:
    """Return the Python blocks of a page as one program, each line where it stands in the page."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    assert not inside, f"{name(page)}: a block has no end"
    return "\n".join(lines) + "\n"


def table(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    text = page.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    rows = [line for line in text.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def code(cell: str) -> str:
    (found,) = re.findall(r"^`(.*)`$", cell)
    return found


# Blocks -------------------------------------------------------------------------------------------------------------

PROGRAMS = {page: program(page) for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if PROGRAMS[page].strip()], ids=name)
def test_every_python_block_runs(page, tmp_path):
    needs = {"torch", "tensorflow", "pandas"} & set(re.findall(r"\w+", PROGRAMS[page]))
    if missing := [module for module in needs if importlib.util.find_spec(module) is None]:
        pytest.skip(f"{missing} not installed")
    script = tmp_path / "page.py"
    script.write_text(PROGRAMS[page], encoding="utf-8")
    python(script, cwd=tmp_path, env=QUIET)


# Tables -------------------------------------------------------------------------------------------------------------


class Rows(DataReader):
    """One file with the numbers 0 to 17."""

    def read_file(self, path):
        return {"n": list(range(18))}, 18

    def count_samples(self, path):
        return 18


class AsTheyAre(Dataset):
    def batch_encode(self, batch_data):
        return batch_data


def passes_words(folder: str) -> dict[str, object]:
    """Return the words that docs/passes.md uses in its table."""

    def make(**options) -> DataLoader:
        reader = Rows(4, shuffle=options.get("shuffle", False))
        return DataLoader(reader, AsTheyAre(), NumpyDataCollator(), folder, num_workers=0, **options)

    def epochs(loader) -> list[int]:
        return [loader.get_epoch() for _ in loader]

    def sizes(loader) -> list[int]:
        return [len(batch["n"]) for batch in loader]

    def rows(loader) -> list[int]:
        return [n for batch in loader for n in batch["n"].tolist()]

    def take(loader, n: int) -> list[object]:
        return list(islice(loader, n))

    return {"make": make, "epochs": epochs, "sizes": sizes, "rows": rows, "take": take}


def outcome(text: str, words: dict[str, object]) -> str:
    """Return the repr of the last expression of some statements, or the error that they raise."""
    *before, last = ast.parse(text).body
    assert isinstance(last, ast.Expr)
    try:
        exec(compile(ast.Module(before, []), "<table>", "exec"), words)
        return repr(eval(compile(ast.Expression(last.value), "<table>", "eval"), words))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("line", [line[:2] for line in table(ROOT / "docs" / "passes.md", "The table")], ids=str)
def test_each_line_of_the_table_of_passes_is_true(line, tmp_path):
    (tmp_path / "one.txt").touch()
    written, expected = map(code, line)
    assert outcome(written, passes_words(str(tmp_path))) == expected


def test_troubleshooting_has_a_line_for_each_error():
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    seen = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))
    classes = [name for name in pyloader_delta.__all__ if isinstance(getattr(errors, name, None), type)]
    assert [name for name in classes if f"`{name}" not in seen] == ["LoaderError"]  # the base of all others


def test_the_table_of_errors_is_complete_and_right():
    lines = {code(line[0]): line for line in table(ROOT / "docs" / "errors.md", "The table")}
    classes = {
        found.__name__: found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, LoaderError)
    }
    assert list(lines) == list(classes)  # in the order of errors.py
    for error, (_, also, when, what_to_do) in lines.items():
        standard = [base.__name__ for base in classes[error].__bases__ if hasattr(builtins, base.__name__)]
        assert also == (f"`{standard[0]}`" if standard != ["Exception"] and standard else ""), error
        assert when, error
        assert what_to_do, error
    assert set(classes) <= set(pyloader_delta.__all__)


# Pictures, links, words ---------------------------------------------------------------------------------------------


def test_the_picture_is_what_its_script_draws():
    python("img/draw_route.py", "--check")


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_every_link_leads_to_a_file_of_the_repository(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for target in targets:
        if target.startswith(("https://", "#")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve()
        assert found.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert found.exists(), f"{target} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert page.name == "index.md" or f"({page.name})" in index


def test_every_public_name_is_explained_in_readme_or_docs():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [public for public in pyloader_delta.__all__ if public not in text] == []


def test_the_changelog_has_this_version():
    assert f"## [{pyloader_delta.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_figures_in_the_docs_that_are_settings_are_those_of_the_code():
    text = (ROOT / "docs" / "bounds.md").read_text(encoding="utf-8")
    parameters = inspect.signature(DataLoader.__init__).parameters
    for option, default in re.findall(r"^\| `(\w+)=(.+?)` \|", text, re.MULTILINE):
        assert parameters[option].default == json.loads(default.replace("None", "null")), option
