"""A predicate in SQL, what stands after WHERE, becomes a tree: columns beside literals or each other, AND, OR, NOT.

Names in double quotes or backticks are taken as they are, others in any case. Numbers and dates compare as in Spark:
NaN equals itself and is above all numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, TypeVar

import pyarrow as pa

from pyloader_delta.delta.filters import build
from pyloader_delta.delta.filters.tree import And, Column, Constant, IsNull, Node, Not, Operator, Or
from pyloader_delta.errors import ConfigError

_TOKEN = re.compile(
    r"""\s+ | --[^\n]*
    | (?P<bytes>[xX]'(?:[0-9A-Fa-f]{2})*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+" | `(?:[^`]|``)+`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    | (?P<word>[^\W\d]\w*)
    | (?P<mark><=> | <> | != | == | <= | >= | [=<>(),.+-])""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Operator] = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_RESERVED = frozenset(
    ("and", "or", "not", "in", "is", "like", "ilike", "between", "null", "true", "false", "distinct", "from")
)
_TIMES = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")
_MAX_DEPTH = 100  # of parentheses and NOTs; Python's own stack is not much deeper

T = TypeVar("T")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    """0-based."""


class _Literal(NamedTuple):
    value: Any


def parse(text: str, schema: pa.Schema) -> Node:
    """Return the tree of a predicate.

    Raises:
        ConfigError: It is no predicate on columns of the schema; the text says what is wrong, and at which character.
    """
    return _Parser(text, schema).whole()


