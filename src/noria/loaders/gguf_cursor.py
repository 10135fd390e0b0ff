"""Reads the values of a GGUF header one after the other, never past the end of the file.

What is read is the file's beginning; where a header turns out to be longer, Beyond says how much is needed.

All numbers are little-endian. A string is its length (u64) and its UTF-8 bytes; an array is the type of its
elements (u32), their number (u64) and the elements. No length is believed before the file is known to hold it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from noria.config.errors import ModelError
from noria.loaders.fields import shorten

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_ELEMENTS = {number: np.dtype(layout.format) for number, layout in _SCALARS.items()} | {_BOOL: np.dtype("u1")}
_MAX_ARRAY_DEPTH = 4


class Beyond(Exception):
    """A value lies within the file, but ends at `end`, behind what there is of it."""

    def __init__(self, end: int) -> None:
        super().__init__(f"{end} bytes are needed")
        self.end = end


class Cursor:
    """A position in the header of the file `source`, whose beginning is `data` and which has `size` bytes.

    Every method raises ModelError on a malformed value, and Beyond on one that data does not hold.
    what: names the thing being read in the error.
    """

    def __init__(self, data: bytes, source: str, size: int | None = None) -> None:
        self.data = data
        self.source = source
        self.size = len(data) if size is None else size
        self.position = 0

    def skip(self, num_bytes: int, what: str) -> int:
        """Step over that many bytes; returns where they start."""
        start, end = self.position, self.position + num_bytes
        if end > self.size:
            raise ModelError(
                f"{self.source}: truncated: {what} needs {num_bytes} bytes at offset {start}, "
                f"the file ends at {self.size}"
            )
        if end > len(self.data):
            raise Beyond(end)
        self.position = end
        return start

    def u32(self, what: str) -> int:
        return _U32.unpack_from(self.data, self.skip(4, what))[0]

    def u64(self, what: str) -> int:
        return _U64.unpack_from(self.data, self.skip(8, what))[0]

    def string(self, what: str) -> str:
        start = self.skip(self.u64(what), what)
        return self._decode(self.data[start : self.position], what)

    def value(self, what: str) -> Any:
        """A metadata value: a Python scalar or string, a numpy array, or a list of strings or arrays."""
        return self._typed(self.u32(what), what, 0)

    def _typed(self, kind: int, what: str, depth: int) -> Any:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(what, depth + 1)
        if kind == _BOOL:
            return self._bools(1, what)[0].item()
        layout = _SCALARS.get(kind)
        if layout is None:
            raise ModelError(f"{self.source}: {what} has the unknown value type {kind}; known are 0 to 12")
        return layout.unpack_from(self.data, self.skip(layout.size, what))[0]

    def _array(self, what: str, depth: int) -> Any:
        kind, count = self.u32(what), self.u64(what)
        if kind == _STRING:
            return self._strings(count, what)
        if kind == _BOOL:
            return self._bools(count, what)
        if kind == _ARRAY:
            if depth >= _MAX_ARRAY_DEPTH:
                raise ModelError(f"{self.source}: {what} nests arrays more than {_MAX_ARRAY_DEPTH} deep")
            self._expect(count, 12, what)
            return [self._array(what, depth + 1) for _ in range(count)]
        if kind not in _ELEMENTS:
            raise ModelError(f"{self.source}: {what} has the unknown element type {kind}; known are 0 to 12")
        return self._numbers(_ELEMENTS[kind], count, what)

    def _numbers(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        start = self.skip(count * dtype.itemsize, what)
        return np.frombuffer(self.data, dtype, count, start).copy()

    def _bools(self, count: int, what: str) -> np.ndarray:
        values = self._numbers(np.dtype("u1"), count, what)
        if count and values.max() > 1:
            raise ModelError(f"{self.source}: {what} must be 0 or 1 (a bool), found {values.max()}")
        return values.view(np.bool_)

    def _strings(self, count: int, what: str) -> list[str]:
        """A vocabulary is some hundred thousand strings: this loop is what opening a file costs."""
        self._expect(count, 8, what)
        data, position, end = self.data, self.position, len(self.data)
        unpack = _U64.unpack_from
        strings: list[str] = []
        append = strings.append
        try:
            for _ in range(count):
                (length,) = unpack(data, position)
                start = position + 8
                position = start + length
                if position > end:
                    break
                append(data[start:position].decode())
        except struct.error:
            position += 8
        except UnicodeDecodeError:
            self._decode(data[start:position], what)
        if end < position <= self.size:
            raise Beyond(position)
        if position > self.size:
            raise ModelError(
                f"{self.source}: truncated: {what} claims {count} strings, the file ends after {len(strings)}"
            )
        self.position = position
        return strings

    def _expect(self, count: int, least_bytes: int, what: str) -> None:
        """Refuse a count whose elements, of least_bytes or more each, cannot be in the file."""
        left = self.size - self.position
        if count * least_bytes > left:
            raise ModelError(
                f"{self.source}: truncated: {what} claims {count} elements, the file has {left} bytes left"
            )

    def _decode(self, raw: bytes, what: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.source}: {what} is not valid UTF-8: {shorten(raw)}") from error
