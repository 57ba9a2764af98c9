"""Writes the tables of docs/values.md anew: `python tests/outputs/write_values.py`."""

from pathlib import Path

from value_cases import BEGIN, END, tables

PAGE = Path(__file__).parents[2] / "docs" / "values.md"


def rewritten(text: str) -> str:
    """Return the page with the tables that the tests hold."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
