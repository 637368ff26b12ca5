"""What a cut left, after recovery, and what is wrong with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emmclab import _core


@dataclass(frozen=True)
class Lost:
    """A promise that a state breaks."""

    promise: str
    level: str
    detail: str
    #: Why this is not a defect: where the software says that it does not promise it.
    documented: str | None = None


@dataclass(frozen=True)
class Node:
    """A file, folder or link that was found.

    Attributes:
        kind: `file`, `folder`, `link` or `other`.
        inode: its number.
        links: how many names lead to it.
        data: contents of a file, target of a link; else empty.
        attributes: extended attributes by their whole names.
    """

    kind: str
    inode: int
    links: int
    data: bytes
    attributes: Mapping[str, bytes]


class UnreadableError(Exception):
    """A file or folder is there, and the kernel cannot read it; the text is its path and the reason."""


class Files(Protocol):
    """The file system that a cut left, after recovery."""

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; `None` if it does not exist."""

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return all that is below a folder, by path from there; `None` if it does not exist."""


@dataclass(frozen=True)
class Taken:
    """What was asked of the files, taken while they could be read.

    Attributes:
        files: contents by path; `None` for a file that does not exist.
        below: all below the folder that was asked for, by path from there; `None` if it does not exist.
    """

    files: Mapping[str, bytes | None]
    below: dict[str, Node] | None

    @classmethod
    def of(cls, files: Files, wanted: Sequence[str], folder: str | None) -> Taken:
        """Read these files, and this folder if there is one.

        Raises:
            UnreadableError: one of them cannot be read.
        """
        return cls(
            {path: files.read(path) for path in wanted}, None if folder is None else files.tree(folder)
        )

    @classmethod
    def in_process(
        cls, wanted: Sequence[str], files: Sequence[bytes | None], nodes: Sequence[_core.Node] | None
    ) -> Taken:
        """Take what the core read of these files, and of a folder if there is one."""
        return cls(dict(zip(wanted, files, strict=True)), _nodes(nodes))

    @property
    def size(self) -> int:
        """Bytes of the contents."""
        nodes = (self.below or {}).values()
        return sum(len(data or b"") for data in self.files.values()) + sum(len(node.data) for node in nodes)

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file that was asked for."""
        return self.files[path]

    def tree(self, _folder: str) -> dict[str, Node] | None:
        """Return what is below the folder that was asked for."""
        return self.below


class Image:
    """Files of an image that e2fsck has recovered."""

    def __init__(self, image: Path) -> None:
        """Know the image."""
        self._image = image

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file."""
        return _core.read_ext4(str(self._image), [path])[0]

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return what is below a folder."""
        return _nodes(_core.read_ext4_tree(str(self._image), folder))


class Mounted:
    """Files of a mounted image."""

    def __init__(self, folder: Path) -> None:
        """Know where it is mounted."""
        self._folder = folder

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file.

        Raises:
            UnreadableError: the kernel cannot read it.
        """
        try:
            return (self._folder / path.lstrip("/")).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}") from error

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return what is below a folder.

        Raises:
            UnreadableError: the kernel cannot read a part of it.
        """
        top = self._folder / folder.lstrip("/")
        try:
            if not stat.S_ISDIR(top.lstat().st_mode):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{folder}: {error.strerror}") from error
        found: dict[str, Node] = {}
        self._walk(top, top, found)
        return found

    def _walk(self, top: Path, folder: Path, found: dict[str, Node]) -> None:
        path = folder
        try:
            for path in sorted(folder.iterdir()):
                node = _node(path)
                found[str(path.relative_to(top))] = node
                if node.kind == "folder":
                    self._walk(top, path, found)
        except OSError as error:
            raise UnreadableError(f"/{path.relative_to(self._folder)}: {error.strerror}") from error


def _nodes(read: Sequence[_core.Node] | None) -> dict[str, Node] | None:
    if read is None:
        return None
    return {
        os.fsdecode(path): Node(kind, inode, links, data, {os.fsdecode(name): value for name, value in given})
        for path, kind, inode, links, data, given in read
    }


def _node(path: Path) -> Node:
    about = path.lstat()
    kind, data = "other", b""
    if path.is_symlink():
        kind, data = "link", os.fsencode(path.readlink())
    elif path.is_dir():
        kind = "folder"
    elif path.is_file():
        kind, data = "file", path.read_bytes()
    names = os.listxattr(path, follow_symlinks=False)
    attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
    return Node(kind, about.st_ino, about.st_nlink, data, attributes)
