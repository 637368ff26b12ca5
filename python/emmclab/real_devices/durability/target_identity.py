"""Properties of a target by which it is recognised after a cut."""

from typing import TypedDict


class TargetIdentity(TypedDict):
    """Properties of a target; `identity` contains what the device reports about itself, by name."""

    name: str
    bytes: int
    identity: dict[str, str]
