"""Parses and checks lists of names and of alternative values."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from emmclab.errors import ConfigError

_Value = TypeVar("_Value")
#: Type of lists of names in public functions: an iterable, or a text with one name or several separated by commas.
Names = str | Iterable[str]


def once(values: Iterable[_Value]) -> list[_Value]:
    """Return the values in order, without duplicates.

    Use it for lists of alternatives: devices, traces to compare, stacks, seeds, axes. Members that are used together
    may occur several times: traces that run together, the layers of a stack, applications that run together, options of
    mkfs.

    >>> once(["nexus5", "ufs31", "nexus5"]), once([1, True, 1])
    (['nexus5', 'ufs31'], [1, True])
    """
    # Values are compared by their `repr`, because 1 and True would be equal, and lists are not hashable.
    return list({repr(value): value for value in values}.values())


def several(names: Names) -> list[str]:
    """Return names as a list; a text is one name, such as the value of an option that may be repeated.

    >>> several("journal:delta"), several(("advil", "pair")), several(())
    (['journal:delta'], ['advil', 'pair'], [])
    """
    return [names] if isinstance(names, str) else list(names)


def listed_names(names: Names, option: str) -> list[str]:
    """Return names as a list; a text is a comma-separated list, the value of `option`.

    >>> listed_names("app, device", "--by"), listed_names(["app"], "--by"), listed_names("", "--by")
    (['app', 'device'], ['app'], [])

    Raises:
        ConfigError: a member of the text is empty.
    """
    return between_commas(names, option) if isinstance(names, str) else list(names)


def joined(words: Sequence[str]) -> str:
    """Return words as an enumeration for a sentence.

    >>> joined([]), joined(["reads"]), joined(["flushes", "preflushes", "FUA"])
    ('', 'reads', 'flushes, preflushes and FUA')
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def between_commas(text: str, option: str) -> list[str]:
    """Split a comma-separated list and strip blanks; an empty text has no members.

    >>> between_commas("nexus5, ufs31", "--devices"), between_commas(" ", "--devices")
    (['nexus5', 'ufs31'], [])
    """
    members = [member.strip() for member in text.split(",")]
    if not any(members):
        return []
    if "" in members:
        position = members.index("") + 1
        raise ConfigError(
            f"{option}: member {position} of {len(members)} of the list `{text}` is empty",
            field=option,
            hint="remove the extra comma, or check that the variables of the shell are set",
        )
    return members


def split_names(text: str, what: str, option: str, example: str) -> list[str]:
    """Return the names in the value of an option, without duplicates; `what` describes a name for the error.

    >>> split_names("nexus5, ufs31, nexus5", "device to compare", "--devices", "nexus5,ufs31")
    ['nexus5', 'ufs31']
    """
    names = once(between_commas(text, option))
    if not names:
        hint = f"name some, for example `{option} {example}`"
        raise ConfigError(f"there is no {what}", field=option, hint=hint)
    return names
