"""Tables whose log is written by hand, for what no writer at hand would write."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}

_MAP = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "readerFeatures": pa.list_(pa.string())}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
            }
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "stats": pa.string(),
                "stats_parsed": pa.struct(
                    {
                        "numRecords": pa.int64(),
                        "minValues": pa.struct({"x": pa.int64(), "y": pa.int64()}),
                        "nullCount": pa.struct({"x": pa.int64()}),
                    }
                ),
                "deletionVector": pa.struct(
                    {
                        "storageType": pa.string(),
                        "pathOrInlineDv": pa.string(),
                        "offset": pa.int32(),
                        "sizeInBytes": pa.int32(),
                        "cardinality": pa.int64(),
                    }
                ),
                "baseRowId": pa.int64(),
            }
        ),
        "remove": pa.struct({"path": pa.string()}),
        "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64()}),
    }
)


class Table:
    """A table folder to write commits, checkpoints and data files into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "_delta_log"
        self.log.mkdir(parents=True)

    def __str__(self) -> str:
        return str(self.path)

    def commit(self, version: int, *actions: dict, indent: int | None = None) -> None:
        text = "\n".join(json.dumps(action, indent=indent) for action in actions)
        (self.log / f"{version:020d}.json").write_text(text + "\n")

    def checkpoint(
        self,
        version: int,
        *actions: dict,
        parts: int | None = None,
        leave_out: tuple[str, ...] = (),
        name: str | None = None,
        row_group_size: int | None = None,
    ) -> None:
        """Write the actions as one checkpoint, or cut into parts; without some top-level columns.

        `name` is that of a file in the log, if it is another than that of a classic checkpoint.
        """
        names = [name or f"{version:020d}.checkpoint.parquet"]
        if parts is not None:
            names = [f"{version:020d}.checkpoint.{i + 1:010d}.{parts:010d}.parquet" for i in range(parts)]
        schema = pa.schema([field for field in _CHECKPOINT if field.name not in leave_out])
        for i, name in enumerate(names):
            rows = [dict.fromkeys(schema.names) | action for action in actions[i :: len(names)]]
            (self.log / name).parent.mkdir(exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows, schema), self.log / name, row_group_size=row_group_size)

    def data(self, name: str, table: pa.Table | dict, *, time: int = 0, **values: str | None) -> dict:
        """Write a data file and return its `add`; `values` are its partition values."""
        if isinstance(table, dict):
            table = pa.table(table)
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, self.path / name)
        return add(name, time=time, size=(self.path / name).stat().st_size, n_rows=table.num_rows, **values)


def add(path: str, *, time: int = 0, size: int = 1, n_rows: int | None = None, **values: str | None) -> dict:
    stats = None if n_rows is None else json.dumps({"numRecords": n_rows})
    return {"add": {"path": path, "partitionValues": values, "size": size, "modificationTime": time, "stats": stats}}


def remove(path: str) -> dict:
    return {"remove": {"path": path, "dataChange": True}}


def metadata(partition_columns: tuple[str, ...] = (), configuration: dict | None = None, **columns: object) -> dict:
    """Return a metaData action; columns are name=Delta type, by default one long named `x`."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    if not fields:
        fields = [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]
    return {
        "metaData": {
            "id": "the-id",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partition_columns),
            "configuration": configuration or {},
        }
    }


class Hand:
    """What a test needs to write a log by hand."""

    protocol = PROTOCOL
    add = staticmethod(add)
    remove = staticmethod(remove)
    metadata = staticmethod(metadata)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, name: str = "table") -> Table:
        return Table(self.folder / name)


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path)
