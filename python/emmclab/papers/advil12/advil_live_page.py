"""The HTML page of the study `advil-live`: Figure 7 and Table II of the paper, with real programs."""

from collections.abc import Mapping, Sequence

from emmclab.pages.plots import Rows
from emmclab.papers.advil12.bandwidth import PUBLISHED, VARIANTS, bandwidths, gains
from emmclab.papers.advil12.live import SIMULATED, modelled, published_rates, rates
from emmclab.papers.pages import Drawing, PageContent, bars_by_trace
from emmclab.runtime.document import Cells, Number, TextTable, number_cell, signed
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

_LAYERS = ("ressd", "advil")
_MODES = {
    "read": "sequential read",
    "write": "sequential write",
    "randread": "random read",
    "randwrite": "random write",
}


def content(results: Results, _measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    runs = [run for grid in ("bare", *_LAYERS) for run in results.select(grid)]
    return PageContent(
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} runs. Only the time of the device is "
            "measured, not that of the host.",
            "Direct I/O of one request at a time is affected only by the commits of the file system. Postmark "
            "and SQLite depend on when the kernel of the host writes back, so their figures differ from run "
            "to run. Unlike the layers of the paper, these layers also write the metadata that they need to "
            "recover after a loss of power.",
        ],
        facts=_facts(runs),
        tables=[*_bandwidths(results).titled(), *_requests(runs).titled(), *_table2(results).titled()],
    )


def _bandwidths(results: Results) -> TextTable:
    rows: list[Cells] = []
    for name, rate in bandwidths(results, "bare").items():
        layers = [_gain(results, grid, name) for grid in _LAYERS]
        rows.append([name, number_cell(rate, 3), *layers, number_cell(PUBLISHED.get(name), 1)])
    title = (
        "Write bandwidth, and gain of the layers: until the last request (with the log drained; with a model of the "
    )
    labels = [f"{VARIANTS[grid]}, x" for grid in _LAYERS]
    headings = ["Program", "Bare, MB/s", *labels, "Advil as published, x"]
    return TextTable(f"{title}the program)", headings, rows, style="sortable")


def _table2(results: Results) -> TextTable:
    measured = rates(results)
    rows: list[Cells] = [
        [
            _MODES[mode],
            str(kb),
            str(rate),
            number_cell(measured[mode, kb], 2),
            signed(100 * (measured[mode, kb] / rate - 1)),
        ]
        for (mode, kb), rate in published_rates().items()
    ]
    title = "Table II: the bare eMMC as published, and by direct I/O on a file of ext4. The device was fitted to this"
    headings = ["Requests", "Unit, KB", "Published, MB/s", "Here, MB/s", "Difference, %"]
    return TextTable(f"{title} table, so that it is restated", headings, rows, style="sortable")


def _gain(results: Results, grid: str, name: str) -> Number:
    until, drained = (gains(results, grid, names=[name], drained=drain)[name] for drain in (False, True))
    model = number_cell(modelled(results, grid, [name]).get(name), 2)
    return Number(f"{until:.2f} ({drained:.2f}; {model.text})", until)


def _requests(runs: Sequence[Run]) -> TextTable:
    rows: list[Cells] = []
    for run in runs:
        writes, kb = run.requests.write, run.requests.bytes_written / 1024
        figures = [number_cell(writes), number_cell(kb / 1024, 1), number_cell(kb / max(writes, 1), 1)]
        times = [number_cell(run.run[key], 1) for key in ("simulated_s", "drain_s")]
        rows.append([run.input, VARIANTS.get(run.grid, "none"), *figures, *times])
    headings = ["Program", "Layer", "Writes", "Written, MB", "Mean write, KB"]
    title = "Requests of the programs to the device"
    return TextTable(title, [*headings, "Time, s", "Drain, s"], rows, 2, "sortable")


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the file system and the tools of the host as lines of the provenance."""
    tools = sorted({item for run in runs for item in run.live["host"].items()})
    facts = [("Host", ", ".join(f"{name} {text}" for name, text in tools))]
    if runs:
        file_system = runs[0].live["file_system"]
        text = f"{file_system['format']}, mounted with {file_system['mount_options']}, "
        text += f"at most {file_system['dirty_mb']} MB of dirty data in the page cache"
        facts.append(("File system", text))
    return facts


def drawings(results: Results) -> list[Drawing]:
    """Draw Figure 7, with live results next to simulated ones."""
    rows: Rows = []
    for grid in _LAYERS:
        for suffix, variant in (("", "live"), (SIMULATED, "model")):
            for name, gain in gains(results, grid + suffix, "bare" + suffix).items():
                published = PUBLISHED.get(name) if (grid, suffix) == ("advil", "") else None
                label = f"{VARIANTS[grid]}, {variant}"
                rows.append({"trace": name, "layer": label, "gain": gain, "published": published})
    order = [f"{VARIANTS[grid]}, {variant}" for grid in _LAYERS for variant in ("live", "model")]
    bars = bars_by_trace(rows, "gain", "of the bare device", "layer", order=order, published="published")
    about = "Bars: programs on ext4 on a served device, and models of them, until the last request. "
    about += "Diamonds: figures in the text of the paper."
    title = "Figure 7: write bandwidth over the bare device"
    return [Drawing("figure7", title, about, rows, bars, "Advil12 Fig.7", wide=True)]
