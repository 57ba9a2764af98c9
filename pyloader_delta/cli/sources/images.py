"""A folder of images by class: one folder a class, images anywhere below it. Each is looked at before it is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pyloader_delta.cli.sources.base import PIECE_BYTES, Piece, Reject, found_files, identity, total_bytes
from pyloader_delta.errors import ConfigError
from pyloader_delta.memory import usable_cpus

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_MANY = 512


class _Image(NamedTuple):
    content: bytes
    width: int
    height: int
    problem: str | None = None


class Images:
    """Images in an order that mixes the classes: a window of shuffling then has all of them.

    Args:
        source: The folder.
        seed: Of that order; None: by path, class after class.

    Raises:
        ConfigError: There is no image, one lies in no class's folder, or Pillow is not installed.
    """

    schema = pa.schema(
        [
            ("image", pa.binary()), ("label", pa.int64()), ("class", pa.string()), ("path", pa.string()),
            ("width", pa.int32()), ("height", pa.int32()),
        ]
    )  # fmt: skip
    opaque: tuple[str, ...] = ("image",)

    def __init__(self, source: Path, seed: int | None) -> None:
        try:
            import PIL.Image  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError("images need Pillow: pip install 'pyloader_delta[images]'") from error
        files = found_files(source, ENDINGS)
        if not files:
            raise ConfigError(f"{source} holds no image: no file that ends in {', '.join(ENDINGS)}")
        names = {path: path.relative_to(source).as_posix() for path in files}
        if outside := [name for name in names.values() if "/" not in name]:
            raise ConfigError(
                f"{source} has {len(outside)} images in no folder of a class, such as {outside[0]!r}; put those of "
                "each class into a folder of its name, or give the folder above"
            )
        self._root, self._names = source, names
        classes = sorted({name.split("/")[0] for name in names.values()})
        self.labels = {name: number for number, name in enumerate(classes)}
        """Class → label."""
        self._files = files if seed is None else sorted(files, key=lambda path: _draw(seed, names[path]))
        self.total_bytes = total_bytes(files)
        self.identity = identity(self._files, source, ["images", seed])

    def pieces(self, skip: int) -> Iterator[Piece]:
        yield Piece(None, 0, total_bytes(self._files[:skip]))
        with ThreadPoolExecutor(usable_cpus(), thread_name_prefix="pyloader_delta-images") as pool:
            for files in _runs(self._files[skip:]):
                images = list(pool.map(_looked_at, files))
                n_bytes = sum(len(image.content) for image in images)
                rejects = [
                    Reject(self._names[path], image.problem)
                    for path, image in zip(files, images, strict=True)
                    if image.problem is not None
                ]
                good = [pair for pair in zip(files, images, strict=True) if pair[1].problem is None]
                yield Piece(self._table(good) if good else None, len(files), n_bytes, rejects)

    def _table(self, good: Sequence[tuple[Path, _Image]]) -> pa.Table:
        names = [self._names[path] for path, _ in good]
        classes = [name.split("/")[0] for name in names]
        columns = [
            [image.content for _, image in good], [self.labels[name] for name in classes], classes, names,
            [image.width for _, image in good], [image.height for _, image in good],
        ]  # fmt: skip
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _draw(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogateescape")).digest()


def _runs(files: Sequence[Path]) -> Iterator[list[Path]]:
    run: list[Path] = []
    n_bytes = 0
    for path in files:
        run.append(path)
        n_bytes += path.stat().st_size
        if n_bytes >= PIECE_BYTES or len(run) == _MANY:
            yield run
            run, n_bytes = [], 0
    if run:
        yield run


def _looked_at(path: Path) -> _Image:
    """Return an image and its size; it is decoded, a JPEG at an eighth of its size, so that damage is found."""
    from PIL import Image

    try:
        content = path.read_bytes()
    except OSError as error:
        return _Image(b"", 0, 0, f"cannot be read: {error.strerror or error}")
    try:
        with Image.open(BytesIO(content)) as image:
            width, height = image.size
            image.draft("RGB", (width // 8, height // 8))
            image.load()
    except Exception as error:  # Pillow raises nearly anything for what is no image
        return _Image(content, 0, 0, f"no image that Pillow can decode: {type(error).__name__}: {error}")
    return _Image(content, width, height)
