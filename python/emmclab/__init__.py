"""A laboratory for the flash storage of phones and boards.

>>> import emmclab
>>> trace = emmclab.read(emmclab.bundled()[0])
>>> profile = trace.profile()
>>> 0 < profile["requests"] <= trace.ledger["kept"]
True
>>> result = emmclab.Device.preset("nexus5").simulate(trace)
>>> result["response"]["mean_response_ms"] > 0
True

`Profile` and `Result` are mappings: `list(profile)` names the fields, which end in their unit. Every error is
an `EmmclabError` with `file`, `line`, `field` and `hint` where they are known.

The rest is in rooms, each with a paragraph that says what it holds: `emmclab.traces` (also synthetic
workloads and published figures), `emmclab.fleet` (many recordings as one table), `emmclab.simulation`
(devices, layers, runs and their results), `emmclab.calibration` (presets of measured devices, and their
validation), `emmclab.comparison` (of results), `emmclab.advice` (design options), `emmclab.real_devices`
(durability test and probe), `emmclab.live` (served devices), `emmclab.crash` (power cuts), `emmclab.apps`
(applications in closed loop), `emmclab.studies`, `emmclab.pages` (HTML pages and figures) and
`emmclab.papers` (reproduced papers and their claims).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from emmclab._core import __version__
from emmclab.runtime import html_pages as _html_pages

if TYPE_CHECKING:
    from pathlib import Path

    from emmclab.calibration.calibrate import calibrate
    from emmclab.calibration.registers import registers
    from emmclab.calibration.validation import Validation, validate
    from emmclab.errors import (
        ConfigError,
        EmmclabError,
        FormatError,
        InputError,
        UnitError,
        UnsupportedError,
    )
    from emmclab.live.device import LiveDevice
    from emmclab.live.serve import serve
    from emmclab.simulation.device import Device, compare
    from emmclab.simulation.result import Result
    from emmclab.simulation.run_options import RunOptions, VictimPolicy, VictimView
    from emmclab.traces.journal import Journal
    from emmclab.traces.profile import Profile
    from emmclab.traces.reading import bundled, combine, convert, profile, read
    from emmclab.traces.trace import Trace

__all__ = [
    "ConfigError",
    "Device",
    "EmmclabError",
    "FormatError",
    "InputError",
    "LiveDevice",
    "Profile",
    "Result",
    "RunOptions",
    "Trace",
    "UnitError",
    "UnsupportedError",
    "Validation",
    "VictimPolicy",
    "VictimView",
    "__version__",
    "bundled",
    "calibrate",
    "combine",
    "compare",
    "convert",
    "profile",
    "read",
    "registers",
    "serve",
    "validate",
]

#: The names of the package by the module that declares them, which is imported when the first is used.
_MODULES = {
    "calibration.calibrate": ("calibrate",),
    "simulation.device": ("Device", "compare"),
    "simulation.run_options": ("RunOptions", "VictimPolicy", "VictimView"),
    "calibration.registers": ("registers",),
    "simulation.result": ("Result",),
    "calibration.validation": ("Validation", "validate"),
    "errors": ("ConfigError", "EmmclabError", "FormatError", "InputError", "UnitError", "UnsupportedError"),
    "live.device": ("LiveDevice",),
    "live.serve": ("serve",),
    "traces.profile": ("Profile",),
    "traces.reading": ("bundled", "combine", "convert", "profile", "read"),
    "traces.trace": ("Trace",),
}
_ROOMS = {
    *("advice", "apps", "calibration", "comparison", "crash", "errors", "fleet", "live", "pages", "papers"),
    *("real_devices", "runtime", "simulation", "studies", "traces"),
}


def _write_profile(profile: Profile, path: str | Path) -> None:
    from emmclab.pages.profiles import write_report

    write_report([profile], path)


def _write_journal(journal: Journal, path: str | Path) -> None:
    from emmclab.pages.journal import render
    from emmclab.runtime.files import write_atomically

    write_atomically(path, render(journal))


# `traces` writes these pages without importing `pages`, which imports `traces`.
_html_pages.register_page("profile", _write_profile)
_html_pages.register_page("journal", _write_journal)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name of the package, or a room, on first use."""
        if name in _ROOMS:
            return import_module(f"{__name__}.{name}")
        for module, names in _MODULES.items():
            if name in names:
                value = getattr(import_module(f"{__name__}.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of the package and its rooms."""
    return sorted({*globals(), *__all__, *_ROOMS})
