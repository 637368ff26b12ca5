"""The page that compares solutions with the plain device: gains, costs and risks of each."""

from statistics import median

import altair as alt

from emmclab.apps.solutions import Comparison
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Provenance, Tile, tile
from emmclab.pages.plots import Chart, Rows, chart_of, figure, in_order, tooltip
from emmclab.runtime.document import Bullets, Column, Note, Part, Section, Terms, TextTable, number_cell
from emmclab.traces.inputs import ProvenanceFields

#: Maximum number of solutions on the first screen; those with the largest gain are shown.
_MOST_TILES = 5


def render(found: Comparison, made: ProvenanceFields | None = None) -> str:
    """Return the page; the same comparison produces the same bytes.

    `made` is the group `provenance` of a command-line comparison.
    """
    programs = list(dict.fromkeys(run["application"] for run in found["runs"]))
    return assemble(
        "document.html.j2",
        FIGURES,
        {"gains": _gains(found)},
        programs,
        title=f"solutions: {', '.join(programs)}",
        head=_head(found, programs),
        provenance=Provenance(
            f"Cuts of power on {found['risks']['device']} by {found['risks']['command']}", made=made or {}
        ),
        sections=[
            Section("results", "Gain and cost of each solution", _results(found), nav="Results"),
            Section(
                "risk",
                "Losses after a cut of power",
                [Terms([(one["name"], one["about"], one["risk"]) for one in found["solutions"]])],
                nav="Risk",
            ),
            Section("cuts", "Cuts of power", _cuts(found), nav="Cuts of power"),
        ],
    )


def _results(found: Comparison) -> list[Part]:
    hardware = {one["name"]: one["hardware"] or "nothing" for one in found["solutions"]}
    names = [Column(label, is_text=True) for label in ("Device", "Network", "Solution")]
    table = TextTable(
        "Runs",
        [
            "Application",
            *names,
            *(Column(label, unit) for label, unit in (("Runtime", "s"), ("Gain", "times"), ("Storage", "s"))),
            "Pages programmed",
            Column("of plain", "%"),
            "Blocks erased",
            Column("To NVM", "MB"),
            Column("Buys", is_text=True),
        ],
        [
            [
                *(run[name] for name in ("application", "device", "network", "solution")),
                number_cell(run["runtime_s"], 2),
                number_cell(run["gain"], 2),
                number_cell(run["storage_s"], 2),
                number_cell(run["page_programs"], 0),
                number_cell(100 * run["page_programs"] / run["plain_page_programs"], 0)
                if run["plain_page_programs"]
                else number_cell(None, 0),
                number_cell(run["block_erases"], 0),
                number_cell(run["second_bytes"] / 2**20 if run["second_bytes"] else None, 1),
                hardware[run["solution"]],
            ]
            for run in found["runs"]
        ],
        style="sortable",
    )
    gain = (
        "Gain: runtime of the plain device over that with the solution. Pages and blocks are counted on all "
        "devices of the plain one's kind, from the start of the application to its end; data that is still "
        "in a buffer then is not counted."
    )
    parts: list[Part] = [table, Note(gain, "quiet")]
    if impossible := found["impossible"]:
        where = "{solution} for {application} on {device} over {network}: {reason}"
        parts += [Note("Not possible:", ""), Bullets([(where.format(**one), "") for one in impossible])]
    return parts


def _cuts(found: Comparison) -> list[Part]:
    risks, shown = found["risks"], {one["name"] for one in found["solutions"]}
    names = ("cuts", "states", "lost_states", "documented_states")
    table = TextTable(
        "Explored cuts",
        [
            *("Solution", Column("Workload", is_text=True), "Cuts", "States", "Lost", "Documented"),
            Column("Broken promises", is_text=True),
        ],
        [
            [*(solution, one["workload"], *(f"{one[name]:,}" for name in names)), ", ".join(one["promises"]) or "none"]
            for solution, rows in risks["solutions"].items()
            if solution in shown
            for one in rows
        ],
    )
    about = (
        f"Measured on {risks['device']} by `{risks['command']}`. Documented: a loss that the documentation "
        "of SQLite excludes from what it promises."
    )
    return [table, Note(about, "quiet")]


def _head(found: Comparison, programs: list[str]) -> Head:
    answers = [_overall(found)] * (len(programs) > 1) + [_headline(found, name) for name in programs]
    tiles = []
    for one in found["solutions"]:
        gains = [run["gain"] for run in found["runs"] if run["solution"] == one["name"] and run["gain"]]
        if gains and one["name"] != "plain":
            note = f"median of {len(gains)} runs" + ("; was found to lose data" if one["loses"] else "")
            tiles.append(tile(one["name"], median(gains), "x", note=note))
    tiles = sorted(tiles, key=lambda shown: -float(shown.value.split()[0].replace(",", "")))[:_MOST_TILES]
    runs = Tile("Runs", f"{len(found['runs']):,}", note=f"of {len(programs)} applications")
    return Head(answer=answers[0], lead=answers[1:], tiles=[*tiles, runs], picture="gains")


def _gains(found: Comparison) -> Rows:
    """Return a row for each run with a solution; each application counts as a trace of the page."""
    return [
        {
            "trace": run["application"],
            "application": run["application"],
            "solution": run["solution"],
            "gain": run["gain"],
            "runtime_s": run["runtime_s"],
            "device": run["device"],
            "network": run["network"],
        }
        for run in found["runs"]
        if run["solution"] != "plain" and run["gain"]
    ]


def _overall(found: Comparison) -> str:
    """Return the solution with the largest median gain, except those that were found to lose data."""
    gains = {
        one["name"]: [run["gain"] for run in found["runs"] if run["solution"] == one["name"] and run["gain"]]
        for one in found["solutions"]
        if not one["loses"]
    }
    medians = {name: median(values) for name, values in gains.items() if values}
    best = max(medians, key=medians.__getitem__, default="plain")
    if best == "plain":
        return "No solution that keeps what is acknowledged gains in the median"
    return f"{best} gains {medians[best]:.2f} x in the median of {len(gains[best])} runs"


def _headline(found: Comparison, application: str) -> str:
    """Return the solution with the largest gain, except those that were found to lose data."""
    lossy = {one["name"] for one in found["solutions"] if one["loses"]}
    runs = [
        run
        for run in found["runs"]
        if run["application"] == application and run["gain"] is not None and run["solution"] not in lossy
    ]
    best = max(runs, key=lambda run: run["gain"], default=None)
    if best is None or best["solution"] == "plain":
        return f"{application}: no solution that keeps what is acknowledged gains"
    place = f"{best['device']} over {best['network']}"
    return f"{application}: {best['gain']:.2f} x on {place} with {best['solution']}"


@figure(
    "Gain by solution",
    "A point for each application, device and network; right of the dashed line it is faster than plain.",
    wide=True,
)
def gains(rows: Rows) -> Chart:
    """Draw the gain of each run as a point, a row for each solution; the plain device is the line at 1."""
    solutions = in_order(rows, "solution")
    base = chart_of(rows, 28 * len(solutions))
    points = base.mark_point(filled=True, size=70, opacity=0.8).encode(
        x=alt.X("gain:Q", title="gain, times (plain runtime / runtime)", scale=alt.Scale(type="log")),
        y=alt.Y("solution:N", title=None, sort=solutions),
        color=alt.Color("application:N", legend=alt.Legend(columns=4, title=None)),
        tooltip=tooltip(rows),
    )
    plain = base.transform_aggregate(count="count()").mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(1))
    return alt.layer(plain, points)


FIGURES = (gains,)
