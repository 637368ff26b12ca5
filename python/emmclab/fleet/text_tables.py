"""Formats a fleet as tables of text, for terminal and pages."""

from collections.abc import Iterator, Sequence

from emmclab.fleet.comparison import ALPHA, Comparison
from emmclab.fleet.distribution import LEAST_FOR_OUTLIERS, OUTLYING, POINTS
from emmclab.fleet.main_figures import FIGURES
from emmclab.fleet.summary import Outlier, Summary, figure_text
from emmclab.runtime.document import TextTable
from emmclab.runtime.number_format import signed

#: Explanation of how outliers are found.
OUTLIER_RULE = (
    f"An outlier is more than {OUTLYING:g} robust standard deviations (MAD / 0.6745) from the median of its "
    "group, by logarithms for times, sizes and rates (Iglewicz and Hoaglin, 1993)"
)
#: Explanation of how two fleets are compared.
TEST_RULE = (
    "Mann-Whitney test, each recording as one value; exact for up to 60 recordings. p is corrected for the "
    f"number of figures by Holm's method; p <= {ALPHA:g} shows a difference. Cliff's delta is the share of "
    "pairs in which the second is larger, minus the share in which it is smaller. There are too few "
    "recordings if even complete separation would not reach that corrected p. Needed: number of recordings "
    "of each fleet that can show a difference; if none is shown, the number that shows one of the size found "
    "in 4 of 5 cases (Noether, 1987)"
)
_HEADINGS = tuple({0: "Least", 50: "Median", 100: "Most"}.get(point, f"p{point}") for point in POINTS)


def figures(summary: Summary) -> TextTable:
    """Return the percentiles of each main figure over the recordings, with a row for each group."""
    rows = []
    for field in FIGURES:
        for group in summary.groups:
            points = group.points(field.name)
            cells = [field.text(value) for value in points] if points else ["–"] * len(POINTS)
            names = [field.heading, group.name] if summary.by else [field.heading]
            rows.append([*names, f"{len(group.values[field.name]):,}", *cells])
    first = ["Figure", ", ".join(summary.by)] if summary.by else ["Figure"]
    return TextTable("Over recordings", [*first, "Known", *_HEADINGS], rows, len(first))


def outliers(summary: Summary, most: int) -> TextTable:
    """Return the table of the outliers farthest from their group, each with its outlying figures."""
    rows = []
    for found in _by_recording(summary)[:most]:
        one = found[0]
        value, middle = figure_text(one.field, one.value), figure_text(one.field, one.median)
        others = ", ".join(other.field.label for other in found[1:])
        rows.append([one.path, one.field.label, others, value, middle, signed(one.score)])
    headings = ["Recording", "Farthest in", "Also in", "Value", "Median of group", "Score"]
    return TextTable("Outliers", headings, rows, 3)


def _by_recording(summary: Summary) -> list[list[Outlier]]:
    """Group the outlying figures by recording, farthest first."""
    found: dict[str, list[Outlier]] = {}
    for one in summary.outliers:
        found.setdefault(one.path, []).append(one)
    return list(found.values())


def outlier_remarks(summary: Summary, most: int) -> Iterator[str]:
    """Yield notes on what the table of outliers leaves out, and on its rule."""
    left_out = len(_by_recording(summary)) - most
    if left_out > 0:
        yield f"{left_out:,} more recordings are in the output of --json."
    if summary.outliers:
        yield f"{OUTLIER_RULE}."
    if summary.too_small:
        groups = ", ".join(summary.too_small[:5]) + (" and others" if len(summary.too_small) > 5 else "")
        whose = f" in {groups}" if summary.by else ""
        yield f"No outliers are named{whose}: there are fewer than {LEAST_FOR_OUTLIERS} recordings."


def refused(refusals: Sequence[tuple[str, str]], most: int) -> TextTable:
    """Return the table of the files that could not be read."""
    return TextTable("Refused", ["File", "Reason"], [list(one) for one in refusals[:most]], 2)


def differences(comparison: Comparison) -> TextTable:
    """Return the table that compares each figure of two fleets."""
    first, second = comparison.names
    headings = ["Figure", "Verdict", first, second, "Change", "Cliff's delta", "p", "Corrected p", "Needed"]
    rows = [
        [
            one.field.heading,
            one.verdict,
            one.field.text(one.before_median),
            one.field.text(one.after_median),
            one.change,
            "–" if one.delta is None else f"{signed(one.delta, 2)} ({one.effect})",
            _p(one.p),
            _p(one.corrected_p),
            "–" if one.needed is None else f"{one.needed:,}",
        ]
        for one in comparison.differences
    ]
    return TextTable("Medians over recordings", headings, rows, 2)


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
