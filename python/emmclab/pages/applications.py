"""The page of runs of applications: what their users waited for, over time and compared between runs."""

from collections.abc import Iterator, Sequence

import altair as alt

from emmclab.apps.closed_loop import STATES, AppResult, durability_line, order_note_of, requests_line
from emmclab.apps.run_tables import runs_answer, runs_table, storage_table, what_if_table
from emmclab.core_types import ThreadStateLane
from emmclab.pages.assemble import Head, Notice, Provenance, assemble, note_notices, tile
from emmclab.pages.plots import Chart, Rows, chart_of, figure, in_order
from emmclab.pages.theme import STATE_COLOURS
from emmclab.runtime.document import Charts, Note, Part, Row, Section, Terms
from emmclab.traces.inputs import ProvenanceFields

#: Maximum numbers of thread states and of runs on the first screen of the page.
_MOST_STATES, _MOST_TILES = 4, 6
#: Position of each thread state in stacked charts.
_ORDER = {name: number for number, name in enumerate(STATE_COLOURS)}


def render(results: Sequence[AppResult], faster: Sequence[AppResult], origin: ProvenanceFields | None = None) -> str:
    """Return the HTML page; equal results produce equal bytes.

    `origin` is the group `provenance` of command-line results.
    """
    is_single = len(results) == 1
    names = [_name(result) for result in results]
    programs = list(dict.fromkeys(result.app.program for result in results))
    app = results[0].app
    facts = f"host {app.host}, {app.era}, seed {app.seed}"
    figures = [chart for chart in FIGURES if not (is_single and chart.name == "runtimes")]
    rows = {
        "runtimes": [row for result in results for row in _runtimes(result)],
        "path": [row for result in results for row in _path(result)],
        "threads": [row for result in results for row in _threads(result)],
    }
    return assemble(
        figures,
        rows,
        list(dict.fromkeys(names)),
        title=", ".join(programs),
        head=_head(results, programs, facts, order_note_of(results, origin or {})),
        provenance=Provenance(f"{len(results)} run{'s' if len(results) != 1 else ''}: {facts}", made=origin or {}),
        sections=_sections(results, faster),
    )


def _sections(results: Sequence[AppResult], faster: Sequence[AppResult]) -> Iterator[Section]:
    path = (
        "Along the critical path: a wait for another thread counts as the activity of that thread. Storage "
        "is read, fsync, and writes held back."
    )
    parts: list[Part] = [runs_table(results, is_joined=True), Note(path, "quiet")]
    if len(results) == 1 and (storage := storage_table(results[0])):
        parts += storage.titled()
    yield Section("results", "Waits of the users by part", parts, nav="Results")
    yield Section("figures", "Time lines", [Charts()], nav="Time lines")
    if faster:
        yield Section("what-if", "What if", what_if_table(results[0], faster).titled(), nav="What if")
    lines = [(_name(run), f"{requests_line(run)}; {durability_line(run)}", "") for run in results]
    about = "Sequential: a request that begins where the previous request of the same operation ended."
    yield Section("requests", "Requests", [Terms(lines), Note(about, "quiet")], nav="Requests")


def _head(results: Sequence[AppResult], programs: Sequence[str], facts: str, note: str) -> Head:
    is_single = len(results) == 1
    first = results[0]
    answers = [runs_answer([run for run in results if run.app.program == name]) for name in programs]
    if is_single:
        states = first.app.states
        largest = sorted(states, key=lambda state: -states[state])[:_MOST_STATES]
        tiles = [tile("Runtime", first.runtime_s, "s"), tile("Storage", first.storage_s, "s")]
        tiles += [tile(STATES[state], states[state] / 1e9, "s") for state in largest if states[state]]
    else:
        tiles = [tile(_name(run), run.runtime_s, "s", note=_storage(run)) for run in results[:_MOST_TILES]]
    return Head(
        answer=answers[0],
        lead=[
            *answers[1:],
            f"Applications in closed loop on a simulated device: {facts}; earlier data on the device: "
            f"{first.options.precondition}.",
        ],
        tiles=tiles,
        notices=[
            *(Notice("caution", text) for text in dict.fromkeys(text for run in results for text in run.warnings)),
            *note_notices(note),
        ],
        picture="path" if is_single else "runtimes",
    )


def _storage(run: AppResult) -> str:
    return f"{100 * run.storage_s / run.runtime_s:.0f} % storage" if run.runtime_s else ""


def _name(result: AppResult) -> str:
    return f"{result.app.program}: {result.run_name}"


