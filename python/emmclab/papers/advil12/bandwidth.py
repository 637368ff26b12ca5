"""Compares Advil with ReSSD and the bare device: measures the claims of Kim & Kim with the study `advil12`."""

import functools
import itertools
import json
from collections.abc import Callable, Iterable
from typing import TypedDict

from emmclab.papers.measures import Measurement, measure, table
from emmclab.runtime.document import signed
from emmclab.simulation.device import Device
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: Labels on the page for the grids of the study.
VARIANTS = {
    "ressd": "ReSSD",
    "padding": "Advil, padding only",
    "advil": "Advil",
    "data": "Advil, overwritten data",
    "rewritten": "Advil, rewritten only",
    "recovery": "rewritten only, with recovery",
}
#: Published ratios of Advil to the bare device in the paper's Figure 7.
PUBLISHED = {"WebBench": 3.0, "Postmark": 1.4, "SequentialWrite": 1.0}
#: Workload in the paper's Figure 9 (`DRAWN`), and workloads that the paper calls realistic (`PHONES`).
DRAWN = "Phone_6H"
PHONES = ("Phone_6H", "WebBench")
SEQUENTIAL = "SequentialWrite"
#: All workloads that the paper measures.
WORKLOADS = (SEQUENTIAL, "RandomWrite", "Postmark", *PHONES)
#: Writes of fewer sectors than this (8 KB) are small.
_SMALL = 16
#: Layers whose gain is shown as a function of the length of the recording.
LENGTH_LAYERS = ("ressd", "advil")
#: Cells of the paper's Table II (index of the row, column): random 4 KB writes to the eMMC, and sequential writes to
#: the SD card.
TABLE2_SMALL = ((0, "random_write_mb_s"), (3, "seq_write_mb_s"))
#: Amount of logged data that fills a section of Advil's reserved area: 70 % of 128 MB (section V-E of the paper).
_SECTION_BYTES = (128 << 20) * 7 // 10


def bandwidth(run: Run, *, drained: bool = False) -> float:
    """Return the write bandwidth of the workload in MB/s; if `drained`, its time includes emptying the log.

    The paper does not state what happens to the data that is still in the log at the end of a replay.
    """
    seconds = float(run.run.simulated_s) + (float(run.run.drain_s or 0) if drained else 0.0)
    return float(run.requests.bytes_written) / 2**20 / seconds


def bandwidths(
    results: Results, grid: str, names: Iterable[str] | None = None, *, drained: bool = False
) -> dict[str, float]:
    """Return the write bandwidth in MB/s by workload; without `names`, of all workloads."""
    cells: list[dict[str, str]] = [{}] if names is None else [{"input": name} for name in names]
    return {run.input: bandwidth(run, drained=drained) for cell in cells for run in results.select(grid, **cell)}


def gains(
    results: Results, grid: str, over: str = "bare", names: Iterable[str] | None = None, *, drained: bool = False
) -> dict[str, float]:
    """Return the write bandwidths in the grid `grid` divided by those in the grid `over`, by workload."""
    names = None if names is None else list(names)
    base, layer_rates = (bandwidths(results, grid_name, names, drained=drained) for grid_name in (over, grid))
    return {name: value / base[name] for name, value in layer_rates.items()}


def gain_of(results: Results, name: str, grid: str = "advil", over: str = "bare") -> float:
    """Return the write bandwidth of the runs in `grid` divided by that of the runs in `over`, for one workload."""
    return gains(results, grid, over, [name])[name]


def _of_paper(ratios: dict[str, float]) -> dict[str, float]:
    """Return the gains for the paper's workloads, without the sequential workload and the user's traces."""
    return {name: gain for name, gain in ratios.items() if name in WORKLOADS and name != SEQUENTIAL}


def _gains_text(ratios: dict[str, float], sign: str = "x") -> str:
    if sign == "x":
        return ", ".join(f"{name} {gain:.2f}x" for name, gain in ratios.items())
    return ", ".join(f"{name} {signed(100 * (gain - 1))} %" for name, gain in ratios.items())


def _other_readings(results: Results, names: Iterable[str], over: str = "bare", sign: str = "x") -> str:
    """Describe the gains under other interpretations of the paper.

    In one of them, the log is drained at the end. In the other one, only overwritten data counts as invalidated.
    """
    names = list(names)
    drained = gains(results, "advil", over, names, drained=True)
    data = gains(results, "data", over, names)
    return (
        f"Until the last request. With the log drained at the end: {_gains_text(drained, sign)}. Counting only "
        f"overwritten data as invalidated: {_gains_text(data, sign)}."
    )


def _workloads(results: Results) -> list[str]:
    """Return the paper's workloads, without the sequential workload and the user's traces."""
    return [name for name in results.inputs if name in WORKLOADS and name != SEQUENTIAL]


