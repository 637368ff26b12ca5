"""Types of the report on a device's registers (`crates/registers/src/report.rs`)."""

from __future__ import annotations

from typing import TypedDict

#: A property of the device; None if it is not known. `from` contains the names of the fields that state it.
Fact = TypedDict("Fact", {"topic": str, "text": str | None, "from": list[str]})

#: A setting of a device that registers determine: its key, its value as TOML, and the fields with their
#: values.
RegisterSetting = TypedDict("RegisterSetting", {"key": str, "value": str, "from": str})

#: An amount in bytes that registers state, and the fields with their values.
Stated = TypedDict("Stated", {"bytes": int, "from": str})


class RegisterRow(TypedDict):
    """A field, named as in the standard; its value is None if it is not known."""

    name: str
    register: str
    place: str
    value: int | str | None
    meaning: str


class RegisterReport(TypedDict):
    """Everything that was read from the registers of a device."""

    #: `emmc` or `ufs`.
    kind: str
    standard: str
    #: The preset of the same class.
    like: str
    facts: list[Fact]
    fields: list[RegisterRow]
    settings: list[RegisterSetting]
    capacity: Stated | None
    #: Flash in SLC mode: the enhanced area, or WriteBooster.
    slc: Stated | None
    notes: list[str]
