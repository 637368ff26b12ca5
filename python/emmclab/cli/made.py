"""What a result was made from: version, command line, inputs and settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from emmclab.cli.failures import words
from emmclab.runtime.files import printable

#: Options with a value that change no result: outputs; places of results, and processes. Then those without.
_OUTPUTS = ("--html", "--figures", "--over-time", "--perfetto", "--events", "--record", "--output", "-o")
_PLACES = ("--results", "--images", "--images-gb", "--jobs", "--on")
_FLAGS = ("--json", "--fresh")


def command_line() -> str:
    """Return the command line of this process without what changes no result; it gives the same one."""
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


def with_command(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the group `provenance` of a result of a command: also the command line."""
    return {**provenance, "command": command_line()}
