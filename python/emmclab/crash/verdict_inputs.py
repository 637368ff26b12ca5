"""Everything that a verdict depends on: crash log, base image, this build, tools and kernel.

Findings are stored under a digest of these values, so that they are reused only if no value has changed. The files and
programs that a check command uses are not known: its verdicts are reused only on request.
"""

import errno
import functools
import hashlib
import json
import os
import platform
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import NotRequired, TypedDict

from emmclab import _core
from emmclab.crash import generated_programs, workloads
from emmclab.crash.guest.machine import QEMU, Kernel
from emmclab.crash.tools import TOOLS_PATH

#: Number of bytes of a disk image that are processed at once.
_PIECE = 1 << 20


def command_of(check: str | None) -> str | None:
    """Return the shell command of a check; None if the check comes with emmclab.

    >>> command_of("sqlite"), command_of("./check.sh")
    (None, './check.sh')
    """
    is_named = check is None or check in ("sqlite", generated_programs.CHECK) or workloads.is_known(check)
    return None if is_named else check


def contents_of(image: Path) -> str:
    """Return the SHA-256 of the contents of a disk; a hole counts as zeros.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with image.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(size.to_bytes(8, "little"))
        offset = _data_from(file.fileno(), 0)
        while offset < size:
            offset -= offset % _PIECE
            file.seek(offset)
            piece = file.read(_PIECE)
            if not piece:
                break
            if piece.count(0) != len(piece):
                digest.update(offset.to_bytes(8, "little") + piece)
            offset = _data_from(file.fileno(), offset + len(piece))
    return digest.hexdigest()


def _data_from(file: int, start: int) -> int:
    """Return the offset of the next data in a sparse file; `start` if the system cannot find holes."""
    try:
        return os.lseek(file, start, os.SEEK_DATA)
    except OSError as error:
        return 1 << 62 if error.errno == errno.ENXIO else start


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file; it is read again only if its size or times have changed.

    Raises:
        OSError: it cannot be read.
    """
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@functools.lru_cache(maxsize=256)
def _digest(path: Path, *_about: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def build() -> str:
    """Return a digest of the code that checks crash states: the Rust core, and the Python code of power cuts."""
    files = [Path(str(_core.__file__)), *sorted(Path(__file__).parent.rglob("*.py"))]
    return hashlib.sha256("".join(digest_of_file(path) for path in files).encode()).hexdigest()


class Grounds(TypedDict):
    """What a verdict depends on: names, versions and digests of log, tools and kernel."""

    log: str
    build: str
    python: str
    sqlite: NotRequired[str]
    e2fsck: NotRequired[list[str]]
    guest: NotRequired[list[str]]
    kernel: NotRequired[list[str]]
    mount: NotRequired[list[str]]
    command: NotRequired[str]


def grounds(check: str | None, recovery: str, *, identity: str, guest: str | None = None) -> Grounds:
    """Return everything that a verdict depends on, except the options of the exploration.

    Args:
        check: the check of the files, as in `Options`.
        recovery: the method of recovery, as in `Options`.
        identity: digest of the crash log and, if it has one, of its base image.
        guest: kernel file of the guest that mounts the crash states; `None` without a guest.
    """
    command = command_of(check)
    result: Grounds = {"log": identity, "build": build(), "python": platform.python_version()}
    if command is None and check is not None:
        result["sqlite"] = sqlite3.sqlite_version
    if recovery == "e2fsck":
        result["e2fsck"] = _tool("e2fsck", "-V") + _digest_if_there(Path("/etc/e2fsck.conf"))
    if guest is not None:
        result["guest"] = [Kernel.of(guest).version, digest_of_file(Path(guest)), *_tool(QEMU, "--version")]
    elif recovery == "mount" or command is not None:
        result["kernel"] = list(platform.uname())
        result["mount"] = _tool("mount", "--version")
    if command is not None:
        result["command"] = command
    return result


def digest(values: Grounds) -> str:
    """Return a short digest of everything that a verdict depends on."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _tool(name: str, version: str) -> list[str]:
    """Return path, contents and version of a program; the version also covers the libraries that it loads."""
    path = shutil.which(name, path=TOOLS_PATH["PATH"])
    if path is None:
        return []
    process = subprocess.run([path, version], capture_output=True, text=True, errors="replace", check=False)
    return [path, digest_of_file(Path(path)), process.stdout + process.stderr]


def _digest_if_there(path: Path) -> list[str]:
    try:
        return [digest_of_file(path)]
    except OSError:
        return []
