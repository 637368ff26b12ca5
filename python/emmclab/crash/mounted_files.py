"""Reads files of a mounted file system. Uses only the standard library, as it also runs in guests."""

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from emmclab.crash.programs import KINDS


class Status(NamedTuple):
    """Permissions, owner, group, time of the last change of the contents in seconds, allocated sectors of 512 bytes."""

    mode: int
    owner: int
    group: int
    modified: int
    sectors: int


@dataclass(frozen=True)
class Node:
    """A file, folder, symbolic link or special file in a file system.

    Attributes:
        kind: `file`, `folder`, `link`, or a kind of `programs.KINDS`.
        inode: inode number.
        links: number of names (hard links).
        data: contents of a file or target of a symbolic link; else empty.
        attributes: extended attributes by their full names.
        status: permissions, owners, time and allocated space; None if they are not known.
    """

    kind: str
    inode: int
    links: int
    data: bytes
    attributes: Mapping[str, bytes]
    status: Status | None


class UnreadableError(Exception):
    """Raised if the kernel cannot read an existing file or folder; the text is its path and the reason."""


class Mounted:
    """Reads files of a mounted file system."""

    def __init__(self, folder: Path) -> None:
        """Set the mount point."""
        self.folder = folder

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; `None` if it does not exist."""
        try:
            return (self.folder / path.lstrip("/")).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}") from error

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return all files and folders below a folder; `None` if it does not exist."""
        top = self.folder / folder.lstrip("/")
        try:
            if not stat.S_ISDIR(top.lstat().st_mode):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{folder}: {error.strerror}") from error
        nodes: dict[str, Node] = {}
        self._walk(top, top, nodes)
        return nodes

    def usable(self, folder: str) -> str:
        """Return why files cannot be made, written and removed below a folder, or it be removed; empty if they can.

        This changes the file system: the folder is removed.
        """
        top = path = self.folder / folder.lstrip("/")
        try:
            for path in [top, *(place for place in top.rglob("*") if place.is_dir() and not place.is_symlink())]:
                new = path / "emmclab-new"
                new.write_bytes(b"new")
                new.unlink()
            path = top
            shutil.rmtree(top)
        except OSError as error:
            place = error.filename if isinstance(error.filename, str) else path
            return f"{os.path.relpath(place, top)}: {error.strerror} (a file made, written and removed in each folder)"
        return ""

    def _walk(self, top: Path, folder: Path, nodes: dict[str, Node]) -> None:
        path = folder
        try:
            for path in sorted(folder.iterdir()):
                node = _node(path)
                nodes[str(path.relative_to(top))] = node
                if node.kind == "folder":
                    self._walk(top, path, nodes)
        except OSError as error:
            raise UnreadableError(f"/{path.relative_to(self.folder)}: {error.strerror}") from error


def _node(path: Path) -> Node:
    status = path.lstat()
    kind, data = next((kind for kind, mode in KINDS.items() if stat.S_IFMT(status.st_mode) == mode), "other"), b""
    if path.is_symlink():
        kind, data = "link", os.fsencode(path.readlink())
    elif path.is_dir():
        kind = "folder"
    elif path.is_file():
        kind, data = "file", path.read_bytes()
    names = os.listxattr(path, follow_symlinks=False)
    attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
    more = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, int(status.st_mtime), status.st_blocks
    return Node(kind, status.st_ino, status.st_nlink, data, attributes, Status(*more))
