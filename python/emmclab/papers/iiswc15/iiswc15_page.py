"""The page of the study `iiswc15`: a summary, then every table and figure with the published values."""

from collections.abc import Mapping, Sequence

from emmclab.papers.iiswc15.findings import findings
from emmclab.papers.iiswc15.hybrid import PARTS, PUBLISHED, Twin, nearest, readings, twins
from emmclab.papers.iiswc15.plots import drawings as drawings
from emmclab.papers.iiswc15.recorded_workload import origin
from emmclab.papers.measures import table
from emmclab.papers.pages import PageContent, ledger_table
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
    number_cell,
)
from emmclab.runtime.number_format import difference_text, signed
from emmclab.studies.results import Results, in_place, stand_ins, with_substitutes
from emmclab.traces.profile_fields import TABLES, Field
from emmclab.traces.published import published, published_cells


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
    parts += _readings(placed).titled()
    for twin in twins(results):
        parts += _twin(twin)
    return parts


def _readings(placed: Results) -> TextTable:
    figures_by_reading = readings(placed)
    best = nearest(figures_by_reading)
    rows: list[Cells] = [["published", "", "", *(str(PUBLISHED[part]) for part in PARTS)]]
    for reading, parts in figures_by_reading.items():
        rules = ", SSDsim's rules in full" if reading.ssdsim else ""
        way = f"{reading.way}{rules}{' (nearest)' if reading == best else ''}"
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
