"""What mkdocs is told beside mkdocs.yml: pictures of img/, pages that nav forgot, links out of docs/, decisions."""

import re
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File

ROOT = Path(__file__).parent
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")
_IMAGE = re.compile(r'(src=")(?:\.\./)+(img/)')


def on_config(config):
    """Add pages that nav does not name to Guides, and the decisions behind it."""
    named = set(_pages(config["nav"]))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    rest = [page for page in pages if page not in named]
    (guides,) = (entry["Guides"] for entry in config["nav"] if "Guides" in entry)
    guides += [page for page in rest if "/" not in page]
    config["nav"].append({"Decisions": [page for page in rest if page.startswith("decisions/")]})
    return config


def on_files(files, config):
    """Put the pictures of img/ into the site."""
    for picture in sorted((ROOT / "img").glob("*.svg")):
        files.append(File.generated(config, f"img/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links that lead out of docs/ into the names of what they lead to, which must be there."""
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def named(link):
        text, target = link[1], (ROOT / folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            raise ValueError(f"{page.file.src_uri}: {link[2]} leads nowhere")
        path = target.relative_to(ROOT).as_posix()
        return text if text.strip("`").rstrip("/") == path else f"{text} (`{path}`)"

    def picture(link):
        return f"{link[1]}{'../' * (len(folder.parts) - 1)}{link[2]}"

    return _IMAGE.sub(picture, _LINK.sub(named, markdown))


def _pages(nav):
    for entry in nav:
        if isinstance(entry, dict):
            for value in entry.values():
                yield from [value] if isinstance(value, str) else _pages(value)
        else:
            yield entry