def _bins(result: AppResult, lane: ThreadStateLane) -> list[tuple[float, float, dict[str, int]]]:
    """Return the time bins of a thread: start and end in seconds, and the time in each thread state in ns."""
    width, end = result.app.over_time.bin_ns, result.app.runtime_ns
    count = max((len(times) for times in lane.states.values()), default=0)
    bins = []
    for number in range(count):
        times = {state: bins_[number] for state, bins_ in lane.states.items() if bins_[number]}
        begin = number * width
        bins.append((begin / 1e9, min(begin + width, end) / 1e9, times))
    return bins


def _path(result: AppResult) -> Rows:
    rows = []
    for begin, end, times in _bins(result, result.app.over_time.lanes[0]):
        total, sum_below = sum(times.values()), 0
        for state in sorted(times, key=lambda state: _ORDER[STATES[state]]):
            bounds = (100 * sum_below / total, 100 * (sum_below + times[state]) / total)
            rows.append(
                {
                    "trace": _name(result),
                    "from_s": begin,
                    "to_s": end,
                    "state": STATES[state],
                    "from_pct": bounds[0],
                    "to_pct": bounds[1],
                }
            )
            sum_below += times[state]
    return rows


def _threads(result: AppResult) -> Rows:
    rows: Rows = []
    for lane in result.app.over_time.lanes[1:]:
        last: Row | None = None
        for begin, end, times in _bins(result, lane):
            if not times:
                last = None
                continue
            label = STATES[max(times, key=lambda state: times[state])]
            if last is not None and last["state"] == label:
                # If the next time bin has the same state, the last bar is extended.
                last["to_s"] = end
                continue
            last = {"trace": _name(result), "thread": lane.name, "from_s": begin, "to_s": end, "state": label}
            rows.append(last)
    return rows


def _runtimes(result: AppResult) -> Rows:
    app = result.app
    return [
        {
            "trace": _name(result),
            "run": _name(result),
            "state": label,
            "seconds": app.states[state] / 1e9,
            "order": _ORDER[label],
        }
        for state, label in STATES.items()
        if app.states[state]
    ]


_LANE_PX = 22


def _colours(rows: Rows) -> alt.Color:
    present = {row["state"] for row in rows}
    states = [state for state in STATE_COLOURS if state in present]
    shades = [STATE_COLOURS[state] for state in states]
    scale = alt.Scale(domain=states, range=shades)
    return alt.Color("state:N", scale=scale, legend=alt.Legend(columns=4, title=None))


@figure("Waits of the user over time", "Waits for threads are shown as their activity.", wide=True, each=True)
def path(rows: Rows) -> Chart:
    """Draw the share of each thread state in each time bin of the user's waiting time."""
    return (
        chart_of(rows, 180)
        .mark_rect(strokeWidth=0)
        .encode(
            x=alt.X("from_s:Q", title="time, s", scale=alt.Scale(nice=False)),
            x2="to_s:Q",
            y=alt.Y("from_pct:Q", title="share of the time, %", scale=alt.Scale(domain=[0, 100])),
            y2="to_pct:Q",
            color=_colours(rows),
        )
    )


@figure(
    "States of each thread over time",
    "Each bin has the colour of the state with the largest share.",
    wide=True,
    each=True,
)
def threads(rows: Rows) -> Chart:
    """Draw each thread as a row of the diagram; each time bin has the colour of the state with the largest share."""
    lanes = in_order(rows, "thread")
    return (
        chart_of(rows, max(60, _LANE_PX * len(lanes)))
        .mark_bar(strokeWidth=0, height=_LANE_PX - 6)
        .encode(
            x=alt.X("from_s:Q", title="time, s", scale=alt.Scale(nice=False)),
            x2="to_s:Q",
            y=alt.Y("thread:N", title=None, sort=lanes),
            color=_colours(rows),
        )
    )


@figure("Runtime by device and network", "Parts of the time that the user waited, along the critical path.", wide=True)
def runtimes(rows: Rows) -> Chart:
    """Draw the runtime of each run as a bar, divided into its parts along the critical path."""
    runs = in_order(rows, "run")
    return (
        chart_of(rows, 24 * len(runs))
        .mark_bar()
        .encode(
            x=alt.X("seconds:Q", title="runtime, s"),
            y=alt.Y("run:N", title=None, sort=runs, axis=alt.Axis(labelLimit=320)),
            color=_colours(rows),
            order=alt.Order("order:Q"),
        )
    )


FIGURES = (runtimes, path, threads)
