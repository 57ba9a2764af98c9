"""`FieldSpec`: what becomes of one column. Only said and checked here, not done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pyloader_delta.errors import ConfigError

Framework = Literal["numpy", "torch", "tensorflow", "jax", "arrow", "pandas"]
FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax", "arrow", "pandas")
WITH_TEXT = ("numpy", "tensorflow")
"""Those that have arrays of texts; Arrow and pandas have all types."""


@dataclass(frozen=True)
class FieldSpec:
    """What becomes of one column of a table.

    Raises:
        ConfigError: An argument is wrong, or two of them exclude each other.
    """

    name: str
    """The column."""
    decode_numpy_and_apply_shape: tuple[int, ...] | None = None
    """Read each value of a binary column as an array of this shape, its numbers little-endian and of type `dtype`
    (uint8 if that is None). A list of that many numbers is taken as well."""
    load_image_using_pil: bool = False
    """Decode each value of a binary column as an image; the same as decode="image"."""
    transform: Callable[[Any], Any] | None = None
    """Called with each value: a NumPy row, a PIL image if the column is decoded as one, else the Python value. Costs
    Python's time for every row; what it returns is stacked."""
    target_name: str | None = None
    """Key of the batch; None: the column's name."""
    dtype: Any = None
    """NumPy type, or torch's or TensorFlow's, to cast numbers to. Whole numbers must come out equal and floats finite,
    or it is an error; floats are rounded to the nearest."""
    fill_null: Any = None
    """What nulls become; None: they are an error. In a list column, what null elements become; null lists become empty
    ones."""
    null_mask: bool = False
    """Put a bool array `<key>_null`, shape (B,), true where the value is null, beside the column. Where `fill_null` is
    None such values are 0, False, 1970-01-01, empty, or None in a struct or map."""
    ragged: Literal["pad", "jagged"] | int | tuple[int, ...] = "pad"
    """What lists of numbers become. "pad": an array as long as the batch's longest list, filled up with `pad_value`,
    and `<key>_lengths` beside it. "jagged": torch's jagged nested tensor, TensorFlow's RaggedTensor, a `RaggedBatch` in
    NumPy. A shape: every list has that many numbers, or it is an error."""
    pad_value: Any = 0
    """What shorter lists are filled up with, of the elements' type."""
    decode: Literal["image", "jpeg", "unscaled"] | None = None
    """"image": as Pillow reads it, uint8 (H, W) or (H, W, channels). "jpeg": uint8 (H, W, 3), by simplejpeg or
    torchvision where installed, else Pillow. "unscaled": a decimal of at most 18 digits as int64, in units of its last
    digit."""
    resize: tuple[int, int] | None = None
    """(height, width) in pixels that images are brought to, bilinear."""
    batch_transform: Callable[[Any], Any] | None = None
    """Called with the array of a whole batch, first axis rows; returns another with as many rows."""
    as_list: bool = False
    """Give the column as a list of Python values, nulls as None: the way for types that the framework has not."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"FieldSpec: name must be the name of a column, got {self.name!r}")
        for option in ("load_image_using_pil", "null_mask", "as_list"):
            if not isinstance(getattr(self, option), (bool, np.bool_)):
                raise self._wrong(option, "True or False")
        for option in ("transform", "batch_transform"):
            if getattr(self, option) is not None and not callable(getattr(self, option)):
                raise self._wrong(option, "a function")
        if self.target_name is not None and (not isinstance(self.target_name, str) or not self.target_name):
            raise self._wrong("target_name", "a str")
        if self.decode not in (None, "image", "jpeg", "unscaled"):
            raise self._wrong("decode", "'image', 'jpeg' or 'unscaled'")
        self._normalise()
        self._check_together()

    @property
    def key(self) -> str:
        """Under which name the column stands in a batch."""
        return self.target_name or self.name

    @property
    def image(self) -> bool:
        """Whether the column is decoded as images."""
        return self.decode in ("image", "jpeg")

    @property
    def only_names(self) -> bool:
        """Whether nothing is asked for but perhaps a key."""
        return all(_is_default(self, name) for name in self.__dataclass_fields__ if name not in ("name", "target_name"))

    def _normalise(self) -> None:
        put = object.__setattr__
        put(self, "dtype", None if self.dtype is None else self._dtype())
        for option in ("decode_numpy_and_apply_shape", "resize"):
            if getattr(self, option) is not None:
                put(self, option, self._shape(option))
        if self.resize is not None and (len(self.resize) != 2 or 0 in self.resize):
            raise self._wrong("resize", "(height, width) in pixels")
        if self.ragged not in ("pad", "jagged"):
            put(self, "ragged", self._shape("ragged"))
        if self.load_image_using_pil and self.decode is None:
            put(self, "decode", "image")

    def _check_together(self) -> None:
        shape = self.decode_numpy_and_apply_shape
        if shape is not None and self.decode is not None:
            raise self._both("decode_numpy_and_apply_shape", "load_image_using_pil or decode")
        if self.resize is not None and not self.image:
            raise ConfigError(
                f"FieldSpec({self.name!r}): resize is for images: set load_image_using_pil=True or decode"
            )
        if self.transform is not None and self.batch_transform is not None:
            raise self._both("transform", "batch_transform")
        if self.as_list:
            self._alone("as_list", "decode_numpy_and_apply_shape", "decode", "dtype", "batch_transform")
            self._alone("as_list", "ragged", "pad_value")
        if self.transform is not None:  # which gets values as they are, but for arrays that are made of bytes
            self._alone("transform", "ragged", "pad_value", *(() if shape is not None else ("dtype",)))

    def _alone(self, option: str, *others: str) -> None:
        """Refuse options that would do nothing beside another."""
        for other in others:
            if not _is_default(self, other):
                raise self._both(option, other)

    def _dtype(self) -> np.dtype[Any]:
        name = str(getattr(self.dtype, "name", self.dtype)).removeprefix("torch.")  # torch.float32, tf.float32
        try:
            dtype = np.dtype(self.dtype if isinstance(self.dtype, (type, np.dtype)) else name)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "biuf":
            raise self._wrong("dtype", "a type of numbers or bool such as 'float32'")
        return dtype

    def _shape(self, option: str) -> tuple[int, ...]:
        value = getattr(self, option)
        sizes: Sequence[Any] = (value,) if hasattr(value, "__index__") else value
        try:
            shape = tuple(size.__index__() for size in sizes)
        except (AttributeError, TypeError):
            shape = (-1,)
        if isinstance(value, str) or any(size < 0 for size in shape):
            allowed = " or 'pad' or 'jagged'" if option == "ragged" else ""
            raise self._wrong(option, f"a shape such as (28, 28){allowed}")
        return shape

    def _wrong(self, option: str, wanted: str) -> ConfigError:
        return ConfigError(f"FieldSpec({self.name!r}): {option} must be {wanted}, got {getattr(self, option)!r}")

    def _both(self, one: str, other: str) -> ConfigError:
        return ConfigError(f"FieldSpec({self.name!r}): {one} and {other} exclude each other; give one of them")


def _is_default(spec: FieldSpec, option: str) -> bool:
    value, default = getattr(spec, option), FieldSpec.__dataclass_fields__[option].default
    return value is None if default is None else bool(value == default)  # NumPy's float64 == None


@dataclass(frozen=True)
class Output:
    """What one entry of a batch will be."""

    kind: str
    """"array" (the framework's array or tensor), "jagged" (its ragged one), "list", "text" or "arrow"."""
    dtype: Any = None
    """NumPy's type of its numbers, or Arrow's of the column; None where there is none, or a user's function decides."""
    shape: tuple[int | None, ...] | None = None
    """Shape; None in it: rows of the batch, or the batch's longest; None: a user's function or the images decide."""
    unit: str | None = None
    """What a time counts: "day", "µs", ..., since 1970-01-01 (UTC, or of the local clock where it has no zone)."""
