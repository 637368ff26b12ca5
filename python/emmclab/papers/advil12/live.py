"""Advil on a served device: measures the claims of Kim & Kim with the study `advil-live`."""

from collections.abc import Iterable

from emmclab.papers.advil12.bandwidth import SEQUENTIAL, gains
from emmclab.papers.measures import Measurement, measure, table
from emmclab.studies.results import Results

#: Suffix of the grids that run models of the programs instead of the programs.
SIMULATED = "-simulated"
#: Programs of the paper whose performance is changed by a layer.
_CHANGED = ("RandomWrite", "Postmark")
#: Columns of Table II, by fio's name of the access mode.
COLUMNS = {
    "read": "seq_read_mb_s",
    "write": "seq_write_mb_s",
    "randread": "random_read_mb_s",
    "randwrite": "random_write_mb_s",
}
#: Device on which the programs of the study run, as named in Table II.
_DEVICE = "eMMC"


def modelled(results: Results, grid: str, names: Iterable[str], over: str = "bare") -> dict[str, float]:
    """Return the gain of a layer in simulated runs of programs, for the programs that have a model."""
    with_model = [run.input for run in results.select(grid + SIMULATED)]
    selected = [name for name in names if name in with_model]
    return gains(results, grid + SIMULATED, over + SIMULATED, selected) if selected else {}


def _comparison(results: Results, names: Iterable[str], over: str = "bare") -> str:
    """Describe gains of two other setups beside a live run: log drained at the end, and models of the programs."""
    names = list(names)
    drained = gains(results, "advil", over, names, drained=True)
    models = modelled(results, "advil", names, over)
    parts = [f"with the log drained at the end {_gains_text(drained)}"]
    if models:
        parts.append(f"with models of the programs under the same layers {_gains_text(models)}")
    return f"Until the last request; {'; '.join(parts)}."


def _gains_text(ratios: dict[str, float]) -> str:
    return ", ".join(f"{name} {gain:.2f}x" for name, gain in ratios.items())


@measure
def advil_postmark(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for Postmark (Figure 7)."""
    gain = gains(results, "advil", names=["Postmark"])["Postmark"]
    bare = results.run("bare", input="Postmark").requests
    note = (
        f"Postmark wrote {bare.bytes_written / 2**20:,.0f} MB in requests of "
        f"{bare.bytes_written / 1024 / max(bare.write, 1):,.0f} KB on average: the kernel of this host "
        "merges writes in its page cache, and commits every 5 s of the host's time, not of simulated time; "
        "the effect of this was not measured. Unlike the layers of the "
        "paper, these layers also write the metadata that they need for recovery."
    )
    return Measurement(f"{gain:.2f}x", {"gain": gain}, f"{note} {_comparison(results, ['Postmark'])}")


@measure
def advil_sequential(results: Results) -> Measurement:
    """Measure the gain in write bandwidth for sequential writes (Figure 7)."""
    gain = gains(results, "advil", names=[SEQUENTIAL])[SEQUENTIAL]
    return Measurement(
        f"{gain:.3f}x",
        {"gain": gain},
        "A served layer adds no simulated time itself. This tests that Advil logs and moves little because of "
        "the metadata writes of the file system.",
    )


@measure
def advil_over_ressd(results: Results) -> Measurement:
    """Compare the write bandwidth of Advil with that of ReSSD (Figure 7)."""
    ratios = gains(results, "advil", "ressd", _CHANGED)
    return Measurement(_gains_text(ratios), {"least": min(ratios.values())}, _comparison(results, ratios, "ressd"))


def rates(results: Results) -> dict[tuple[str, int], float]:
    """Return the bandwidth of direct I/O on a file in MB/s, by fio mode and request size in KB."""
    measured = {}
    for run in results.select("table2"):
        _, mode, kb = run.input.split()
        transferred = run.requests["bytes_read" if mode.endswith("read") else "bytes_written"]
        measured[mode, int(kb)] = transferred / 2**20 / run.run.simulated_s
    return measured


def published_rates() -> dict[tuple[str, int], float]:
    """Return the bandwidths of the eMMC in Table II of the Advil paper, by fio mode and request size in KB."""
    rows = [row for row in table("advil12_table2_bandwidth") if row["device"] == _DEVICE]
    return {(mode, int(row["unit_kb"])): float(row[column]) for row in rows for mode, column in COLUMNS.items()}


@measure
def advil_ratios(results: Results) -> Measurement:
    """Measure the bandwidth ratios of Table II: sequential read to clustered write, clustered to random 4 KB write."""
    measured, paper = rates(results), published_rates()
    write = measured["read", 4096] / measured["write", 4096]
    random = measured["write", 4096] / measured["randwrite", 4]
    worst = max(paper, key=lambda key: abs(measured[key] / paper[key] - 1))
    return Measurement(
        f"{write:.1f}x, {random:.1f}x",
        {"write": write, "random": random},
        f"Of the {len(paper)} bandwidths of Table II, {worst[0]} of {worst[1]} KB differs most: "
        f"{measured[worst]:.2f} MB/s instead of {paper[worst]:.2f}. A file on ext4 takes the place of the bare device, "
        "and the loop device splits requests above 512 KB.",
    )
