"""The command line of this process, as results state it."""

import shlex

from emmclab.runtime.files import printable

#: The arguments of the current command; empty if emmclab is used from Python.
words: list[str] = []

#: Options that do not change results: outputs, places of results, and numbers of processes. First those with
#: a value, then those without.
_OUTPUTS = ("--html", "--figures", "--over-time", "--perfetto", "--events", "--record", "--output", "-o")
_PLACES = ("--results", "--images", "--images-gb", "--jobs", "--on")
_FLAGS = ("--json", "--fresh")


def command_line() -> str | None:
    """Return the command that reproduces the result: that of this process, without unneeded options.

    None if emmclab is used from Python.
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
