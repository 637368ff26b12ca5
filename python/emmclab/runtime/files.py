"""Writes files atomically, and identifies them by digests of their content."""

import contextlib
import csv
import errno
import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any

from emmclab.errors import ConfigError, FormatError, InputError

#: Maximum size of a settings file, bytes. Even a study of a million runs needs only some thousand bytes.
MOST_SETTINGS_BYTES = 16 << 20

#: The files that this process has written atomically, in order.
written_files: list[str] = []


def read_text(path: str | Path, hint: str | None = None) -> str:
    """Read a settings file as text; `hint` is the hint of the error if the file cannot be read."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_SETTINGS_BYTES + 1)
    except OSError as error:
        raise InputError.of(error, path, hint) from error
    if len(content) > MOST_SETTINGS_BYTES:
        raise InputError(
            f"this is not a settings file: it is larger than {MOST_SETTINGS_BYTES >> 20} MB, or endless",
            hint="check the path",
        ).in_file(str(path))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"byte {error.start}: this is not UTF-8 text",
            kind="syntax",
            hint="check that this is the right file, and convert text in another encoding to UTF-8 first",
        ).in_file(str(path)) from error


def refuse_other_endings(path: str | Path, endings: Sequence[str], field: str) -> str:
    """Reject an output file with an unsupported extension before any work is done; return the extension.

    `endings` are in lower case; `field` is the option whose value is the path.

    >>> refuse_other_endings(Path("load.CSV"), (".csv", ".parquet"), "--output")
    '.csv'
    """
    ending = Path(path).suffix.lower()
    if ending not in endings:
        supported = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        raise ConfigError(
            "the extension of the file does not determine a supported format",
            field=field,
            hint=f"use a file name that ends in {supported}",
        ).in_file(str(path))
    return ending


def printable(path: str | PathLike[str]) -> str:
    """Return a file name as text; bytes that are not UTF-8 become replacement characters.

    >>> printable("trace.txt")
    'trace.txt'
    """
    return os.fsencode(path).decode("utf-8", "replace")


def lock(file: IO[str] | int, *, wait: bool, shared: bool = False) -> bool:
    """Lock an open file until this process ends; return False if another process holds the lock.

    Any number of processes can hold a `shared` lock while no process holds an exclusive one. On Windows
    nothing is locked, and the result is True.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def refuse_link(path: Path) -> Path:
    """Return a path in a folder of stored results, or raise an `InputError` if it is a symbolic link.

    A folder of results may come from another user, and a link in it may lead to any file of this user.
    """
    if path.is_symlink():
        raise InputError(
            "this is a symbolic link, and results are not stored through one",
            hint="remove the link, or use another folder for the results",
        ).in_file(str(path))
    return path


def open_own(path: Path) -> IO[str]:
    """Open a regular file, not a link, for reading and appending; create it if it does not exist."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(refuse_link(path), flags, 0o666)
    except OSError as error:
        raise error if isinstance(error, InputError) else InputError.of(error, path) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError("this is not a regular file", hint="remove this path, and try again").in_file(str(path))
    return os.fdopen(handle, "r+", encoding="utf-8")


def remove_named(folder: Path, pattern: re.Pattern[str]) -> None:
    """Remove the files below a folder whose relative path matches, and then the empty folders.

    Links are neither followed nor removed. Files that cannot be removed stay.
    """
    if folder.is_symlink():
        return
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(parent, name)
            if pattern.fullmatch(path.relative_to(folder).as_posix()) and not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.unlink()
        with contextlib.suppress(OSError):  # The folder contains other files.
            Path(parent).rmdir()


def sweep(folder: Path) -> None:
    """Remove temporary files of killed processes in `folder`; those of running processes stay."""
    from emmclab import _core

    _core.sweep(folder)


@contextlib.contextmanager
def note_written_files(*paths: str | PathLike[str] | None) -> Iterator[None]:
    """Add the files that are written atomically in this context to `written_files`.

    None and `-` (stdout) are ignored. If an exception such as Ctrl-C ends the context, only the files that
    were already written are added.
    """
    files = [os.fspath(path) for path in paths if path is not None and os.fspath(path) != "-"]
    before = [_identity(path) for path in files]
    try:
        yield
    except BaseException:
        states = zip(files, before, strict=True)
        written_files.extend(path for path, former in states if _identity(path) not in (None, former))
        raise
    written_files.extend(files)


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and the inode of a file; None if it does not exist."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically: write a temporary file and rename it; on failure remove it.

    A device or a pipe is written directly; a link, such as `/dev/stdout`, stays a link. Temporary files of
    killed processes in the folder are removed.

    Raises:
        InputError: the operating system refuses.
    """
    from emmclab import _core

    with note_written_files(path):
        _core.write_whole(path, content.encode() if isinstance(content, str) else content)


