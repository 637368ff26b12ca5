"""The page of the study `iiswc15`: a summary, findings beyond the paper, then its tables and figures with results."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from emmclab.pages import plots
from emmclab.pages.plots import Chart, Rows, bare_chart, dots, in_order
from emmclab.pages.profile_figures import FIGURES
from emmclab.pages.theme import GREY
from emmclab.papers.iiswc15.hybrid import (
    EIGHT,
    EIGHT_ALIGNED,
    FOUR,
    HYBRID,
    PARTS,
    PRIMARY,
    PUBLISHED,
    SIMPLE,
    SMALL,
    STRICT,
    Reading,
    Twin,
    mean_gains_over_8ps,
    mean_responses,
    nearest,
    over_8ps,
    readings,
    reductions,
    twins,
    utilisation,
)
from emmclab.papers.iiswc15.recorded_workload import origin
from emmclab.papers.measures import rate_by_size, table
from emmclab.papers.pages import Drawing, PageContent, ledger_table
from emmclab.runtime.document import (
    Bullets,
    Cells,
    Charts,
    Folded,
    Heading,
    Note,
    Number,
    Part,
    Section,
    Terms,
    TextTable,
    difference_text,
    number_cell,
    signed,
)
from emmclab.studies.results import Results, in_place, stand_ins, with_substitutes, without
from emmclab.traces.profile import Profile
from emmclab.traces.profile_fields import TABLES, Field
from emmclab.traces.published import published, published_cells

_EIGHT, _ALIGNED = "8 KB pages", "8 KB pages, aligned"
_DEVICES = {FOUR: "4 KB pages", EIGHT: _EIGHT, HYBRID: "hybrid"}
#: Throughput values of Figure 3 that the paper states in its text: MB/s by operation and request size in KB.
_FIGURE_3 = {"read": {4: 13.94, 256: 99.65}, "write": {4: 5.18, 256: 19.0, 16384: 56.15}}


def drawings(results: Results) -> list[Drawing]:
    """Draw all charts in the order of the page, whose first screen shows the first three."""
    apps, combos = (
        [results.profiles[name] for name in names]
        for names in (_rows_of(results), with_substitutes(results, results.combos))
    )
    placed = in_place(results)
    return [
        _reductions(results),
        _readings_drawing(placed),
        _utilisation(results),
        _throughput(results),
        _distribution(apps, "size", "Figure 4: request sizes", "IISWC15 Fig.4"),
        _distribution(apps, "response", "Figure 5: response times", "IISWC15 Fig.5"),
        _distribution(apps, "inter_arrival", "Figure 6: inter-arrival times", "IISWC15 Fig.6"),
        _distribution(combos, "size", "Figure 7a: request sizes of the combos", "", "combo_"),
        _distribution(combos, "response", "Figure 7b: response times of the combos", "", "combo_"),
        _distribution(
            combos, "inter_arrival", "Figure 7c: inter-arrival times of the combos", "IISWC15 Fig.7", "combo_"
        ),
        _responses(results),
        _collection_drawing(results),
    ]


def _rows_of(results: Results) -> list[str]:
    """Return the applications, each followed by its recorded trace, if any, and then the user's own traces."""
    users_traces = [name for name in results.recorded if name not in stand_ins(results)]
    return with_substitutes(results, results.applications) + users_traces


def _shapes(orient: Any) -> alt.Legend:
    """Return a legend of shapes that is visible on light and dark backgrounds."""
    return alt.Legend(orient=orient, symbolFillColor=GREY, symbolStrokeColor=GREY)


def _published_rules(base: Chart, values: Sequence[float], axis: str) -> Chart:
    """Draw the published figures as dashed lines, which are no part of the chart's data."""
    rules = [
        base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=GREY).encode(**{axis: alt.datum(value)})
        for value in values
    ]
    return alt.layer(*rules)


