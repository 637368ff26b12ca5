"""Types of the group `provenance` of a result."""

from typing import Any, NotRequired, TypedDict


class InputRecord(TypedDict):
    """A trace from which a result was made; `sha256` is its first 16 digits, None without a file."""

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
