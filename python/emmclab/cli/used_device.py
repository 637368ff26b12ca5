"""`--used`: a device as used by a phone; its daily writes may be derived from the traces or a fleet."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from emmclab.cli.declared_options import option
from emmclab.errors import ConfigError
from emmclab.simulation.preconditioning import parse_precondition
from emmclab.traces.trace import Trace

Used = Annotated[
    str | None,
    option(
        "A device that a phone has used for AGE (90d, 18mo, 2y); the same as --precondition used:AGE. "
        "daily=2GB: bytes written a day, or hours of the traces a day (4h), or the table of a fleet; "
        "filled=75, random=12: percent; trim=yes.",
        "Replay",
        advanced=True,
        metavar="AGE[,KEY=VALUE...]",
    ),
]
_DAILY = re.compile(r"(?<=,)daily=([^,]*)")
_HOURS = re.compile(r"(\d+(?:\.\d+)?)h")
_DAY_S = 86_400
_AGES = "give an age such as 90d, 8w, 18mo or 2y, then daily=SIZE, filled=PCT, random=PCT or trim=no"
_HINT = "give bytes a day (daily=2GB), hours of the traces a day (daily=4h), or the table of a fleet"


def preconditioned(precondition: str, used: str | None, traces: Sequence[Trace] = ()) -> str:
    """Return the preconditioning as text: `precondition`, or `used:...` if `used` is given.

    Raises:
        ConfigError: the daily writes cannot be determined.
    """
    if used is None:
        return precondition
    text = "used:" + _DAILY.sub(lambda found: f"daily={_daily(found[1], traces)}", used)
    try:
        parse_precondition(text)
    except ConfigError as error:
        problem = str(error).removeprefix("field `precondition`: ")
        raise ConfigError(problem, field="--used", hint=_AGES) from None
    return text


def _daily(text: str, traces: Sequence[Trace]) -> str:
    """Return the daily writes as a size; compute them if hours of the traces or a fleet table are given."""
    if hours := _HOURS.fullmatch(text):
        return _size(float(hours[1]) / 24 * _of_traces(text, traces))
    return _size(_of_fleet(Path(text))) if Path(text).is_file() else text


def _of_traces(text: str, traces: Sequence[Trace]) -> float:
    """Return the bytes that traces write in a day without a pause."""
    if any(trace.is_pipe for trace in traces):
        raise _unknown(text, "a trace from a pipe cannot be read twice")
    written = [_write_volume(trace) for trace in traces]
    seconds = sum(duration_s for _, duration_s in written)
    if not seconds:
        raise _unknown(text, "there is no trace with a duration")
    return 1024 * sum(data_kb for data_kb, _ in written) / seconds * _DAY_S


@functools.cache
def _write_volume(trace: Trace) -> tuple[float, float]:
    """Return the KB that a trace writes and its duration in seconds; cached, since each run needs them."""
    profile = trace.profile()
    writes = (row["data_kb"] for row in profile["by_operation"] if row["op"] == "write")
    return sum(writes), profile["duration_s"] or 0.0


def _of_fleet(path: Path) -> float:
    """Return the median over the recordings of a fleet of the bytes written in a day."""
    # Imported here, because these imports take time that other runs need not spend.
    from statistics import median

    from emmclab.fleet.table import Table

    rows = Table(path).recordings(["write_data_kb", "duration_s"])
    rates = [1024 * written / seconds for written, seconds in rows if written is not None and seconds]
    if not rates:
        raise _unknown(str(path), "it holds no recording with a duration")
    return float(median(rates)) * _DAY_S


def _size(amount: float) -> str:
    return f"{amount / 2**20:.2f}MB"


def _unknown(value: str, reason: str) -> ConfigError:
    return ConfigError(f"`daily={value}`: the daily writes are unknown, because {reason}", field="--used", hint=_HINT)
