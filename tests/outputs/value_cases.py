"""What each Delta type becomes: the lines that docs/values.md prints and tests/outputs/test_values.py holds."""

import datetime as dt
import json
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

ROWS = 6
DAYS = [dt.date(1969, 12, 30) + dt.timedelta(days=2 * k) for k in range(ROWS)]
TIMES = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000) + dt.timedelta(days=k, microseconds=k) for k in range(ROWS)]
MICROSECONDS = [-1000 + k * (86_400_000_000 + 1) for k in range(ROWS)]
LISTS = [list(range(k % 4)) for k in range(ROWS)]
NESTED = [[list(range(j)) for j in range(k % 3)] for k in range(ROWS)]
BYTES = [bytes([k, 1, 2, 3]) for k in range(ROWS)]
MAPS = [[("a", k), ("b", -k)] for k in range(ROWS)]
DECIMALS = [Decimal(k * 125 - 250).scaleb(-2) for k in range(ROWS)]
VARIANTS = [{"metadata": b"\x01\x00\x00", "value": bytes([12, k])} for k in range(ROWS)]
STRUCTS = [{"a": k, "b": f"s{k}"} for k in range(ROWS)]
UTC = dt.UTC


@dataclass(frozen=True)
class Column:
    """A column of the table and what it is as input of `batch_encode`."""

    type: str
    """As Delta calls it."""
    name: str
    array: Any
    """As it is written; None: it is not in the files."""
    python: str
    """Python types in "python" input."""
    numpy: str
    """dtype in "numpy" input, and how its rows are where they are no numbers; "error" for an error."""
    arrow: str
    """Type in "arrow" input."""
    values: list[Any]
    """What "python" input has."""
    copied: bool = True
    """Whether "numpy" input is a copy of what was gathered."""


def _column(kind: str, name: str, array: Any, python: str, numpy: str, arrow: str | None = None, **more: Any) -> Column:
    return Column(kind, name, array, python, numpy, arrow or str(array.type), **{"values": array.to_pylist()} | more)


def _ints(kind: pa.DataType) -> pa.Array:
    return pa.array([-2, -1, 0, 1, 2, 3], kind)


COLUMNS = [
    _column("boolean", "boolean", pa.array([True, False, True, True, False, False]), "bool", "bool"),
    _column("byte", "byte", _ints(pa.int8()), "int", "int8", copied=False),
    _column("short", "short", _ints(pa.int16()), "int", "int16", copied=False),
    _column("integer", "integer", _ints(pa.int32()), "int", "int32", copied=False),
    _column("long", "long", pa.array([-(2**63), 2**53 + 1, 0, 1, 2, 2**63 - 1]), "int", "int64", copied=False),
    _column("float", "float", pa.array([0.5, -1, 2, 3, 4, 5], pa.float32()), "float", "float32", copied=False),
    _column("double", "double", pa.array([0.1, -1, 2, 3, 4, float("inf")]), "float", "float64", copied=False),
    _column("decimal(10,2)", "decimal", pa.array(DECIMALS, pa.decimal128(10, 2)), "Decimal", "object: Decimal"),
    _column("string", "string", pa.array(["", "é", "日本", "a\0b", "x", "y"]), "str", "object: str"),
    _column("binary", "binary", pa.array(BYTES), "bytes", "object: bytes"),
    _column("date", "date", pa.array(DAYS), "date", "datetime64[D]"),
    _column(
        "timestamp", "timestamp", pa.array(TIMES, pa.timestamp("us", "UTC")), "datetime in UTC", "datetime64[us]"
    ),
    _column("timestamp_ntz", "timestamp_ntz", pa.array(TIMES, pa.timestamp("us")), "datetime", "datetime64[us]"),
    _column("array of numbers", "list", pa.array(LISTS, pa.list_(pa.int32())), "list", "object: ndarray"),
    _column("array of arrays", "nested", pa.array(NESTED, pa.list_(pa.list_(pa.int16()))), "list", "object: list"),
    _column("array of others", "words", pa.array([["a", "b"]] * ROWS), "list", "object: list"),
    _column(
        "array with Arrow's tensor shape", "tensor",
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3)),
        "list", "object: ndarray", "list<element: float>",
        values=np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 6).tolist(),
    ),
    _column("map", "map", pa.array(MAPS, pa.map_(pa.string(), pa.int64())), "list of (key, value)", "object: list"),
    _column("struct", "struct", pa.array(STRUCTS), "dict", "object: dict"),
    _column("variant", "variant", pa.array(VARIANTS), "dict of its two binary parts", "object: dict"),
    Column("void", "void", None, "None", "error", "null", [None] * ROWS),
    _column("string, a partition column", "part", pa.array(["p", "q"] * 3), "str", "object: str"),
    _column("integer, a partition column", "year", pa.array([2024] * ROWS, pa.int32()), "int", "int32", copied=False),
    _column("long with nulls", "nulls", pa.array([1, None, 3, None, 5, 6]), "int, None", "error"),
    _column("double with nulls", "gaps", pa.array([0.5, None, float("nan"), 1, 2, 3]), "float, None", "error"),
]  # fmt: skip
BY_NAME = {column.name: column for column in COLUMNS}


