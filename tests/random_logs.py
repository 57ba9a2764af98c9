"""Tables with logs made at random, and what each of their versions must give.

A log grows by commits that append and drop files, delete rows by deletion vectors, state a file anew, rename a column
or add one, and by checkpoints of every kind; the log before a checkpoint may be cleaned up.
"""

import json
import random
import time
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from vectors import write_vectors

_MAP = pa.map_(pa.string(), pa.string())
_TEXTS = pa.list_(pa.string())
_VECTOR = {
    "storageType": pa.string(),
    "pathOrInlineDv": pa.string(),
    "offset": pa.int32(),
    "sizeInBytes": pa.int32(),
    "cardinality": pa.int64(),
}
_ADD = {
    "path": pa.string(),
    "partitionValues": _MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "stats_parsed": pa.struct({"numRecords": pa.int64()}),
    "tags": _MAP,
    "deletionVector": pa.struct(_VECTOR),
    "baseRowId": pa.int64(),
}
_REMOVE = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "deletionVector": pa.struct(_VECTOR),
}
_ACTIONS = {
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "add": pa.struct(_ADD),
    "remove": pa.struct(_REMOVE),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": _MAP}),
            "schemaString": pa.string(),
            "partitionColumns": _TEXTS,
            "configuration": _MAP,
            "createdTime": pa.int64(),
        }
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": _TEXTS,
            "writerFeatures": _TEXTS,
        }
    ),
    "checkpointMetadata": pa.struct({"version": pa.int64()}),
    "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}),
}
_PARTITIONS = [None, "a b", "x%y", "ü/é=1", "plain", "file:///"]


@dataclass(frozen=True)
class File:
    """A live data file."""

    path: str
    """Decoded, below the table."""
    rows: tuple[dict, ...]
    """By keys of columns: what is written in the file."""
    add: dict
    deleted: frozenset[int] = frozenset()


@dataclass
class Version:
    """What a version must give."""

    files: dict[str, File]
    columns: dict[str, str]
    """Key of a column → its name."""
    time_ms: int
    metadata: dict

    def rows(self) -> list[dict]:
        return [
            {name: row.get(key) for key, name in self.columns.items()}
            for file in self.files.values()
            for i, row in enumerate(file.rows)
            if i not in file.deleted
        ]


