"""Preconditioning: the data on a device before a run, such as the data of a used phone or of a trace."""

import os
from pathlib import Path

from emmclab import _core
from emmclab.errors import ConfigError


def parse_precondition(text: str) -> _core.Precondition | Path:
    """Parse `none`, `sequential:90`, `random:90`, `steady:4`, `used:1y`, or the path of a trace.

    >>> parse_precondition("random:80").text, parse_precondition("steady").text
    ('random:80', 'steady:4')
    >>> parse_precondition("used:1y,daily=10GB").text
    'used:365d,daily=10GB,filled=75,random=12,trim=yes'
    """
    try:
        return _core.Precondition(text)
    except ConfigError:
        if os.path.exists(text):  # noqa: PTH110 - `Path.exists` fails for a text that is too long for a name
            return Path(text)
        raise


def no_trace(text: str, device: str) -> _core.Precondition:
    """Parse a preconditioning that must not be a trace; `device` names the device in the error message."""
    parsed = parse_precondition(text)
    if isinstance(parsed, Path):
        raise ConfigError(
            f"{device} cannot be preconditioned by a trace",
            field="precondition",
            hint="precondition with none, sequential:PCT, random:PCT, steady[:CAPACITIES] or used:AGE",
        )
    return parsed
