"""Promises of a file system after a power cut, by its type and mount options."""

import functools
import tomllib
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Promises:
    """What a file system guarantees after a cut; `data/file-systems.toml` explains the keys."""

    names: str = "each"
    fsync_commits: bool = False
    replace_by_rename: bool = False
    rename_is_whole: bool = False
    stale_data: str = ""
    source: str = "POSIX, fsync()"


@functools.cache
def _declared() -> dict[str, dict[str, Any]]:
    text = resources.files("emmclab").joinpath("data/file-systems.toml").read_text()
    return tomllib.loads(text)


def promises_of(kind: str, options: str) -> Promises:
    """Return the promises of a file system; those of POSIX if it is not declared.

    >>> promises_of("ext4", "rw,relatime").names, promises_of("vfat", "rw").names
    ('in_order', 'each')
    """
    declared = _declared().get(kind, {})
    known = {field.name for field in fields(Promises)}
    found = Promises(**{key: value for key, value in declared.items() if key in known})
    given = options.split(",")
    for change in declared.get("options", ()):
        if change["option"] in given:
            found = replace(found, **{key: value for key, value in change.items() if key in known})
    return found


def least_mb(kind: str) -> int:
    """Return the minimum capacity in MB of a disk with this file system; 0 if it is not declared.

    >>> least_mb("xfs"), least_mb("ext4")
    (300, 0)
    """
    return int(_declared().get(kind, {}).get("least_mb", 0))
