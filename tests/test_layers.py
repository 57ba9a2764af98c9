"""Who may import whom, and where third parties live: the layers of the package, held by reading its source."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pyloader_delta"
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in MODULES]

SHARED = {
    "arrays",
    "values",
    "errors",
    "stats",
    "columns",
    "permute",
    "ragged",
    "rng",
    "schemas",
    "memory",
    "ours",
    "words",
    "units",
}  # the ground: types, pure functions, no I/O
STAGES = {"delta", "plan", "read", "encode", "collate", "engine"}
WIRING = {
    "loader",
    "facade",
    "lengths",
    "ledger",
    "audit",
    "receipt",
    "take",
    "skips",
    "insight",
    "report",
    "oneline",
    "options",
    "budget",
    "stages",
    "outputs",
    "preview",
    "progress",
    "ranks",
    "resume",
    "shuffling",
    "state",
    "views",
}  # what alone knows several stages
UPPER = {"cli", "compat", "adapters", "testing"}
MAY_IMPORT = dict.fromkeys(SHARED, SHARED) | {stage: SHARED | {stage} for stage in STAGES}
MAY_IMPORT["spill"] = SHARED | {"spill"}
MAY_IMPORT["read"] = MAY_IMPORT["read"] | {"delta"}  # the Delta reader is a reader
ROUTE = {1: "plan", 2: "read", 3: "encode", 4: "collate"}

HOMES = {
    "deltalake": {"delta", "cli"},
    "obstore": {"delta"},
    "boto3": {"delta"},
    "pyarrow": {
        "delta",
        "plan",
        "read",
        "encode",
        "collate",
        "engine",
        "values",
        "arrays",
        "columns",
        "schemas",
        "stages",
        "skips",
        "spill",
        "cli",
    },
    "matplotlib": {"shuffling", "cli"},
    "torch": {"compat"},  # and any module named torch.py
    "tensorflow": {"compat"},
    "jax": set(),
    "pandas": set(),
    "multiprocessing": {"engine"},
    "subprocess": {"engine"},
    "threading": {"engine", "delta", "spill"},  # there, to leave a call of a user's filesystem that never ends
    "socket": {"engine"},
}

_FRAMEWORKS = {"torch", "tensorflow", "jax", "pandas"}


def part(path: Path) -> str:
    """Return the part of the package that a module belongs to: its folder, or its own name at the top."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported(path: Path, *, lazily: bool = True) -> set[str]:
    """Return the dotted names a module imports, absolute; without `lazily`, not those inside functions."""
    here = ("pyloader_delta", *path.relative_to(PACKAGE).parts)
    names = set()
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(here[: len(here) - node.level]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            # the part is named in the list of `from pyloader_delta import plan`, else before it
            names |= {f"{base}.{alias.name}" for alias in node.names} if base == "pyloader_delta" else {base}
        elif lazily or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)
    return names


def parts_imported(path: Path, *, lazily: bool = True) -> set[str]:
    dotted = (name.split(".") for name in imported(path, lazily=lazily))
    return {name[1] for name in dotted if name[0] == "pyloader_delta" and len(name) > 1}


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_stages_meet_only_in_values_and_in_the_loader(path):
    if part(path) in MAY_IMPORT:
        assert parts_imported(path) <= MAY_IMPORT[part(path)]
    elif part(path) in WIRING:  # a loader's views (to_torch, …) reach up to the adapters when they are called
        assert not parts_imported(path, lazily=False) & UPPER


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_third_parties_stay_at_home(path):
    for name in {name.split(".")[0] for name in imported(path)} & set(HOMES):
        assert part(path) in HOMES[name] or (name in _FRAMEWORKS and path.stem == name), name


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_no_module_swallows_the_product(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_first_lines_of_the_packages_print_the_route():
    first_lines = {path.parent.name: path.read_text(encoding="utf-8") for path in PACKAGE.glob("*/__init__.py")}
    numbered = {name: text[3:].split(".")[0] for name, text in first_lines.items() if text[3:4].isdigit()}
    assert numbered.items() >= {name: str(step) for step, name in ROUTE.items()}.items()
    assert len(set(numbered.values())) == len(numbered)
    for step, name in ROUTE.items():
        assert first_lines[name].startswith(f'"""{step}. {name}: ')
