"""Finds files and variables that a shell command names, and those that its scripts name in turn."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

#: Maximum number of files, and of bytes in all, that are examined.
_MOST_FILES, _MOST_BYTES = 2_000, 512 << 20
#: Maximum size of a script that is searched for names, and maximum number of its different words.
_LONGEST_SCRIPT, _MOST_WORDS = 1 << 20, 20_000
#: A word in a command or a script that may be a path or a program.
_WORD = re.compile(r"""[^\s;|&()<>"'`=,:$\[\]{}]+""")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
#: Prefixes of system paths: programs below them are hashed, but not searched for names.
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/nix/store/")
#: Prefixes of variables that determine what interpreters and the loader run.
_ALWAYS = ("PYTHON", "LD_", "PERL", "RUBY", "NODE_")
#: Variables that differ from run to run and do not affect a check.
_NEVER = frozenset({"EMMCLAB_ACKNOWLEDGED", "OLDPWD", "PWD", "SHLVL", "TMPDIR", "_"})


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file; it is read again only if its size or times have changed.

    Raises:
        OSError: it cannot be read.
    """
    about = path.stat()
    return _digest(path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, *_about: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Named:
    """The names in a command: each file with the digest of its contents, each variable with its value."""

    def __init__(self, path: str) -> None:
        """Set the search path for programs."""
        self._path = path
        self.found: dict[str, str] = {}
        #: Whether everything could be examined.
        self.is_whole = True
        self._bytes = 0

    def follow(self, command: str) -> None:
        """Add the names in a command, and those in its scripts."""
        self.found["command"] = command
        for name, value in os.environ.items():
            if name.startswith(_ALWAYS):
                self.found[f"${name}"] = value
        self._text(f"{command}\n{os.path.expandvars(command)}", None)

    def _text(self, text: str, folder: Path | None) -> None:
        """Search the text of a command, or of a script in a folder, for file names."""
        for name in set(_VARIABLE.findall(text)) & (os.environ.keys() - _NEVER):
            key, value = f"${name}", os.environ[name]
            if self.found.get(key) != value:
                self.found[key] = value
                # The folders in PATH are only searched for programs.
                if name not in ("PATH", "HOME"):
                    self._words(value, folder)
        self._words(text, folder)

    def _words(self, text: str, folder: Path | None) -> None:
        words = set(_WORD.findall(text))
        if len(words) > _MOST_WORDS:
            self.is_whole = False
            return
        beside = {} if folder is None else _beside(folder)
        for word in sorted(words):
            for path in self._paths(word, folder):
                self._file(path)
            # `import helper` and `. ./helper.sh` name a file next to the script.
            for name in {word, word.split(".")[0]} & beside.keys():
                for path in beside[name]:
                    self._file(path)

    def _paths(self, word: str, folder: Path | None) -> Iterator[Path]:
        if "/" not in word:
            if (program := shutil.which(word, path=self._path)) is not None:
                yield Path(program)
            return
        expanded = Path(word).expanduser() if word.startswith("~") else Path(word)
        yield from dict.fromkeys([(folder or Path.cwd()) / expanded, Path.cwd() / expanded])

    def _file(self, path: Path) -> None:
        key = str(path)
        if key in self.found:
            return
        try:
            about = path.stat()
            if stat.S_ISDIR(about.st_mode) and (path / "__init__.py").exists():
                self._package(path)
            if not stat.S_ISREG(about.st_mode) or key.startswith(("/proc/", "/sys/")):
                return
            self._bytes += about.st_size
            if len(self.found) >= _MOST_FILES or self._bytes > _MOST_BYTES:
                self.is_whole = False
                return
            self.found[key] = digest_of_file(path)
            if about.st_size > _LONGEST_SCRIPT or str(path.resolve()).startswith(_SYSTEM):
                return
            contents = path.read_bytes()
        except OSError:
            # A missing or unreadable file is recorded as such; a script may create it.
            self.found[key] = "unreadable"
            return
        if b"\0" not in contents[:4096]:
            self._text(contents.decode(errors="replace"), path.absolute().parent)

    def _package(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*.py")):
            self._file(path)


def _beside(folder: Path) -> dict[str, list[Path]]:
    """Return the files and folders in a folder by name, with and without extensions."""
    if f"{folder}/".startswith(_SYSTEM):
        return {}
    found: dict[str, list[Path]] = {}
    try:
        for entry in sorted(folder.iterdir())[:_MOST_FILES]:
            for name in {entry.name, entry.stem}:
                found.setdefault(name, []).append(entry)
    except OSError:
        pass
    return found
