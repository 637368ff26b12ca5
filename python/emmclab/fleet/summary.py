"""Summarises a fleet (percentiles of figures by group, and outliers), compares two fleets, and returns text tables."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, median
from typing import Any, TypedDict

from emmclab.errors import ConfigError
from emmclab.fleet.table import COMPARED, FIGURES, TOTALS, Table
from emmclab.runtime.document import TextTable, difference_text, duration, figure_difference, signed
from emmclab.runtime.lists import Names, listed_names
from emmclab.runtime.statistics import (
    cliffs_delta,
    effect,
    holm,
    least_p,
    mann_whitney,
    recordings_needed,
    recordings_to_show,
)
from emmclab.traces.profile_fields import Field

#: Percentiles that summarise the distribution of a figure over recordings.
POINTS = (0, 5, 25, 50, 75, 95, 100)
#: Modified z-score above which a value is an outlier (Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993).
OUTLYING = 3.5
#: Minimum number of values for which outliers are reported.
LEAST_FOR_OUTLIERS = 8


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values, by linear interpolation.

    >>> percentile([1.0, 2.0, 4.0], 50), percentile([1.0, 2.0], 75)
    (2.0, 1.75)
    """
    position = (len(ordered) - 1) * share / 100
    lower = math.floor(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (position - lower) * (ordered[upper] - ordered[lower])


def deviations(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """Return the modified z-score of each value: its distance from the median in robust standard deviations.

    The score is 0.6745 (x - median) / MAD, where MAD is the median of the distances from the median. If more than half
    of the values are equal, MAD is 0 and the mean distance (times 1.2533) is used instead. With `logarithmic`,
    distances are those of logarithms if all values are above 0, because times, sizes and rates differ by factors.

    >>> [round(score, 2) for score in deviations([1, 2, 3, 4, 40], logarithmic=False)]
    [-1.35, -0.67, 0.0, 0.67, 24.96]
    >>> deviations([7, 7, 7], logarithmic=False)
    [0.0, 0.0, 0.0]
    """
    if logarithmic and min(values) > 0:
        values = [math.log(value) for value in values]
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    unit = median(distances) / NormalDist().inv_cdf(0.75)
    unit = unit or math.sqrt(math.pi / 2) * sum(distances) / len(distances)
    return [(value - middle) / unit if unit else 0.0 for value in values]


#: Name of the group of all recordings.
ALL = "all recordings"
#: Text that replaces the value of a metadata key that a recording does not have.
NONE = "(none)"


@dataclass(frozen=True)
class Group:
    """Recordings with the same values of the grouping keys."""

    name: str
    recordings: int
    #: Sorted values of each main figure, without recordings that lack the figure.
    values: dict[str, list[float]]

    def points(self, figure: str) -> list[float] | None:
        """Return a figure's percentiles `POINTS` over the recordings; None if no recording has it."""
        values = self.values[figure]
        return [percentile(values, point) for point in POINTS] if values else None

    def median(self, figure: str) -> float | None:
        """Return the median of a figure over the recordings of the group that have it."""
        values = self.values[figure]
        return median(values) if values else None


@dataclass(frozen=True)
class Outlier:
    """A recording, and the figure in which it is an outlier among the recordings of its group."""

    path: str
    group: str
    field: Field
    value: float
    median: float
    #: Modified z-score: distance from the median in robust standard deviations.
    score: float


class GroupFields(TypedDict):
    """The JSON form of a `Group`: for each figure, the number of recordings that have it, and its percentiles."""

    group: str
    recordings: int
    figures: dict[str, dict[str, float | None]]


class OutlierFields(TypedDict):
    """The JSON form of an `Outlier`."""

    path: str
    group: str
    figure: str
    value: float
    median: float
    score: float


class Refused(TypedDict):
    """A file that could not be read, with the reason."""

    path: str
    reason: str


class SummaryFields(TypedDict):
    """A `Summary` as `emmclab fleet --json` prints it."""

    by: list[str]
    headline: str
    groups: list[GroupFields]
    outliers: list[OutlierFields]
    too_small_for_outliers: list[str]
    refused: list[Refused]


@dataclass(frozen=True)
class Summary:
    """Summary of a fleet."""

    by: tuple[str, ...]
    #: The group of all recordings.
    whole: Group
    #: Groups of recordings, largest first; only `whole` if the recordings are not grouped.
    groups: tuple[Group, ...]
    #: Outliers, highest absolute score first.
    outliers: tuple[Outlier, ...]
    #: Groups with too few recordings to detect outliers.
    too_small: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]

    def headline(self) -> str:
        """Return a sentence with the median of one figure: the first compared figure for which there are values.

        If there are several groups, it contains the lowest and the highest median.
        """
        field = next((field for field in COMPARED if self.whole.values[field.name]), None)
        if field is None:
            count = self.whole.recordings
            return f"{count:,} recording{'s' if count != 1 else ''}, none with a read or write"
        middle = figure_text(field, self.whole.median(field.name))
        groups = [group for group in self.groups if group.values[field.name]]
        if len(groups) < 2:
            count = len(self.whole.values[field.name])
            if count == 1:
                return f"The one recording has a {field.in_words} of {middle}"
            return f"Half of {count:,} recordings have a {field.in_words} of at most {middle}"
        order = sorted(groups, key=lambda group: (group.median(field.name) or 0.0, group.name))
        low, high = order[0], order[-1]
        least, most = figure_text(field, low.median(field.name)), figure_text(field, high.median(field.name))
        if least == most:
            return f"Recordings of every {' and '.join(self.by)} have a median {field.in_words} of {least}"
        is_overlap = percentile(low.values[field.name], 75) >= percentile(high.values[field.name], 25)
        overlap = "; the middle halves of both overlap" if is_overlap else ""
        return (
            f"{high.name} has the highest {field.in_words}, {most}; {low.name} the lowest, {least} "
            f"(medians over recordings){overlap}"
        )

    def to_dict(self) -> SummaryFields:
        """Return the summary as `emmclab fleet --json` prints it."""
        return {
            "by": list(self.by),
            "headline": self.headline(),
            "groups": [_group(group) for group in (self.whole, *(self.groups if self.by else ()))],
            "outliers": [
                {
                    "path": outlier.path,
                    "group": outlier.group,
                    "figure": outlier.field.name,
                    "value": outlier.value,
                    "median": outlier.median,
                    "score": outlier.score,
                }
                for outlier in self.outliers
            ],
            "too_small_for_outliers": list(self.too_small),
            "refused": [{"path": path, "reason": reason} for path, reason in self.refused],
        }


def summarise(table: Table, by: Names = ()) -> Summary:
    """Summarise a fleet, grouped by the keys in `by`, a list or a comma-separated text.

    Raises:
        ConfigError: there is no such key.
    """
    by = listed_names(by, "--by")
    for key in by:
        if key not in table.keys:
            raise ConfigError(
                f"{table.name}: recordings have no key `{key}`",
                field="--by",
                hint=f"use one of {', '.join(table.keys)}, or store recordings in folders named `{key}=VALUE`",
            )
    rows = table.recordings(["path", *by, *(field.name for field in FIGURES)])
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for path, *rest in rows:
        name = ", ".join(NONE if value is None else str(value) for value in rest[: len(by)]) if by else ALL
        parts.setdefault(name, []).append((path, *rest[len(by) :]))
    whole = _grouped(ALL, [row for part in parts.values() for row in part])
    order = sorted(parts, key=lambda name: (-len(parts[name]), name))
    groups = tuple(_grouped(name, parts[name]) for name in order) if by else (whole,)
    outliers = [outlier for name in order for outlier in _outliers(name, parts[name])]
    return Summary(
        tuple(by),
        whole,
        groups,
        tuple(sorted(outliers, key=lambda outlier: (-abs(outlier.score), outlier.path, outlier.field.name))),
        tuple(name for name in order if len(parts[name]) < LEAST_FOR_OUTLIERS),
        tuple(table.refused()),
    )


def figure_text(field: Field, value: float | None) -> str:
    r"""Format a value of a figure with its unit; a dash if it is None.

    >>> figure_text(COMPARED[0], 1.875)
    '1.88\xa0ms'
    """
    return f"{field.text(value)}\u00a0{field.unit}".strip()


def is_amount(field: Field) -> bool:
    """Return whether a figure is an amount, such as a time, size or rate, and not a share in percent."""
    return field.unit != "%"


def _grouped(name: str, rows: Sequence[tuple[Any, ...]]) -> Group:
    values = {
        field.name: sorted(row[column] for row in rows if row[column] is not None)
        for column, field in enumerate(FIGURES, 1)
    }
    return Group(name, len(rows), values)


def _outliers(group: str, rows: Sequence[tuple[Any, ...]]) -> list[Outlier]:
    outliers = []
    for column, field in enumerate(FIGURES, 1):
        known = [(row[0], row[column]) for row in rows if row[column] is not None]
        if len(known) < LEAST_FOR_OUTLIERS:
            continue
        values = [value for _, value in known]
        scores = deviations(values, logarithmic=is_amount(field))
        middle = median(values)
        outliers += [
            Outlier(path, group, field, value, middle, score)
            for (path, value), score in zip(known, scores, strict=True)
            if abs(score) > OUTLYING
        ]
    return outliers


def _group(group: Group) -> GroupFields:
    figures: dict[str, dict[str, float | None]] = {}
    for field in FIGURES:
        points: Sequence[float | None] = group.points(field.name) or [None] * len(POINTS)
        names = (f"p{point}" for point in POINTS)
        figures[field.name] = {"known": len(group.values[field.name]), **dict(zip(names, points, strict=True))}
    return {"group": group.name, "recordings": group.recordings, "figures": figures}


#: Ratio of the median durations of two fleets above which a difference in totals is attributed to the durations.
_MUCH_LONGER = 1.1

#: Significance level: accepted probability that any of the figures shows a difference by chance.
ALPHA = 0.05


@dataclass(frozen=True)
class FleetDifference:
    """Comparison of one figure of the recordings of two fleets."""

    field: Field
    #: Number of recordings of the first fleet that have the figure.
    before_recordings: int
    after_recordings: int
    before_median: float | None
    after_median: float | None
    #: Cliff's delta: the share of pairs in which the second value is larger, minus that in which it is smaller.
    delta: float | None
    #: Two-sided p-value of the Mann-Whitney test.
    p: float | None
    #: The p-value corrected for the number of figures (Holm); None if there are too few recordings.
    corrected_p: float | None
    #: Number of recordings that each fleet needs to show any difference (verdict `too few recordings`), or to show a
    #: difference of the measured size (verdict `no difference shown`). None for other verdicts.
    needed: int | None
    #: Verdict on the figure: `higher`, `lower`, `no difference shown`, `too few recordings` or `not recorded`.
    verdict: str

    @property
    def change(self) -> str:
        """The change of the median: in percent, or in percentage points for a share."""
        is_share = not is_amount(self.field)
        return difference_text(figure_difference(self.before_median, self.after_median, is_share=is_share))

    @property
    def effect(self) -> str:
        """The size of the difference (Cliff's delta) in words; a dash if it is not known."""
        return "–" if self.delta is None else effect(self.delta)


class ComparedFleet(SummaryFields):
    """The summary of one of two compared fleets, with the name of the fleet."""

    name: str


class ComparisonFields(TypedDict):
    """A `FleetComparison` as `emmclab fleet --against --json` prints it.

    `differences` have the fields of `FleetDifference`.
    """

    headline: str
    before: ComparedFleet
    after: ComparedFleet
    tests: int
    alpha: float
    differences: list[dict[str, object]]
    cautions: list[str]


@dataclass(frozen=True)
class FleetComparison:
    """Comparison of two fleets; `names` are their names."""

    names: tuple[str, str]
    before: Summary
    after: Summary
    differences: tuple[FleetDifference, ...]
    #: Warnings about differences in how the two fleets were recorded or profiled.
    cautions: tuple[str, ...]

    @property
    def tests(self) -> int:
        """Number of figures that both fleets have; p-values are corrected for this number of tests."""
        return sum(difference.delta is not None for difference in self.differences)

    def headline(self) -> str:
        """Return the result of the comparison in a sentence."""
        first, second = self.names
        differing = [difference for difference in self.differences if difference.verdict in ("higher", "lower")]
        if differing:
            difference = differing[0]
            label = difference.field.label[:1].lower() + difference.field.label[1:]
            return (
                f"{second} has a {difference.verdict} {label} than {first}: "
                f"{figure_text(difference.field, difference.after_median)}, "
                f"not {figure_text(difference.field, difference.before_median)} (medians over recordings); "
                f"{len(differing)} of {self.tests} figures differ"
            )
        counts = f"{self.before.whole.recordings:,} and {self.after.whole.recordings:,} recordings"
        # Figures that are equal in all recordings (p = 1) cannot show a difference.
        if any(difference.verdict == "no difference shown" and difference.p != 1 for difference in self.differences):
            return (
                f"{first} and {second} are not told apart: no difference is shown in {self.tests} figures "
                f"({counts}), which does not prove that there is none"
            )
        if any(difference.verdict == "too few recordings" for difference in self.differences):
            untestable = [difference for difference in self.differences if difference.verdict == "too few recordings"]
            needed = max(difference.needed for difference in untestable if difference.needed is not None)
            return (
                f"Too few recordings to tell {first} from {second}: {counts}; fewer than {needed:,} of each "
                f"cannot show a difference in one of {self.tests} figures"
            )
        return f"{first} and {second} have no figure in common ({counts})"

    def to_dict(self) -> ComparisonFields:
        """Return the comparison as `emmclab fleet --against --json` prints it."""
        rows: list[dict[str, object]] = []
        for difference in self.differences:
            numbers = {name: value for name, value in asdict(difference).items() if name != "field"}
            effect = None if difference.delta is None else difference.effect
            rows.append({"figure": difference.field.name, **numbers, "effect": effect})
        return {
            "headline": self.headline(),
            "before": {"name": self.names[0], **self.before.to_dict()},
            "after": {"name": self.names[1], **self.after.to_dict()},
            "tests": self.tests,
            "alpha": ALPHA,
            "differences": rows,
            "cautions": list(self.cautions),
        }


def compare(before: Table, after: Table, names: tuple[str, str]) -> FleetComparison:
    """Compare two fleets by each figure of `COMPARED`; each recording counts equally."""
    first, second = summarise(before), summarise(after)
    cautions = []
    identities = (before.description["identity"], after.description["identity"])
    if identities[0]["reading"] != identities[1]["reading"]:
        cautions.append("The two fleets were read with different options.")
    if len({(identity["version"], identity["build"]) for identity in identities}) > 1:
        cautions.append("The two fleets were profiled by different builds of emmclab.")
    lengths = [summary.whole.median("duration_s") for summary in (first, second)]
    if all(lengths) and max(lengths) > _MUCH_LONGER * min(lengths):  # type: ignore[type-var, operator]
        labels = ", ".join(total.label.lower() for total in TOTALS)
        cautions.append(
            f"The recordings differ in length (medians {duration(lengths[0])} and "
            f"{duration(lengths[1])}): totals ({labels}) depend on it."
        )
    return FleetComparison(names, first, second, tuple(_differences(first.whole, second.whole)), tuple(cautions))


def _differences(before: Group, after: Group) -> Sequence[FleetDifference]:
    pairs = [(field, before.values[field.name], after.values[field.name]) for field in COMPARED]
    common = [(field.name, first, second) for field, first, second in pairs if first and second]
    p_values = {name: mann_whitney(first, second) for name, first, second in common}
    testable = {name: p_values[name] for name, first, second in common if least_p(first, second) * len(common) <= ALPHA}
    corrected = dict(zip(testable, holm(list(testable.values()), len(common)), strict=True))
    differences = []
    for field, first, second in pairs:
        delta = cliffs_delta(first, second) if first and second else None
        p = corrected.get(field.name)
        if delta is None:
            verdict = "not recorded"
        elif p is None:
            verdict = "too few recordings"
        elif p > ALPHA:
            verdict = "no difference shown"
        else:
            verdict = "higher" if delta > 0 else "lower"
        needed = None
        # If values are tied, more recordings may be needed than the formula gives. At least one more than now is
        # required.
        least = min(len(first), len(second)) + 1
        if delta == 0 and len({*first, *second}) == 1:
            verdict = "no difference shown"
        elif verdict == "too few recordings":
            needed = max(recordings_needed(len(common), ALPHA), least)
        elif verdict == "no difference shown" and delta:
            needed = max(recordings_to_show(delta, len(common), ALPHA) or 0, least)
        differences.append(
            FleetDifference(
                field,
                len(first),
                len(second),
                before.median(field.name),
                after.median(field.name),
                delta,
                p_values.get(field.name),
                p,
                needed,
                verdict,
            )
        )
    return differences


#: Explanation of how outliers are detected.
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
    "of each fleet that can show a difference; if none is shown, the number that shows one of the measured size "
    "in 4 of 5 cases (Noether, 1987)"
)
_HEADINGS = tuple({0: "Least", 50: "Median", 100: "Most"}.get(point, f"p{point}") for point in POINTS)


