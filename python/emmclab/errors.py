"""The exceptions of emmclab: one tree, each with its place and a hint."""

from __future__ import annotations


class EmmclabError(Exception):
    """Something in the input, the options or the environment is wrong; the message names it.

    Attributes:
        kind: what went wrong, one word.
        file: the file it happened in, where known.
        line: the line, from 1, where known.
        field: the field or option, where known.
        hint: what can be done about it, where known.
        errno: the operating system's error number, where it refused.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "other",
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.file = file
        self.line = line
        self.field = field
        self.hint = hint
        self.errno = errno


class InputError(EmmclabError, OSError):
    """A file cannot be read or written."""

    # OSError would otherwise turn the arguments into errno and strerror.
    __str__ = Exception.__str__


class FormatError(EmmclabError, ValueError):
    """A file is not, or not quite, of the format it should have."""


class UnitError(FormatError):
    """Times or sizes are absurd in the assumed unit."""


class ConfigError(EmmclabError, ValueError):
    """An option or a configuration is unknown, missing or contradicts another."""


class UnsupportedError(EmmclabError):
    """The target cannot hold what it was given."""
