"""The page of `dsn17`: claims, applications under each mode, and the gain of each feature."""

from collections.abc import Sequence

import altair as alt

from emmclab.pages.plots import Rows, chart_of
from emmclab.papers.claims import Claim
from emmclab.papers.dsn17.journaling import BASE, CPU_FACTOR, DEVICES, MODES, SAFE, durable_pct, ideal_run, seconds
from emmclab.papers.page_charts import Drawing
from emmclab.papers.pages import assemble_page
from emmclab.studies.results import Results
from emmclab.traces.ledger_text import ledger_line


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
        modes={**MODES, "ext4 without a journal": "its metadata written in place (unsafe)"},
        devices=DEVICES,
        gained={device: _gained(results, device) for device in DEVICES},
        work={device: list(_work(results, device)) for device in DEVICES},
        inputs=[
            (name, profile["requests"], results.profiles[name].get("journal"), ledger_line(profile["ledger"]))
            for name, profile in results.profiles.items()
        ],
    )


def _inputs(results: Results) -> list[str]:
    """Return the programs and the user's own traces, without the recordings on ext4 without a journal."""
    return [name for name in results.inputs if name.removesuffix("-no-journal") == name]


def _gained(results: Results, device: str) -> list[tuple[str, float, list[float]]]:
    """Return for each input the seconds in `legacy`, and by how many percent each other mode is faster."""
    rows = []
    for name in _inputs(results):
        base = seconds(results.run(BASE, input=name, device=device))
        found = [seconds(results.run(mode, input=name, device=device)) for mode in MODES if mode != BASE]
        found.append(seconds(ideal_run(results, name, device)))
        rows.append((name, base, [100 * (base / one - 1) for one in found]))
    return rows


def _work(results: Results, device: str) -> list[tuple[str, str, list[float]]]:
    """Return for each input and mode the device's work and the time of durable requests."""
    rows = []
    for name in _inputs(results):
        for mode in MODES:
            run = results.run(mode, input=name, device=device)
            durable, programs = run["durable"], run["flash"]["page_programs"]["total"]
            waf = run["write_amplification"]["waf"]
            rows.append(
                (
                    name,
                    mode,
                    [
                        durable["requests"],
                        durable["p50_ms"],
                        durable["p99_ms"],
                        durable_pct(run),
                        run["requests"]["bytes_written"] / 2**20,
                        programs,
                        waf,
                        run["flash"]["block_erases"],
                    ],
                )
            )
    return rows


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
    order = list(ways)
    bars = (
        chart_of(rows, 260)
        .mark_bar()
        .encode(
            x=alt.X("trace:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30, labelOverlap=False)),
            xOffset=alt.XOffset("mode:N", sort=order),
            y=alt.Y("faster_pct:Q", title=f"faster than {BASE}, %"),
            color=alt.Color("mode:N", title=None, sort=order, legend=alt.Legend(columns=2, orient="bottom")),
        )
    )
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
    bars = (
        chart_of(rows, 260)
        .mark_bar()
        .encode(
            x=alt.X("trace:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30, labelOverlap=False)),
            y=alt.Y("written_pct:Q", title="% of written bytes"),
            color=alt.Color("kind:N", title=None, legend=alt.Legend(columns=4, orient="bottom")),
        )
    )
    about = "By the roles of the blocks that ext4 wrote."
    return Drawing("shares", "Written bytes by role", about, rows, bars, wide=True)