def _too_little_browsing(results: Results, names: Iterable[str]) -> str:
    """Describe how far WebBench stays below the paper's recording, if it is among the workloads; else empty."""
    if "WebBench" not in names:
        return ""
    logged = results.run("advil", input="WebBench").layers[0]["logged_writes"]
    return (
        f" WebBench logs {logged:,} writes here. In the paper padding is effective for it, which needs a full section, "
        f"that is at least {_SECTION_BYTES // 4096:,} writes of 4 KB: this part of the verdict is about the recording."
    )


def _in_both_readings(
    results: Results,
    names: Iterable[str],
    values: Callable[[dict[str, float]], dict[str, float]],
    over: str = "bare",
    sign: str = "x",
    note: str = "",
) -> Measurement:
    """Measure Advil's gains by workload as the paper's words have it, and beside them with the other hot region."""
    names = list(names)
    ratios, data = (gains(results, grid, over, names) for grid in ("advil", "data"))
    text = f"{note} {_other_readings(results, names, over, sign)}{_too_little_browsing(results, names)}".strip()
    beside = {"If only overwritten data counts as invalidated": values(data)}
    return Measurement(_gains_text(ratios, sign), values(ratios), text, beside=beside)


def _gain(ratios: dict[str, float]) -> dict[str, float]:
    """Return the gain for a single workload."""
    (gain,) = ratios.values()
    return {"gain": gain}


def _range(ratios: dict[str, float]) -> dict[str, float]:
    return {"least": min(ratios.values()), "most": max(ratios.values())}


def _percent(ratios: dict[str, float]) -> dict[str, float]:
    return {f"{name}_pct": 100 * (gain - 1) for name, gain in _range(ratios).items()}


class LengthRow(TypedDict):
    """Gain of a layer over the bare device: up to the last request, and including the final drain of its log."""

    layer: str
    requests: int
    logged_mb: float
    gain: float
    drained: float


def lengths(results: Results) -> list[LengthRow]:
    """Return the gain of each layer for increasing lengths of a recording of browsing."""
    rows: list[LengthRow] = []
    for bare in results.select("length-bare"):
        for layer in LENGTH_LAYERS:
            (run,) = results.select(f"length-{layer}", input=bare.input)
            until, drained = (bandwidth(run, drained=drain) / bandwidth(bare, drained=drain) for drain in (False, True))
            rows.append(
                {
                    "layer": VARIANTS[layer],
                    "requests": run.requests.total,
                    "logged_mb": run.layers[0]["logged_bytes"] / 2**20,
                    "gain": until,
                    "drained": drained,
                }
            )
    return sorted(rows, key=lambda row: (row["requests"], row["layer"]))


def _collecting(run: Run) -> str:
    """Return the share of the mean response time that is spent waiting for garbage collection, as text."""
    return f"{100 * run.waits.gc_ms / run.response.mean_response_ms:.0f} %"


