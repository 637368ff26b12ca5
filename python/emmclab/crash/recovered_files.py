"""Files after a cut and recovery, and the promises that they break."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emmclab import _core
from emmclab.crash.mounted_files import Node


@dataclass(frozen=True)
class Lost:
    """A promise that a state breaks."""

    promise: str
    level: str
    detail: str
    #: Documentation that permits the loss, so that it is not a defect.
    documented: str | None = None
    #: Whether a check of the files found it, not the recovery.
    by_check: bool = False


class Files(Protocol):
    """The files after a cut and recovery."""

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; `None` if it does not exist."""

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return everything below a folder, by relative path; `None` if it does not exist."""


@dataclass(frozen=True)
class ReadFiles:
    """Requested files, read while the image was accessible.

    Attributes:
        files: contents by path; `None` for a file that does not exist.
        below: everything below the requested folder, by relative path; `None` if it does not exist.
    """

    files: Mapping[str, bytes | None]
    below: dict[str, Node] | None

    @classmethod
    def of(cls, files: Files, wanted: Sequence[str], folder: str | None) -> ReadFiles:
        """Read these files, and this folder if one is given.

        Raises:
            UnreadableError: one of them cannot be read.
        """
        return cls({path: files.read(path) for path in wanted}, None if folder is None else files.tree(folder))

    @classmethod
    def in_process(
        cls, wanted: Sequence[str], files: Sequence[bytes | None], nodes: Sequence[_core.Node] | None
    ) -> ReadFiles:
        """Convert what the core read: these files, and a folder if one is given."""
        return cls(dict(zip(wanted, files, strict=True)), _nodes(nodes))

    @property
    def size(self) -> int:
        """Total size of the contents, bytes."""
        nodes = (self.below or {}).values()
        return sum(len(data or b"") for data in self.files.values()) + sum(len(node.data) for node in nodes)

    def read(self, path: str) -> bytes | None:
        """Return the contents of a requested file."""
        return self.files[path]

    def tree(self, _folder: str) -> dict[str, Node] | None:
        """Return everything below the requested folder."""
        return self.below


class Image:
    """Reads files of an image that e2fsck has recovered."""

    def __init__(self, image: Path) -> None:
        """Set the image."""
        self._image = image

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file."""
        return _core.read_ext4(str(self._image), [path])[0]

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return everything below a folder."""
        return _nodes(_core.read_ext4_tree(str(self._image), folder))


def _nodes(read: Sequence[_core.Node] | None) -> dict[str, Node] | None:
    if read is None:
        return None
    return {
        os.fsdecode(path): Node(kind, inode, links, data, {os.fsdecode(name): value for name, value in given})
        for path, kind, inode, links, data, given in read
    }
