"""Simulates the modes of the layer `journal` under a trace with roles of blocks: gain and cost of each mode."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from emmclab.comparison.seed_statistics import is_random_run, order_of, untested
from emmclab.errors import ConfigError
from emmclab.runtime.document import change_pct, signed
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import shown_fields
from emmclab.simulation.result_text import ended_early, trusted
from emmclab.traces.trace import Trace

#: Figures that are shown for each mode: time, mean response, flushes of dirty data, and programmed pages.
MODE_FIGURES = shown_fields(
    ("run.simulated_s", "response.mean_response_ms", "cache.flushes", "flash.page_programs.total")
)
#: Modes of the layer `journal` that are compared.
MODES = ("ordered_fua", "delta", "packed", "aware")


@dataclass(frozen=True)
class ModeAdvice:
    """Effect of one mode of the layer `journal` under a trace, compared with the device without the layer."""

    mode: str
    #: Simulated time of the run, in seconds.
    run_s: float
    run_change_pct: float
    mean_response_ms: float
    mean_change_pct: float
    #: Flushes that found dirty data in the cache of the device.
    flushes: int
    #: Number of flash pages programmed, for any reason.
    page_programs: int
    page_programs_change_pct: float
    #: Data that the host can write until the flash is worn out, in GB; None if not requested or not known.
    life_gb: float | None
    #: Whether the result is reliable: the device served all requests and kept up with their arrivals.
    trusted: bool
    note: str
    #: Simulated time of the run for each random seed, in seconds.
    by_seed: dict[int, float]


@dataclass(frozen=True)
class JournalAdvice:
    """The modes of the layer `journal`, sorted by the time of the run, or the reason why none could be compared."""

    modes: list[ModeAdvice] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    #: Whether the results depend on the random seed.
    is_random: bool = True

    @property
    def headline(self) -> str:
        """Return the best mode of the layer `journal` and its effect, or the reason why none could be compared."""
        sound = [mode for mode in self.modes if mode.trusted]
        if self.reason or not sound:
            return f"Layer below the journal: {self.reason or 'no mode serves the trace to its end'}"
        best = sound[0]
        line = (
            f"Layer below the journal: journal:{best.mode}: {signed(best.run_change_pct)} % time, "
            f"{signed(best.page_programs_change_pct)} % pages programmed, {best.flushes:,} flushes"
        )
        order = order_of([mode.by_seed for mode in sound], is_random=self.is_random)
        if order.indistinguishable:
            names = ", ".join(sound[place].mode for place in order.indistinguishable)
            line += f"; not told apart by time: {names}"
        return line if order.is_tested or len(sound) < 2 else f"{line}; {untested('--seeds 5')}"

    def to_dict(self) -> dict[str, object]:
        """Return all fields as a dictionary of JSON values."""
        return asdict(self)


def advise_journal(
    device: Device,
    traces: Sequence[Trace],
    base: Mapping[int, Result],
    life_gb: Callable[[Sequence[str]], float | None],
    **replay: Any,
) -> JournalAdvice:
    """Run every mode of the layer `journal` on a device.

    `base` contains the runs without this layer, by seed. Each mode runs with the same seeds. `life_gb` returns the
    lifetime with a stack of layers.

    Raises:
        EmmclabError: a trace cannot be read.

    >>> import emmclab
    >>> device, trace = Device.preset("emmc51-cache"), emmclab.read(emmclab.bundled()[0])
    >>> advise_journal(device, [trace], {1: device.simulate(trace)}, lambda _layers: None).reason
    'roles of blocks are not known, because browser-cache has no block notes'
    """
    for trace in traces:
        if not trace.header["block_notes"]:
            return JournalAdvice(reason=f"roles of blocks are not known, because {trace.name} has no block notes")
    advices, refused = [], {}
    for mode in MODES:
        layers = [f"journal:{mode}"]
        try:
            # The layer stores its log at the end of the device. Some requests of the trace may use addresses there, so
            # addresses wrap.
            runs = {
                seed: device.simulate(*traces, layers=layers, **replay | {"wrap_addresses": True, "seed": seed})
                for seed in base
            }
            if not any(run.layers[0]["commits"] for run in runs.values()):
                return JournalAdvice(reason="the trace has no commit of a journal")
            advices.append(_advice(mode, base, runs, life_gb(layers)))
        except ConfigError as error:
            refused[mode] = str(error)
    ranked = sorted(advices, key=lambda advice: (not advice.trusted, advice.run_s, advice.page_programs, advice.mode))
    return JournalAdvice(ranked, refused, is_random=any(map(is_random_run, base.values())))


def _wrapped(base: Result, run: Result) -> str:
    """Return a sentence with the share of requests in the layer's log area; empty if there are none."""
    share = run.requests.wrapped_pct - base.requests.wrapped_pct
    return f"{share:.2g} % of the requests lie in the layer's own log and were wrapped" if share else ""


def _advice(mode: str, base: Mapping[int, Result], runs: Mapping[int, Result], life_gb: float | None) -> ModeAdvice:
    def mean(results: Mapping[int, Result], path: str) -> float:
        return sum(run[path] or 0 for run in results.values()) / len(results)

    def change(path: str) -> float:
        return change_pct(mean(base, path), mean(runs, path)) or 0.0

    doubts = [text for seed, run in runs.items() for text in (ended_early(run), _wrapped(base[seed], run))]
    return ModeAdvice(
        mode=mode,
        run_s=mean(runs, "run.simulated_s"),
        run_change_pct=change("run.simulated_s"),
        mean_response_ms=mean(runs, "response.mean_response_ms"),
        mean_change_pct=change("response.mean_response_ms"),
        flushes=round(mean(runs, "cache.flushes")),
        page_programs=round(mean(runs, "flash.page_programs.total")),
        page_programs_change_pct=change("flash.page_programs.total"),
        life_gb=life_gb,
        trusted=all(map(trusted, runs.values())),
        note="; ".join(dict.fromkeys(filter(None, doubts))),
        by_seed={seed: run.run.simulated_s for seed, run in runs.items()},
    )
