"""Random predicates in all spellings, random rows, and what plain Python makes of them."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

UTC = datetime.UTC
SCHEMA = pa.schema(
    {
        "i": pa.int8(),
        "big": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "s": pa.string(),
        "b": pa.bool_(),
        "m": pa.decimal128(6, 2),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "x": pa.binary(),
        "Two Words": pa.struct({"q": pa.int32()}),
    }
)
NAN = math.nan
DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 1)
VALUES = {
    "i": [-128, -1, 0, 1, 2, 127],
    "big": [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
    "f": [-math.inf, -1.5, -0.0, 0.0, 0.1, 2.0, math.inf, NAN],
    "g": [float(np.float32(value)) for value in (-math.inf, -1.5, -0.0, 0.1, 16777216.0, NAN)],
    "s": ["", "a", "ab", "a%", "a\nb", "b'c", "ü", "\uffff", "\U0001f600"],
    "b": [False, True],
    "m": [Decimal("-9999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.50"), Decimal("9999.99")],
    "d": [datetime.date(1, 1, 1), DAY, datetime.date(9999, 12, 31)],
    "t": [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), NOON.replace(tzinfo=UTC)],
    "n": [datetime.datetime(1, 1, 1), NOON],
    "x": [b"", b"a", b"\xff"],
}
LITERALS = {
    "i": [*VALUES["i"], 300, -129, Decimal("1.5"), Decimal("-0.5"), Decimal("1e30")],
    "big": [*VALUES["big"], 2**63, Decimal("0.1")],
    "f": [-math.inf, -1.5, 0, 0.1, Decimal("0.1"), 2, math.inf],
    "g": [-1.5, 0, 0.1, float(np.float32(0.1)), 16777217],
    "s": VALUES["s"],
    "b": VALUES["b"],
    "m": [*VALUES["m"], 0, 1, 10000, Decimal("1.505"), Decimal("-0.001"), 1.5],
    "d": [*VALUES["d"], NOON, datetime.datetime.combine(DAY, datetime.time())],
    "t": [*VALUES["t"], DAY, datetime.datetime(2024, 2, 29, 14, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))],
    "n": [*VALUES["n"], DAY],
    "x": VALUES["x"],
}
SQL_LITERALS = LITERALS | {name: [*LITERALS[name], NAN] for name in ("f", "g")}
OPERATORS = ["=", "!=", "<", "<=", ">", ">="]


# Plain Python -------------------------------------------------------------------------------------------------------


def as_moment(value, zone):
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo or not zone else value.replace(tzinfo=UTC)
    return datetime.datetime.combine(value, datetime.time(), UTC if zone else None)


def sides(column, value, literal):
    """Return both as Python values that compare exactly."""
    if column in ("d", "n", "t"):
        return as_moment(value, column == "t"), as_moment(literal, column == "t")
    if column in ("f", "g"):
        return value, float(literal)
    if column == "s":
        return value.encode(), literal.encode()
    if column == "m" and isinstance(literal, float):
        return value, Decimal(repr(literal))
    return value, literal


def compared(operator, a, b, sql_nan):
    if sql_nan and isinstance(a, float):
        a, b = ((1, 0.0) if math.isnan(x) else (0, x) for x in (a, b))
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


def plain(predicate, row, sql_nan):
    """Return what a predicate is for a row: True, False or None."""
    kind, *rest = predicate
    if kind == "not":
        inner = plain(rest[0], row, sql_nan)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        found = [plain(child, row, sql_nan) for child in rest[0]]
        decided = kind == "or"
        return decided if decided in found else None if None in found else not decided
    column, *rest = rest
    value = row[column]
    if kind == "null":
        return value is None
    if kind == "columns":
        return None if value is None or row[rest[1]] is None else compared(rest[0], value, row[rest[1]], sql_nan)
    if value is None:
        return None
    if kind == "in":
        if any(compared("=", *sides(column, value, literal), sql_nan) for literal in rest[0] if literal is not None):
            return True
        return None if None in rest[0] else False
    return compared(rest[0], *sides(column, value, rest[1]), sql_nan)


# Spellings ----------------------------------------------------------------------------------------------------------


def sql_literal(value):
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"'{value}'"
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    return "NULL" if value is None else str(value).upper()


def sql(predicate):
    kind, *rest = predicate
    if kind == "not":
        return f"NOT ({sql(rest[0])})"
    if kind in ("and", "or"):
        return f" {kind} ".join(f"({sql(child)})" for child in rest[0])
    if kind == "null":
        return f"{rest[0]} is null"
    if kind == "in":
        return f"{rest[0].upper()} IN ({', '.join(map(sql_literal, rest[1]))})"
    if kind == "columns":
        return f'`{rest[0]}` {rest[1]} "{rest[2]}"'
    return f"{rest[0]} {rest[1]} {sql_literal(rest[2])}"


def tuple_of(predicate):
    kind, *rest = predicate
    if kind == "null":
        return (rest[0], "is", None)
    if kind == "not":
        negated = {"is": "is not", "in": "not in"}
        column, operator, value = tuple_of(rest[0])
        return (column, negated[operator], value)
    return (rest[0], "in", rest[1]) if kind == "in" else tuple(rest)


def expression(predicate):
    """Return the same in pyarrow; literals have the column's type, whose comparison is the same in both."""
    kind, *rest = predicate
    if kind == "not":
        return ~expression(rest[0])
    if kind in ("and", "or"):
        first, *others = map(expression, rest[0])
        for other in others:
            first = first & other if kind == "and" else first | other
        return first
    field = pc.field(rest[0])
    if kind == "null":
        return field.is_null()
    right = pc.field(rest[2]) if kind == "columns" else pa.scalar(rest[2], SCHEMA.field(rest[0]).type)
    return {
        "=": lambda: field == right,
        "!=": lambda: field != right,
        "<": lambda: field < right,
        "<=": lambda: field <= right,
        ">": lambda: field > right,
        ">=": lambda: field >= right,
    }[rest[1]]()


# Random rows and predicates -----------------------------------------------------------------------------------------


def compares(literals):
    return st.sampled_from(sorted(literals)).flatmap(
        lambda column: st.tuples(
            st.just("compare"), st.just(column), st.sampled_from(OPERATORS), st.sampled_from(literals[column])
        )
    )


def one_of(literals):
    return st.sampled_from(sorted(literals)).flatmap(
        lambda column: st.tuples(
            st.just("in"),
            st.just(column),
            st.lists(st.sampled_from([*literals[column], None]), min_size=1, max_size=4),
        )
    )


nulls = st.tuples(st.just("null"), st.sampled_from(sorted(VALUES)))
columns = st.sampled_from(sorted(VALUES)).flatmap(
    lambda column: st.tuples(st.just("columns"), st.just(column), st.sampled_from(OPERATORS), st.just(column))
)
sql_leaves = st.one_of(compares(SQL_LITERALS), nulls, one_of(SQL_LITERALS), columns)
expression_leaves = st.one_of(compares(VALUES), nulls, columns)


def trees(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=5,
    )


rows_strategy = st.lists(
    st.fixed_dictionaries({name: st.sampled_from([*values, None]) for name, values in VALUES.items()}), max_size=8
)


def table_of(rows):
    return pa.Table.from_pylist([row | {"Two Words": None} for row in rows], SCHEMA)
