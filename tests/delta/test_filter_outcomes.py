"""Filters of any spelling keep exactly the rows that plain Python keeps, and bounds never rule out what a row is."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from filter_cases import (
    LITERALS,
    NAN,
    OPERATORS,
    SCHEMA,
    VALUES,
    compares,
    expression,
    expression_leaves,
    nulls,
    one_of,
    plain,
    rows_strategy,
    sql,
    sql_leaves,
    table_of,
    trees,
    tuple_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pyloader_delta.delta.filters.bounds import of_statistics, of_values
from pyloader_delta.delta.filters.literals import key
from pyloader_delta.delta.filters.outcomes import FALSE, NULL, TRUE, outcomes
from pyloader_delta.delta.filters.rows import row_filter
from pyloader_delta.delta.filters.tree import columns as columns_of
from pyloader_delta.errors import ConfigError


def outcomes_of(filter_, rows):
    found = row_filter(filter_, SCHEMA)
    table = table_of(rows).select(found.columns)
    assert found.mask(table).to_pylist() == [outcome is True for outcome in found.outcomes(table).to_pylist()]
    return found.outcomes(table).to_pylist()


@settings(deadline=None)
@given(trees(sql_leaves), rows_strategy)
def test_sql_keeps_what_sql_says(predicate, rows):
    assert outcomes_of(sql(predicate), rows) == [plain(predicate, row, sql_nan=True) for row in rows]


@pytest.mark.parametrize("others", [[2], [2, None], [NAN, None]])
def test_a_list_beside_a_condition_on_one_float_is_sqls(others):
    rows = [dict.fromkeys(VALUES) | {"f": value} for value in [*VALUES["f"], None]]
    predicate = ("not", ("and", [("compare", "f", ">", 1), ("in", "f", others)]))
    assert outcomes_of(sql(predicate), rows) == [plain(predicate, row, sql_nan=True) for row in rows]


@pytest.mark.parametrize("first", OPERATORS)
@pytest.mark.parametrize("second", OPERATORS)
@pytest.mark.parametrize("literals", [(0.1, 0.1), (0.1, NAN), (NAN, 2)])
def test_two_conditions_on_one_float_are_sqls(first, second, literals):
    rows = [dict.fromkeys(VALUES) | {"f": value} for value in [*VALUES["f"], None]]
    leaves = [("compare", "f", first, literals[0]), ("compare", "f", second, literals[1])]
    for kind in ("and", "or"):
        assert outcomes_of(sql((kind, leaves)), rows) == [plain((kind, leaves), row, sql_nan=True) for row in rows]


ins = one_of(LITERALS)
tuple_leaves = st.one_of(
    compares(LITERALS), nulls, ins, nulls.map(lambda leaf: ("not", leaf)), ins.map(lambda leaf: ("not", leaf))
)


@settings(deadline=None)
@given(st.lists(st.lists(tuple_leaves, min_size=1, max_size=3), min_size=1, max_size=3), rows_strategy)
def test_lists_of_tuples_are_the_or_of_ands(alternatives, rows):
    predicate = ("or", [("and", alternative) for alternative in alternatives])
    spelled = [[tuple_of(leaf) for leaf in alternative] for alternative in alternatives]
    assert outcomes_of(spelled, rows) == [plain(predicate, row, sql_nan=False) for row in rows]


@settings(deadline=None)
@given(trees(expression_leaves), rows_strategy)
def test_a_pyarrow_expression_keeps_what_pyarrow_keeps(predicate, rows):
    assert outcomes_of(expression(predicate), rows) == [plain(predicate, row, sql_nan=False) for row in rows]


# Bounds -------------------------------------------------------------------------------------------------------------

BIT = {True: TRUE, False: FALSE, None: NULL}


def bounds_of(rows, forgotten):
    """Return the bounds of the rows, one unit, without what is forgotten of each column."""
    known = {}
    for i, name in enumerate(VALUES):
        kind = SCHEMA.field(name).type
        keys = [key(row[name], kind)[0] for row in rows if row[name] is not None]
        keys = [value for value in keys if value == value]
        low, high = (min(keys), max(keys)) if keys else (None, None)
        what = forgotten[i % len(forgotten)]
        n_nulls = sum(row[name] is None for row in rows)
        known[(name,)] = of_statistics(
            [None if "low" in what else low],
            [None if "high" in what else high],
            [None if "nulls" in what else n_nulls],
            [None if "rows" in what else len(rows)],
        )
    return known


forgotten_strategy = st.lists(st.sets(st.sampled_from(["low", "high", "nulls", "rows"])), min_size=1, max_size=4)


@pytest.mark.parametrize("spelling", [sql, expression])
@settings(deadline=None)
@given(data=st.data(), rows=rows_strategy.filter(bool), forgotten=forgotten_strategy)
def test_bounds_never_rule_out_what_a_row_is(spelling, data, rows, forgotten):
    predicate = data.draw(trees(sql_leaves if spelling is sql else expression_leaves))
    found = row_filter(spelling(predicate), SCHEMA)
    (possible,) = outcomes(found.node, bounds_of(rows, forgotten), 1)
    for row in rows:
        assert possible & BIT[plain(predicate, row, sql_nan=spelling is sql)]


@settings(deadline=None)
@given(trees(sql_leaves), rows_strategy.filter(bool))
def test_one_value_a_unit_leaves_one_outcome_where_it_decides(predicate, rows):
    found = row_filter(sql(predicate), SCHEMA)
    keys = {
        (name,): of_values([None if row[name] is None else key(row[name], SCHEMA.field(name).type)[0] for row in rows])
        for name in VALUES
    }
    possible = outcomes(found.node, keys, len(rows))
    for row, outcome in zip(rows, possible.tolist(), strict=True):
        expected = BIT[plain(predicate, row, sql_nan=True)]
        assert outcome & expected
        floats = any(column.path[0] in "fg" for column in columns_of(found.node))
        if not floats and not _has_both_ways(predicate):
            assert outcome == expected


def _has_both_ways(predicate):
    return predicate[0] in ("and", "or", "columns") or (predicate[0] == "not" and _has_both_ways(predicate[1]))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.int16(7), pa.int64(), (7, True)),
        (np.float32(0.5), pa.int64(), (0, False)),
        (np.datetime64("3000-01-01"), pa.date32(), (376200, True)),
        (np.datetime64("1970-01-01T00:00:00.000001500"), pa.timestamp("us"), (1, False)),
        (np.datetime64("1970-01-02T00"), pa.timestamp("us", "UTC"), (86_400_000_000, True)),
        (pa.scalar(1500, pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC"), (1, False)),
        (pa.scalar("x"), pa.large_string(), (b"x", True)),
        ("1970-01-01 00:00:00.000001 UTC", pa.timestamp("us", "UTC"), (1, True)),
        (" 7 ", pa.int32(), (7, True)),
        ("1e2", pa.decimal128(5, 1), (1000, True)),
        (10**400, pa.decimal128(5, 1), (10**401, True)),
        (1, pa.bool_(), (1, True)),
    ],
)
def test_a_literal_of_any_kind_has_a_key(value, kind, expected):
    assert key(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, pa.int64()),
        ("x", pa.int64()),
        ("3_0", pa.int64()),
        ("3_0", pa.float64()),
        (1, pa.string()),
        (float("nan"), pa.int64()),
        ("1e999999999", pa.int64()),
        (10**400, pa.float64()),
        (1.5, pa.date32()),
        ("2024-02-30", pa.date32()),
        (np.datetime64("NaT"), pa.date32()),
        (pa.scalar(0, pa.timestamp("us", "UTC")), pa.timestamp("us")),
        ("2024-01-01T00:00:00Z", pa.timestamp("us")),
        (2, pa.bool_()),
        (None, pa.int64()),
        (object(), pa.string()),
    ],
)
def test_a_literal_that_cannot_be_compared_is_refused(value, kind):
    with pytest.raises(ValueError, match=r"is no value of|cannot be compared"):
        key(value, kind)


def test_thousands_of_terms_are_no_hindrance():
    table = table_of([dict.fromkeys(VALUES, None) | {"i": i} for i in range(3)])
    spelled = " OR ".join(f"i = {i}" for i in range(2, 1500))
    chained = pc.field("i") == 2
    for i in range(3, 1500):
        chained = chained | (pc.field("i") == i)
    for filter_ in (spelled, chained, [[("i", "in", range(2, 1500))]]):
        assert row_filter(filter_, SCHEMA).mask(table.select(["i"])).to_pylist() == [False, False, True]
    with pytest.raises(ConfigError, match="more than 100 parentheses or NOTs"):
        row_filter("(" * 5000 + "i = 1" + ")" * 5000, SCHEMA)


TEXTS = ["", "a", "ab", "a\nb", "a%b", "a_b", "A", "ü", "Üx", "a\\b", "a.b", "aXb", "(a)", "a\U0001f600b", "[a]"]
PATTERNS = ["", "a%", "%b", "a%b", "_", "a_b", r"a\%b", r"a\_b", "%\n%", "ü%", "(a)", "a.b", r"a\\b", "%a%b%", "[a]"]


def as_regex(pattern: str) -> str:
    found, characters = "", iter(pattern)
    for character in characters:
        escaped = character == "\\"
        character = next(characters) if escaped else character
        found += {"%": ".*", "_": "."}.get(character, re.escape(character)) if not escaped else re.escape(character)
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("word", "flags"), [("LIKE", re.DOTALL), ("ILIKE", re.DOTALL | re.IGNORECASE)])
def test_like_is_sqls_and_bounds_rule_out_no_match(pattern, word, flags):
    expected = [re.fullmatch(as_regex(pattern), text, flags) is not None for text in TEXTS]
    found = row_filter(f"s {word} '{pattern}'", pa.schema({"s": pa.string()}))
    assert found.mask(pa.table({"s": TEXTS})).to_pylist() == expected
    one_each = outcomes(found.node, {("s",): of_values([text.encode() for text in TEXTS])}, len(TEXTS))
    assert all(possible & BIT[kept] for possible, kept in zip(one_each.tolist(), expected, strict=True))


def test_a_pattern_that_ends_with_an_escape_is_refused():
    with pytest.raises(ConfigError, match="ends with a backslash that escapes nothing"):
        row_filter(r"s LIKE 'a\'", pa.schema({"s": pa.string()}))