@dataclass(frozen=True)
class Out:
    """An entry of a batch: what `docs/values.md` says of it."""

    dtype: str
    shape: str
    copied: bool = False
    """Whether the worker copies values to make it."""
    values: Any = None
    """What it holds; None: what the column holds."""

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}".rstrip() + ", copied" * self.copied


@dataclass(frozen=True)
class Refused:
    """An error that names the remedy."""

    remedy: str

    def __str__(self) -> str:
        return f"error: `{self.remedy}`"


@dataclass(frozen=True)
class Case:
    """One line of the table of outputs."""

    column: str
    options: dict[str, Any]
    """Of its FieldSpec."""
    numpy: Out | Refused
    torch: Out | Refused
    tensorflow: Out | Refused
    unit: str = ""
    beside: dict[str, Any] = field(default_factory=dict)
    """Entries beside it, by the ends of their names, and what they hold."""

    @property
    def jax(self) -> Out | Refused:
        """As torch, but that JAX has no ragged arrays."""
        return Refused("ragged='pad'") if self.options.get("ragged") == "jagged" else self.torch

    @property
    def arrow(self) -> Out | Refused:
        """The column's own type without options; with them what NumPy gets, by the table of Arrow's types."""
        column = BY_NAME[self.column]
        if not self.options:
            travels = column.type in _NUMBERS or column.type.startswith(("string", "binary", "integer"))
            return Out(column.arrow, "", copied=not travels, values=column.values)
        for option in ("as_list", "pad_value", "ragged"):
            if option in self.options and not isinstance(self.options[option], tuple):
                return Refused(option)
        assert isinstance(self.numpy, Out)
        return replace(self.numpy, dtype=ARROW_TYPES.get(self.numpy.dtype, self.numpy.dtype), shape=_tensor(self.numpy))

    @property
    def pandas(self) -> Out | Refused:
        return self.arrow

    def beside_in(self, framework: str) -> dict[str, Any]:
        """Return what stands beside it in a framework: Arrow's lists have their lengths in them."""
        lengths = framework in ("arrow", "pandas")
        return {end: values for end, values in self.beside.items() if not (lengths and "_lengths" in end)}

    @property
    def type(self) -> str:
        return BY_NAME[self.column].type

    def __str__(self) -> str:
        return f"{self.column}-{'-'.join(self.options) or 'plain'}"


_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
ARROW_TYPES = {"float32": "float", "float64": "double"}
"""Arrow's names of NumPy's types, where they differ."""


def _tensor(out: Out) -> str:
    return out.shape.replace("(B,)", "").replace("(B, ", "tensor (")


def _same(column: str, out: Out | Refused, unit: str = "", beside: Any = None, **options: Any) -> Case:
    return Case(column, options, out, out, out, unit, beside or {})


