"""Stores data with its SHA-256, so that damage is detected before the data is used.

JSON contains the checksum as an entry. A Parquet file contains it in its metadata: such a file is called *sealed*.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Key of the JSON entry that contains the SHA-256 of all other entries.
_CHECK = "sha256_of_the_rest"


def to_checked_json(value: Mapping[str, Any]) -> bytes:
    """Encode a table as JSON that contains a checksum.

    >>> from_checked_json(to_checked_json({"a": 1}))
    {'a': 1}
    """
    return (json.dumps({**value, _CHECK: _sum(value)}, indent=1) + "\n").encode()


def from_checked_json(text: bytes | str) -> dict[str, Any] | None:
    """Decode a table from JSON with a checksum; return None if the text is damaged or has no checksum.

    >>> damaged = to_checked_json({"a": 1}).replace(b"1", b"2", 1)
    >>> [from_checked_json(text) for text in (damaged, "{}", "[")]
    [None, None, None]
    """
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(table, dict):
        return None
    check = table.pop(_CHECK, None)
    return table if check == _sum(table) else None


def _sum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


#: Parquet metadata key of the seal (a checksum), and the placeholder of its value while the file is written.
KEY, UNSEALED = "emmclab_seal", "0" * 64
#: The bytes directly before the checksum in the Parquet footer: the metadata key, then the type and the length of the
#: value.
_BEFORE = KEY.encode() + b"\x18\x40"
#: The last bytes of a Parquet file: the size of the field for the footer's length, and the magic number.
_LENGTH_BYTES, _MAGIC = 4, b"PAR1"
#: Number of bytes that are hashed at once.
_PIECE_BYTES = 1 << 20


def seal(path: Path) -> None:
    """Write the checksum into a Parquet file, in place of the placeholder `UNSEALED` in its metadata."""
    offset = _seal_offset(path)
    if offset is None:
        raise ValueError(f"{path}: the file has no room for the checksum")
    sealed = _hashed(path, offset)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(sealed)


def is_intact(path: Path) -> bool:
    """Return whether a Parquet file contains its checksum and has not changed since."""
    offset = _seal_offset(path)
    if offset is None:
        return False
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(len(UNSEALED)) == _hashed(path, offset)


def _seal_offset(path: Path) -> int | None:
    """Return the offset in bytes of the checksum in a Parquet file; None if the file has none."""
    size = path.stat().st_size
    end = _LENGTH_BYTES + len(_MAGIC)
    if size < 2 * end:
        return None
    with path.open("rb") as file:
        file.seek(size - end)
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if file.read() != _MAGIC or length > size - end:
            return None
        begin = size - end - length
        file.seek(begin)
        before = file.read(length).rfind(_BEFORE)
    offset = begin + before + len(_BEFORE)
    return None if before < 0 or offset + len(UNSEALED) > size else offset


def _hashed(path: Path, offset: int) -> bytes:
    """Return the hexadecimal SHA-256 of a file, with `UNSEALED` in place of the checksum at `offset`."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        remaining = offset
        while remaining and (piece := file.read(min(remaining, _PIECE_BYTES))):
            sha256.update(piece)
            remaining -= len(piece)
        sha256.update(UNSEALED.encode())
        file.seek(offset + len(UNSEALED))
        while piece := file.read(_PIECE_BYTES):
            sha256.update(piece)
    return sha256.hexdigest().encode()
