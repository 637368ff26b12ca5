"""Lists of values that are tried side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from emmclab.errors import ConfigError

_Value = TypeVar("_Value")


def once(values: Iterable[_Value]) -> list[_Value]:
    """Return the values in order, each once: naming a value again adds nothing to what is tried.

    This is the rule of all lists of alternatives: devices, traces side by side, stacks, seeds, axes. Lists
    whose members add up are kept as they are: traces that run together, the layers of a stack, applications
    beside each other, options of mkfs.

    >>> once(["nexus5", "ufs31", "nexus5"]), once([1, True, 1])
    (['nexus5', 'ufs31'], [1, True])
    """
    # By their text: 1 and true are not the same setting, and a list in a file has no hash.
    return list({repr(value): value for value in values}.values())


def between_commas(text: str, option: str) -> list[str]:
    """Return the members of a list with commas, without blanks around them; none of a text without any.

    >>> between_commas("nexus5, ufs31", "--devices"), between_commas(" ", "--devices")
    (['nexus5', 'ufs31'], [])

    Raises:
        ConfigError: a member is empty, as one is whose variable of the shell is unset.
    """
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        return []
    if "" in parts:
        place = parts.index("") + 1
        raise ConfigError(
            f"{option}: member {place} of {len(parts)} of the list `{text}` is empty",
            kind="config",
            field=option,
            hint="take out the comma, or see whether a variable of the shell is unset",
        )
    return parts
