"""Draws img/route.svg from the code's own words: the first line of each pyloader_delta/*/__init__.py.

python img/draw_route.py            # writes img/route.svg
python img/draw_route.py --check    # exit status 1 if img/route.svg is not what would be drawn
"""

import re
import sys
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "img" / "route.svg"

WIDTH, HEIGHT = 1280, 390
BOX_WIDTH, BOX_HEIGHT, BOX_TOP = 170, 92, 104
LEFTS = (190, 410, 630, 850)  # of the four stages
CENTRE = BOX_TOP + BOX_HEIGHT / 2

INK, SOFT, LINE, PAPER = "#1c2733", "#5a6b7b", "#9fb0bf", "#ffffff"
FILLS = {"plan": "#e8f0fb", "read": "#e3f5ec", "encode": "#fdf1dc", "collate": "#f7e6f0"}
STROKES = {"plan": "#4b7cc4", "read": "#2f9567", "encode": "#c98a1b", "collate": "#b3528a"}

# What the user writes at a stage; the first line of the stage's own module must name it.
YOURS = {"read": "DataReader.read_file", "encode": "Dataset.batch_encode", "collate": "DataCollator.collate_batch"}


def stages() -> list[tuple[str, str, str]]:
    """Return (number, name, what becomes of what) of the numbered stages, in order."""
    found = []
    for path in (ROOT / "pyloader_delta").glob("*/__init__.py"):
        line = path.read_text(encoding="utf-8").splitlines()[0]
        if match := re.match(r'"""(\d+)\. (\w+): ([^,.]+)', line):
            number, name, change = match.groups()
            if name != path.parent.name or YOURS.get(name, "") not in line:
                raise SystemExit(f"{path.relative_to(ROOT)} and img/draw_route.py disagree about {name!r}: {line}")
            found.append((number, name, change))
    return sorted(found)


def sentence(part: str) -> str:
    """Return the first sentence of a part without a number."""
    line = (ROOT / "pyloader_delta" / part / "__init__.py").read_text(encoding="utf-8").splitlines()[0]
    return line.strip('"').split(". ")[0].rstrip(".")


def text(x: float, y: float, words: str, style: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{style}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, radius: float, style: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" {style}/>'


def wrapped(words: str, limit: int) -> list[str]:
    """Return words in lines of at most so many letters."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > limit:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def box(left: float, name: str, title: str, change: str) -> list[str]:
    centre = left + BOX_WIDTH / 2
    parts = [
        rect(
            left,
            BOX_TOP,
            BOX_WIDTH,
            BOX_HEIGHT,
            10,
            f'fill="{FILLS[name]}" stroke="{STROKES[name]}" stroke-width="1.6"',
        ),
        text(centre, BOX_TOP + 30, title, "title"),
    ]
    parts += [text(centre, BOX_TOP + 52 + 17 * i, line, "small") for i, line in enumerate(wrapped(change, 21))]
    if name in YOURS:
        base, method = YOURS[name].split(".")
        parts.append(text(centre, BOX_TOP - 34, f"your {base}", "yours"))
        parts.append(text(centre, BOX_TOP - 15, f"{method}()", "code"))
    return parts


def arrow(start: float, stop: float, y: float = CENTRE) -> str:
    return f'<path d="M{start:g} {y:g} H{stop:g}" class="arrow" marker-end="url(#head)"/>'


def held(x: float, words: str, bound: str) -> list[str]:
    """Return what waits between two stages: a queue below the arrow at `x`, with what bounds it."""
    y = BOX_TOP + BOX_HEIGHT + 46
    bars = [rect(x - 32 + 17 * i, y, 13, 26, 3, f'fill="#dfe7ee" stroke="{LINE}"') for i in range(4)]
    stem = f'<path d="M{x:g} {CENTRE + 8:g} V{y - 8}" stroke="{LINE}" stroke-dasharray="3 4" fill="none"/>'
    return [stem, *bars, text(x, y + 47, words, "small strong"), text(x, y + 65, bound, "code soft")]


def draw() -> str:
    """Return the picture."""
    steps = stages()
    if [name for _, name, _ in steps] != list(FILLS):
        raise SystemExit(f"the stages are now {steps}: give img/draw_route.py a place for each")
    end = LEFTS[-1] + BOX_WIDTH
    ready = end + 44
    left, right = LEFTS[1] - 24, ready + 64
    loop = (right + WIDTH) / 2
    parts = [
        rect(0, 0, WIDTH, HEIGHT, 14, f'fill="{PAPER}"'),
        rect(left, 28, right - left, HEIGHT - 56, 12, f'fill="#f6f8fa" stroke="{LINE}" stroke-dasharray="5 5"'),
        text((left + right) / 2, HEIGHT - 42, "engine: worker threads or processes", "small strong"),
        text(84, CENTRE - 32, "a Delta table", "title"),
        text(84, CENTRE - 13, "one pinned version", "small"),
        text(84, CENTRE + 13, "or", "small"),
        text(84, CENTRE + 40, "a folder of files", "title"),
        arrow(160, LEFTS[0] - 6),
    ]
    for place, (number, name, change) in zip(LEFTS, steps, strict=True):
        parts += box(place, name, f"{number} {name}", change)
    parts += [arrow(one + BOX_WIDTH + 4, other - 6) for one, other in pairwise(LEFTS)]
    parts += held((LEFTS[1] + BOX_WIDTH + LEFTS[2]) / 2, "chunk store", "max_queue_size, memory_budget")
    parts += held(ready, "ready batches", "prefetch_factor")
    parts += [
        arrow(end + 4, right + 14),
        text(loop + 6, CENTRE - 12, "your loop", "title"),
        text(loop + 6, CENTRE + 10, "PyTorch,", "small"),
        text(loop + 6, CENTRE + 27, "TensorFlow 2,", "small"),
        text(loop + 6, CENTRE + 44, "NumPy", "small"),
        text(LEFTS[0] + BOX_WIDTH / 2, BOX_TOP + BOX_HEIGHT + 24, "order fixed by seeds", "small"),
    ]
    style = (
        "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:" + INK + "}"
        ".title{font-size:17px;font-weight:600}.small{font-size:13px;fill:" + SOFT + "}"
        ".strong{font-weight:600;fill:" + INK + "}.yours{font-size:14px;font-weight:600}"
        ".code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12.5px}.soft{fill:" + SOFT + "}"
        ".arrow{stroke:" + INK + ";stroke-width:1.8;fill:none}"
    )
    described = escape("; ".join(f"{number} {name}: {change}" for number, name, change in steps), quote=True)
    label = f"The route of the data. {described}. {escape(sentence('engine'), quote=True)}."
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
    marker = 'id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
            "<!-- drawn by img/draw_route.py from the first lines of pyloader_delta/*/__init__.py -->",
            f"<style>{style}</style>",
            f'<defs><marker {marker}><path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>',
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    drawn = draw()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn else "img/route.svg is stale")
    PICTURE.write_text(drawn, encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
