"""Reads the header of a GGUF file. The file is untrusted: every count and length is checked against its size first.

Format: magic, version, counts, key-value pairs, tensor table, padding, tensor data (ggml's `docs/gguf.md`).
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from infradoc_engine.sizes import size_text
from infradoc_engine.weights.errors import ModelFileError, bad_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_NAME_BYTES = 65_535
MAX_DIMS = 4

# GGUF value type -> struct code
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")
_DAMAGED = "the file is damaged or cut short"
_DOWNLOAD = "download it again"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. `shape` is in row-major order (outermost first); `offset` counts from the file start."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Key-value pairs (arrays as lists) and the tensor table, in file order."""

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


class _Cursor:
    """A position in the mapped file that cannot pass its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.pos, self.size = path, data, 0, len(data)

    def fail(
        self, detail: str, at: int | None = None, next_step: str = _DOWNLOAD, means: str = _DAMAGED
    ) -> ModelFileError:
        """`means` for people; `detail` and the offset in bytes for whoever looks into the file."""
        where = f"offset {self.pos if at is None else at}"
        return bad_file(self.path, f"{detail}, {where}" if detail else where, means, next_step)

    def need(self, num_bytes: int, what: str) -> None:
        if num_bytes > self.size - self.pos:
            left = size_text(self.size - self.pos)
            raise self.fail(f"{what} needs {size_text(num_bytes)} and {left} are left")

    def scalar(self, code: str, what: str) -> Any:
        size = struct.calcsize("<" + code)
        self.need(size, what)
        (value,) = struct.unpack_from("<" + code, self.data, self.pos)
        self.pos += size
        return value

    def string(self, what: str, limit: int | None = None) -> str:
        start = self.pos
        length: int = self.scalar("Q", what)
        if limit is not None and length > limit:
            raise self.fail(f"{what} claims {size_text(length)}, more than {size_text(limit)}", start)
        self.need(length, what)
        raw = self.data[self.pos : self.pos + length]
        self.pos += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8", start) from None

    def value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind], f"key {key}")
        if kind == _STRING:
            return self.string(f"key {key}")
        if kind == _ARRAY:
            return self.array(key)
        raise self.fail(f"key {key} has the unknown value type {kind}")

    def array(self, key: str) -> list[Any]:
        kind: int = self.scalar("I", f"key {key}")
        count: int = self.scalar("Q", f"key {key}")
        if kind == _STRING:
            return self._strings(count, key)
        if kind not in _SCALARS:
            raise self.fail(f"key {key} is an array of the unsupported value type {kind}")
        code = _SCALARS[kind]
        self.need(count * struct.calcsize("<" + code), f"key {key} with {count} items")
        values = struct.unpack_from(f"<{count}{code}", self.data, self.pos)
        self.pos += struct.calcsize(f"<{count}{code}")
        return list(values)

    def _strings(self, count: int, key: str) -> list[str]:
        """The vocabulary: about 100,000 strings, so a tight loop; the same checks as `string`."""
        self.need(count * 8, f"key {key} with {count} strings")  # each has at least its length
        data, pos, size, unpack = self.data, self.pos, self.size, _U64.unpack_from
        out: list[str] = []
        for index in range(count):
            if size - pos < 8:
                raise self.fail(f"key {key}, string {index} of {count} lies beyond the end", pos)
            (length,) = unpack(data, pos)
            if length > size - pos - 8:
                claim = f"claims {size_text(length)} and {size_text(size - pos - 8)} are left"
                raise self.fail(f"key {key}, string {index} {claim}", pos)
            try:
                out.append(data[pos + 8 : pos + 8 + length].decode("utf-8"))
            except UnicodeDecodeError:
                raise self.fail(f"key {key}, string {index} is not UTF-8", pos) from None
            pos += 8 + length
        self.pos = pos
        return out


def read_header(path: Path, data: mmap.mmap) -> GGUFHeader:
    """Parses the header of the mapped file. Raises ModelFileError with the offset of the first fault."""
    cursor = _Cursor(path, data)
    if data[:4] != MAGIC:
        begins = f"it begins with {data[:4]!r}, not with {MAGIC!r}"
        raise cursor.fail(begins, 0, "give a GGUF file or a model folder", "it is no GGUF file")
    cursor.pos = 4
    version: int = cursor.scalar("I", "the version")
    if version not in VERSIONS:
        swapped = " (big-endian?)" if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS else ""
        known = " and ".join(map(str, VERSIONS))
        means = f"GGUF version {version}{swapped} is not supported"
        raise cursor.fail("", 4, f"convert it to version {known}", means)
    num_tensors: int = cursor.scalar("Q", "the tensor count")
    num_pairs: int = cursor.scalar("Q", "the key count")
    cursor.need(num_pairs * 13, f"a table of {num_pairs} keys")  # the least a pair takes: length, type, one byte
    cursor.need(num_tensors * 32, f"a table of {num_tensors} tensors")
    metadata = _read_metadata(cursor, num_pairs)
    tensors = _read_tensors(cursor, num_tensors, _alignment(cursor, metadata))
    return GGUFHeader(path, version, metadata, tensors)


def _read_metadata(cursor: _Cursor, num_pairs: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(num_pairs):
        start = cursor.pos
        key = cursor.string("a key name", MAX_NAME_BYTES)
        if key in metadata:
            raise cursor.fail(f"key {key} occurs twice", start)
        kind: int = cursor.scalar("I", f"key {key}")
        metadata[key] = cursor.value(kind, key)
    return metadata


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or not 8 <= value <= 1 << 20 or value & (value - 1):
        raise cursor.fail(f"general.alignment is {value!r}, not a power of two from 8 to {1 << 20}")
    return value


def _read_tensors(cursor: _Cursor, num_tensors: int, alignment: int) -> dict[str, TensorInfo]:
    entries = [_read_tensor(cursor) for _ in range(num_tensors)]
    data_start = -(-cursor.pos // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for at, info in entries:
        offset = data_start + info.offset
        if info.name in tensors:
            raise cursor.fail(f"tensor {info.name} occurs twice", at)
        if info.offset % alignment:
            raise cursor.fail(f"tensor {info.name} starts at {info.offset}, not a multiple of {alignment}", at)
        if offset + info.num_bytes > cursor.size:
            ends = f"the file is cut short: {size_text(cursor.size)} of at least {size_text(offset + info.num_bytes)}"
            raise cursor.fail(f"tensor {info.name}", at, means=ends)
        tensors[info.name] = TensorInfo(info.name, info.shape, info.type, offset, info.num_bytes)
    return tensors


def _read_tensor(cursor: _Cursor) -> tuple[int, TensorInfo]:
    """One row of the tensor table and where it stands; `offset` still counts from the start of the data."""
    start = cursor.pos
    name = cursor.string("a tensor name", MAX_NAME_BYTES)
    num_dims: int = cursor.scalar("I", f"tensor {name}")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.fail(f"tensor {name} has {num_dims} dimensions, outside 1 to {MAX_DIMS}", start)
    dims: list[int] = [cursor.scalar("Q", f"tensor {name}") for _ in range(num_dims)]
    kind: int = cursor.scalar("I", f"tensor {name}")
    offset: int = cursor.scalar("Q", f"tensor {name}")
    try:
        quantization = GGMLQuantizationType(kind)
    except ValueError:
        means = f"weights are stored in a format that the gguf package does not know, unknown type {kind}"
        raise cursor.fail(f"tensor {name}", start, "upgrade the gguf package or convert the file", means) from None
    block, block_bytes = GGML_QUANT_SIZES[quantization]
    if 0 in dims or dims[0] % block:
        raise cursor.fail(f"tensor {name} of shape {dims} does not fill blocks of {block} values", start)
    num_bytes = math.prod(dims) // block * block_bytes  # Python integers: no overflow
    return start, TensorInfo(name, tuple(reversed(dims)), quantization, offset, num_bytes)
