"""The command line of this process, as results record it."""

import shlex

from emmclab.runtime.files import printable

#: The arguments of the current command; empty if emmclab is used from Python.
words: list[str] = []

#: Options with a value that do not change results: paths of outputs (`_OUTPUTS`), and where and how to compute
#: (`_PLACES`).
_OUTPUTS = ("--html", "--figures", "--over-time", "--perfetto", "--events", "--record", "--output", "-o")
_PLACES = ("--results", "--images", "--images-gb", "--jobs", "--on")
_FLAGS = ("--json", "--fresh")


def command_line() -> str | None:
    """Return the command line of this process, without the options that do not change results.

    None if emmclab is used from Python.
    """
    if not words:
        return None
    arguments, end = [], words.index("--") if "--" in words else len(words)
    skips_next = False
    for position, argument in enumerate(words):
        option, equals, _ = argument.partition("=")
        if skips_next:
            skips_next = False
        elif position < end and option in (*_OUTPUTS, *_PLACES):
            skips_next = not equals
        elif position >= end or option not in _FLAGS:
            arguments.append(argument)
    return shlex.join(["emmclab", *map(printable, arguments)])
