"""The page of the study `dsn17`: applications in each journal mode, and the gain of each feature."""

from collections.abc import Mapping

from emmclab.pages.plots import Rows
from emmclab.papers.dsn17.journaling import (
    BASE,
    CPU_FACTOR,
    DEVICES,
    JUDGED,
    MODES,
    SAFE,
    durable_pct,
    ideal_run,
    program_of,
    seconds,
)
from emmclab.papers.pages import Drawing, PageContent, bars_by_trace, ledger_table
from emmclab.runtime.document import Cells, Note, Number, TextTable, number_cell, signed
from emmclab.studies.results import Results
from emmclab.traces.profile import Profile


def content(results: Results, measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    return PageContent(
        answer="Compared with the unchanged journal of ext4, all three features together change the speed of "
        f"applications by {measured['dsn17-gain']}; compared with ext4 without a journal they cost "
        f"{measured['dsn17-ideal']}.",
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} profiles and simulations of "
            f"{len(_inputs(results))} programs on ext4, with its journal and without. "
            "The mechanisms are our design and the claims are the paper's, because its sections on design and "
            "implementation are not available.",
            "The programs were recorded on the kernel's ext4 on a served device whose clock stops between "
            "requests, and are replayed in closed loop: a request waits for the requests for which it waited "
            "in the recording. A run time is the time of the requests and of the processor between them, which "
            f"was measured on the recording machine and is assumed to be {CPU_FACTOR:g} times as long on a phone. "
            "Claims of the paper are judged on four applications; benchmarks of SQLite and of new files are shown. "
            f"They are judged on {' and '.join(JUDGED)}, of which both the time of a write and that of a flush were "
            "measured, and the weakest verdict counts. Devices are new, and the kernel is Linux 3.10.",
        ],
        tables=[
            *(part for device in DEVICES for part in _gained(results, device).titled()),
            *(part for device in DEVICES for part in _work(results, device).titled()),
            Note(
                "Page programs determine the lifetime: erases follow from them, and runs this short begin few blocks. "
                "WAF is bytes programmed divided by bytes that reached the device, so that a mode that sends fewer "
                "bytes may have a higher WAF."
            ),
        ],
        ledger=[ledger_table(results, Commits=_commits)],
    )


def _commits(profile: Profile) -> Number:
    journal = profile.get("journal")
    return number_cell(journal["commits"]["commits"] if journal else None)


def _inputs(results: Results) -> list[str]:
    """Return the programs and the user's own traces; recordings with the journal elsewhere or none are left out."""
    return [name for name in results.inputs if program_of(name) == name]


def _gained(results: Results, device: str) -> TextTable:
    """Return a table of the run time of each input in mode `legacy` (s), and how much faster other modes are (%)."""
    rows: list[Cells] = []
    for name in _inputs(results):
        base = seconds(results.run(BASE, input=name, device=device))
        mode_seconds = [seconds(results.run(mode, input=name, device=device)) for mode in MODES if mode != BASE]
        gains = [100 * (base / mode_s - 1) for mode_s in (*mode_seconds, seconds(ideal_run(results, name, device)))]
        rows.append([name, number_cell(base, 3), *(Number(signed(gain), gain) for gain in gains)])
    modes = {**MODES, "ext4 without a journal": "its metadata written in place (unsafe)"}
    columns = [f"{mode}, s" if mode == BASE else f"{mode}: {words}, %" for mode, words in modes.items()]
    title = f"{device}: time with the unchanged journal, and how much faster each mode is"
    return TextTable(title, ["Application", *columns], rows, style="sortable")


def _work(results: Results, device: str) -> TextTable:
    """Return a table of the device's work and the time of durable requests, for each input and journal mode."""
    rows: list[Cells] = [
        [
            name,
            mode,
            number_cell(run["durable.requests"]),
            number_cell(run["durable.p50_ms"], 3),
            number_cell(run["durable.p99_ms"], 3),
            number_cell(None if run["durable.mean_ms"] is None else durable_pct(run), 1),
            number_cell(run.requests.bytes_written / 2**20, 1),
            number_cell(run.flash.page_programs.total),
            number_cell(run.write_amplification.waf, 2),
            number_cell(run.flash.block_erases),
        ]
        for name in _inputs(results)
        for mode in MODES
        for run in [results.run(mode, input=name, device=device)]
    ]
    headings = [
        *("Application", "Mode", "Flushes, durable writes", "Median, ms", "p99, ms"),
        *("Share of the time, %", "Written by ext4, MB", "Page programs", "WAF", "Erases"),
    ]
    return TextTable(f"{device}: durable requests, and what the device wrote", headings, rows, 2, "sortable")


def drawings(results: Results) -> list[Drawing]:
    """Draw the gain of each feature on each device, and the parts of the written bytes."""
    return [*(_ablation(results, device) for device in DEVICES), _shares(results)]


def _ablation(results: Results, device: str) -> Drawing:
    ways = {f"{mode}: {MODES[mode]}": mode for mode in SAFE} | {"ext4 without a journal": None}
    rows: Rows = []
    for name in _inputs(results):
        base = seconds(results.run(BASE, input=name, device=device))
        for words, mode in ways.items():
            run = ideal_run(results, name, device) if mode is None else results.run(mode, input=name, device=device)
            rows.append({"trace": name, "mode": words, "faster_pct": 100 * (base / seconds(run) - 1)})
    bars = bars_by_trace(rows, "faster_pct", f"faster than {BASE}, %", "mode", order=list(ways))
    return Drawing(
        f"ablation-{device}",
        f"What each feature gains on {device}",
        f"By how much a program is faster than in mode {BASE}; below 0 it is slower. Ext4 without a journal "
        "is not safe; for a trace of your own, the bound no_journal takes its place.",
        rows,
        bars,
        wide=True,
    )


def _shares(results: Results) -> Drawing:
    rows: Rows = [
        {"trace": name, "kind": row["kind"], "written_pct": row["written_pct"]}
        for name, profile in results.profiles.items()
        if profile.get("journal")
        for row in profile["journal"]["by_kind"]
    ]
    bars = bars_by_trace(rows, "written_pct", "% of written bytes", "kind", columns=4)
    about = "Shares of the roles of the blocks that ext4 wrote."
    return Drawing("shares", "Written bytes by role", about, rows, bars, wide=True)