def _reductions(results: Results) -> Drawing:
    sorted_gains = sorted(reductions(in_place(results), PRIMARY).items(), key=lambda item: item[1])
    synthetic_gains, recorded = reductions(without(results), PRIMARY), set(stand_ins(results).values())
    published = {"Movie": PUBLISHED["worst"], "Booting": PUBLISHED["best"]}
    rows: Rows = [
        {"trace": name, "reduction_pct": gain, "published_pct": published.get(name)}
        | ({"made_pct": synthetic_gains[name] if name in recorded else None} if recorded else {})
        for name, gain in sorted_gains
    ]
    base = bare_chart(rows, 20 * len(rows))
    y = alt.Y("trace:N", sort=in_order(rows, "trace"), title=None)
    x_axis = alt.X("reduction_pct:Q", title="mean response shortened, %")
    bars = base.mark_bar().encode(y=y, x=x_axis)
    points = (
        base.transform_filter("datum.published_pct != null")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, color="#e07b39", stroke="white")
        .encode(y=y, x="published_pct:Q")
    )
    chart = bars + _published_rules(base, [PUBLISHED["mean"]], "x") + points
    both = ""
    if recorded:
        circles = (
            base.transform_filter("datum.made_pct != null")
            .mark_point(size=70, strokeWidth=2, color=GREY)
            .encode(y=y, x="made_pct:Q")
        )
        chart += circles
        both = f" Recorded: {', '.join(name for name, _ in sorted_gains if name in recorded)}; circles: synthetic."
    return Drawing(
        "reduction",
        "Figure 8: gain of hybrid pages in mean response",
        f"Bars: here ({PRIMARY.text}). Diamonds and the dashed line: the paper's -86 % (Booting), -24.0 % (Movie) and "
        f"-61.9 % (mean); it gives no figures for other applications.{both}",
        rows,
        chart,
        "IISWC15 Fig.8",
    )


def _readings_drawing(results: Results) -> Drawing:
    rows = [
        {
            "trace": reading.label,
            "worst_pct": parts["worst"],
            "mean_pct": parts["mean"],
            "best_pct": parts["best"],
            "loop": "SSDsim" if reading.ssdsim else f"{reading.mode} loop, {reading.write_complete}",
        }
        for reading, parts in readings(results).items()
    ]
    base = bare_chart(rows, 20 * len(rows))
    axis = alt.Axis(labelLimit=220)
    y = alt.Y("trace:N", sort=in_order(rows, "trace"), title=None, axis=axis)
    colour = alt.Color("loop:N", title=None, sort=in_order(rows, "loop"), legend=None)
    spans = base.mark_bar(height=5, opacity=0.55).encode(
        y=y, x=alt.X("worst_pct:Q", title="shortened, %"), x2="best_pct:Q", color=colour
    )
    means = base.mark_point(filled=True, size=70).encode(y=y, x="mean_pct:Q", color=colour)
    chart = spans + _published_rules(base, list(PUBLISHED.values()), "x") + means
    return Drawing(
        "readings",
        "Figure 8 under every reading",
        "From the worst to the best application, with the mean as a point, for each reading of what the paper leaves "
        "open: loop, completion of writes, parallelism, pages of unwritten data (4 KB if named). Dashed: the paper's "
        "24.0, 61.9 and 86 %.",
        rows,
        chart,
    )


def _utilisation(results: Results) -> Drawing:
    rows: Rows = []
    for name in _rows_of(results):
        use, aligned = (utilisation(results, name, eight) for eight in (EIGHT, EIGHT_ALIGNED))
        rows.append({"trace": name, _EIGHT: use["8ps"], _ALIGNED: aligned["8ps"], "hybrid": use["hps"]})
    rows.sort(key=lambda row: row[_EIGHT])
    x = alt.X("utilisation:Q", title="space utilisation, of 4 KB pages", scale=alt.Scale(domain=[0.6, 1.0]))
    devices = [_EIGHT, "hybrid", _ALIGNED]
    below = alt.Legend(orient="bottom", columns=2)
    chart = dots(rows, "trace", x, "device", devices).encode(
        color=alt.Color("device:N", title=None, sort=devices, legend=below)
    )
    chart = chart.transform_fold(["hybrid", _ALIGNED, _EIGHT], ["device", "utilisation"])
    return Drawing(
        "utilisation",
        "Figure 9: space utilisation of hybrid pages",
        "Data written over flash space consumed, 4 KB pages = 1. The paper: hybrid pages equal to 4 KB "
        "pages, and +24.2 % against 8 KB pages at best (Music), +13.1 % on average. Its 8 KB pages take 4 KB "
        "units from any address; aligned ones are the other reading.",
        rows,
        chart,
        "IISWC15 Fig.9",
    )