def write_pieces(path: Path, pieces: Iterable[str]) -> None:
    """Write a text atomically, piece by piece, so that it need not fit into memory.

    Raises:
        InputError: the operating system refuses.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        write_atomically(path, "".join(pieces))
        return
    with made_aside(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def made_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a file, which is then renamed to `path`; on failure the file is removed."""
    temporary = Path()
    try:
        with folder_aside(path.absolute().parent) as folder:
            temporary = folder / "made"
            yield temporary
            with note_written_files(path):
                move_into_place(temporary, path)
    except InputError as error:
        if error.errno is None or error.file != str(temporary):
            raise
        raise InputError.of(OSError(error.errno, os.strerror(error.errno)), path) from error
    except OSError as error:
        raise InputError.of(error, path) from error


def move_into_place(finished: Path, path: Path) -> None:
    """Rename a finished file to its path, with the permissions and, if allowed, the owner of the old file."""
    try:
        former = path.stat()
    except OSError:
        former = None
    if former is not None and sys.platform != "win32":
        with contextlib.suppress(OSError):  # Only root may change the owner of files.
            os.chown(finished, -1, former.st_gid)
            os.chown(finished, former.st_uid, -1)
        finished.chmod(stat.S_IMODE(former.st_mode) & 0o777)
    finished.replace(path)


def stale_folders(parent: Path) -> list[Path]:
    """Return the temporary folders of this user in `parent`.

    Links are ignored. If all users share `parent`, another user could create a link with the name of such a folder.
    """
    from emmclab import _core

    with contextlib.suppress(OSError):
        named = [path for path in parent.iterdir() if path.name.startswith(_core.ASIDE_PREFIX)]
        return [path for path in named if _is_own_folder(path)]
    return []


def _is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user, and not a link to one."""
    try:
        status = path.lstat()
    except OSError:  # Another process has removed it.
        return False
    return stat.S_ISDIR(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())


@contextlib.contextmanager
def folder_aside(parent: Path) -> Iterator[Path]:
    """Make a temporary folder in `parent` for the block; `sweep` removes the folders of killed processes."""
    import shutil

    sweep(parent)
    folder, handle = _locked_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextlib.contextmanager
def folder_for_reading(parent: Path) -> Iterator[Path]:
    """Make a temporary folder for reading files of `parent`, in `parent` if possible.

    It is in the system's temporary folder if `parent` is not writable.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(folder_aside(parent))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            import tempfile  # Imported here because few commands need it, and the import takes time.

            folder = stack.enter_context(folder_aside(Path(tempfile.gettempdir())))
        yield folder


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """Make and lock a temporary folder; repeat this if another process has removed it before it was locked."""
    import tempfile

    from emmclab import _core

    while True:
        folder = Path(tempfile.mkdtemp(prefix=_core.ASIDE_PREFIX, dir=parent))
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        lock(handle, wait=True)
        if _is_open(folder, handle):
            return folder, handle
        os.close(handle)


def _is_open(folder: Path, handle: int) -> bool:
    """Return whether a descriptor refers to the folder that now exists at this path."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


#: A spreadsheet interprets a cell that begins with one of these characters as a formula.
_FORMULA = tuple("=+-@\t\r")


def cell(value: Any) -> Any:
    """Return a value for a cell of CSV: a text that a spreadsheet would execute gets an apostrophe before it.

    Names in traces may be any text. Numbers are not changed, even if their type is text.

    >>> cell("=cmd|' /C calc'!A0"), cell("-1.5"), cell(-1.5), cell("kworker")
    ("'=cmd|' /C calc'!A0", '-1.5', -1.5, 'kworker')
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    r"""Return rows as CSV with a header; missing values are empty.

    >>> to_csv([{"time_s": 0.5, "iops": None}])
    'time_s,iops\n0.5,\n'
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(cell, rows[0]))
    writer.writerows([cell(row.get(name)) for name in rows[0]] for row in rows)
    return buffer.getvalue()


def digest(paths: Sequence[Path]) -> str | None:
    """Return the first 16 digits of a file's SHA-256; for several files, of the SHA-256 of their digests in order.

    None without a file, or if a file cannot be read again, such as a pipe.
    """
    import hashlib  # Imported here because it loads OpenSSL, which commands without digests do not need.

    if not all(path.is_file() for path in paths):
        return None
    digests = []
    for path in paths:
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError:
            return None
    if len(digests) > 1:
        digests = [hashlib.sha256("".join(digests).encode()).hexdigest()]
    return digests[0][:16] if digests else None
