"""Deletion vectors as other engines write them, put on the files of a table by a commit of our own."""

import json
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
MAGIC = 1681511377


def vector(rows: Iterable[int], *, runs: bool = False) -> bytes:
    """Return a deletion vector: containers are arrays and bitmaps as numbers ask for, or all of them runs."""
    parts = [(high, list(numbers)) for high, numbers in groupby(sorted(rows), lambda row: row >> 32)]
    bitmaps = b"".join(struct.pack("<I", high) + _bitmap([n & 0xFFFFFFFF for n in low], runs) for high, low in parts)
    return struct.pack("<IQ", MAGIC, len(parts)) + bitmaps


def _bitmap(numbers: list[int], runs: bool) -> bytes:
    parts = [(key, [n & 0xFFFF for n in low]) for key, low in groupby(numbers, lambda number: number >> 16)]
    containers = [_runs(low) if runs else _container(low) for _, low in parts]
    n = len(parts)
    head = struct.pack("<I", (n - 1) << 16 | 12347) + b"\xff" * -(-n // 8) if runs else struct.pack("<II", 12346, n)
    head += b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in parts)
    if not runs or n >= 4:
        start = len(head) + 4 * n
        starts = [start + sum(map(len, containers[:i])) for i in range(n)]
        head += struct.pack(f"<{n}I", *starts)
    return head + b"".join(containers)


def _container(numbers: list[int]) -> bytes:
    if len(numbers) <= 4096:
        return struct.pack(f"<{len(numbers)}H", *numbers)
    bits = np.zeros(1 << 16, bool)
    bits[numbers] = True
    return np.packbits(bits, bitorder="little").tobytes()


def _runs(numbers: list[int]) -> bytes:
    found = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return struct.pack("<H", len(found)) + b"".join(struct.pack("<HH", run[0], len(run) - 1) for run in found)


def z85(data: bytes) -> str:
    """Return four bytes as five digits each."""
    text = ""
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        text += "".join(_DIGITS[number // 85**i % 85] for i in (4, 3, 2, 1, 0))
    return text


def write_vectors(
    root: Path, deleted: Mapping[str, Iterable[int]], kind: str = "u", folder: str = ""
) -> dict[str, dict]:
    """Write the vectors of several data files, all into one file unless they are inline.

    Args:
        root: Folder of the table.
        deleted: Data file, as the log spells it → numbers of its deleted rows.
        kind: `i`, `u` or `p`.
        folder: Folder of the file below the table.

    Returns:
        Data file → descriptor.
    """
    name, content, found = uuid.uuid4(), b"\x01", {}
    path = root / folder / f"deletion_vector_{name}.bin"
    for i, (file, rows) in enumerate(deleted.items()):
        rows = sorted(set(rows))
        data = vector(rows, runs=i % 2 == 1)
        place = {"u": folder + z85(name.bytes), "p": path.as_uri(), "i": z85(data + bytes(-len(data) % 4))}[kind]
        found[file] = {"storageType": kind, "pathOrInlineDv": place, "sizeInBytes": len(data), "cardinality": len(rows)}
        if kind != "i":
            found[file]["offset"] = len(content)
            content += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if kind != "i":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return found


def protocol(*features: str, writer: tuple[str, ...] = ()) -> dict:
    """Return the protocol of a table that needs reader features, and writer features beside them."""
    lists = {"readerFeatures": list(features), "writerFeatures": [*features, *writer]}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | lists}


def delete_rows(root: Path | str, deleted: Mapping[str, Iterable[int]], kind: str = "u", folder: str = "") -> None:
    """Commit the deletion of rows by their numbers, whole vectors anew, to a table whose log is commits alone."""
    root = Path(root)
    adds: dict[str, dict] = {}
    line: dict = {}
    commits = sorted((root / "_delta_log").glob("*.json"))
    for commit in commits:
        for action in map(json.loads, commit.read_text().splitlines()):
            line = action.get("protocol", line)
            if "remove" in action:
                adds.pop(action["remove"]["path"], None)
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
    vectors = write_vectors(root, deleted, kind, folder)
    mapped = ["columnMapping"] if line["minReaderVersion"] == 2 else []
    readers, writers = (line.get(f"{side}Features", mapped) for side in ("reader", "writer"))
    needed = sorted({*readers, "deletionVectors"})
    actions: list[dict] = [protocol(*needed, writer=tuple(sorted({*writers} - {*needed})))]
    for file, descriptor in vectors.items():
        remove = {
            name: adds[file][name]
            for name in ("path", "size", "partitionValues", "deletionVector")
            if name in adds[file]
        }
        actions.append({"remove": remove | {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}})
        actions.append({"add": adds[file] | {"deletionVector": descriptor, "dataChange": True}})
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    (root / "_delta_log" / f"{len(commits):020d}.json").write_text(text)
