"""Shell completion of option values that are names of presets, formats, studies and the like."""

from collections.abc import Callable, Iterable
from importlib import import_module

#: Type of a function that completes an incomplete word: returns all known words that begin with it.
Completer = Callable[[str], list[str]]

#: Name under which `emmclab reproduce` compares devices with figures of real ones.
DEVICES = "devices"


def complete_words(*words: str) -> Completer:
    """Return a shell completer for these words.

    >>> complete_words("ext4", "xfs")("e")
    ['ext4']
    """
    return names_of(lambda: words)


def names_of(list_words: Callable[[], Iterable[str]]) -> Completer:
    """Return a shell completer for the words from `list_words`, which is called only when words are completed."""

    def matching(incomplete: str) -> list[str]:
        return [word for word in list_words() if word.startswith(incomplete)]

    return matching


def several(names: Completer) -> Completer:
    """Return a shell completer for the last name of a comma-separated list.

    >>> several(complete_words("ext4", "xfs"))("xfs,e")
    ['xfs,ext4']
    """

    def matching(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names(last)]

    return matching


def names_in(module: str, function: str) -> Completer:
    """Return a shell completer for the names that a function of a module lists, or for the field `name` of its rows.

    >>> names_in("emmclab.simulation.layers", "layers")("adv")
    ['advil']
    """

    def listed() -> Iterable[str]:
        # The module is imported only when words are completed.
        return (row if isinstance(row, str) else row["name"] for row in getattr(import_module(module), function)())

    return names_of(listed)


format_names = names_in("emmclab._core", "formats")
workload_names = names_in("emmclab.traces.workload", "workloads")
filesystem_names = complete_words("ext4", "xfs", "btrfs", "f2fs", "vfat")
device_names = names_in("emmclab.simulation.device", "presets")
layer_names = names_in("emmclab.simulation.layers", "layers")
application_names = names_in("emmclab.apps.closed_loop", "applications")
host_names = names_in("emmclab.apps.closed_loop", "hosts")
study_names = names_in("emmclab.studies.bundled", "bundled")
paper_names = names_in("emmclab.papers.registry", "papers")


def _writable_format_names() -> list[str]:
    from emmclab import _core

    return [entry["name"] for entry in _core.formats() if entry["writes"]]


def _setting_names() -> list[str]:
    from emmclab.simulation.device import Device, presets
    from emmclab.simulation.layers import layers

    rows = (row for name in presets() for row in Device.preset(name).explain())
    keys = {row.key: None for row in rows if "." in row.key and ".0" not in row.key}
    layer_keys = [f"{layer['name']}.{setting['name']}" for layer in layers() for setting in layer["settings"]]
    return [f"{key}=" for key in (*sorted(keys), *layer_keys)]


def _network_names() -> list[str]:
    from emmclab.apps.closed_loop import hosts

    return sorted({network["name"] for host in hosts() for network in host["network"]})


def _solution_names() -> list[str]:
    from emmclab.apps.solutions import SOLUTIONS

    return [solution.name for solution in SOLUTIONS]


def _paper_study_names() -> list[str]:
    from emmclab.papers.findings import NAME as FINDINGS
    from emmclab.papers.registry import studies

    return [*studies(), FINDINGS, DEVICES]


def _explained_words() -> list[str]:
    from emmclab.cli.explain_texts import keys
    from emmclab.cli.glossary import words
    from emmclab.simulation.device import presets

    return [*presets(), *keys(), *(word for word in words() if " " not in word)]


def _control_commands() -> tuple[str, ...]:
    from emmclab.live.control import COMMANDS

    return COMMANDS


def _crash_workload_names() -> list[str]:
    from emmclab.crash.generated_programs import ALL_KNOWN, known_bug_names
    from emmclab.crash.workloads import ABOUT, MODES

    generated = ("ace:1", "ace:2", "ace:3", "random:200", ALL_KNOWN, *known_bug_names())
    return [*(name for name in ABOUT if name.islower()), *(f"sqlite-{mode}" for mode in MODES), *generated]


writable_format_names = names_of(_writable_format_names)
setting_names = names_of(_setting_names)
network_names = names_of(_network_names)
solution_names = names_of(_solution_names)
paper_study_names = names_of(_paper_study_names)
explained_words = names_of(_explained_words)
control_commands = names_of(_control_commands)
crash_workload_names = names_of(_crash_workload_names)
