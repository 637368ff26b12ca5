"""Programs that found bugs in file systems, with their publications (`data/known-bugs.toml`)."""

import functools
import tomllib
from importlib import resources

from emmclab.crash.programs import Program, operation

#: The name of the workload with all programs, and the prefix of the name of each.
ALL, BEGIN = "known", "known:"


@functools.cache
def declared() -> dict[str, dict[str, str]]:
    """Return the declarations of all bugs, by name.

    >>> declared()["generic-322"]["file_system"], declared()["generic-322"]["kernel"]
    ('btrfs', '3.12')
    """
    text = resources.files("emmclab").joinpath("data/known-bugs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def names() -> list[str]:
    """Return the names of the workloads of single bugs.

    >>> names()[0]
    'known:new-1'
    """
    return [f"{BEGIN}{name}" for name in declared()]


def programs(workload: str) -> list[Program]:
    """Return the programs of a workload; empty for other workloads.

    >>> [len(programs(name)) for name in ("known:new-7", "known:none")]
    [1, 0]
    """
    wanted = [workload.removeprefix(BEGIN)] if workload != ALL else list(declared())
    return [
        Program(name, tuple(operation(text) for text in declared()[name]["program"].split(";")))
        for name in wanted
        if name in declared()
    ]