@measure
def advil_web(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for WebBench (Figure 7)."""
    layer = results.run("advil", input="WebBench").layers[0]
    emmc, card = (float(table("advil12_table2_bandwidth")[row][column]) for row, column in TABLE2_SMALL)
    long = [row for row in lengths(results) if row["layer"] == VARIANTS["advil"]]
    long_gains = ", ".join(f"{row['gain']:.2f}x after {row['requests']:,} requests" for row in long)
    bare = results.run("bare", input="WebBench")
    slowest = max(results.select("length-bare"), key=lambda run: run.waits.gc_ms)
    share = layer["logged_bytes"] / results.run("advil", input="WebBench").requests.bytes_written
    note = (
        "The recording is not public; here the browser opens 50 web sites on the model of a phone. "
        f"{100 * share:.0f} % of its bytes are small random writes, {layer['logged_writes']:,} of them, and "
        f"{_collecting(bare)} of the response time of the bare device is garbage collection, which logging "
        "saves. Much longer browsing (240 times 36 minutes, with the mixture of writes of FAST 2012) gains "
        f"more: {long_gains}; there up to {_collecting(slowest)} is garbage collection. According to Table II, "
        f"logging gains at most {card / emmc:.2f}x, for small random writes alone."
    )
    return _in_both_readings(results, ["WebBench"], _gain, note=note)


@measure
def advil_postmark(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for Postmark (Figure 7)."""
    note = "With 72 to 290 log blocks the gain is 1.38 to 1.97 (docs/papers/advil12.md)."
    return _in_both_readings(results, ["Postmark"], _gain, note=note)


@measure
def advil_phones(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for the realistic workloads (Figure 7)."""
    return _in_both_readings(results, PHONES, _range)


@measure
def advil_range(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for every workload but the sequential one (section V-C)."""
    return _in_both_readings(results, _workloads(results), _range)


@measure
def advil_fill(results: Results) -> Measurement:
    """Measure how much is written to the original area while a section of the reserved area fills (section V-E)."""
    layer = results.run("advil", input=DRAWN).layers[0]
    passed = layer["passed_writes"] / max(layer["logged_bytes"] / _SECTION_BYTES, 1e-9)
    return Measurement(
        f"{passed:,.0f} for each {_SECTION_BYTES >> 20} MB logged",
        {"passed": passed},
        f"{layer['passed_writes']:,} writes passed beside {layer['logged_writes']:,} logged.",
    )


@measure
def advil_sequential(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for sequential writes (Figure 7)."""
    gain = gain_of(results, SEQUENTIAL)
    return Measurement(f"{gain:.3f}x", {"gain": gain}, "The simulated layer itself takes no time.")


@measure
def advil_over_ressd(results: Results) -> Measurement:
    """Compare the write bandwidth of Advil with that of ReSSD (Figure 7)."""
    return _in_both_readings(results, _workloads(results), _range, "ressd")


@measure
def advil_padding(results: Results) -> Measurement:
    """Measure the effect of Advil's padding on the write bandwidth (Figure 8)."""
    names = _workloads(results)
    ratios = gains(results, "padding", "ressd", names)
    drained = gains(results, "padding", "ressd", names, drained=True)
    best = max(ratios, key=lambda name: ratios[name])
    values = {"least": min(ratios.values()), "random_is_best": float(best == "RandomWrite")}
    return Measurement(
        _gains_text(ratios),
        values,
        f"Padding helps {best} most. With the log drained at the end: {_gains_text(drained)}."
        + _too_little_browsing(results, names),
    )


@measure
def advil_hot_gain(results: Results) -> Measurement:
    """Measure how much Advil gains on Phone_6H by separating hot data (Figure 8)."""
    return _in_both_readings(results, [DRAWN], _percent, "padding", "%")


@measure
def advil_hot_loss(results: Results) -> Measurement:
    """Measure how much workloads without hot data lose because Advil separates hot data (Figure 8)."""
    return _in_both_readings(results, ("RandomWrite", "Postmark"), _percent, "padding", "%")


@functools.cache
def _bandwidths(device: str, settings: str, page_kb: int, block_kb: int) -> list[dict[str, float]]:
    return Device.named(device).set(json.loads(settings)).bandwidths([4, page_kb, block_kb])


@measure
def advil_ratios(results: Results) -> Measurement:
    """Measure the bandwidth ratios of Table II: sequential read to clustered write, clustered to random 4 KB write."""
    run = results.run("advil", input="RandomWrite")
    settings = json.dumps(run.settings)
    devices = [(run.device, settings), (run.options["second"], "{}")]
    write, random = 0.0, 0.0
    for (device, changed), paper in zip(devices, table("advil12_table1_devices"), strict=True):
        sizes = int(paper["clustered_page_kb"]), int(paper["clustered_block_mb"]) * 1024
        small, _, block = _bandwidths(device, changed, *sizes)
        write = max(write, block["seq_read_mb_s"] / block["seq_write_mb_s"])
        random = max(random, block["seq_write_mb_s"] / small["random_write_mb_s"])
    return Measurement(
        f"{write:.1f}x, {random:.1f}x",
        {"write": write, "random": random},
        "The presets are fitted to the table from which the paper takes these ratios.",
    )


def pattern(results: Results, grid: str) -> list[tuple[int, int]]:
    """Return start and length, in sectors, of the first writes that reach the original area of the disk (Figure 9)."""
    return [(sector, sectors) for sector, sectors in results.run(grid, input=DRAWN).first_writes]


def random_writes(writes: list[tuple[int, int]]) -> int:
    """Count the small writes that do not start where the previous write ended."""
    return sum(
        sectors < _SMALL and before + length != sector
        for (before, length), (sector, sectors) in itertools.pairwise(writes)
    )


@measure
def advil_pattern(results: Results) -> Measurement:
    """Compare the address patterns of writes without and with Advil (Figure 9)."""
    before, after = (random_writes(pattern(results, grid)) for grid in ("bare", "advil"))
    run = results.run("advil", input=DRAWN)
    layer = run.layers[0]
    moved = layer["moved_bytes"] + layer["padded_bytes"]
    blocks = layer["move_block_bytes"] / moved
    pages = layer["move_page_bytes"] / moved
    return Measurement(
        f"{before:,} small random writes of the first {len(pattern(results, 'bare')):,} become {after:,}; "
        f"{100 * (blocks + pages):.0f} % of the mover's bytes are whole clustered blocks ({100 * blocks:.0f} %) or "
        f"multiples of a clustered page ({100 * pages:.0f} %)",
        {"gone_share": 1 - after / max(before, 1), "mover_share": blocks + pages},
        "Padding rounds all writes of the mover up to clustered pages, so that this half follows from the design.",
    )
