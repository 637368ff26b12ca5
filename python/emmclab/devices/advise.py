"""Design options simulated under a trace: the gain and the cost of each."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed, wait
from dataclasses import asdict, dataclass
from typing import Any

from emmclab.devices.advise_journal import JournalAdvice, advise_journal
from emmclab.devices.device import Device
from emmclab.devices.result import Result
from emmclab.devices.result_text import ended_early, much_wrapped, offered, trusted
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.threads import threads
from emmclab.traces.trace import Trace

#: What options can be ranked by, smaller first but for the lifetime, with their names.
ORDERS = {
    "mean": "mean response",
    "p99": "p99 response",
    "waf": "write amplification",
    "lifetime": "lifetime",
}

#: Data on the device where nothing else is said: on a new one, options on collection would change nothing.
USED = "steady:1"


@dataclass(frozen=True)
class Option:
    """A change of a device: settings by dotted key, with a description."""

    name: str
    about: str
    settings: dict[str, str | float | bool]


@dataclass(frozen=True)
class Life:
    """How long a device lives under a trace: measured on it in use, full and overwritten at random once."""

    #: Write amplification there.
    waf: float
    #: Bytes that the host can write until every block has reached its erase limit (perfect levelling), in GB.
    host_gb: float
    #: The same in years at the trace's own rate, bytes over duration; None where that lasts no time.
    years: float | None
    #: How often the trace was replayed, until it had written 1 % of the capacity.
    passes: int


@dataclass(frozen=True)
class Advice:
    """What an option did to a trace, beside the device as it is."""

    option: str
    about: str
    settings: dict[str, str | float | bool]
    mean_response_ms: float
    mean_change_pct: float
    p99_response_ms: float
    p99_change_pct: float
    waf: float
    #: None where it was not asked for, and without an erase limit or collection.
    life: Life | None
    #: None where the device has no figures for it.
    energy_mj: float | None
    #: Capacity that the host loses.
    capacity_change_pct: float
    #: RAM that the device needs on top.
    ram_kb: int
    #: Whether it served the traces to their end, as fast as the requests came.
    trusted: bool
    #: Further risks and needs of the option.
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dictionary of JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Advised:
    """Results: the device as it is, the options, best first, and those refused, with the reason."""

    base: Result
    life: Life | None
    options: list[Advice]
    refused: dict[str, str]
    #: What the options are ranked by: a key of `ORDERS`.
    by: str
    #: The modes of the layer `journal`, which knows what writes are to ext4.
    journal: JournalAdvice

    @property
    def headline(self) -> str:
        """The best option and what it changes, by the figure that the options are ranked by."""
        sound = [advice for advice in self.options if advice.trusted]
        if not sound:
            return (
                "No option serves the trace to its end at this load"
                if self.options
                else "No option is possible"
            )
        best, metric = sound[0], ORDERS[self.by]
        if self.by == "lifetime":
            if best.life is None or self.life is None or not self.life.host_gb:
                return "No lifetime is known: the device does not collect, or has no erase limit"
            change, unit, digits = 100 * (best.life.host_gb / self.life.host_gb - 1), " GB", 0
            before, after = self.life.host_gb, best.life.host_gb
        else:
            before, after = _figure(self.base, self.by), _value(best, self.by)
            change = 100 * (after / before - 1) if before else 0.0
            unit, digits = ("", 3) if self.by == "waf" else (" ms", 2)
        numbers = f"{before:,.{digits}f} -> {after:,.{digits}f}{unit}"
        return f"{best.option}: {change:+.1f} % {metric} ({numbers})"

    @property
    def cautions(self) -> list[str]:
        """Warnings about the ranking: runs that ended early or were overloaded, wrapped addresses."""
        found = []
        if self.base["run.load"]["overloaded"]:
            found.append(
                f"{_overload(self.base)}, so the ranking compares devices that are too slow for the trace; "
                "use a lower --rate or --mode closed"
            )
        if early := ended_early(self.base):
            found.append(f"the device as it is {early}")
        if wrapped := much_wrapped(self.base):
            found.append(wrapped)
        names = [advice.option for advice in self.options if not advice.trusted]
        if names:
            found.append(f"ranked last, because they ended early or were overloaded: {', '.join(names)}")
        return found


_NOTES = {
    "write buffer": "written data is lost with the power until a flush",
    "command queue": "needs eMMC 5.1 and a host that uses it",
    "packed writes": "needs eMMC 4.5 and a host that packs",
    "SLC cache": "SLC mode at half the read and a third of the program and erase time is an assumption",
}


def options(device: Device) -> list[Option]:
    """List the options that make sense for a device; its own settings decide on times and sizes."""
    values = {row["key"]: row["value"] for row in device.explain()}

    def number(key: str) -> float:
        return float(values[key])

    group = "geometry.block_groups.0."
    slc_blocks = max(int(number(group + "blocks") // 8), int(number("gc.low_watermark")) + 3)
    found = [
        Option("packed writes", "the host packs up to 32 waiting writes", {"host.packed_writes": 32}),
        Option(
            "request merging",
            "the host merges requests of neighbouring addresses up to 512 KB",
            {"host.merge_max_kb": 512},
        ),
        Option("command queue", "32 commands inside the device", {"controller.queue_depth": 32}),
        Option("write buffer", "512 KB, written back at once", {"cache.size_kb": 512}),
        Option(
            "write buffer, 4 MB",
            "4 MB, whole erase blocks leave when room is short",
            {"cache.size_kb": 4096, "cache.policy": "block_lru", "cache.write_back": "when_full"},
        ),
        Option("read cache", "4 MB of data read before", {"cache.read_kb": 4096}),
        Option(
            "collection in pauses",
            "after 10 ms without requests",
            {
                "gc.idle_after_us": 10000,
                "gc.high_watermark": max(
                    int(number("gc.high_watermark")), int(number("gc.low_watermark")) + 2
                ),
            },
        ),
        Option(
            "SLC cache",
            "an eighth of the first block group in SLC mode, for writes up to 16 KB",
            {
                "slc.mode": "cache",
                "slc.blocks": slc_blocks,
                "slc.max_kb": 16,
                "slc.read_us": number(group + "read_us") / 2,
                "slc.program_us": number(group + "program_us") / 3,
                "slc.erase_us": number(group + "erase_us") / 3,
                "slc.fold_after_us": 10000,
            },
        ),
        Option("parallel planes", "every plane works for itself", {"timing.parallelism": "both"}),
        Option("static wear levelling", "cold data is moved too", {"wear.levelling": "static"}),
    ]
    return [option for option in found if _changes(option, values)]


def _changes(option: Option, values: dict[str, str]) -> bool:
    """Tell whether an option asks for anything that the device does not have already."""
    planes = [values[f"geometry.{part}"] for part in ("dies_per_chip", "planes_per_die")]
    if option.name == "parallel planes" and planes == ["1", "1"]:
        return False
    return any(values.get(key, "").strip('"') != str(value) for key, value in option.settings.items())


#: Most bytes of the devices in use that runs share.
_IMAGES_BYTES = 4 << 30
_YEAR_S = 365.25 * 86400
#: Share of the capacity that a trace has to write for an estimate of the lifetime, and the most passes.
_LIFE_SHARE = 0.01
_MOST_PASSES = 100


def advise(
    device: Device,
    traces: Sequence[Trace],
    *,
    by: str = "mean",
    lifetime: bool = False,
    progress: Callable[[int, int], None] | None = None,
    jobs: int = 0,
    **replay: Any,
) -> Advised:
    """Try every option on traces; `replay` are options of `Device.simulate`.

    `jobs` simulations run at a time; 0: one for each processor. The results do not depend on it.

    Without `precondition` each device is a used one (`USED`): full, then overwritten at random up to once.
    That takes seconds for each different one and 32 GB, once where `images` names a folder. A device that
    does not collect is new; `precondition="none"` takes new devices. Options whose run ended early or was
    overloaded come last. With block notes, the modes of the layer `journal` are tried too.

    A new device is never collected on a short trace, so it has no lifetime. With `lifetime`, and where
    the options are ranked by it, every option is run once more on a device in use: full, overwritten at
    random once, then under the traces until they have written 1 % of the capacity. That takes seconds for
    each option and 32 GB, once where `images` names a folder.

    Raises:
        ConfigError: there is no such order, or the device cannot run the traces as it is.

    >>> import emmclab
    >>> trace = emmclab.read(emmclab.bundled()[0])
    >>> found = advise(Device.preset("nexus5"), [trace], precondition="none").options
    >>> found[0].mean_change_pct <= found[-1].mean_change_pct
    True
    """
    if by not in ORDERS:
        raise ConfigError(
            f"options cannot be ranked by `{by}`", kind="config", field="by", hint=f"use {', '.join(ORDERS)}"
        )
    lifetime = lifetime or by == "lifetime"
    if replay.get("precondition") is None:
        replay["precondition"] = USED if _collects(device) else "none"
    wanted = options(device)
    found, refused = [], {}
    with _shared(replay), threads(jobs) as pool:
        changed: list[Device] = []
        for option in list(wanted):
            try:
                changed.append(device.set(option.settings))
            except ConfigError as error:
                refused[option.name] = str(error)
                wanted.remove(option)
        # Many options share a device in use; each is made once, and while the base runs.
        made = [pool.submit(_prepare, one, replay) for one in (device, *changed)]
        # A trace that can be read once has been read when the others open it again.
        base = pool.submit(device.simulate, *traces, **replay).result()

        def life(changed: Device, layers: Sequence[str] = ()) -> Life | None:
            return _life(changed, layers, traces, base, replay) if lifetime else None

        def life_gb(layers: Sequence[str]) -> float | None:
            found = life(device, layers)
            return None if found is None else found.host_gb

        def try_out(option: Option, changed: Device) -> Advice:
            return _advice(option, base, changed.simulate(*traces, **replay), life(changed))

        base_life = pool.submit(life, device)
        tried = [pool.submit(try_out, option, one) for option, one in zip(wanted, changed, strict=True)]
        wait(made)
        for done, one in enumerate(as_completed(tried), 1):
            one.exception()
            if progress is not None:
                progress(done, len(tried))
        for option, one in zip(wanted, tried, strict=True):
            try:
                found.append(one.result())
            except ConfigError as error:
                refused[option.name] = str(error)
        journal = advise_journal(device, traces, base, life_gb, **replay)
    ranked = sorted(found, key=lambda advice: (not advice.trusted, _order(advice, by), advice.option))
    return Advised(base, base_life.result(), ranked, refused, by, journal)


@contextlib.contextmanager
def _shared(replay: dict[str, Any]) -> Iterator[None]:
    """Let all runs share preconditioned devices: in the folder that was named, else in a temporary one."""
    if replay.get("images") is not None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="emmclab-advise-") as folder:
        replay |= {"images": folder, "images_limit": _IMAGES_BYTES}
        yield


def _prepare(device: Device, replay: Mapping[str, Any]) -> None:
    """Make a device in use ready for a run; what is wrong with it is reported by the run."""
    with contextlib.suppress(EmmclabError):
        device.precondition(
            replay["images"],
            replay["precondition"],
            seed=replay.get("seed", 1),
            images_limit=replay.get("images_limit"),
        )


def _collects(device: Device) -> bool:
    return next(row["value"] for row in device.explain() if row["key"] == "gc.policy") != '"none"'


def _life(
    device: Device, layers: Sequence[str], traces: Sequence[Trace], base: Result, replay: Mapping[str, Any]
) -> Life | None:
    written = base["requests.bytes_written"]
    if not written or not _collects(device):
        return None
    passes = min(_MOST_PASSES, math.ceil(_LIFE_SHARE * base["configuration.capacity_bytes"] / written))
    aged: dict[str, Any] = {name: replay.get(name) for name in ("images", "images_limit")}
    aged |= {"precondition": USED, "wrap_addresses": True}
    run = device.simulate(*traces, passes=passes, layers=layers, **aged)
    if not run["wear.lifetime"] or run["run.stopped"]:
        return None
    host_bytes = run["wear.lifetime.even_host_bytes"]
    # As fast as possible is not the trace's own rate.
    seconds = 0.0 if base["run.mode"] == "back_to_back" else base["run.simulated_s"]
    years = host_bytes / (written / seconds) / _YEAR_S if seconds else None
    return Life(run["write_amplification.waf"], host_bytes / 2**30, years, passes)


def said(life: Life, base: Result) -> str:
    """Say in a sentence where a lifetime comes from."""
    times = "once" if life.passes == 1 else f"{life.passes} times"
    rate = (
        base["requests.bytes_written"] / base["run.simulated_s"] * 86400 / 2**30
        if base["run.simulated_s"]
        else 0.0
    )
    own = "" if life.years is None else f"; years at the trace's own rate of {rate:,.1f} GB a day"
    return (
        "Lifetime: bytes that the host can write until every block has reached its erase limit, on a used "
        f"device (full, overwritten at random once, then this trace {times}){own}."
    )


def _advice(option: Option, base: Result, run: Result, life: Life | None) -> Advice:
    def change(path: str) -> float:
        return 100 * (run[path] / base[path] - 1) if base[path] else 0.0

    name = option.name.partition(",")[0]
    return Advice(
        option=option.name,
        about=option.about,
        settings=option.settings,
        mean_response_ms=run["response.mean_response_ms"],
        mean_change_pct=change("response.mean_response_ms"),
        p99_response_ms=run["response.p99_ms"],
        p99_change_pct=change("response.p99_ms"),
        waf=run["write_amplification.waf"],
        life=life,
        energy_mj=run["energy.total_mj"],
        capacity_change_pct=change("configuration.capacity_bytes"),
        ram_kb=run["configuration.ram_kb"] - base["configuration.ram_kb"],
        trusted=trusted(run),
        note="; ".join(filter(None, (ended_early(run), _overload(run), _NOTES.get(name, "")))),
    )


def _overload(run: Result) -> str:
    return f"overloaded: {offered(run)} it serves" if run["run.load.overloaded"] else ""


def _order(advice: Advice, by: str) -> float:
    if by == "lifetime":
        return -advice.life.host_gb if advice.life else 0.0
    return _value(advice, by)


def _value(advice: Advice, by: str) -> float:
    return {"mean": advice.mean_response_ms, "p99": advice.p99_response_ms, "waf": advice.waf}[by]


def _figure(result: Result, by: str) -> float:
    paths = {"mean": "response.mean_response_ms", "p99": "response.p99_ms", "waf": "write_amplification.waf"}
    value: float = result[paths[by]]
    return value
