"""Stored data with its own SHA-256, so that damage is found before anything is read.

JSON has its checksum as an entry; a Parquet file is sealed: it has its checksum in its metadata.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The key with the SHA-256 of all other entries.
_CHECK = "sha256_of_the_rest"


def to_checked_json(value: Mapping[str, Any]) -> bytes:
    """Return a table as JSON with its checksum.

    >>> from_checked_json(to_checked_json({"a": 1}))
    {'a': 1}
    """
    return (json.dumps({**value, _CHECK: _sum(value)}, indent=1) + "\n").encode()


def from_checked_json(text: bytes | str) -> dict[str, Any] | None:
    """Return the table that was written; None if the text is damaged or has no checksum.

    >>> damaged = to_checked_json({"a": 1}).replace(b"1", b"2", 1)
    >>> [from_checked_json(text) for text in (damaged, "{}", "[")]
    [None, None, None]
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    check = found.pop(_CHECK, None)
    return found if check == _sum(found) else None


def _sum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


#: The metadata key of the seal, and its placeholder value while the file is made.
KEY, UNSEALED = "emmclab_seal", "0" * 64
#: The bytes before the seal in the footer: the key, then the type and the length of the value.
_BEFORE = KEY.encode() + b"\x18\x40"
#: The end of a Parquet file: the length of the footer before it, and the magic number.
_LENGTH_BYTES, _MAGIC = 4, b"PAR1"
#: Number of bytes that are hashed at once.
_PIECE_BYTES = 1 << 20


def seal(path: Path) -> None:
    """Write the seal into a file that was made with `KEY` and `UNSEALED` in its metadata."""
    place = _place(path)
    if place is None:
        raise ValueError(f"{path}: there is no place for the seal")
    sealed = _hashed(path, place)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(sealed)


def is_intact(path: Path) -> bool:
    """Return whether a file is sealed and unchanged since."""
    place = _place(path)
    if place is None:
        return False
    with path.open("rb") as file:
        file.seek(place)
        return file.read(len(UNSEALED)) == _hashed(path, place)


def _place(path: Path) -> int | None:
    """Find the offset of the seal in the footer of a file; None if it has none."""
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
        found = file.read(length).rfind(_BEFORE)
    place = begin + found + len(_BEFORE)
    return None if found < 0 or place + len(UNSEALED) > size else place


def _hashed(path: Path, place: int) -> bytes:
    """Hash a file as if it were not yet sealed."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        left = place
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            found.update(piece)
            left -= len(piece)
        found.update(UNSEALED.encode())
        file.seek(place + len(UNSEALED))
        while piece := file.read(_PIECE_BYTES):
            found.update(piece)
    return found.hexdigest().encode()