def _numbers(column: str, dtype: str, **more: Any) -> Case:
    return _same(column, Out(dtype, "(B,)", **more))


_EPOCH = {"timestamp": "µs since 1970-01-01 UTC", "timestamp_ntz": "µs since 1970-01-01 by the local clock"}
_AS_LIST = Refused("as_list=True")
_PADDED = [row + [0] * (3 - len(row)) for row in LISTS]
_DEEP = [[row[i] + [0] * (1 - len(row[i])) if i < len(row) else [0] for i in range(2)] for row in NESTED]
_TENSORS = np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3).tolist()
_OBJECTS = Out("object", "(B,)", copied=True)

CASES = [
    _numbers("boolean", "bool", copied=True),
    *(_numbers(name, BY_NAME[name].numpy) for name in ("byte", "short", "integer", "long", "float", "double")),
    _same("long", Out("float32", "(B,)", True, np.float32(BY_NAME["long"].values).tolist()), dtype="float32"),
    Case("decimal", {}, _OBJECTS, *[Refused("dtype='float64'")] * 2),
    _same("decimal", Out("float64", "(B,)", True, [float(value) for value in DECIMALS]), dtype="float64"),
    _same(
        "decimal", Out("int64", "(B,)", values=[int(value * 100) for value in DECIMALS]), "10^-2", decode="unscaled"
    ),
    Case("string", {}, _OBJECTS, _AS_LIST, Out("string", "(B,)")),
    _same("string", Out("list", "of str", True), as_list=True),
    Case("binary", {}, _OBJECTS, _AS_LIST, Out("string", "(B,)")),
    _same("binary", Out("list", "of bytes", True), as_list=True),
    _same(
        "binary", Out("uint8", "(B, 2, 2)", values=[[[k, 1], [2, 3]] for k in range(ROWS)]),
        decode_numpy_and_apply_shape=(2, 2),
    ),
    _same(
        "binary", Out("int16", "(B, 2)", values=[[k + 256, 2 + 3 * 256] for k in range(ROWS)]),
        decode_numpy_and_apply_shape=(2,), dtype="int16",
    ),
    Case(
        "date", {}, Out("datetime64[D]", "(B,)", True),
        *[Out("int32", "(B,)", values=[(day - dt.date(1970, 1, 1)).days for day in DAYS])] * 2,
        "days since 1970-01-01",
    ),
    *(
        Case(
            name, {}, Out("datetime64[us]", "(B,)", values=TIMES),
            *[Out("int64", "(B,)", values=MICROSECONDS)] * 2, _EPOCH[name],
        )
        for name in ("timestamp", "timestamp_ntz")
    ),
    _same(
        "list", Out("int32", "(B, longest)", True, _PADDED), beside={"_lengths": [len(row) for row in LISTS]},
    ),
    _same(
        "list", Out("int32", "(B, longest)", True, [row + [-1] * (3 - len(row)) for row in LISTS]),
        beside={"_lengths": [len(row) for row in LISTS]}, pad_value=-1,
    ),
    Case(
        "list", {"ragged": "jagged"}, Out("RaggedBatch int32", "(B, *)"), Out("jagged int32", "(B, *)"),
        Out("RaggedTensor int32", "(B, *)"),
    ),
    _same(
        "nested", Out("int16", "(B, longest, longest)", True, _DEEP),
        beside={"_lengths": [len(row) for row in NESTED], "_lengths_2": [
            [len(row[i]) if i < len(row) else 0 for i in range(2)] for row in NESTED
        ]},
    ),
    Case(
        "nested", {"ragged": "jagged"}, Out("RaggedBatch int16", "(B, *, *)"), Refused("ragged='pad'"),
        Out("RaggedTensor int16", "(B, *, *)"),
    ),
    Case("words", {}, _OBJECTS, _AS_LIST, _AS_LIST),
    _same("words", Out("list", "of list", True), as_list=True),
    _same("tensor", Out("float32", "(B, 2, 3)", values=_TENSORS)),
    _same("tensor", Out("float32", "(B, 6)"), ragged=(6,)),
    Case("map", {}, _OBJECTS, _AS_LIST, _AS_LIST),
    _same("map", Out("list", "of list", True), as_list=True),
    Case("struct", {}, _OBJECTS, _AS_LIST, _AS_LIST),
    _same("struct", Out("list", "of dict", True), as_list=True),
    Case("variant", {}, _OBJECTS, _AS_LIST, _AS_LIST),
    _same("variant", Out("list", "of dict", True), as_list=True),
    _same("void", Refused("fill_null")),
    _same("void", Out("float64", "(B,)", True, [0.5] * ROWS), fill_null=0.5),
    _same("void", Out("list", "of None", True), as_list=True),
    Case("part", {}, _OBJECTS, _AS_LIST, Out("string", "(B,)")),
    _numbers("year", "int32"),
    _same("nulls", Refused("fill_null")),
    _same("nulls", Out("int64", "(B,)", True, [1, -1, 3, -1, 5, 6]), fill_null=-1),
    _same(
        "nulls", Out("int64", "(B,)", True, [1, 0, 3, 0, 5, 6]), null_mask=True,
        beside={"_null": [False, True, False, True, False, False]},
    ),
    _same("nulls", Out("list", "of int, None", True), as_list=True),
    _same(
        "gaps", Out("float64", "(B,)", True, [0.5, 0, float("nan"), 1, 2, 3]), null_mask=True,
        beside={"_null": [False, True, False, False, False, False]},
    ),
    _same(
        "gaps", Out("float64", "(B,)", True, [0.5, float("nan"), float("nan"), 1, 2, 3]), fill_null=float("nan")
    ),
]  # fmt: skip


