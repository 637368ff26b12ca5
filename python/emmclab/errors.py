"""The exceptions of emmclab: one class hierarchy; each has a file, line or field if known, and a hint."""

import errno as numbers
import re
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from os import PathLike

#: Control characters that terminals interpret (all except tab and line feed), with visible replacements.
CONTROLS = {
    number: chr(0x2400 + number) if number < 0x20 else "\N{REPLACEMENT CHARACTER}"
    for number in (*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0))
}
#: Unicode characters that change the direction of the text after them.
CONTROLS |= dict.fromkeys(
    (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}"
)

#: Maximum length of a printed message, and length of the end that remains if a longer message is shortened, characters.
_LONGEST, _END = 8_000, 1_000

#: Hints for errors of the operating system, by error number.
_HINTS = {
    numbers.ENOENT: "check the path",
    numbers.EISDIR: "name a file, not a folder",
    numbers.ENOTDIR: "name a folder; a part of this path is a file",
    numbers.EEXIST: "choose another name: this one exists already",
    numbers.EACCES: "check the permissions of the file and its folder",
    numbers.EPERM: "check the permissions of the file and its folder",
    numbers.EROFS: "write elsewhere; this file system can only be read",
    numbers.ENOSPC: "free some space or write elsewhere; nothing was left behind",
    numbers.EDQUOT: "free some of your quota or write elsewhere; nothing was left behind",
    numbers.ENAMETOOLONG: "give it a shorter name",
    numbers.ELOOP: "name another path: a symbolic link on this one leads back to itself",
    numbers.EMFILE: "allow more open files (`ulimit -n`)",
    numbers.ENOMEM: "free some memory, or use less of the input at once",
}


#: A word that is longer than any sensible name or number; paths may have 4,096 characters.
_LONG = re.compile(r"(?:[^\s/]{400,}|\S{5000,})")
#: Number of characters that are printed from the start and from the end of an overlong word.
_HEAD, _TAIL = 200, 60
#: Number of characters of a message that are searched for overlong words; a longer message first loses its middle.
_LOOKED_AT = 1_000_000


def harmless(text: str) -> str:
    r"""Return a text without control sequences, because names in traces may contain any character.

    Every text that is printed for people, and every error message, passes through this function.

    >>> harmless("a\x1b[31mb\tc")
    'a␛[31mb\tc'
    """
    return text.translate(CONTROLS)


def _message(text: str) -> str:
    r"""Return a message that can be printed and logged: no control characters, a bounded length.

    >>> _message("a\x1b[2J: no such device")
    'a␛[2J: no such device'
    """
    if len(text) > _LOOKED_AT:
        text = text[: _LOOKED_AT // 2] + text[-_LOOKED_AT // 2 :]
    text = _LONG.sub(lambda word: f"{word[0][:_HEAD]}…{word[0][-_TAIL:]}", text)
    if len(text) > _LONGEST:
        left_out = len(text) - _LONGEST
        text = f"{text[: _LONGEST - _END]} … {left_out:,} characters … {text[-_END:]}"
    return harmless(text)


class EmmclabError(Exception):
    """An error in the input, the options or the environment; its message states the cause.

    Attributes:
        kind: the kind of error, one word.
        file: the file with the error, if known.
        line: the number of the line, from 1, if known.
        field: the field or option, if known.
        hint: a remedy, if known.
        errno: the error number of the operating system, if it reported the error.
    """

    #: `kind` of an error of this class if none is given.
    usual_kind = "other"

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(_message(message))
        self.kind = kind or self.usual_kind
        self.file = file
        self.line = line
        self.field = field
        self.hint = None if hint is None else _message(hint)
        self.errno = errno

    def in_file(self, file: str) -> Self:
        """Return the error with the name of the file that it concerns, unless it already names a file.

        >>> str(FormatError("field `sector`: zone 7 is full").in_file("a.txt"))
        'a.txt: field `sector`: zone 7 is full'
        """
        if self.file is not None:
            return self
        return type(self)(
            f"{file}: {self}",
            kind=self.kind,
            file=file,
            line=self.line,
            field=self.field,
            hint=self.hint,
            errno=self.errno,
        )


class InputError(EmmclabError, OSError):
    """A file cannot be read or written."""

    usual_kind = "io"
    # OSError would otherwise turn the arguments into errno and strerror.
    __str__ = Exception.__str__

    @classmethod
    def of(cls, error: OSError, file: "str | PathLike[str] | None" = None, hint: str | None = None) -> Self:
        """Create the exception from an `OSError`; `file` and `hint` override those derived from it.

        >>> InputError.of(FileNotFoundError(2, "No such file or directory", "gone.txt")).hint
        'check the path'
        """
        name = error.filename if file is None else fspath(file)
        said = error.strerror or str(error)
        if error.errno == numbers.ENOENT and name:
            said = "file not found" if Path(name).absolute().parent.exists() else "folder not found"
        usual = _HINTS.get(error.errno or 0, "check the path, and the disk or device that it is on")
        return cls(f"{name}: {said}" if name else said, file=name, hint=hint or usual, errno=error.errno)


class FormatError(EmmclabError, ValueError):
    """A file does not have the expected format, or some of its lines violate the format."""


class UnitError(FormatError):
    """Times or sizes are implausible in the assumed unit."""


class ConfigError(EmmclabError, ValueError):
    """An option or a configuration is unknown, missing or contradicts another."""

    usual_kind = "config"


class UnsupportedError(EmmclabError):
    """The target, such as an output format or this machine, cannot represent or support the input."""

    usual_kind = "unsupported"
