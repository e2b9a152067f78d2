"""Batches in, columns out: what wit/1.0.0/cdr.wit calls `blobs`, `values` and
`column`, for any normalizer. This file knows nothing of SMS; copy it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from wit_world.imports import types
from wit_world.imports.types import ColumnType


def payloads(batch: types.Batch) -> Iterator[bytes]:
    """The payloads of a batch, in order."""
    offsets, data = batch.payloads.offsets, batch.payloads.data
    return (data[start:end] for start, end in pairwise(offsets))


def _blobs(texts: Sequence[str]) -> types.Values:
    parts = [text.encode() for text in texts]
    offsets, end = [0], 0
    for part in parts:
        # In bytes, not in characters.
        end += len(part)
        offsets.append(end)
    return types.Values_Blobs(types.Blobs(offsets, b"".join(parts)))


def _uuids(values: Sequence[int]) -> types.Values:
    # Two a row: the high half, then the low half.
    halves = [half for value in values for half in (value >> 64, value & (1 << 64) - 1)]
    return types.Values_Uint64s(halves)


# How each type of column is stored, and what stands where a value is null.
_STORAGE: dict[ColumnType, tuple[Callable[[Sequence[Any]], types.Values], Any]] = {
    ColumnType.BOOLEAN: (lambda values: types.Values_Booleans(bytes(values)), False),
    ColumnType.UINT32: (lambda values: types.Values_Uint32s(list(values)), 0),
    ColumnType.UINT64: (lambda values: types.Values_Uint64s(list(values)), 0),
    ColumnType.INT64: (lambda values: types.Values_Int64s(list(values)), 0),
    ColumnType.FLOAT64: (lambda values: types.Values_Float64s(list(values)), 0.0),
    ColumnType.TEXT: (_blobs, ""),
    ColumnType.CATEGORY: (_blobs, ""),
    ColumnType.UUID: (_uuids, 0),
    ColumnType.IPV4: (lambda values: types.Values_Uint32s(list(values)), 0),
    ColumnType.SECONDS: (lambda values: types.Values_Uint32s(list(values)), 0),
    ColumnType.MILLIS: (lambda values: types.Values_Int64s(list(values)), 0),
}


def columns(
    specs: Sequence[types.ColumnSpec], rows: Sequence[tuple[Any, ...]]
) -> list[types.Column]:
    """The columns of `specs`, from rows: tuples with a value, or None, for each."""
    by_column: Iterable[Sequence[Any]] = zip(*rows) if rows else [()] * len(specs)
    return [_column(spec, values) for spec, values in zip(specs, by_column, strict=True)]


def _column(spec: types.ColumnSpec, values: Sequence[Any]) -> types.Column:
    store, zero = _STORAGE[spec.kind]
    nulls = None
    if None in values:
        if not spec.nullable:
            raise ValueError(f"the column {spec.name} is not nullable")
        nulls = bytes(value is None for value in values)
        values = [zero if value is None else value for value in values]
    return types.Column(store(values), nulls)
