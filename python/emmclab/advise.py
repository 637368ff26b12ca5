"""Design options tried on one's own trace: what each gains, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from emmclab.device import Device, Result
from emmclab.errors import ConfigError
from emmclab.trace import Trace

#: What options can be ranked by, smaller first but for the lifetime.
ORDERS = ("mean", "p99", "waf", "lifetime")


@dataclass(frozen=True)
class Option:
    """A change of a device: settings by dotted key, and what it means in a sentence."""

    name: str
    about: str
    settings: dict[str, str | float | bool]


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
    #: Bytes that the host can write with perfect levelling, in GB; None without an erase limit or erases.
    lifetime_gb: float | None
    energy_mj: float
    #: Capacity that the host loses.
    capacity_change_pct: float
    #: RAM that the device needs on top.
    ram_kb: int
    #: What the option risks or needs beside that.
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Give all fields."""
        return asdict(self)


_NOTES = {
    "write cache": "written data is lost with the power until a flush",
    "command queue": "needs eMMC 5.1 and a host that uses it",
    "packed writes": "needs eMMC 4.5 and a host that packs",
    "SLC write cache": "SLC mode at half the read and a third of the program and erase time is an assumption",
}


def options(device: Device) -> list[Option]:
    """List the options that make sense for a device; its own settings decide on times and sizes."""
    values = {row["key"]: row["value"] for row in device.explain()}

    def number(key: str) -> float:
        return float(values[key])

    group = "geometry.block_groups.0."
    slc_blocks = max(int(number(group + "blocks") // 8), int(number("gc.hard_free_blocks")) + 3)
    found = [
        Option("packed writes", "the host packs up to 32 waiting writes", {"host.packed_writes": 32}),
        Option("merging", "the host merges neighbours up to 512 KB", {"host.merge_max_kb": 512}),
        Option("command queue", "32 commands inside the device", {"controller.queue_depth": 32}),
        Option("write cache", "512 KB, written back at once", {"cache.size_kb": 512}),
        Option(
            "write cache, 4 MB",
            "4 MB, whole erase blocks leave when room is short",
            {"cache.size_kb": 4096, "cache.policy": "block_lru", "cache.write_back": "when_full"},
        ),
        Option("read cache", "4 MB of data read before", {"cache.read_kb": 4096}),
        Option(
            "collection in pauses",
            "after 10 ms without requests",
            {
                "gc.idle_after_us": 10000,
                "gc.soft_free_blocks": max(
                    int(number("gc.soft_free_blocks")), int(number("gc.hard_free_blocks")) + 2
                ),
            },
        ),
        Option(
            "SLC write cache",
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


def advise(
    device: Device,
    traces: Sequence[Trace],
    *,
    by: str = "mean",
    progress: Callable[[int, int], None] | None = None,
    **replay: Any,
) -> tuple[Result, list[Advice], dict[str, str]]:
    """Try every option on traces; `replay` are options of `Device.simulate`.

    Gives the run of the device as it is, the options in order, best first, and those that the device cannot
    have with the reason.

    Raises:
        ConfigError: there is no such order, or the device cannot run the traces as it is.

    >>> import emmclab
    >>> base, found, refused = advise(Device.preset("nexus5"), [emmclab.read(emmclab.bundled()[0])])
    >>> found[0].mean_change_pct <= found[-1].mean_change_pct
    True
    """
    if by not in ORDERS:
        raise ConfigError(
            f"options cannot be ranked by `{by}`", kind="config", field="by", hint=", ".join(ORDERS)
        )
    wanted = options(device)
    base = device.simulate(*traces, **replay)
    found, refused = [], {}
    for done, option in enumerate(wanted, 1):
        try:
            found.append(_advice(option, base, device.set(option.settings).simulate(*traces, **replay)))
        except ConfigError as error:
            refused[option.name] = str(error)
        if progress is not None:
            progress(done, len(wanted))
    return base, sorted(found, key=lambda advice: (_order(advice, by), advice.option)), refused


def _advice(option: Option, base: Result, run: Result) -> Advice:
    def change(field: str) -> float:
        return 100 * (run[field] / base[field] - 1) if base[field] else 0.0

    name = option.name.partition(",")[0]
    return Advice(
        option=option.name,
        about=option.about,
        settings=option.settings,
        mean_response_ms=run["mean_response_ms"],
        mean_change_pct=change("mean_response_ms"),
        p99_response_ms=run["p99_response_ms"],
        p99_change_pct=change("p99_response_ms"),
        waf=run["waf"],
        lifetime_gb=run["lifetime"]["even_host_bytes"] / 2**30 if run["lifetime"] else None,
        energy_mj=run["energy_mj"],
        capacity_change_pct=change("capacity_bytes"),
        ram_kb=run["ram_kb"] - base["ram_kb"],
        note=f"ended early: {run['stopped']}" if run["stopped"] else _NOTES.get(name, ""),
    )


def _order(advice: Advice, by: str) -> float:
    if by == "lifetime":
        return -(advice.lifetime_gb or 0.0)
    return {"mean": advice.mean_response_ms, "p99": advice.p99_response_ms, "waf": advice.waf}[by]
