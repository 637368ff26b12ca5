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
workloads and published figures), `emmclab.fleet` (many recordings as one table), `emmclab.devices`
(simulation, layers, design options, probes), `emmclab.live` (served devices), `emmclab.crash` (power cuts),
`emmclab.apps` (applications in closed loop), `emmclab.studies`, `emmclab.pages` (HTML pages and figures) and
`emmclab.papers` (reproduced papers and their claims).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from emmclab._core import __version__

if TYPE_CHECKING:
    from emmclab.devices.calibration import calibrate
    from emmclab.devices.device import Device, compare
    from emmclab.devices.registers import registers
    from emmclab.devices.result import Result
    from emmclab.devices.run_options import RunOptions, VictimPolicy, VictimView
    from emmclab.devices.validation import Validation, validate
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
    "devices.calibration": ("calibrate",),
    "devices.device": ("Device", "compare"),
    "devices.run_options": ("RunOptions", "VictimPolicy", "VictimView"),
    "devices.registers": ("registers",),
    "devices.result": ("Result",),
    "devices.validation": ("Validation", "validate"),
    "errors": ("ConfigError", "EmmclabError", "FormatError", "InputError", "UnitError", "UnsupportedError"),
    "live.device": ("LiveDevice",),
    "live.serve": ("serve",),
    "traces.profile": ("Profile",),
    "traces.reading": ("bundled", "combine", "convert", "profile", "read"),
    "traces.trace": ("Trace",),
}
_ROOMS = {
    *("apps", "crash", "devices", "errors", "fleet", "live", "pages", "papers", "runtime", "studies"),
    "traces",
}

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
