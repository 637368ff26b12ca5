"""The command line of this process, as results name it."""

from __future__ import annotations

import shlex

from emmclab.runtime.files import printable

#: The words of the command line that this process carries out; empty if Python calls the package.
words: list[str] = []

#: Options with a value that change no result: outputs; places of results, and processes. Then those without.
_OUTPUTS = ("--html", "--figures", "--over-time", "--perfetto", "--events", "--record", "--output", "-o")
_PLACES = ("--results", "--images", "--images-gb", "--jobs", "--on")
_FLAGS = ("--json", "--fresh")


def command_line() -> str | None:
    """Return the command that gives the same result: this process's, without what changes no result.

    None if Python calls the package.
    """
    if not words:
        return None
    kept, end = [], words.index("--") if "--" in words else len(words)
    skips = False
    for place, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if skips:
            skips = False
        elif place < end and option in (*_OUTPUTS, *_PLACES):
            skips = not equals
        elif place >= end or option not in _FLAGS:
            kept.append(word)
    return shlex.join(["emmclab", *map(printable, kept)])