def _throughput(results: Results) -> Drawing:
    placed = in_place(results)
    apps = [placed.profiles[name] for name in placed.applications]
    sources: list[tuple[str, list[Profile]]] = [("here", apps)]
    if stand_ins(results):
        profiles_by_name = without(results).profiles
        sources.append(("synthetic alone", [profiles_by_name[name] for name in placed.applications]))
    sources += [(name, [results.profiles[name]]) for name in placed.recorded]
    rows: Rows = []
    for op, rates in _FIGURE_3.items():
        rows += [{"trace": "published", "op": op, "size_kb": size, "mb_per_s": rate} for size, rate in rates.items()]
        for name, profiles in sources:
            for power in range(2, 15):
                rate = rate_by_size(profiles, op, 2.0**power)
                if rate is not None:
                    rows.append({"trace": name, "op": op, "size_kb": 2**power, "mb_per_s": rate})
    base = bare_chart(rows).encode(
        x=alt.X("size_kb:Q", title="request size, KB", scale=alt.Scale(type="log", base=2)),
        y=alt.Y("mb_per_s:Q", title="MB/s", scale=alt.Scale(type="log")),
        color=alt.Color("op:N", title=None),
    )
    # Measured values are drawn as lines, and published values as marks: two sets of marks would hide each other.
    names = [name for name, _ in sources]
    dashes = alt.Legend(orient="bottom", symbolStrokeColor=GREY, symbolType="stroke")
    lines = (
        base.transform_filter("datum.trace != 'published'")
        .mark_line()
        .encode(strokeDash=alt.StrokeDash("trace:N", title=None, sort=names, legend=dashes))
    )
    published_points = (
        base.transform_filter("datum.trace == 'published'")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, stroke="white")
        .encode(tooltip=plots.tooltip(rows))
    )
    return Drawing(
        "throughput",
        "Figure 3: throughput by request size",
        "Lines: mean rate of requests of exactly these sizes. Diamonds: the paper's figures; the models' "
        "service times follow its end points.",
        rows,
        lines + published_points,
        "IISWC15 Fig.3",
    )


def _distribution(profiles: Sequence[Profile], quantity: str, title: str, source: str, prefix: str = "") -> Drawing:
    figure = next(candidate for candidate in FIGURES if candidate.name == f"{quantity}_distribution")
    rows = [
        {key: value for key, value in row.items() if key in ("trace", "op", "bin", "pct")}
        for row in figure.rows(profiles)
        if row.get("op", "all") == "all"
    ]
    chart = figure.draw(rows)
    return Drawing(f"{prefix}{quantity}", title, "Share of all requests.", rows, chart, source)


def _responses(results: Results) -> Drawing:
    rows: Rows = []
    for reading in (PRIMARY, STRICT):
        for device, label in _DEVICES.items():
            means = mean_responses(results, reading, device)
            rows += [
                {"trace": name, "device": label, "complete": reading.write_complete, "mean_response_ms": means[name]}
                for name in _rows_of(results)
            ]
    x = alt.X("mean_response_ms:Q", title="mean response, ms", scale=alt.Scale(type="log"))
    shape = alt.Shape("complete:N", title=None, sort=["transferred", "programmed"], legend=_shapes("top"))
    below = alt.Legend(orient="bottom", columns=3)
    colour = alt.Color("device:N", title=None, sort=list(_DEVICES.values()), legend=below)
    chart = dots(rows, "trace", x, "device").encode(shape=shape, color=colour)
    return Drawing(
        "mean_response",
        "Figure 8: mean response times",
        "Open loop, one operation per chip; coloured by device, shaped by the completion of writes.",
        rows,
        chart,
        "",
        wide=True,
    )


def _collection_drawing(results: Results) -> Drawing:
    rows = [
        {
            "trace": run.input,
            "collection": "in idle gaps" if run.settings["gc.idle_after_us"] else "on demand",
            "wait_gc_ms": run.waits.gc_ms,
            "write_amplification": run.write_amplification.waf,
        }
        for run in results.select("idle-gc")
    ]
    x = alt.X("shown:Q", title="mean wait for collection, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r"))
    chart = dots(rows, "trace", x, "collection", ["on demand", "in idle gaps"])
    chart = chart.transform_calculate(shown="max(datum.wait_gc_ms, 0.001)")
    return Drawing(
        "collection",
        "Implication 2: collection in idle gaps",
        "A 1 GB device in steady state: mean wait of a request for garbage collection.",
        rows,
        chart,
        "IISWC15 Implication 2",
        wide=True,
    )


