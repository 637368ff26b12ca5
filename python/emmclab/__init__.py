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

Beside what stands here: `emmclab.workload` (synthetic traces, and models taken from traces), `emmclab.layers`
(host software above a device), `emmclab.apps` (applications in closed loop), `emmclab.study` and
`emmclab.claims` (papers reproduced), `emmclab.fleet` (many recordings as one table), `emmclab.parts` (a trace
in many files), `emmclab.advise`, `emmclab.probe`, `emmclab.published`, and `emmclab.report` and
`emmclab.plots` (pages and figures).
"""

from emmclab._core import __version__
from emmclab.calibration import calibrate
from emmclab.device import Device, VictimPolicy, VictimView, compare
from emmclab.errors import (
    ConfigError,
    EmmclabError,
    FormatError,
    InputError,
    UnitError,
    UnsupportedError,
)
from emmclab.live import LiveDevice, serve
from emmclab.profile import Profile
from emmclab.reading import bundled, combine, convert, profile, read
from emmclab.result import Result
from emmclab.trace import Trace

__all__ = [
    "ConfigError",
    "Device",
    "EmmclabError",
    "FormatError",
    "InputError",
    "LiveDevice",
    "Profile",
    "Result",
    "Trace",
    "UnitError",
    "UnsupportedError",
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
    "serve",
]
