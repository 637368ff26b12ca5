"""Data types of power-cut tests: durability promises of file systems, recovered files, and broken promises."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, Self

from emmclab import _core
from emmclab.crash.mounted_files import Node, Status


@dataclass(frozen=True)
class Promises:
    """What a file system guarantees after a power cut; `data/file-systems.toml` explains the fields."""

    names: str = "each"
    fsync_commits: bool = False
    replace_by_rename: bool = False
    rename_is_whole: bool = False
    permissions: bool = False
    stale_data: str = ""
    source: str = "POSIX, fsync()"


@functools.cache
def _declared() -> dict[str, dict[str, Any]]:
    text = resources.files("emmclab").joinpath("data/file-systems.toml").read_text()
    return tomllib.loads(text)


def promises_of(kind: str, options: str) -> Promises:
    """Return what a file system guarantees after a power cut; for an unlisted file system, what POSIX guarantees.

    >>> promises_of("ext4", "rw,relatime").names, promises_of("vfat", "rw").names
    ('in_order', 'each')
    """
    declared = _declared().get(kind, {})
    names = {field.name for field in fields(Promises)}
    promises = Promises(**{key: value for key, value in declared.items() if key in names})
    enabled = options.split(",")
    for change in declared.get("options", ()):
        if change["option"] in enabled:
            promises = replace(promises, **{key: value for key, value in change.items() if key in names})
    return promises


def least_mb(kind: str) -> int:
    """Return the minimum capacity in MB of a disk with this file system; 0 if it is not listed.

    >>> least_mb("xfs"), least_mb("ext4")
    (300, 0)
    """
    return int(_declared().get(kind, {}).get("least_mb", 0))


@dataclass(frozen=True)
class Lost:
    """A durability promise that a crash state breaks."""

    promise: str
    level: str
    detail: str
    #: Documentation that permits the loss, so that it is not a defect.
    documented: str | None = None
    #: Whether the check of the files detected the loss. Otherwise, the recovery detected it.
    by_check: bool = False
    #: For generated programs: paths that differ from the nearest state that a cut may leave, each with what is expected
    #: there, and what was found.
    differs: Sequence[Sequence[str]] = ()


class Files(Protocol):
    """Access to the files after a power cut and recovery."""

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; `None` if it does not exist."""

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return everything below a folder, by relative path; `None` if it does not exist."""


class MountedFiles(Files, Protocol):
    """Access to the files of a mounted file system, which can be changed."""

    def usable(self, folder: str) -> str:
        """Return why files cannot be made, written and removed below a folder, or it be removed; empty if they can."""


@dataclass(frozen=True)
class ReadFiles:
    """Files that a check requested, read while the image was accessible.

    Attributes:
        files: contents by path; `None` for a file that does not exist.
        below: everything below the requested folder, by relative path; `None` if it does not exist.
        unusable: why the files below the folder cannot be changed; empty if they can, or if it was not tried.
    """

    files: Mapping[str, bytes | None]
    below: dict[str, Node] | None
    unusable: str = ""

    @classmethod
    def of(cls, files: MountedFiles, paths: Sequence[str], folder: str | None) -> Self:
        """Read the files at these paths, and a folder unless it is `None`, in which files are then made and removed.

        Raises:
            UnreadableError: a file or the folder cannot be read.
        """
        below = None if folder is None else files.tree(folder)
        unusable = files.usable(str(folder)) if below is not None else ""
        return cls({path: files.read(path) for path in paths}, below, unusable)

    @classmethod
    def in_process(
        cls, paths: Sequence[str], files: Sequence[bytes | None], nodes: Sequence[_core.Node] | None
    ) -> Self:
        """Create the object from the output of the Rust core; `nodes` are the entries below the requested folder."""
        return cls(dict(zip(paths, files, strict=True)), _nodes(nodes))

    @property
    def size(self) -> int:
        """Total size of the contents, bytes."""
        nodes = (self.below or {}).values()
        return sum(len(data or b"") for data in self.files.values()) + sum(len(node.data) for node in nodes)

    def read(self, path: str) -> bytes | None:
        """Return the contents of a requested file; `None` if it does not exist."""
        return self.files[path]

    def tree(self, _folder: str) -> dict[str, Node] | None:
        """Return everything below the requested folder; `None` if it does not exist."""
        return self.below


class Image:
    """Reads files of an image that e2fsck has recovered."""

    def __init__(self, image: Path) -> None:
        """Set the path of the image."""
        self._image = image

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; `None` if it does not exist."""
        return _core.read_ext4(str(self._image), [path])[0]

    def tree(self, folder: str) -> dict[str, Node] | None:
        """Return everything below a folder; `None` if it does not exist."""
        return _nodes(_core.read_ext4_tree(str(self._image), folder))


def _nodes(read: Sequence[_core.Node] | None) -> dict[str, Node] | None:
    if read is None:
        return None
    return {
        os.fsdecode(path): Node(
            kind,
            inode,
            links,
            data,
            {os.fsdecode(name): value for name, value in attributes},
            None if status is None else Status(*status),
        )
        for path, kind, inode, links, data, attributes, status in read
    }


#: Value of `Finding.way` if the recorded commands themselves break a rule of the journal.
COMMANDS = "commands"
#: Levels at which a promise can be broken, from the device up; findings are sorted by them.
LEVELS = ("device", "layer", "journal", "filesystem", "application")


#: Name of the promise that is tested if the check is a shell command.
CHECK = "check"
#: Matches a word with a digit: a number, or an identifier that differs between crash states.
_COUNTED = re.compile(r"\w*\d\w*")
#: Kind of a finding: level, promise, whether documented, and for a check command its output without numbers.
Kind = tuple[str, str, bool, str]


def kind_of(level: str, promise: str, documented: str | None, detail: str) -> Kind:
    """Return the kind of a finding; findings of the same kind are counted together.

    >>> kind_of("application", "check", None, "row 12 is lost")
    ('application', 'check', False, 'row # is lost')
    """
    return level, promise, documented is not None, _COUNTED.sub("#", detail) if promise == CHECK else ""


@dataclass
class Finding:
    """A durability promise that a crash state breaks; for each kind of finding, the first is kept."""

    promise: str
    level: str
    cut: int
    state: int
    index: int
    detail: str
    way: str
    at_ns: int
    acknowledged: int
    documented: str | None = None
    count: int = 1
    differs: Sequence[Sequence[str]] = ()

    @property
    def kind(self) -> Kind:
        """The kind of the finding."""
        return kind_of(self.level, self.promise, self.documented, self.detail)


@dataclass
class CutTally:
    """Counts of the crash states of one power cut, by the result of the check."""

    at_ns: int
    states: int = 0
    #: Number of crash states that break a promise (`broken`), and of those with a documented loss (`documented`).
    broken: int = 0
    documented: int = 0

    def add(self, other: Self) -> None:
        """Add the counts from another share of the crash states."""
        self.states += other.states
        self.broken += other.broken
        self.documented += other.documented
