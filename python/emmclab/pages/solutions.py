"""The page of the storage solutions of FAST 2012: gain, cost and risk of each, against the plain device."""

from statistics import median

import altair as alt

from emmclab.apps.run_tables import all_settings_table, settings_of, solutions_table
from emmclab.apps.solutions import SolutionComparison
from emmclab.pages.assemble import Head, Provenance, Tile, assemble, tile
from emmclab.pages.plots import Chart, Rows, bare_chart, figure, in_order, tooltip
from emmclab.runtime.document import Bullets, Column, Note, Part, Section, Terms, TextTable
from emmclab.traces.inputs import ProvenanceFields

#: Maximum number of solutions on the first screen; those with the largest gains are shown.
_MOST_TILES = 5


def render(result: SolutionComparison, provenance: ProvenanceFields | None = None) -> str:
    """Return the HTML page; equal comparisons produce equal bytes.

    `provenance` is the group `provenance` of a comparison that the command line has made.
    """
    programs = list(dict.fromkeys(run["application"] for run in result.runs))
    return assemble(
        FIGURES,
        {"gains": _gains(result)},
        programs,
        title=f"solutions: {', '.join(programs)}",
        head=_head(result, programs),
        provenance=Provenance(
            f"Cuts of power on {result.risks['device']} by {result.risks['command']}", made=provenance or {}
        ),
        sections=[
            Section("results", "Gain and cost of each solution", _results(result), nav="Results"),
            Section(
                "risk",
                "Losses after a cut of power",
                [Terms([(solution["name"], solution["about"], solution["risk"]) for solution in result.solutions])],
                nav="Risk",
            ),
            Section("cuts", "Cuts of power", _cuts(result), nav="Cuts of power"),
        ],
    )


def _results(result: SolutionComparison) -> list[Part]:
    gain = (
        "Gain: runtime of the plain device divided by the runtime with the solution. Pages and blocks are counted on "
        "all devices of the plain kind, from the start of the application to its end; data that is still in a buffer "
        "at the end is not counted."
    )
    overall = all_settings_table(result).titled() if len(settings_of(result)) > 1 else ()
    parts: list[Part] = [*overall, *solutions_table(result).titled(), Note(gain, "quiet")]
    if impossible := result.impossible:
        where = "{solution} for {application} on {device} over {network}: {reason}"
        parts += [Note("Not possible:", ""), Bullets([(where.format(**run), "") for run in impossible])]
    return parts


def _cuts(result: SolutionComparison) -> list[Part]:
    risks, names_of_page = result.risks, {solution["name"] for solution in result.solutions}
    names = ("cuts", "states", "lost_states", "documented_states")
    table = TextTable(
        "Explored cuts",
        [
            *("Solution", Column("Workload", is_text=True), "Cuts", "States", "Lost", "Documented"),
            Column("Broken promises", is_text=True),
        ],
        [
            [*(solution, row["workload"], *(f"{row[name]:,}" for name in names)), ", ".join(row["promises"]) or "none"]
            for solution, rows in risks["solutions"].items()
            if solution in names_of_page
            for row in rows
        ],
    )
    about = (
        f"Measured on {risks['device']} by `{risks['command']}`. Documented: a loss that the documentation "
        "of SQLite excludes from what it promises."
    )
    return [table, Note(about, "quiet")]


def _head(result: SolutionComparison, programs: list[str]) -> Head:
    answers = [_overall(result)] * (len(programs) > 1) + [_headline(result, name) for name in programs]
    tiles = []
    for solution in result.solutions:
        gains = [run["gain"] for run in result.runs if run["solution"] == solution["name"] and run["gain"]]
        if gains and solution["name"] != "plain":
            note = f"median of {len(gains)} runs" + ("; loses acknowledged data" if solution["loses"] else "")
            tiles.append(tile(solution["name"], median(gains), "x", note=note))
    tiles = sorted(tiles, key=lambda gain: -float(gain.value.split()[0].replace(",", "")))[:_MOST_TILES]
    runs = Tile("Runs", f"{len(result.runs):,}", note=f"of {len(programs)} applications")
    return Head(answer=answers[0], lead=answers[1:], tiles=[*tiles, runs], picture="gains")


def _gains(result: SolutionComparison) -> Rows:
    """Return a row of data for each run with a solution; the application is in the field `trace`."""
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
        for run in result.runs
        if run["solution"] != "plain" and run["gain"]
    ]


def _overall(result: SolutionComparison) -> str:
    """Return a sentence that names the solution with the largest median gain; solutions that lose data are excluded."""
    gains = {
        solution["name"]: [run["gain"] for run in result.runs if run["solution"] == solution["name"] and run["gain"]]
        for solution in result.solutions
        if not solution["loses"]
    }
    medians = {name: median(values) for name, values in gains.items() if values}
    best = max(medians, key=medians.__getitem__, default="plain")
    if best == "plain":
        return "No solution that keeps acknowledged data has a median gain"
    return f"{best} gains {medians[best]:.2f} x in the median of {len(gains[best])} runs"


def _headline(result: SolutionComparison, application: str) -> str:
    """Return a sentence that names the solution with the largest gain; solutions that lose data are excluded."""
    lossy = {solution["name"] for solution in result.solutions if solution["loses"]}
    runs = [
        run
        for run in result.runs
        if run["application"] == application and run["gain"] is not None and run["solution"] not in lossy
    ]
    best = max(runs, key=lambda run: run["gain"], default=None)
    if best is None or best["solution"] == "plain":
        return f"{application}: no solution that keeps acknowledged data has a gain"
    setting = f"{best['device']} over {best['network']}"
    return f"{application}: {best['gain']:.2f} x on {setting} with {best['solution']}"


@figure(
    "Gain by solution",
    "A point for each application, device and network; right of the dashed line it is faster than the plain device.",
    wide=True,
)
def gains(rows: Rows) -> Chart:
    """Draw a row of points for each solution, a point for the gain of each run, and a line at 1 for no gain."""
    solutions = in_order(rows, "solution")
    base = bare_chart(rows, 28 * len(solutions))
    points = base.mark_point(filled=True, size=70, opacity=0.8).encode(
        x=alt.X("gain:Q", title="gain, times (plain runtime / runtime)", scale=alt.Scale(type="log")),
        y=alt.Y("solution:N", title=None, sort=solutions),
        color=alt.Color("application:N", legend=alt.Legend(columns=4, title=None)),
        tooltip=tooltip(rows),
    )
    plain = base.transform_aggregate(count="count()").mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(1))
    return alt.layer(plain, points)


FIGURES = (gains,)