#: Maximum difference between a measured and a published percentage that counts as near, percentage points.
_NEAR = 5.0


def findings(results: Results) -> list[tuple[str, str]]:
    """Return title and text of each finding."""
    return [
        _readings_finding(results),
        _eight(results),
        _single_application(results),
        _ratio_or_difference(results),
        _collection_finding(results),
        _eager(results),
        _contradictions(),
    ]


def _figures(results: Results, reading: Reading) -> str:
    parts = readings(results)[reading]
    return " / ".join(f"{parts[part]:.1f}" for part in ("worst", "mean", "best")) + " %"


def _readings_finding(results: Results) -> tuple[str, str]:
    figures_by_reading = readings(results)
    best = nearest(figures_by_reading)
    closed = [parts["mean"] for reading, parts in figures_by_reading.items() if reading.mode == "closed"]
    strict = [
        parts["mean"]
        for reading, parts in figures_by_reading.items()
        if reading.write_complete == "programmed" and reading.mode == "open"
    ]
    fitting = [
        reading.text
        for reading, parts in figures_by_reading.items()
        if all(abs(parts[part] - figure) <= _NEAR for part, figure in PUBLISHED.items())
    ]
    verdict = f"All three within {_NEAR:g} points: {'; '.join(fitting) or 'no reading'}."
    return (
        "How much hybrid pages gain depends on what the paper leaves open",
        f"The published 24.0 / 61.9 / 86 % (Movie, mean, Booting) are {_figures(results, PRIMARY)} under "
        f"SSDsim's rules, which the paper states that it used; {_figures(results, SMALL)} under them if data that "
        f"nobody wrote is in pages of 4 KB; {_figures(results, SIMPLE)} without SSDsim's bus, "
        f"alignment and order; and {_figures(results, best)} under the nearest reading ({best.text}). A device "
        f"that completes writes only when the cells are written gains {min(strict):.1f} to {max(strict):.1f} % on "
        "average in open loop. With think times (closed loop) the mean over all readings is "
        f"{min(closed):.1f} to {max(closed):.1f} %. {verdict}",
    )


def _eight(results: Results) -> tuple[str, str]:
    gains, aligned = (statistics.mean(reductions(results, PRIMARY, eight).values()) for eight in (EIGHT, EIGHT_ALIGNED))
    points, aligned_points = (statistics.mean(over_8ps(results, eight)["points"]) for eight in (EIGHT, EIGHT_ALIGNED))
    four, large = (mean_responses(results, PRIMARY, device, results.applications) for device in (FOUR, EIGHT))
    alone = statistics.mean(100 * (1 - large[name] / four[name]) for name in four)
    hybrid = statistics.mean(reductions(results, PRIMARY).values())
    spread = mean_gains_over_8ps(results).values()
    return (
        "What hybrid pages gain over 8 KB pages depends on how those split a write",
        f"Hybrid pages shorten the mean response of 4 KB pages by {hybrid:.1f} %, 8 KB pages alone by "
        f"{alone:.1f} %. The paper splits a write by its size alone, so that 8 KB pages take units of "
        f"4 KB from any address: hybrid pages then respond {gains:.1f} % faster than 8 KB pages and use "
        f"space {points:.1f} points better (means). If 8 KB pages begin at multiples of 8 KB, and a partial page "
        f"is read, modified and written, it is {aligned:.1f} % and {aligned_points:.1f} points. Over "
        f"all readings the gain in time is {signed(min(spread))} to {signed(max(spread))} %.",
    )


def _single_application(results: Results) -> tuple[str, str]:
    plane = Reading("both", "programmed", "open")
    gains = reductions(results, plane)
    losers = [
        f"{name} ({signed(gain)} %)" for name, gain in sorted(gains.items(), key=lambda item: item[1]) if gain < 0
    ]
    text = ", ".join(losers) if losers else "no application"
    return (
        "With full parallelism hybrid pages can lose",
        f"If every plane works independently ({plane.text}), {text} has a longer mean response with hybrid than with "
        "4 KB pages: a request of a few pages then runs fully in parallel, and an 8 KB page takes longer "
        "than a 4 KB one.",
    )


