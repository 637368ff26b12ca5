"""The traces from which a result was made: their paths, digests, and options of reading."""

from collections.abc import Sequence

from emmclab._core import __version__
from emmclab.runtime.command_line import command_line
from emmclab.traces.provenance_types import InputRecord, ProvenanceFields
from emmclab.traces.trace import Trace


def inputs_of(traces: Sequence[Trace]) -> list[InputRecord]:
    """Return `name`, `path`, `sha256` and `reading` of each trace, in the form of results.

    `path` is as it was given; `path` and `sha256` are None if the trace is not a file or cannot be read
    again. `reading` contains the options of `emmclab.read` that differ from the defaults.

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


def provenance_here(inputs: Sequence[InputRecord]) -> ProvenanceFields:
    """Return `version`, `command` and `inputs` of a result; `command` only if a command made it."""
    said: ProvenanceFields = {"version": __version__}
    if (command := command_line()) is not None:
        said["command"] = command
    said["inputs"] = list(inputs)
    return said