def figures_table(summary: Summary) -> TextTable:
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


def outliers_table(summary: Summary, most: int) -> TextTable:
    """Return the table of the `most` recordings with the highest scores, each with its outlying figures."""
    rows = []
    for outliers in _by_recording(summary)[:most]:
        outlier = outliers[0]
        value, middle = figure_text(outlier.field, outlier.value), figure_text(outlier.field, outlier.median)
        others = ", ".join(other.field.label for other in outliers[1:])
        rows.append([outlier.path, outlier.field.label, others, value, middle, signed(outlier.score)])
    headings = ["Recording", "Farthest in", "Also in", "Value", "Median of group", "Score"]
    return TextTable("Outliers", headings, rows, 3)


def _by_recording(summary: Summary) -> list[list[Outlier]]:
    """Group the outliers by recording, highest absolute score first."""
    by_path: dict[str, list[Outlier]] = {}
    for outlier in summary.outliers:
        by_path.setdefault(outlier.path, []).append(outlier)
    return list(by_path.values())


def outlier_remarks(summary: Summary, most: int) -> Iterator[str]:
    """Yield notes on the table of outliers: how they are detected, and which rows and groups it leaves out."""
    left_out = len(_by_recording(summary)) - most
    if left_out > 0:
        yield f"{left_out:,} more recordings are in the output of --json."
    if summary.outliers:
        yield f"{OUTLIER_RULE}."
    if summary.too_small:
        groups = ", ".join(summary.too_small[:5]) + (" and others" if len(summary.too_small) > 5 else "")
        where = f" in {groups}" if summary.by else ""
        yield f"No outliers are reported{where}: there are fewer than {LEAST_FOR_OUTLIERS} recordings."


def refused_table(refusals: Sequence[tuple[str, str]], most: int) -> TextTable:
    """Return the table of the files that could not be read."""
    return TextTable("Refused", ["File", "Reason"], [list(refusal) for refusal in refusals[:most]], 2)


def differences_table(comparison: FleetComparison) -> TextTable:
    """Return the table that compares each figure of two fleets."""
    first, second = comparison.names
    headings = ["Figure", "Verdict", first, second, "Change", "Cliff's delta", "p", "Corrected p", "Needed"]
    rows = [
        [
            difference.field.heading,
            difference.verdict,
            difference.field.text(difference.before_median),
            difference.field.text(difference.after_median),
            difference.change,
            "–" if difference.delta is None else f"{signed(difference.delta, 2)} ({difference.effect})",
            _p(difference.p),
            _p(difference.corrected_p),
            "–" if difference.needed is None else f"{difference.needed:,}",
        ]
        for difference in comparison.differences
    ]
    return TextTable("Medians over recordings", headings, rows, 2)


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