def _ratio_or_difference(results: Results) -> tuple[str, str]:
    utilisations = over_8ps(results)
    ratio, points = utilisations["ratio"], utilisations["points"]
    return (
        "Figure 9's percentages look like differences, not ratios",
        f"The published +24.2 % and +13.1 % fit a difference of normalised utilisations ({max(points):.1f} and "
        f"{statistics.mean(points):.1f} points here) better than a ratio ({signed(max(ratio))} and "
        f"{signed(statistics.mean(ratio))} %).",
    )


def _collection_finding(results: Results) -> tuple[str, str]:
    demand, idle = (
        [run for run in results.select("idle-gc") if bool(run.settings["gc.idle_after_us"]) == flag]
        for flag in (False, True)
    )
    felt = [run.input for run in idle if run.waits.gc_ms >= 0.1]
    waf = [statistics.median(run.write_amplification.waf for run in runs) for runs in (demand, idle)]
    return (
        "Collection in idle gaps is not noticeable, but has a cost",
        f"It removes the wait from {len(idle) - len(felt)} of {len(idle)} applications, not from "
        f"{', '.join(felt)}, which "
        "leave no gaps. Blocks that are collected early contain more valid pages: the median write amplification "
        f"rises from {waf[0]:.1f} to {waf[1]:.1f}. The paper considers only the wait.",
    )


def _eager(results: Results) -> tuple[str, str]:
    eager = list(results.select("eager-gc"))
    lazy = {
        run.input: run.write_amplification.waf for run in results.select("idle-gc") if run.settings["gc.idle_after_us"]
    }
    worst = max(eager, key=lambda run: run.write_amplification.waf / lazy[run.input])
    waf = worst.write_amplification.waf
    return (
        "A larger reserve of free blocks wears the device out",
        f"If idle collection keeps 16 instead of 4 blocks per plane free, {worst.input} programs "
        f"{waf:.0f} bytes for each byte written, instead of {lazy[worst.input]:.0f}: with "
        "over-provisioning of 7 %, only nearly full blocks are left to collect.",
    )


def _contradictions() -> tuple[str, str]:
    entries = published()["inconsistencies"]
    names = list(dict.fromkeys(entry["name"] for entry in entries))
    return (
        "Some published figures contradict each other",
        f"{len(entries)} figures of Tables III and IV, in {len(names)} rows, contradict the rest of their row "
        f"({', '.join(names)}); the request counts of the combos repeat those of seven applications. The "
        "consistent figures were used.",
    )


def content(results: Results, _measured: Mapping[str, str]) -> PageContent:
    """Return the texts and tables of the page."""
    doubtful = [(f"{entry['name']}: {entry['explanation']}", "") for entry in published()["inconsistencies"]]
    return PageContent(
        lead=[
            f"{results.about['about']}, run again: {results.about['cells']:,} profiles and simulations of "
            f"{len(results.profiles)} workloads.",
            f"{origin(results)} A claim about statistics from which a synthetic workload was generated is restated: "
            "it only shows that the paper's text and tables agree with each other. Only claims that could have "
            "failed are tested.",
        ],
        sections=[
            Section("tables", "Tables I to V", _tables(results), "Tables"),
            Section("figures", "Figures 3 to 9", [Note(_FIGURES, ""), Charts()], "Figures"),
            Section("beyond", "Beyond the paper", _beyond(results), "Beyond the paper"),
        ],
        ledger=[
            ledger_table(
                results,
                Source=lambda profile: profile["header"]["source"],
                Note=lambda profile: profile["header"]["note"] or "–",
            ),
            Folded(f"{len(doubtful)} contradictions in the published tables", [Bullets(doubtful)]),
        ],
    )


_FIGURES = "Figure 8 is at the top of the page. The numbers next to each figure are those of the paper's text."
_SIMULATED = (
    "Simulated as printed: presets `iiswc15-4ps`, `iiswc15-8ps`, `iiswc15-hps` (`emmclab explain iiswc15-hps` lists "
    "every setting)."
)
_ROWS = (
    "First rows: recorded or synthetic; last row: as published. * marks a figure that others of its row contradict. "
    "The paper rounds means down to a multiple of 0.5 KB."
)


