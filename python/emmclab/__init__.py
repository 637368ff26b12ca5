"""A laboratory for the flash storage of phones and boards.

>>> import emmclab
>>> trace = emmclab.read(emmclab.bundled()[0])
>>> profile = trace.profile()
>>> 0 < profile["requests"] <= trace.ledger["kept"]
True
"""

from emmclab._core import __version__
from emmclab.calibration import calibrate
from emmclab.device import Device, Result, compare
from emmclab.errors import (
    ConfigError,
    EmmclabError,
    FormatError,
    InputError,
    UnitError,
    UnsupportedError,
)
from emmclab.profile import Profile
from emmclab.trace import Trace, bundled, combine, convert, profile, read

__all__ = [
    "ConfigError",
    "Device",
    "EmmclabError",
    "FormatError",
    "InputError",
    "Profile",
    "Result",
    "Trace",
    "UnitError",
    "UnsupportedError",
    "__version__",
    "bundled",
    "calibrate",
    "combine",
    "compare",
    "convert",
    "profile",
    "read",
]
