"""What is known of a target, by which it is recognised after a cut."""

from __future__ import annotations

from typing import TypedDict


class KnownTarget(TypedDict):
    """What is known of a target; `identity` is what the device says of itself, by name."""

    name: str
    bytes: int
    identity: dict[str, str]
