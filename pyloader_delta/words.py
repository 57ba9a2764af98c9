"""Numbers in sentences."""


def many(n: int, noun: str, nouns: str | None = None) -> str:
    """Return a number and what it counts: `1 file`, `1,200 files`.

    Args:
        n: The number.
        noun: What one is called.
        nouns: What several are called; None: `noun` with an s.
    """
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"
