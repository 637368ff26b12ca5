"""What is written to a device whose lifetime is estimated: a trace, a pattern, and how much of it in a day."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emmclab.errors import ConfigError
from emmclab.runtime.document import decimal_size
from emmclab.traces.trace import Trace
from emmclab.traces.workload import pattern

DAY_S = 86_400.0
YEAR_S = 365.25 * DAY_S
#: Number of requests in a pass of a made load.
_PASS_REQUESTS = 1024
#: Size of the smallest usual write of a file system, bytes.
_SMALL = 4096
#: Size of a usual page of flash, bytes.
SMALL_BYTES = 16_384
#: Factor on the rate of arrivals that puts the writes of a day into an hour.
_WITHIN_AN_HOUR = 24.0
#: Number of writes that an application writes at once, if it batches them.
_BATCHED = 8
#: Range of the option `rate` of a run.
RATES = (1e-6, 1e6)


@dataclass(frozen=True)
class LoadChange:
    """A change of the software that writes a load, with its price; without a load, `price` is the reason."""

    name: str
    about: str
    load: "Load | None"
    price: str


@dataclass(frozen=True)
class Writer:
    """A process or file that writes a part of a load.

    Attributes:
        name: name of the process or file.
        about: what it is, if its name does not tell it.
        written: bytes that it writes in a pass.
        requests: number of its writes in a pass.
        small_pct: share of its writes that are smaller than a usual page of flash, in percent; None if not known.
        sequential_pct: share of its writes that begin where its previous one ended, in percent; None if not known.
        without: the load without its writes; None if it is not known.
    """

    name: str
    about: str
    written: float
    requests: int
    small_pct: float | None
    sequential_pct: float | None
    without: "Load | None" = None


@dataclass(frozen=True)
class Load:
    """What is written to a device, as a trace that can be repeated, and how much of it in a day.

    Attributes:
        name: name for people.
        trace: returns the trace of a number of passes, made with a seed.
        pass_bytes: bytes that a pass writes.
        daily_bytes: bytes written in a day.
        origin: where the daily amount is from.
        rate: factor on the rate of arrivals that writes the daily amount in a day.
        mode: replay mode: `open`, or `back_to_back` if the load has no times.
        flush_every: number of writes between two added flushes; 0 for none.
        is_made: whether the trace is a pattern.
        is_random: whether the trace depends on the seed.
        touched_bytes: bytes of the addresses that are written; None if not known.
        hours: recorded time that stands for a day, in hours; None if the daily amount is given.
        changes: returns what other software would write; a folder holds its requests.
        writers: returns who writes, the largest first; empty if it is not known.
        others: loads that are equally possible, each with the assumption and what is assumed here and there.
    """

    name: str
    trace: Callable[[int, int], Trace]
    pass_bytes: float
    daily_bytes: float
    origin: str
    rate: float = 1.0
    mode: str = "open"
    flush_every: int = 0
    is_made: bool = False
    is_random: bool = False
    touched_bytes: float | None = None
    hours: float | None = None
    changes: Callable[[Path], Iterable["LoadChange"]] | None = None
    writers: Callable[[Path], Sequence["Writer"]] | None = None
    others: tuple[tuple[str, str, str, "Load"], ...] = ()

    @property
    def passes_per_year(self) -> float:
        """Number of passes of the load in a year."""
        return YEAR_S / DAY_S * self.daily_bytes / self.pass_bytes


def load_of_trace(trace: Trace, daily_bytes: float | None = None, flush_every: int = 0) -> Load:
    """Return the load of a trace, as fast as recorded, or stretched or compressed to a daily amount.

    Raises:
        ConfigError: the trace writes nothing, or has no times and no daily amount is given.
    """
    profile = trace.profile()
    written = 1024.0 * sum(row["data_kb"] for row in profile["by_operation"] if row["op"] == "write")
    if not written:
        raise ConfigError(
            f"{trace.name} writes nothing, so it wears no flash",
            field="SOURCE",
            hint="record the device while it is written, or give --daily without a source",
        )
    seconds = 0.0 if trace.is_job_file else profile["duration_s"] or 0.0
    has_times = seconds > 0
    if not has_times and daily_bytes is None:
        raise ConfigError(
            f"{trace.name} has no times, so the amount that it writes in a day is not known",
            field="--daily",
            hint="give the amount, for example --daily 5GB",
        )
    natural = written / seconds * DAY_S if has_times else 0.0
    rate = 1.0 if daily_bytes is None or not has_times else daily_bytes / natural
    if not RATES[0] <= rate <= RATES[1]:
        raise ConfigError(
            f"{trace.name} writes {decimal_size(natural)} a day, which cannot be scaled to "
            f"{decimal_size(daily_bytes or 0)}",
            field="--daily",
            hint="give an amount nearer to the recorded one, or describe the load with --pattern",
        )
    touched = profile["working_set"]["written_kb"] if "working_set" in profile else None
    load = Load(
        name=trace.name,
        trace=lambda passes, _seed: trace.repeated(passes) if passes > 1 else trace,
        pass_bytes=written,
        daily_bytes=natural if daily_bytes is None else daily_bytes,
        origin="given" if daily_bytes is not None else f"as recorded in {hours_text(seconds / 3600)}",
        rate=rate,
        mode="open" if has_times else "back_to_back",
        flush_every=flush_every,
        touched_bytes=None if touched is None else 1024.0 * touched,
        hours=seconds / 3600 if daily_bytes is None else None,
    )
    if rate >= 1.0 or not has_times:
        return load
    own_pace = ("pauses", "the writes of a day are spread over the day", "they come as fast as recorded")
    return replace(load, others=((*own_pace, replace(load, rate=1.0)),))


def load_of_pattern(
    daily_bytes: float,
    *,
    is_sequential: bool = False,
    size: int = 4096,
    span: int = 1 << 30,
    flush_every: int = 0,
    origin: str = "given",
    name: str = "",
    is_mean_size: bool = False,
) -> Load:
    """Return a load of equal writes that are spread over the day.

    Args:
        daily_bytes: bytes written in a day.
        is_sequential: whether each write starts where the previous one ended; otherwise addresses are random.
        size: bytes of a write.
        span: bytes of the address range.
        flush_every: number of writes between two flushes; 0 for none.
        origin: where the daily amount is from.
        name: name for people; empty for one that describes the pattern.
        is_mean_size: whether the size is a mean, so that a smaller one is tried, too.
    """

    def made(*, sequential: bool, size: int) -> Load:
        return Load(
            name=name or f"{'sequential' if sequential else 'random'} writes of {size / 1024:g} KB",
            trace=lambda passes, seed: pattern(
                _PASS_REQUESTS * passes,
                seed=seed,
                reads_pct=0,
                size=size,
                span=span,
                random_pct=0 if sequential else 100,
                iops=daily_bytes / DAY_S / size,
            ),
            pass_bytes=float(_PASS_REQUESTS * size),
            daily_bytes=daily_bytes,
            origin=origin,
            flush_every=flush_every,
            is_made=True,
            is_random=not sequential,
            touched_bytes=float(span),
        )

    def changes(_folder: Path) -> Iterable[LoadChange]:
        batched = load_of_pattern(
            daily_bytes,
            is_sequential=is_sequential,
            size=_BATCHED * size,
            span=span,
            flush_every=max(1, flush_every // _BATCHED) if flush_every else 0,
        )
        at_risk_s = _BATCHED * size / daily_bytes * DAY_S
        price = f"the application loses up to {at_risk_s:,.3g} s of data with the power"
        yield LoadChange("batching", f"{_BATCHED} writes at once", batched, price)
        reason = (
            "not known: an amount does not say what is a journal or which program writes; give a recording or --app"
        )
        for name in ("commit interval", "write-ahead log", "noatime", "log2ram"):
            yield LoadChange(name, "", None, reason)

    words = ("sequential", "random") if is_sequential else ("random", "sequential")
    load = made(sequential=is_sequential, size=size)
    other = made(sequential=not is_sequential, size=size)
    others = [
        ("addresses", f"{words[0]} in {span / 2**30:g} GB", f"they are {words[1]}", other),
        (
            "pauses",
            "the writes of a day are spread over the day",
            "all come within an hour",
            replace(load, rate=_WITHIN_AN_HOUR),
        ),
    ]
    if is_mean_size and size > _SMALL:
        small = made(sequential=is_sequential, size=_SMALL)
        others.append(("sizes", f"all writes have the mean size of {size / 1024:g} KB", "they have 4 KB", small))
    return replace(load, others=tuple(others), changes=changes)


def hours_text(hours: float) -> str:
    """Return a recorded time as text.

    >>> hours_text(0.0097), hours_text(6), hours_text(48)
    ('34.9 s', '6 h', '2 days')
    """
    if hours >= 48:
        return f"{hours / 24:.3g} days"
    return f"{hours:.3g} h" if hours >= 1 else f"{60 * hours:.3g} min" if hours >= 0.1 else f"{3600 * hours:.3g} s"