def write_table(root: Path) -> str:
    """Write the table of all columns, in one file for each partition value, and return its path.

    deltalake cannot write variants and voids, so the log's schema is edited: Parquet holds the one as a struct of two
    binaries, and no trace of the other.
    """
    there = [column for column in COLUMNS if column.array is not None]
    table = pa.table({column.name: column.array for column in there} | {"row": pa.array(range(ROWS))})
    write_deltalake(root, table, partition_by=["part", "year"])
    log = root / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for found in schema["fields"]:
                if found["name"] == "variant":
                    found["type"] = "variant"
            schema["fields"].append({"name": "void", "type": "void", "nullable": True, "metadata": {}})
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in action:
            features = {*action["protocol"].get("readerFeatures", ()), "variantType"}
            action["protocol"] |= {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": sorted(features)}
    log.write_text("\n".join(map(json.dumps, actions)) + "\n", encoding="utf-8")
    return str(root)


# The page -----------------------------------------------------------------------------------------------------------

BEGIN, END = "<!-- written by tests/outputs/write_values.py: begin -->", "<!-- end -->"


def _in_arrow(out: Out | Refused) -> str:
    return (
        f"error: leave `{out.remedy}` out"
        if isinstance(out, Refused)
        else str(out).replace(out.dtype, f"`{out.dtype}`", 1)
    )


def tables() -> str:
    """Return the two tables of docs/values.md."""
    lines = ['| Delta type | `"python"` | `"numpy"` | `"arrow"` |', "|---|---|---|---|"]
    for column in COLUMNS:
        numpy = column.numpy if column.copied or column.numpy == "error" else f"{column.numpy}, not copied"
        lines.append(f"| {column.type} | {column.python} | {numpy} | `{column.arrow}` |")
    lines += [
        "",
        "| Delta type | `FieldSpec` | NumPy | torch | TensorFlow | JAX | Arrow, pandas | unit, and what is beside it |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        options = ", ".join(f"{name}={value!r}" for name, value in case.options.items())
        said = f"`{options}`" if options else ""
        more = ", ".join([case.unit] * bool(case.unit) + [f"`…{end}`" for end in case.beside])
        tensors = f"{case.numpy} | {case.torch} | {case.tensorflow} | {case.jax}"
        lines.append(f"| {case.type} | {said} | {tensors} | {_in_arrow(case.arrow)} | {more} |")
    return "\n".join(lines)
