"""Shell completion of option values that are names of presets, formats, studies and the like."""

from collections.abc import Callable, Iterable

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


def _formats() -> list[str]:
    from emmclab import _core

    return [entry["name"] for entry in _core.formats()]


def _writable_formats() -> list[str]:
    from emmclab import _core

    return [entry["name"] for entry in _core.formats() if entry["writes"]]


def _workloads() -> list[str]:
    from emmclab.traces.workload import workloads

    return workloads()


def _devices() -> list[str]:
    from emmclab.simulation.device import presets

    return presets()


def _layers() -> list[str]:
    from emmclab.simulation.layers import layers

    return [layer["name"] for layer in layers()]


def _settings() -> list[str]:
    from emmclab.simulation.device import Device, presets
    from emmclab.simulation.layers import layers

    rows = (row for name in presets() for row in Device.preset(name).explain())
    keys = {row.key: None for row in rows if "." in row.key and ".0" not in row.key}
    layer_keys = [f"{layer['name']}.{setting['name']}" for layer in layers() for setting in layer["settings"]]
    return [f"{key}=" for key in (*sorted(keys), *layer_keys)]


def _applications() -> list[str]:
    from emmclab.apps.closed_loop import applications

    return [application["name"] for application in applications()]


def _hosts() -> list[str]:
    from emmclab.apps.closed_loop import hosts

    return [host["name"] for host in hosts()]


def _networks() -> list[str]:
    from emmclab.apps.closed_loop import hosts

    return sorted({network["name"] for host in hosts() for network in host["network"]})


def _solutions() -> list[str]:
    from emmclab.apps.solutions import SOLUTIONS

    return [solution.name for solution in SOLUTIONS]


def _studies() -> list[str]:
    from emmclab.studies.bundled import bundled

    return bundled()


def _papers() -> list[str]:
    from emmclab.papers.registry import papers

    return list(papers())


def _studies_of_papers() -> list[str]:
    from emmclab.papers.findings import NAME as FINDINGS
    from emmclab.papers.registry import studies

    return [*studies(), FINDINGS, DEVICES]


def _explained() -> list[str]:
    from emmclab.cli.explain_texts import keys
    from emmclab.cli.glossary import words
    from emmclab.simulation.device import presets

    return [*presets(), *keys(), *(word for word in words() if " " not in word)]


def _control_commands() -> tuple[str, ...]:
    from emmclab.live.control import COMMANDS

    return COMMANDS


def _crash_workloads() -> list[str]:
    from emmclab.crash.generated_programs import ALL_KNOWN, known_bug_names
    from emmclab.crash.workloads import ABOUT, MODES

    generated = ("ace:1", "ace:2", "ace:3", "random:200", ALL_KNOWN, *known_bug_names())
    return [*(name for name in ABOUT if name.islower()), *(f"sqlite-{mode}" for mode in MODES), *generated]


format_names = names_of(_formats)
writable_format_names = names_of(_writable_formats)
workload_names = names_of(_workloads)
filesystem_names = complete_words("ext4", "xfs", "btrfs", "f2fs", "vfat")
device_names = names_of(_devices)
layer_names = names_of(_layers)
setting_names = names_of(_settings)
application_names = names_of(_applications)
host_names = names_of(_hosts)
network_names = names_of(_networks)
solution_names = names_of(_solutions)
study_names = names_of(_studies)
paper_names = names_of(_papers)
paper_study_names = names_of(_studies_of_papers)
explained_words = names_of(_explained)
control_commands = names_of(_control_commands)
crash_workload_names = names_of(_crash_workloads)
