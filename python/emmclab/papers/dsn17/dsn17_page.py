"""The page of `dsn17`: claims, applications under each mode, and the gain of each feature."""

from collections.abc import Sequence

from emmclab.pages.plots import Rows
from emmclab.papers.claims import Claim
from emmclab.papers.dsn17.journaling import BASE, CPU_FACTOR, DEVICES, MODES, SAFE, durable_pct, ideal_run, seconds
from emmclab.papers.pages import Drawing, assemble_page, bars_by_trace, ledger_table
from emmclab.runtime.document import Cells, Note, Number, TextTable, number_cell
from emmclab.runtime.number_format import signed
from emmclab.studies.results import Results
from emmclab.traces.profile import Profile


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing]) -> str:
    """Return the page; the same results give the same bytes."""
    measured = {claim.id: claim.measured for claim in judged}
    return assemble_page(
        results,
        judged,
        drawn,
        answer="Against the journal as ext4 has it, all three features together change the speed of "
        f"applications by {measured['dsn17-gain']}; against ext4 without a journal they cost "
        f"{measured['dsn17-ideal']}.",
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} profiles and simulations of "
            f"{len(_inputs(results))} programs on ext4, with its journal and without. "
            "The mechanisms are our design, the claims are the paper's: its sections on design and "
            "implementation are not at hand.",
            "Recorded on the kernel's ext4 on a served device whose clock stands still between requests, and "
            "replayed in closed loop: what a request waited for, it waits for here. A run time is that of "
            "the requests and of the processor between them, measured on the recording machine and "
            f"assumed to be {CPU_FACTOR:g} times as long on a phone. Claims are judged on four applications; "
            "benchmarks of SQLite and of new files are shown. Devices are new.",
        ],
        tables=[
            *(part for device in DEVICES for part in _gained(results, device).titled()),
            *(part for device in DEVICES for part in _work(results, device).titled()),
            Note(
                "Lifetime is spent by page programs: erases follow from them, and runs this short begin few blocks. "
                "WAF is bytes programmed over bytes that reached the device, so that a mode which sends fewer may "
                "have a higher one."
            ),
        ],
        ledger=[ledger_table(results, Commits=_commits)],
    )


def _commits(profile: Profile) -> Number:
    journal = profile.get("journal")
    return number_cell(journal["commits"]["commits"] if journal else None)


def _inputs(results: Results) -> list[str]:
    """Return the programs and the user's own traces, without the recordings on ext4 without a journal."""
    return [name for name in results.inputs if name.removesuffix("-no-journal") == name]


def _gained(results: Results, device: str) -> TextTable:
    """Return for each input the seconds in `legacy`, and by how many percent each other mode is faster."""
    rows: list[Cells] = []
    for name in _inputs(results):
        base = seconds(results.run(BASE, input=name, device=device))
        found = [seconds(results.run(mode, input=name, device=device)) for mode in MODES if mode != BASE]
        gains = [100 * (base / one - 1) for one in (*found, seconds(ideal_run(results, name, device)))]
        rows.append([name, number_cell(base, 3), *(Number(signed(gain), gain) for gain in gains)])
    modes = {**MODES, "ext4 without a journal": "its metadata written in place (unsafe)"}
    columns = [f"{mode}, s" if mode == BASE else f"{mode}: {words}, %" for mode, words in modes.items()]
    title = f"{device}: time as ext4 asks, and how much faster each mode is"
    return TextTable(title, ["Application", *columns], rows, style="sortable")


def _work(results: Results, device: str) -> TextTable:
    """Return for each input and mode the device's work and the time of durable requests."""
    rows: list[Cells] = [
        [
            name,
            mode,
            number_cell(run["durable"]["requests"]),
            number_cell(run["durable"]["p50_ms"], 3),
            number_cell(run["durable"]["p99_ms"], 3),
            number_cell(durable_pct(run), 1),
            number_cell(run["requests"]["bytes_written"] / 2**20, 1),
            number_cell(run["flash"]["page_programs"]["total"]),
            number_cell(run["write_amplification"]["waf"], 2),
            number_cell(run["flash"]["block_erases"]),
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
        "is not safe; of a trace of your own it is the bound no_journal.",
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
    about = "By the roles of the blocks that ext4 wrote."
    return Drawing("shares", "Written bytes by role", about, rows, bars, wide=True)
