"""`pyloader-delta convert`: images by class, CSV, JSON lines or Parquet become a Delta table to train on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pyarrow as pa

from pyloader_delta.cli.advice import GROUP_BYTES
from pyloader_delta.cli.bar import bar
from pyloader_delta.cli.shared import REJECTS, message, print_json, size, storage_option
from pyloader_delta.cli.shared import command as as_command
from pyloader_delta.cli.sources.base import Source, ending, found_files, total_bytes
from pyloader_delta.cli.sources.csv import Csv
from pyloader_delta.cli.sources.images import ENDINGS, Images
from pyloader_delta.cli.sources.jsonl import JsonLines
from pyloader_delta.cli.sources.parquet import Parquet
from pyloader_delta.cli.writing import TableWriter
from pyloader_delta.delta.store import table_root
from pyloader_delta.errors import ConfigError
from pyloader_delta.memory import parse_bytes
from pyloader_delta.read.base import chunk_files
from pyloader_delta.words import many

FORMATS = {
    "images": ENDINGS,
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet",),
}
_MAX_COMMIT_BYTES = 1 << 30  # Arrow's texts and bytes end at 2 GiB
_TYPES = {
    "string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(),
    "bool": pa.bool_(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def _types(ctx: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, pa.DataType]:
    found = {}
    for text in given:
        name, _, kind = text.rpartition("=")
        if not name or kind not in _TYPES:
            raise click.BadParameter(f"must read NAME=TYPE, TYPE one of {', '.join(_TYPES)}; got {text!r}", ctx, option)
        found[name] = _TYPES[kind]
    return found


@click.command()
@click.argument("src", type=click.Path(exists=True, path_type=Path))
@click.argument("table")
@click.option(
    "--format", "kind", type=click.Choice(list(FORMATS)), help="Of SRC; else found by the names of its files."
)
@click.option("--type", "types", metavar="NAME=TYPE", multiple=True, callback=_types,
              help="Type of a column of CSV or JSON lines; may be repeated. Else it is found.")  # fmt: skip
@click.option("--null", "nulls", multiple=True, default=("",), show_default="the empty text",
              help="Cells of CSV that are NULL; may be repeated.")  # fmt: skip
@click.option("--delimiter", help="Of CSV; else a comma, and a tab in .tsv.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order in which images are mixed.")
@click.option("--keep-order", is_flag=True, help="Leave images in the order of their classes.")
@click.option("--row-group-size", default=f"{GROUP_BYTES >> 20}MiB", show_default=True, help="In memory.")
@click.option("--commit-size", default="128MiB", show_default=True, help="In memory: a commit, and a file.")
@click.option("--append", is_flag=True, help="TABLE may be there, made of something else.")
@click.option("--rejects", type=click.Path(dir_okay=False, path_type=Path),
              help="Where rejected records are listed; else beside TABLE.")  # fmt: skip
@storage_option
@as_command
def command(
    src: Path, table: str, kind: str | None, types: dict[str, pa.DataType], nulls: tuple[str, ...],
    delimiter: str | None, seed: int, keep_order: bool, row_group_size: str, commit_size: str, append: bool,
    rejects: Path | None, storage_options: dict[str, str], as_json: bool,
) -> None:  # fmt: skip
    """Make the Delta table TABLE of SRC: a folder of images with one folder a class, or CSV, JSON lines or Parquet.

    A conversion that was cut off goes on when the same command is run again. Records that cannot be converted are
    listed, and the status is then 3.

    \b
    Examples:
      pyloader-delta convert photos/train photos_table
      pyloader-delta convert events.csv.gz events --type zip=string --null NA --null ""
      pyloader-delta convert logs/ s3://lake/logs --format jsonl
    """
    root, src = table_root(table), Path(os.path.abspath(src))
    group_bytes, commit_bytes = (
        parse_bytes(row_group_size, "--row-group-size"),
        parse_bytes(commit_size, "--commit-size"),
    )
    if commit_bytes > _MAX_COMMIT_BYTES:
        raise ConfigError(f"--commit-size must be at most 1 GiB, got {commit_size}")
    if delimiter is not None and len(delimiter) != 1:
        raise ConfigError(f"--delimiter must be one character, got {delimiter!r}")
    if src.is_dir() and Path(root).is_relative_to(src):
        raise ConfigError(f"{root} lies inside {src}: it would become a part of what is converted; name another place")
    if rejects is not None and not rejects.absolute().parent.is_dir():
        raise ConfigError(f"--rejects: there is no folder {rejects.parent}")
    source = _source(src, kind, types, nulls, delimiter, None if keep_order else seed)
    listed = rejects or Path(f"{root if '://' not in root else Path(root).name}.rejects.jsonl")
    with (
        TableWriter(
            root,
            source,
            storage_options,
            append=append,
            commit_bytes=commit_bytes,
            group_bytes=group_bytes,
            rejects=listed,
        ) as writer,
        bar("writing", source.total_bytes, "B") as advance,
    ):
        for piece in source.pieces(writer.done):
            writer.add(piece)
            advance(piece.n_bytes)
        writer.commit()
    if as_json:
        print_json(
            {
                "uri": root,
                "n_rows": writer.n_rows,
                "n_records_before": writer.began_at,
                "n_records": writer.done,
                "n_rejects": writer.n_rejects,
                "rejects": str(listed) if writer.n_rejects else None,
                "columns": {field.name: str(field.type) for field in source.schema},
            }
        )
    else:
        _tell(writer, source, root, listed)
    sys.exit(REJECTS if writer.n_rejects else 0)


def _tell(writer: TableWriter, source: Source, root: str, listed: Path) -> None:
    before = f", after {many(writer.began_at, 'record')} of an earlier run" if writer.began_at else ""
    print(f"{root}: {many(writer.n_rows, 'row')} written{before}; the source has {size(source.total_bytes)}")
    for field in source.schema:
        print(f"  {field.name}: {field.type}")
    if isinstance(source, Images):
        print(f"  labels: {', '.join(f'{label} {name}' for name, label in source.labels.items())}")
    if writer.n_rejects:
        message(f"rejected: {many(writer.n_rejects, 'record')}, listed in {listed}")


def _source(
    src: Path, kind: str | None, types: Mapping[str, pa.DataType], nulls: Sequence[str], delimiter: str | None,
    seed: int | None,
) -> Source:  # fmt: skip
    kind = kind or _kind(src)
    if types and kind not in ("csv", "jsonl"):
        raise ConfigError("--type is for CSV and JSON lines; images and Parquet have types of their own")
    if kind == "images":
        if src.is_file():
            raise ConfigError(f"{src} is a file; images are converted from a folder with one folder a class")
        return Images(src, seed)
    files = found_files(src, FORMATS[kind])
    if not files:
        raise ConfigError(f"{src} holds no file that ends in {', '.join(FORMATS[kind])}")
    root = src if src.is_dir() else src.parent
    if kind == "parquet":
        return Parquet(files, root)
    with bar("finding types", total_bytes(files), "B") as advance:
        if kind == "csv":
            source = Csv(files, root, types, nulls, delimiter or ("\t" if ending(files[0]) == ".tsv" else ","), advance)
            _doubt(source.schema.names, delimiter)
            return source
        return JsonLines(files, root, types, advance)


def _doubt(names: Sequence[str], delimiter: str | None) -> None:
    """Tell of a file that has one column because its cells are separated by something else."""
    other = next((character for character in ";\t|," if character in names[0]), None)
    if delimiter is None and len(names) == 1 and other is not None:
        typed = f"${other!r}" if other == "\t" else repr(other)  # as shells take it
        message(f"there is one column, {names[0]!r}; if {other!r} separates cells, give --delimiter {typed}")


def _kind(src: Path) -> str:
    """Return the one format that a file or folder is in."""
    paths = [src] if src.is_file() else list(map(Path, chunk_files(str(src), hive=True)))
    endings = {ending(path) for path in paths}
    found = [kind for kind, known in FORMATS.items() if endings & set(known)]
    if len(found) != 1:
        what = f"files of several formats, {' and '.join(found)}" if found else "no file of a format that is known"
        raise ConfigError(f"{src} holds {what}; name the one to convert by --format {'|'.join(FORMATS)}")
    if unknown := sorted(endings - set(FORMATS[found[0]])):
        names = ", ".join(repr(name or "no ending") for name in unknown[:5])
        message(f"left out: files with other endings ({names})")
    return found[0]
