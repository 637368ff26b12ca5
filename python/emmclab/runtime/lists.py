"""Lists of values that are tried side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

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
