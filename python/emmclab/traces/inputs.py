"""The provenance of a result: the traces from which it was computed, their digests, and how they were read."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from emmclab._core import __version__
from emmclab.runtime.command_line import command_line
from emmclab.traces.trace import Trace

#: ID of the HTML element of a page that contains the provenance as JSON.
RECORD = "made"


class InputRecord(TypedDict):
    """A trace from which a result was computed; `sha256` is the first 16 digits, or None if it is not a file."""

    name: str
    path: NotRequired[str | None]
    sha256: str | None
    #: Options of `emmclab.read` that differ from the defaults.
    reading: NotRequired[dict[str, str | int | float | bool]]


class DeviceRecord(TypedDict):
    """A device and all of its settings, as TOML."""

    name: str
    settings: dict[str, Any]


class ProvenanceFields(TypedDict, total=False):
    """Provenance of a result; empty for a result that a study stores."""

    version: str
    command: str
    inputs: list[InputRecord]
    aged_by: list[InputRecord]
    #: By device: settings that differ from its preset, as TOML.
    settings: dict[str, dict[str, str]]
    devices: list[DeviceRecord]


def inputs_of(traces: Sequence[Trace]) -> list[InputRecord]:
    """Return `name`, `path`, `sha256` and `reading` of each trace, in the form in which results store them.

    `path` and `sha256` are None if the trace is not a file or cannot be read again. `reading` contains the options of
    `emmclab.read` that differ from the defaults.

    >>> import emmclab
    >>> (record,) = inputs_of([emmclab.read(emmclab.bundled()[0], only="op=read")])
    >>> record["name"], record["reading"]
    ('browser-cache', {'only': 'op=read'})
    """
    return [
        {"name": part.name, "path": part.path, "sha256": part.digest, "reading": dict(part.reading)}
        for trace in traces
        for part in (trace.parts or (trace,))
    ]


def provenance_here(inputs: Sequence[InputRecord]) -> ProvenanceFields:
    """Return the provenance of a result: version, command line and inputs.

    `command` is missing if emmclab is used from Python.
    """
    fields: ProvenanceFields = {"version": __version__}
    if (command := command_line()) is not None:
        fields["command"] = command
    fields["inputs"] = list(inputs)
    return fields
