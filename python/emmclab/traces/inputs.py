"""The traces that a result was made of: where they lie, their digests, and how they were read."""

from __future__ import annotations

from collections.abc import Sequence

from emmclab._core import __version__
from emmclab.runtime.command import command_line
from emmclab.traces.made_types import InputRecord, MadeFrom
from emmclab.traces.trace import Trace


def inputs_of(traces: Sequence[Trace]) -> list[InputRecord]:
    """Return `name`, `path`, `sha256` and `reading` of each trace, as results hold them.

    `path` is as it was given; None, as `sha256`, where the trace is no file or cannot be read again.
    `reading` has the options of `emmclab.read` that differ from the defaults.

    >>> import emmclab
    >>> (found,) = inputs_of([emmclab.read(emmclab.bundled()[0], only="op=read")])
    >>> found["name"], found["reading"]
    ('browser-cache', {'only': 'op=read'})
    """
    return [
        {"name": part.name, "path": part.path, "sha256": part.digest, "reading": dict(part.reading)}
        for trace in traces
        for part in (trace.parts or (trace,))
    ]


def made_here(inputs: Sequence[InputRecord]) -> MadeFrom:
    """Return `version`, `command` and `inputs` of a result; `command` where a command makes it."""
    said: MadeFrom = {"version": __version__}
    if (command := command_line()) is not None:
        said["command"] = command
    said["inputs"] = list(inputs)
    return said