def _tables(results: Results) -> list[Part]:
    applications = [list(row.values()) for row in table("iiswc15_table1_workloads")]
    devices = [
        [row["parameter"].replace("_", " "), row["4PS"], row["8PS"], row["HPS"]]
        for row in table("iiswc15_table5_devices")
    ]
    first = TextTable("Tables I and II", ["Application", "Activity", "Duration"], applications, 3)
    return [
        Heading("Tables I and II: applications and durations"),
        Folded(f"{len(applications)} workloads", [first]),
        *(part for title, fields in TABLES for part in _of_fields(results, title, fields).titled()),
        Note(_ROWS),
        Heading("Table V: devices"),
        Note(_SIMULATED, ""),
        TextTable("Table V", ["Parameter", "4PS", "8PS", "HPS"], devices),
    ]


def _of_fields(results: Results, title: str, fields: Sequence[Field]) -> TextTable:
    """Return a table of the paper: for each workload its recorded and synthetic trace, and the published figures."""
    workload_of = stand_ins(results)
    rows: list[Cells] = []
    attached: dict[int, Cells] = {}
    for name in results.profiles:
        if name in workload_of:
            continue
        synthetic, *recorded = with_substitutes(results, [name])
        label = f"{name}, synthetic" if recorded else f"{name} (recorded)" if name in results.recorded else name
        for text, source in [*((f"{name}, recorded", source) for source in recorded), (label, synthetic)]:
            profile = results.profiles[source]
            rows.append([text, *(Number(field.text(profile[field.name]), profile[field.name]) for field in fields)])
        attached[len(rows) - 1] = ["published", *published_cells(name, fields)]
    return TextTable(
        title, ["Application", *(field.column for field in fields)], rows, style="sortable", attached=attached
    )


def _beyond(results: Results) -> list[Part]:
    placed = in_place(results)
    parts: list[Part] = [Terms([(title, text, "") for title, text in findings(placed)])]
    parts += _readings_table(placed).titled()
    for twin in twins(results):
        parts += _twin(twin)
    return parts


def _readings_table(placed: Results) -> TextTable:
    figures_by_reading = readings(placed)
    best = nearest(figures_by_reading)
    rows: list[Cells] = [["published", "", "", *(str(PUBLISHED[part]) for part in PARTS)]]
    for reading, parts in figures_by_reading.items():
        rules = ", SSDsim's rules in full" if reading.ssdsim else ""
        pages = ", unwritten data in 4 KB pages" if reading.small else ""
        way = f"{reading.way}{rules}{pages}{' (nearest)' if reading == best else ''}"
        rows.append([reading.mode, reading.write_complete, way, *(number_cell(parts[part], 1) for part in PARTS)])
    headings = ["Loop", "Write complete", "Unit of parallelism", *(f"{part.capitalize()}, %" for part in PARTS)]
    return TextTable("The hybrid page size under every reading", headings, rows, 3, "sortable")


def _twin(twin: Twin) -> list[Part]:
    """Return a section that compares simulations and profiles of a synthetic trace and its recording."""
    worst, fields = twin.worst, {field.name: field for _, fields in TABLES for field in fields}
    responses = [
        [
            row["reading"],
            row["device"],
            f"{row['recorded_ms']:.3f}",
            f"{row['synthetic_ms']:.3f}",
            signed(row["difference_pct"]),
        ]
        for row in twin.responses
    ]
    profile = [
        [
            fields[row["field"]].heading,
            *(fields[row["field"]].text(row[key]) for key in ("first", "second")),
            difference_text(row, 2),
        ]
        for row in twin.profile
    ]
    return [
        Heading(f"Accuracy of synthesis: {twin.synthetic} from published rows against {twin.recorded}"),
        Note(
            "The synthetic trace is independent of the recording. Its simulated mean response differs by up to "
            f"{abs(worst['difference_pct']):.0f} % ({worst['device']}, {worst['reading']}). In the reading of Figure "
            f"8, hybrid pages shorten the mean response of the recording by {twin.gain[0]:.1f} %, of the synthesis by "
            f"{twin.gain[1]:.1f} %. The clustering of arrivals within a burst is not published, and affects the waits "
            "on a device that executes few operations at a time.",
            "",
        ),
        TextTable(
            f"Simulated responses of {twin.synthetic}",
            ["Reading", "Device", "Recorded, ms", "Synthetic, ms", "Difference, %"],
            responses,
            2,
        ),
        TextTable(f"Profile of {twin.synthetic}", ["Field", "Recorded", "Synthetic", "Difference"], profile),
    ]
