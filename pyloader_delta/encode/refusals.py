"""What a column cannot be asked for, and what a framework cannot hold: errors that name column and remedy."""

from __future__ import annotations

import pyarrow as pa

from pyloader_delta import arrays
from pyloader_delta.encode.spec import FieldSpec, Framework
from pyloader_delta.errors import ConfigError, ValueTypeError


def refuse_options(spec: FieldSpec, kind: pa.DataType) -> None:
    """Raise ConfigError where a spec asks for what a type has not."""
    text = arrays.is_text(kind)
    bytes_alone = arrays.is_binary(kind) and spec.decode_numpy_and_apply_shape is None
    wanted = str if text else bytes
    if (text or bytes_alone) and not isinstance(spec.fill_null, wanted | None):
        raise ConfigError(
            f"FieldSpec({spec.name!r}): fill_null must be {wanted.__name__} like the column, got {spec.fill_null!r}"
        )
    fixed = bytes_alone and pa.types.is_fixed_size_binary(kind) and spec.fill_null is not None
    if fixed and len(spec.fill_null) != kind.byte_width:
        raise ConfigError(
            f"FieldSpec({spec.name!r}): fill_null must have {kind.byte_width} bytes like the column, got "
            f"{len(spec.fill_null)}"
        )
    listed, inner = arrays.is_list(kind), kind
    while arrays.is_list(inner):
        inner = inner.value_type
    of_numbers = listed and arrays.leaf_dtype(inner, times=True) is not None
    numbers = of_numbers if listed else not (text or bytes_alone or pa.types.is_struct(kind) or pa.types.is_map(kind))
    for option, given, fits, what in (
        ("dtype", spec.dtype is not None, numbers, "numbers"),
        ("decode='unscaled'", spec.decode == "unscaled", pa.types.is_decimal(kind), "decimals"),
        ("ragged", spec.ragged != "pad", of_numbers, "lists of numbers"),
        ("pad_value", bool(spec.pad_value), of_numbers, "lists of numbers"),
    ):
        if given and not fits:
            raise ConfigError(f"FieldSpec({spec.name!r}): {option} is for {what}; the column is {kind}")


def refuse_unused(spec: FieldSpec, kind: pa.DataType) -> None:
    """Raise ConfigError where a `batch_transform` gets Python values, so that a spec says things that do nothing."""
    for option, given in (
        ("dtype", spec.dtype is not None),
        ("ragged", spec.ragged != "pad"),
        ("pad_value", bool(spec.pad_value)),
    ):
        if spec.batch_transform is not None and given:
            raise ConfigError(
                f"FieldSpec({spec.name!r}): {option} does nothing beside batch_transform, which gets a list of Python "
                f"values from a column of {kind}; leave it out"
            )


def refuse_jagged(spec: FieldSpec, kind: pa.DataType, depth: int, framework: Framework) -> None:
    """Raise ConfigError where a framework has no ragged array for lists so many levels deep."""
    if spec.ragged != "jagged":
        return
    if framework == "jax" or (framework == "torch" and depth > 1):
        why = "JAX has no ragged arrays" if framework == "jax" else "torch's jagged tensors have one ragged dimension"
        raise ConfigError(f"FieldSpec({spec.name!r}): {why}, the column is {kind}; use ragged='pad'")


def unfit(spec: FieldSpec, kind: pa.DataType, framework: Framework, remedy: str) -> ValueTypeError:
    """Return the error of a type that a framework has no tensor for."""
    return ValueTypeError(
        f"column {spec.name!r} is {kind}, which {framework} has no tensor for: give FieldSpec({spec.name!r}, …) with "
        f"{remedy} or a transform, or leave it out by columns=[…]"
    )


def null_error(spec: FieldSpec, count: int, n_rows: int, what: str) -> ValueTypeError:
    """Return the error of nulls of which nothing is said; `what` they are: nulls, or something inside lists."""
    mask = ", null_mask=True" if what == "nulls" else ""
    return ValueTypeError(
        f"column {spec.name!r} has {count} {what} in {n_rows} values: say what they become by FieldSpec({spec.name!r}, "
        f"fill_null=…{mask})"
    )
