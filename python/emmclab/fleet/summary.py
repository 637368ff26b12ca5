"""Summarises a fleet: each main figure over the recordings, by group, and the outliers."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypedDict

from emmclab.errors import ConfigError
from emmclab.fleet.distribution import LEAST_FOR_OUTLIERS, OUTLYING, POINTS, deviations, percentile
from emmclab.fleet.main_figures import COMPARED, FIGURES
from emmclab.fleet.table import Table
from emmclab.runtime.lists import Names, listed_names
from emmclab.traces.profile_fields import Field

#: Name of the group of all recordings.
ALL = "all recordings"
#: Text for a key that a recording does not have.
NONE = "(none)"


@dataclass(frozen=True)
class Group:
    """Recordings with the same values of the grouping keys."""

    name: str
    recordings: int
    #: Known values of each main figure, sorted.
    values: dict[str, list[float]]

    def points(self, figure: str) -> list[float] | None:
        """Return a figure's percentiles `POINTS` over the recordings; None if no recording has it."""
        known = self.values[figure]
        return [percentile(known, point) for point in POINTS] if known else None

    def median(self, figure: str) -> float | None:
        """Return the median of a figure over the recordings that have it."""
        known = self.values[figure]
        return median(known) if known else None


@dataclass(frozen=True)
class Outlier:
    """A recording that is an outlier in its group in one figure."""

    path: str
    group: str
    field: Field
    value: float
    median: float
    #: Modified z-score: robust standard deviations from the median.
    score: float


class GroupFields(TypedDict):
    """The JSON form of a `Group`: by figure, the number of recordings that have it, and its percentiles."""

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
    #: The groups, largest first; only `whole` if nothing is grouped.
    groups: tuple[Group, ...]
    #: Outliers, farthest first.
    outliers: tuple[Outlier, ...]
    #: Groups with too few recordings for finding outliers.
    too_small: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]

    def headline(self) -> str:
        """Return the result in a sentence.

        It contains the first compared figure that recordings have; of several groups, the lowest and the
        highest.
        """
        field = next((one for one in COMPARED if self.whole.values[one.name]), None)
        if field is None:
            return f"{_counted(self.whole.recordings, 'recording')}, none with a read or write"
        middle = figure_text(field, self.whole.median(field.name))
        known = [one for one in self.groups if one.values[field.name]]
        if len(known) < 2:
            of = len(self.whole.values[field.name])
            if of == 1:
                return f"The one recording has a {field.in_words} of {middle}"
            return f"Half of {of:,} recordings have a {field.in_words} of at most {middle}"
        order = sorted(known, key=lambda one: (one.median(field.name) or 0.0, one.name))
        low, high = order[0], order[-1]
        least, most = figure_text(field, low.median(field.name)), figure_text(field, high.median(field.name))
        if least == most:
            return f"Recordings of every {' and '.join(self.by)} have a median {field.in_words} of {least}"
        overlap = "; the middle halves of both overlap" if _overlap(low, high, field.name) else ""
        return (
            f"{high.name} has the highest {field.in_words}, {most}; {low.name} the lowest, {least} "
            f"(medians over recordings){overlap}"
        )

    def to_dict(self) -> SummaryFields:
        """Return the summary as `emmclab fleet --json` prints it."""
        return {
            "by": list(self.by),
            "headline": self.headline(),
            "groups": [_group(one) for one in (self.whole, *(one for one in self.groups if self.by))],
            "outliers": [
                {
                    "path": one.path,
                    "group": one.group,
                    "figure": one.field.name,
                    "value": one.value,
                    "median": one.median,
                    "score": one.score,
                }
                for one in self.outliers
            ],
            "too_small_for_outliers": list(self.too_small),
            "refused": [{"path": path, "reason": reason} for path, reason in self.refused],
        }


def summarise(table: Table, by: Names = ()) -> Summary:
    """Summarise a fleet, grouped by keys of its metadata; a text separates the keys by commas.

    Raises:
        ConfigError: there is no such key.
    """
    by = listed_names(by, "--by")
    for key in by:
        if key not in table.keys:
            raise ConfigError(
                f"{table.name}: recordings have no key `{key}`",
                field="--by",
                hint=f"use one of {', '.join(table.keys)}; recordings in folders `{key}=VALUE` have it",
            )
    rows = table.recordings(["path", *by, *(one.name for one in FIGURES)])
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
        tuple(sorted(outliers, key=lambda one: (-abs(one.score), one.path, one.field.name))),
        tuple(name for name in order if len(parts[name]) < LEAST_FOR_OUTLIERS),
        tuple(table.refused()),
    )


def _overlap(low: Group, high: Group, figure: str) -> bool:
    """Return whether the interquartile ranges of two groups overlap."""
    return percentile(low.values[figure], 75) >= percentile(high.values[figure], 25)


def figure_text(field: Field, value: float | None) -> str:
    r"""Format a value of a figure with its unit.

    >>> figure_text(COMPARED[0], 1.875)
    '1.88\xa0ms'
    """
    return f"{field.text(value)}\u00a0{field.unit}".strip()


def is_amount(field: Field) -> bool:
    """Return whether values of a figure differ by factors, like times, sizes and rates, but not shares."""
    return field.unit != "%"


def _grouped(name: str, rows: Sequence[tuple[Any, ...]]) -> Group:
    values = {
        field.name: sorted(row[place] for row in rows if row[place] is not None)
        for place, field in enumerate(FIGURES, 1)
    }
    return Group(name, len(rows), values)


def _outliers(group: str, rows: Sequence[tuple[Any, ...]]) -> list[Outlier]:
    found = []
    for place, field in enumerate(FIGURES, 1):
        known = [(row[0], row[place]) for row in rows if row[place] is not None]
        if len(known) < LEAST_FOR_OUTLIERS:
            continue
        values = [value for _, value in known]
        scores = deviations(values, logarithmic=is_amount(field))
        middle = median(values)
        found += [
            Outlier(path, group, field, value, middle, score)
            for (path, value), score in zip(known, scores, strict=True)
            if abs(score) > OUTLYING
        ]
    return found


def _group(group: Group) -> GroupFields:
    figures: dict[str, dict[str, float | None]] = {}
    for field in FIGURES:
        points: Sequence[float | None] = group.points(field.name) or [None] * len(POINTS)
        names = (f"p{point}" for point in POINTS)
        figures[field.name] = {"known": len(group.values[field.name]), **dict(zip(names, points, strict=True))}
    return {"group": group.name, "recordings": group.recordings, "figures": figures}


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"
