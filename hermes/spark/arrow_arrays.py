"""Arrow arrays out of buffers.

PyArrow's own constructors, and its way to NumPy, look whether they were given something of pandas,
and import it to find out. That costs each new worker most of a second, and its memory; nothing
here needs it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["as_numbers", "binaries", "numbers", "packed_binaries", "repeated"]


def numbers(
    values: npt.NDArray[np.generic],
    kind: pa.DataType,
    missing: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """An array that keeps the values, which have the width of its type. `missing` are null."""
    valid = None
    if missing is not None:
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def as_numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    """A view of an array of int64 without nulls."""
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, np.int64, len(array), 8 * array.offset)


def packed_binaries(values: bytes, ends: bytes | npt.NDArray[np.int32]) -> pa.Array:
    """An array of binaries: the values one after the other, and behind a 0 where each ends."""
    bounds = pa.py_buffer(ends)
    buffers = [None, bounds, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), bounds.size // 4 - 1, buffers, 0)


def binaries(values: Sequence[bytes]) -> pa.Array:
    """An array of these, which are copied; up to 2 GiB."""
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(each) for each in values], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError("more than 2 GiB of values")
    return packed_binaries(b"".join(values), ends.astype(np.int32))


def repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """An array of string, int32, int64 or date32 (days since 1970) with one value over and over."""
    if isinstance(value, str):
        encoded = value.encode()
        ends = np.arange(count + 1, dtype=np.int32) * len(encoded)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(encoded * count)]
        return pa.Array.from_buffers(kind, count, buffers, 0)
    width = np.int64 if kind == pa.int64() else np.int32
    return numbers(np.full(count, value, width), kind)