@dataclass
class RandomTable:
    """A table below `root`, grown by `grow`."""

    root: Path
    rng: random.Random
    common: bool = False
    """Only what other readers can read as well."""
    versions: list[Version] = field(default_factory=list)
    first: int = 0
    """The first version that can still be read."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.log = self.root / "_delta_log"
        self.log.mkdir(parents=True)
        self.mapping = rng.choice(["none", "none", "name", "id"])
        self.partitioned = rng.random() < 0.5
        self.vectors = rng.random() < 0.6
        self.v2 = rng.random() < 0.6
        keys = ["id", "text", *(["p"] if self.partitioned else [])]
        rng.shuffle(keys)
        self.columns = {key: key for key in keys}
        self.stored = {key: f"col-{key}-{rng.random()}" if self._mapped else key for key in (*keys, "extra")}
        self.ids = {key: i + 1 for i, key in enumerate((*keys, "extra"))}
        self.files: dict[str, File] = {}
        self.dropped: list[dict] = []
        self.start_ms = int(time.time() * 1000) - 1_000_000

    @property
    def _mapped(self) -> bool:
        return self.mapping != "none"

    def grow(self, n_commits: int) -> None:
        """Commit so many times, with checkpoints in between."""
        self._commit([self._protocol(), self._metadata(), *self._append()])
        steps = [self._append, self._append, self._drop, self._restate, self._add_column]
        steps += [self._delete] * 3 if self.vectors else []
        steps += [self._rename] if self._mapped else []
        for _ in range(n_commits):
            actions = self.rng.choice(steps)()  # one, so that no commit says two things of a file
            self._commit([*actions, *(self._append() if self.rng.random() < 0.3 else [])])
            if self.rng.random() < 0.4:
                self._checkpoint()

    # Steps -----------------------------------------------------------------------------------------------------------

    def _append(self) -> list[dict]:
        return [self._new_file() for _ in range(self.rng.randint(1, 3))]

    def _new_file(self) -> dict:
        rng = self.rng
        number = rng.getrandbits(40)
        value = rng.choice(_PARTITIONS[:-1] if self.common else _PARTITIONS) if self.partitioned else None
        folder = f"p={value}/".replace(":", "%3A") if self.partitioned and "/" not in (value or "") else ""
        path = f"{folder}{rng.choice(['part-', 'part ', 'p%20rt-', 'pärt+'])}{number}.parquet"
        keys = [key for key in ("id", "text", "extra") if key in self.columns]
        rows = tuple(
            {
                "id": rng.getrandbits(30),
                "text": rng.choice([None, "", "x", "ß" * 9]),
                "extra": rng.choice([None, 0.5, -1.0]),
            }
            for _ in range(rng.randint(1, 12))
        )
        rows = tuple({key: row[key] for key in keys} for row in rows)
        kinds = {"id": pa.int64(), "text": pa.string(), "extra": pa.float64()}
        schema = pa.schema([self._parquet_field(key, kinds[key]) for key in rng.sample(keys, len(keys))])
        stored = [{self.stored[key]: value for key, value in row.items()} for row in rows]
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(stored, schema), target, row_group_size=rng.randint(1, 6))
        values = {self.stored["p"]: value} if self.partitioned else {}
        counted = self.vectors or rng.random() < 0.8  # deltalake asks for counts where rows are deleted
        add = {
            "path": quote(path, safe=rng.choice(["/", "/+=,"])),
            "partitionValues": values,
            "size": target.stat().st_size,
            "modificationTime": self.start_ms + rng.randint(0, 3),
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}) if counted else None,
        }
        for row in rows:
            row["p"] = value
        self.files[path] = File(path, rows, add)
        return {"add": add}

    def _parquet_field(self, key: str, kind: pa.DataType) -> pa.Field:
        metadata = {"PARQUET:field_id": str(self.ids[key])} if self._mapped else None
        return pa.field(self.stored[key], kind, metadata=metadata)

    def _drop(self) -> list[dict]:
        if len(self.files) < 2:
            return []
        file = self.files.pop(self.rng.choice(list(self.files)))
        return [self._remove(file)]

    def _restate(self) -> list[dict]:
        """Remove a file and add it in the same commit, with another time."""
        if not self.files:
            return []
        file = self.files[self.rng.choice(list(self.files))]
        add = file.add | {"dataChange": False, "modificationTime": file.add["modificationTime"] + 1}
        self.files[file.path] = replace(file, add=add)
        return [{"add": add}] if self.common else self.rng.sample([{"add": add}, self._remove(file)], 2)

    def _delete(self) -> list[dict]:
        if not self.files:
            return []
        file = self.files[self.rng.choice(list(self.files))]
        n_rows = len(file.rows)
        deleted = file.deleted | set(self.rng.sample(range(n_rows), self.rng.randint(1, n_rows)))
        kind = self.rng.choice("iuup")
        folder = self.rng.choice(["", "d"]) if kind == "u" else ""
        vector = write_vectors(self.root, {"": deleted}, kind, folder)[""]
        add = file.add | {"deletionVector": vector}
        removed = self._remove(file)
        self.files[file.path] = replace(file, add=add, deleted=frozenset(deleted))
        return [removed, {"add": add}]

    def _rename(self) -> list[dict]:
        key = self.rng.choice([key for key in self.columns if key != "p"])
        self.columns[key] = f"{key} {len(self.versions)}"
        return [self._metadata()]

    def _add_column(self) -> list[dict]:
        self.columns.setdefault("extra", "extra")
        return [self._metadata()]

    # Actions ---------------------------------------------------------------------------------------------------------

    def _remove(self, file: File) -> dict:
        path = file.add["path"]
        if not self.common and self.rng.random() < 0.3:
            path = self.rng.choice(["file:", "file://", ""]) + quote(str(self.root / file.path))
        remove = {"path": path, "deletionTimestamp": self.start_ms, "dataChange": True}
        if "deletionVector" in file.add:
            remove["deletionVector"] = file.add["deletionVector"]
        self.dropped.append({"remove": remove})
        return {"remove": remove}

    def _protocol(self) -> dict:
        features = ["columnMapping"] * self._mapped + ["deletionVectors"] * self.vectors + ["v2Checkpoint"] * self.v2
        if features == ["columnMapping"] and self.rng.random() < 0.5:
            return {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        if not features:
            return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        lists = {"readerFeatures": features, "writerFeatures": features}
        return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | lists}

    def _metadata(self) -> dict:
        kinds = {"id": "long", "text": "string", "p": "string", "extra": "double"}
        fields = []
        for key, name in self.columns.items():
            mapped = {"delta.columnMapping.id": self.ids[key], "delta.columnMapping.physicalName": self.stored[key]}
            metadata = mapped if self._mapped else {}
            fields.append({"name": name, "type": kinds[key], "nullable": True, "metadata": metadata})
        configuration = {"delta.deletedFileRetentionDuration": "interval 30 days"}
        if self._mapped:
            configuration |= {"delta.columnMapping.mode": self.mapping, "delta.columnMapping.maxColumnId": "9"}
        return {
            "metaData": {
                "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["p"] if self.partitioned else [],
                "configuration": configuration,
                "createdTime": self.start_ms,
            }
        }

    def _commit(self, actions: list[dict]) -> None:
        version = len(self.versions)
        time_ms = self.start_ms + 1000 * version + self.rng.randint(0, 999)
        info = {"commitInfo": {"timestamp": time_ms, "operation": "WRITE"}}
        noise = [{"txn": {"appId": "a", "version": version, "lastUpdated": time_ms}}] * self.rng.randint(0, 1)
        lines = [info, *actions, *noise]
        if not self.common:
            self.rng.shuffle(lines)
        indent = 1 if not self.common and self.rng.random() < 0.2 else None
        text = "".join(f"{json.dumps(_without_none(line), indent=indent)}\n" for line in lines)
        (self.log / f"{version:020d}.json").write_text(text)
        metadata = next((line for line in actions if "metaData" in line), None)
        known = self.versions[-1].metadata if self.versions else None
        self.versions.append(Version(dict(self.files), dict(self.columns), time_ms, metadata or known))

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        rng, version = self.rng, len(self.versions) - 1
        kinds = ["classic", "parts", *(["json", "parquet"] if self.v2 else [])]
        kind = rng.choice(kinds)
        head = [self._protocol_now(), self.versions[-1].metadata]
        adds = [self._checkpointed(file, kind != "json") for file in self.files.values()]
        tombstones = rng.sample(self.dropped, min(len(self.dropped), rng.randint(0, 3)))
        tombstones = [action for action in tombstones if _key(action) not in {_key(add) for add in adds}]
        if kind == "parts":
            n_parts = rng.randint(1, 4)
            actions = [*head, *adds, *tombstones]
            rng.shuffle(actions)
            for i in range(n_parts):
                self._parquet(f"{version:020d}.checkpoint.{i + 1:010d}.{n_parts:010d}.parquet", actions[i::n_parts])
        else:
            name = f"{version:020d}.checkpoint.{uuid.UUID(int=rng.getrandbits(128))}.{kind}"
            if kind == "classic":
                name = f"{version:020d}.checkpoint.parquet"
            body = self._with_sidecars(version, adds) if self.v2 else adds
            actions = [*head, *body, *tombstones]
            if kind == "json":
                text = "".join(f"{json.dumps(_without_none(action))}\n" for action in actions)
                (self.log / name).write_text(text)
            else:
                self._parquet(name, actions)
        if not self.common:
            self._damage(version)
        if rng.random() < 0.3 and self._whole(version):
            self._clean_up(version)

    def _protocol_now(self) -> dict:
        lines = (self.log / f"{0:020d}.json").read_text() if self.first == 0 else None
        self._stated = self._stated if lines is None else next(a for a in _actions(lines) if "protocol" in a)
        return self._stated

    def _checkpointed(self, file: File, parquet: bool) -> dict:
        """Return an add with its statistics as JSON or, in Parquet, as a struct or both."""
        add = dict(file.add)
        count = json.loads(add["stats"])["numRecords"] if add["stats"] else None
        if count is not None and self.rng.random() < 0.5 and parquet and not self.common:
            add["stats_parsed"] = {"numRecords": count}
            if self.rng.random() < 0.5:
                add["stats"] = None
        return {"add": add}

    def _with_sidecars(self, version: int, adds: list[dict]) -> list[dict]:
        n_sidecars = self.rng.randint(0, 3)
        found: list[dict] = [{"checkpointMetadata": {"version": version}}]
        for i in range(n_sidecars):
            name = f"{uuid.UUID(int=self.rng.getrandbits(128))}.parquet"
            path = self.log / "_sidecars" / name
            path.parent.mkdir(exist_ok=True)
            self._parquet(f"_sidecars/{name}", adds[i::n_sidecars])
            described = {"path": name, "sizeInBytes": path.stat().st_size, "modificationTime": self.start_ms}
            found.append({"sidecar": described})
        return found if n_sidecars else [*found, *adds]

    def _parquet(self, name: str, actions: list[dict]) -> None:
        kinds = dict(_ACTIONS)
        if not self.v2:
            del kinds["checkpointMetadata"], kinds["sidecar"]
        if name.startswith("_sidecars"):
            kinds = {"add": _ACTIONS["add"], "remove": _ACTIONS["remove"]}
        if self.common:
            kinds["add"] = pa.struct({name: kind for name, kind in _ADD.items() if name != "stats_parsed"})
        schema = pa.schema(kinds)
        rows = [{kind: _pairs(action.get(kind)) for kind in kinds} for action in actions]
        size = self.rng.randint(1, 9)
        pq.write_table(pa.Table.from_pylist(rows, schema), self.log / name, row_group_size=size)

    def _damage(self, version: int) -> None:
        """Put what readers must look past beside the checkpoint, or break it."""
        rng = self.rng
        hint = rng.choice([None, '{"version":99,"size":1}', "nonsense", f'{{"version":{version},"size":1}}'])
        if hint is not None:
            (self.log / "_last_checkpoint").write_text(hint)
        if rng.random() < 0.2:
            (self.log / f"{version:020d}.checkpoint.0000000002.0000000009.parquet").write_bytes(b"a part alone")
        if rng.random() < 0.2:
            broken = rng.choice(sorted(self.log.glob(f"{version:020d}.checkpoint.*")))
            broken.write_bytes(rng.choice([b"", b"nonsense", broken.read_bytes()[:-30]]))
            self._broken = version

    def _whole(self, version: int) -> bool:
        return getattr(self, "_broken", None) != version

    def _clean_up(self, version: int) -> None:
        """Delete what is older than a checkpoint, as log retention does."""
        for path in self.log.iterdir():
            if path.name[:20].isdigit() and int(path.name[:20]) < version:
                path.unlink()
        self.first = version


def _actions(text: str) -> list[dict]:
    decoder, found, position = json.JSONDecoder(), [], 0
    while position < len(text.rstrip()):
        action, position = decoder.raw_decode(text, position)
        found.append(action)
        position += 1
    return found


def _key(action: dict) -> str:
    kind = "add" if "add" in action else "remove" if "remove" in action else None
    if kind is None:
        return next(iter(action))
    vector = action[kind].get("deletionVector") or {}
    return f"{kind} {action[kind]['path']} {vector.get('pathOrInlineDv')} {vector.get('offset')}"


def _without_none(action: dict) -> dict:
    ((kind, body),) = action.items()
    return {kind: {name: value for name, value in body.items() if value is not None}}


def _pairs(body: dict | None) -> dict | None:
    """Return an action with its maps as Arrow takes them."""
    if body is None:
        return None
    found = dict(body)
    for name in ("partitionValues", "configuration", "tags"):
        if name in found:
            found[name] = list(found[name].items())
    if "format" in found:
        found["format"] = {"provider": found["format"]["provider"], "options": []}
    return found
