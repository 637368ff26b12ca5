"""Compares two fleets: which main figures differ, by how much, and whether that may be chance."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

from emmclab.fleet.main_figures import COMPARED, TOTALS
from emmclab.fleet.summary import Group, Summary, SummaryFields, figure_text, is_amount, summarise
from emmclab.fleet.table import Table
from emmclab.runtime.difference import change_of
from emmclab.runtime.number_format import duration
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

#: Ratio of the median durations above which totals reflect the lengths of the recordings rather than
#: behaviour.
_MUCH_LONGER = 1.1

#: Accepted probability of any false difference among all figures.
ALPHA = 0.05


@dataclass(frozen=True)
class Difference:
    """Comparison of one figure of two fleets."""

    field: Field
    #: Number of recordings that have the figure.
    before_recordings: int
    after_recordings: int
    before_median: float | None
    after_median: float | None
    #: Cliff's delta: the share of pairs in which the second value is larger, minus that in which it is
    #: smaller.
    delta: float | None
    #: Two-sided p-value of the Mann-Whitney test.
    p: float | None
    #: The p-value corrected for the number of figures (Holm); None if there are too few recordings.
    corrected_p: float | None
    #: Recordings needed in each fleet. With the verdict `too few recordings`: to show any difference; with
    #: `no difference shown`: to show one of the size found. None otherwise.
    needed: int | None
    #: `higher`, `lower`, `no difference shown`, `too few recordings` or `not recorded`.
    verdict: str

    @property
    def change(self) -> str:
        """The change of the median: in percent, or in percentage points for a share."""
        return change_of(self.before_median, self.after_median, is_share=not is_amount(self.field)).text()

    @property
    def effect(self) -> str:
        """The size of the difference in words."""
        return "–" if self.delta is None else effect(self.delta)


class ComparedFleet(SummaryFields):
    """A fleet with its name."""

    name: str


class ComparisonFields(TypedDict):
    """A `Comparison` as `emmclab fleet --against --json` prints it.

    `differences` have the fields of `Difference`.
    """

    headline: str
    before: ComparedFleet
    after: ComparedFleet
    tests: int
    alpha: float
    differences: list[dict[str, object]]
    cautions: list[str]


@dataclass(frozen=True)
class Comparison:
    """Comparison of two fleets, by their names."""

    names: tuple[str, str]
    before: Summary
    after: Summary
    differences: tuple[Difference, ...]
    #: Differences between the fleets that are not in the recordings' figures.
    cautions: tuple[str, ...]

    @property
    def tests(self) -> int:
        """Number of figures that both fleets have, for which p-values are corrected."""
        return sum(one.delta is not None for one in self.differences)

    def headline(self) -> str:
        """Return the result in a sentence."""
        first, second = self.names
        differing = [one for one in self.differences if one.verdict in ("higher", "lower")]
        if differing:
            one = differing[0]
            label = one.field.label[:1].lower() + one.field.label[1:]
            return (
                f"{second} has a {one.verdict} {label} than {first}: "
                f"{figure_text(one.field, one.after_median)}, "
                f"not {figure_text(one.field, one.before_median)} (medians over recordings); "
                f"{len(differing)} of {self.tests} figures differ"
            )
        counts = f"{self.before.whole.recordings:,} and {self.after.whole.recordings:,} recordings"
        # Figures that are equal in all recordings count like those that too few recordings have.
        if any(one.verdict == "no difference shown" and one.p != 1 for one in self.differences):
            return (
                f"{first} and {second} are not told apart: no difference is shown in {self.tests} figures "
                f"({counts}), which does not show that there is none"
            )
        if any(one.verdict == "too few recordings" for one in self.differences):
            few = [one for one in self.differences if one.verdict == "too few recordings"]
            needed = max(one.needed for one in few if one.needed is not None)
            return (
                f"Too few recordings to tell {first} from {second}: {counts}; fewer than {needed:,} of each "
                f"cannot show a difference in one of {self.tests} figures"
            )
        return f"{first} and {second} have no figure in common ({counts})"

    def to_dict(self) -> ComparisonFields:
        """Return the comparison as `emmclab fleet --against --json` prints it."""
        rows: list[dict[str, object]] = []
        for one in self.differences:
            numbers = {name: value for name, value in asdict(one).items() if name != "field"}
            effect = None if one.delta is None else one.effect
            rows.append({"figure": one.field.name, **numbers, "effect": effect})
        return {
            "headline": self.headline(),
            "before": {"name": self.names[0], **self.before.to_dict()},
            "after": {"name": self.names[1], **self.after.to_dict()},
            "tests": self.tests,
            "alpha": ALPHA,
            "differences": rows,
            "cautions": list(self.cautions),
        }


def compare(before: Table, after: Table, names: tuple[str, str]) -> Comparison:
    """Compare two fleets by each figure of `COMPARED`; each recording counts equally."""
    first, second = summarise(before), summarise(after)
    cautions = []
    was, now = before.description["identity"], after.description["identity"]
    if was["reading"] != now["reading"]:
        cautions.append("The two fleets were read with different options.")
    if (was["version"], was["build"]) != (now["version"], now["build"]):
        cautions.append("The two fleets were profiled by different builds of emmclab.")
    lengths = [summary.whole.median("duration_s") for summary in (first, second)]
    if all(lengths) and max(lengths) > _MUCH_LONGER * min(lengths):  # type: ignore[type-var, operator]
        labels = ", ".join(one.label.lower() for one in TOTALS)
        cautions.append(
            f"The recordings differ in length (medians {duration(lengths[0])} and "
            f"{duration(lengths[1])}): totals ({labels}) depend on it."
        )
    return Comparison(names, first, second, tuple(_differences(first.whole, second.whole)), tuple(cautions))


def _differences(before: Group, after: Group) -> Sequence[Difference]:
    pairs = [(field, before.values[field.name], after.values[field.name]) for field in COMPARED]
    known = [(field.name, first, second) for field, first, second in pairs if first and second]
    found_p = {name: mann_whitney(first, second) for name, first, second in known}
    testable = {name: found_p[name] for name, first, second in known if least_p(first, second) * len(known) <= ALPHA}
    corrected = dict(zip(testable, holm(list(testable.values()), len(known)), strict=True))
    found = []
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
        # With ties, more recordings may be needed than for values that all differ.
        least = min(len(first), len(second)) + 1
        if delta == 0 and len({*first, *second}) == 1:
            verdict = "no difference shown"
        elif verdict == "too few recordings":
            needed = max(recordings_needed(len(known), ALPHA), least)
        elif verdict == "no difference shown" and delta:
            needed = max(recordings_to_show(delta, len(known), ALPHA) or 0, least)
        found.append(
            Difference(
                field,
                len(first),
                len(second),
                before.median(field.name),
                after.median(field.name),
                delta,
                found_p.get(field.name),
                p,
                needed,
                verdict,
            )
        )
    return found
