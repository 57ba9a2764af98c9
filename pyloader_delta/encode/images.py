"""Encoded images become arrays: by Pillow, and JPEG by whichever faster library is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyloader_delta.errors import ConfigError, ContractError, ValueTypeError

_KEPT_MODES = {"L", "RGB", "RGBA", "LA", "I", "F", "I;16"}


def decode_images(
    rows: Sequence[bytes | None],
    decode: Literal["image", "jpeg"],
    resize: tuple[int, int] | None,
    name: str,
    *,
    as_pil: bool,
) -> Any:
    """Return images as one array, shape (rows, height, width[, channels]), or as a list of PIL images.

    Args:
        rows: Encoded images; None becomes black.
        decode: See `FieldSpec.decode`.
        resize: (height, width) to bring them to; None: as they are.
        name: The column, for errors.
        as_pil: Give PIL images, for a transform.

    Raises:
        ValueTypeError: A value is no image; names the row of the call.
        ContractError: Sizes differ; names both.
        ConfigError: Pillow is missing.
    """
    if as_pil:
        return [_opened(row, decode, resize, name, number) for number, row in enumerate(rows)]
    read = _jpeg() if decode == "jpeg" else None
    whole: NDArray[np.uint8] | None = None
    for number, row in enumerate(rows):
        if row is None:
            continue
        if read is None:
            image = np.asarray(_opened(row, decode, resize, name, number))
        else:
            image = _fast(read, row, resize, name, number)
        if whole is None:
            first = number
            whole = np.zeros((len(rows), *image.shape), image.dtype)
        if image.shape != whole.shape[1:]:
            raise ContractError(
                f"column {name!r}: an image has (height, width, channels) {whole.shape[1:]} in row {first} and "
                f"{image.shape} in row {number}; a batch is one array: give FieldSpec({name!r}, resize=(height, "
                "width)), or a transform that makes them alike"
            )
        whole[number] = image
    if whole is None:
        raise ValueTypeError(f"column {name!r} has nothing but nulls in {len(rows)} rows: images have no size then")
    return whole


def _opened(row: bytes | None, decode: str, resize: tuple[int, int] | None, name: str, number: int) -> Any:
    pil = _pillow(name)
    if row is None:
        raise ValueTypeError(f"column {name!r} is null in row {number}, which a transform of images cannot take")
    try:
        image = pil.open(BytesIO(row))
        if decode == "jpeg" and image.mode != "RGB":
            image = image.convert("RGB")
        elif image.mode not in _KEPT_MODES:
            image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
        if resize is not None:
            return image.resize((resize[1], resize[0]), pil.Resampling.BILINEAR)
        image.load()
        return image
    except (OSError, SyntaxError, ValueError) as error:
        raise _broken(name, number, error) from error


def _fast(
    read: Callable[[bytes], NDArray[np.uint8]], row: bytes, resize: tuple[int, int] | None, name: str, number: int
) -> NDArray[np.uint8]:
    try:
        image = read(row)
    except (ValueError, RuntimeError) as error:
        raise _broken(name, number, error) from error
    if resize is None:
        return image
    pil = _pillow(name)
    return np.asarray(pil.fromarray(image).resize((resize[1], resize[0]), pil.Resampling.BILINEAR))


def _broken(name: str, number: int, error: Exception) -> ValueTypeError:
    reason = str(error).partition(" <")[0]  # Pillow adds what it reads from, with an address that is another each time
    return ValueTypeError(f"column {name!r}, row {number} of the call, is no image that can be decoded: {reason}")


@cache
def _jpeg() -> Callable[[bytes], NDArray[np.uint8]] | None:
    """Return the fastest installed decoder of JPEG as RGB; None for Pillow."""
    try:
        simplejpeg = importlib.import_module("simplejpeg")
    except ImportError:
        return _torchvision()
    decoded: Callable[[bytes], NDArray[np.uint8]] = simplejpeg.decode_jpeg
    return decoded


def _torchvision() -> Callable[[bytes], NDArray[np.uint8]] | None:
    """Return torchvision's decoder; None where it is missing, or made for another build of torch."""
    try:
        io = importlib.import_module("torchvision.io")
        torch = importlib.import_module("torch")
        torch.ops.image.decode_jpeg  # noqa: B018  what torchvision's own library registers
    except (ImportError, RuntimeError, AttributeError, OSError):
        return None

    def decoded(row: bytes) -> NDArray[np.uint8]:
        raw = torch.from_numpy(np.frombuffer(row, np.uint8).copy())
        found: NDArray[np.uint8] = io.decode_jpeg(raw, mode=io.ImageReadMode.RGB).permute(1, 2, 0).numpy()
        return found

    return decoded


def _pillow(name: str) -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ConfigError(f"images of column {name!r} need Pillow: pip install 'pyloader_delta[images]'") from error