class _Parser:
    """Reads tokens from left to right, one ahead."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._tokens = self._cut()
        self._next = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._or()
        if self._token.kind != "end":
            self._refuse("AND, OR or the end is expected")
        return node

    # Grammar ---------------------------------------------------------------------------------------------------------

    def _or(self) -> Node:
        children = [self._and()]
        while self._took("or"):
            children.append(self._and())
        return children[0] if len(children) == 1 else Or(tuple(children))

    def _and(self) -> Node:
        children = [self._not()]
        while self._took("and"):
            children.append(self._not())
        return build.all_of(children)

    def _not(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(f"more than {_MAX_DEPTH} parentheses or NOTs in one another are not supported")
        if self._took("not"):
            node: Node = Not(self._not())
        elif self._took("("):
            node = self._or()
            self._expect(")")
        else:
            node = self._predicate()
        self._depth -= 1
        return node

    def _predicate(self) -> Node:
        start = self._token
        if start.text.lower() == "isnan" and self._tokens[self._next + 1].text == "(":
            self._next += 2
            column = self._column()
            self._expect(")")
            return self._made(start, build.is_nan, column)
        left = self._operand()
        if isinstance(left, _Literal):
            return self._literal_first(start, left)
        if self._took("is"):
            return self._is(start, left)
        negated = self._took("not")
        node = self._in_between_like(start, left)
        if node is not None:
            return Not(node) if negated else node
        if negated:
            self._refuse("IN, BETWEEN or LIKE is expected")
        token = self._token
        if token.text == "<=>":
            self._next += 1
            return self._same(start, left)
        if token.text in _OPERATORS:
            self._next += 1
            return self._compared(start, left, _OPERATORS[token.text], self._operand())
        if not pa.types.is_boolean(left.type):
            self._refuse(f"a comparison of column {left} is expected, such as =, <, IN, IS NULL")
        return build.compare(left, "=", True)

    def _literal_first(self, start: _Token, left: _Literal) -> Node:
        token = self._token
        if token.text not in _OPERATORS:
            if isinstance(left.value, bool | None):
                return Constant(left.value)
            self._refuse("a comparison with a column is expected")
        self._next += 1
        right = self._operand()
        if isinstance(right, _Literal):
            self._refuse("a column on one side is expected", token)
        return self._compared(start, right, build.FLIPPED[_OPERATORS[token.text]], left)

    def _is(self, start: _Token, left: Column) -> Node:
        negated = self._took("not")
        if self._took("null"):
            node: Node = IsNull(left)
        elif self._took("distinct"):
            self._expect("from")
            node = Not(self._same(start, left))
        elif self._token.text.lower() in ("true", "false"):
            node = self._same(start, left)
        else:
            self._refuse("NULL, TRUE, FALSE or DISTINCT FROM is expected")
        return Not(node) if negated else node

    def _same(self, start: _Token, left: Column) -> Node:
        """Return whether a column is a literal, where NULL is a value like others."""
        token = self._token
        right = self._operand()
        if not isinstance(right, _Literal):
            self._refuse("a literal is expected", token)
        if right.value is None:
            return IsNull(left)
        return And((self._compared(start, left, "=", right), Not(IsNull(left))))

    def _in_between_like(self, start: _Token, left: Column) -> Node | None:
        if self._took("in"):
            self._expect("(")
            values = [self._literal()]
            while self._took(","):
                values.append(self._literal())
            self._expect(")")
            return self._made(start, build.one_of, left, values, nan_is_greatest=True)
        if self._took("between"):
            low = self._operand()
            self._expect("and")
            high = self._operand()
            return build.all_of([self._compared(start, left, ">=", low), self._compared(start, left, "<=", high)])
        for word in ("like", "ilike"):
            if self._took(word):
                return self._made(start, build.like, left, self._literal(), ignore_case=word == "ilike")
        return None

    def _operand(self) -> Column | _Literal:
        token = self._token
        if token.kind == "quoted" or (
            token.kind == "word"
            and token.text.lower() not in _RESERVED
            and not (token.text.lower() in _TIMES and self._tokens[self._next + 1].kind == "text")
        ):
            return self._column()
        return _Literal(self._literal())

    def _column(self) -> Column:
        start = self._token
        path = [self._name()]
        while self._took("."):
            path.append(self._name())
        if self._token.text == "(":
            self._refuse(f"{'.'.join(path)}(…) is a function; compute columns with a pyarrow expression instead", start)
        quoted = start.kind == "quoted"
        return self._made(start, build.column, self._schema, path, any_case=not quoted)

    def _name(self) -> str:
        token = self._token
        if token.kind == "quoted":
            self._next += 1
            mark = token.text[0]
            return token.text[1:-1].replace(mark * 2, mark)
        if token.kind != "word" or token.text.lower() in _RESERVED:
            self._refuse("the name of a column is expected")
        self._next += 1
        return token.text

    def _literal(self) -> Any:
        token = self._token
        word = token.text.lower()
        self._next += 1
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "bytes":
            return bytes.fromhex(token.text[2:-1])
        if token.kind == "number":
            return Decimal(token.text)
        if word in ("+", "-") and self._token.kind == "number":
            return self._literal() * (1 if word == "+" else -1)
        if word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        if word in _TIMES and self._token.kind == "text":
            return self._literal()  # it is read as the column's type
        return self._refuse("a column or a literal is expected, such as 1.5, 'a text', DATE '2024-05-01'", token)

    # Tokens ----------------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _took(self, word: str) -> bool:
        token = self._token
        if token.kind in ("word", "mark") and token.text.lower() == word:
            self._next += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._took(word):
            self._refuse(f"{word.upper()} is expected")

    def _cut(self) -> Sequence[_Token]:
        tokens, position = [], 0
        while position < len(self._text):
            found = _TOKEN.match(self._text, position)
            if found is None:
                self._refuse("this is no part of a predicate", _Token("?", self._text[position], position))
            if found.lastgroup is not None:
                tokens.append(_Token(found.lastgroup, found[0], position))
            position = found.end()
        return [*tokens, _Token("end", "", len(self._text))]

    # Trees and errors ------------------------------------------------------------------------------------------------

    def _compared(self, start: _Token, left: Column, operator: Operator, right: Column | _Literal) -> Node:
        if isinstance(right, Column):
            return self._made(start, build.compare_columns, left, operator, right, nan_is_greatest=True)
        return self._made(start, build.compare, left, operator, right.value, nan_is_greatest=True)

    def _made(self, start: _Token, make: Callable[..., T], *args: Any, **options: Any) -> T:
        try:
            return make(*args, **options)
        except ValueError as error:
            self._refuse(str(error), start)

    def _refuse(self, why: str, token: _Token | None = None) -> NoReturn:
        token = token or self._token
        at = "at its end" if token.kind == "end" else f"at character {token.start + 1} ({token.text!r})"
        raise ConfigError(f"filter {self._text!r} is no predicate on columns: {at}: {why}")
