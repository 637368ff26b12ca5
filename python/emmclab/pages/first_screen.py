"""The first screen of each page: headline, main figures, and picture; and the provenance of the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from emmclab.runtime.number_format import duration, significant, size
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile_fields import Field

#: Units of time with their length in seconds. Values are shown in the unit that suits their size.
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
#: Text for a missing figure.
_NONE = "–"


@dataclass(frozen=True)
class Tile:
    """A box with a figure and its label. `exact` is shown on hover, `note` below; `kind` is a badge's CSS class."""

    label: str
    value: str
    exact: str = ""
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Notice:
    """A reason not to trust the result; `link` refers to the details, `kind` is the CSS class of the badge."""

    badge: str
    text: str
    link: str = ""
    kind: str = "no"


class PageRecord(TypedDict):
    """Machine-readable data in a page: its provenance, and the simulated runs that it shows."""

    provenance: ProvenanceFields
    runs: NotRequired[list[Mapping[str, object]]]


@dataclass(frozen=True)
class Provenance:
    """Provenance that a page shows: one visible line, and folded details.

    Attributes:
        summary: the visible line.
        lines: label and text of each further fact.
        lost: description of lost records; empty if there are none.
        made: the group `provenance` of results; it is shown before the lines, and `emmclab explain` reads it.
        results: simulated runs, which `emmclab explain` reads from the page.
    """

    summary: str
    lines: Sequence[tuple[str, Any]] = ()
    lost: str = ""
    made: ProvenanceFields = field(default_factory=lambda: ProvenanceFields())
    results: Sequence[Mapping[str, object]] = ()

    @property
    def made_lines(self) -> list[tuple[str, str]]:
        """Lines of the provenance: label and text of the command, of each input and of the changed settings."""
        lines = [("Command", self.made["command"])] if self.made.get("command") else []
        for label, inputs in (
            ("Input", self.made.get("inputs", [])),
            ("Preconditioned by", self.made.get("aged_by", [])),
        ):
            for record in inputs:
                digest = record["sha256"] or "unknown, because the input was not a regular file"
                options = "".join(f", {key} = {value}" for key, value in record.get("reading", {}).items())
                lines.append((f"{label} {record['name']}", f"SHA-256 {digest}{options}"))
        for device, changes in self.made.get("settings", {}).items():
            text = ", ".join(f"{key} = {value}" for key, value in changes.items()) or "none"
            lines.append((f"Settings of {device} that differ from its preset", text))
        return lines

    @property
    def record(self) -> PageRecord | None:
        """The data that programs read from the page; None if the provenance is unknown."""
        if not self.made:
            return None
        if not self.results:
            return {"provenance": self.made}
        return {"provenance": self.made, "runs": list(self.results)}


@dataclass(frozen=True)
class Head:
    """The first screen of a page.

    Attributes:
        answer: the headline, one sentence.
        lead: paragraphs below the headline: what was measured, and how.
        tiles: three to six figures that support the answer.
        notices: reasons not to trust the answer.
        picture: name of the figure that shows the answer; empty if the page has none.
    """

    answer: str
    lead: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    notices: Sequence[Notice] = ()
    picture: str = ""


def note_notices(text: str) -> list[Notice]:
    """Return a text as a list of one notice; an empty list if the text is empty."""
    return [Notice("note", text)] if text else []


def tile(label: str, value: float | None, unit: str = "", *, digits: int = 3, note: str = "") -> Tile:
    """Return a tile (box) with a figure in a suitable unit; the exact value is shown on hover."""
    return Tile(label, amount(value, unit, digits), exact(value, unit), note)


def tile_of(figure: Field, value: float | None, *, note: str = "") -> Tile:
    """Return a tile (box) with the value of a field of a profile."""
    unit = figure.unit
    text = amount(value, unit) if unit in _TIMES or unit in _SIZES else f"{figure.text(value)} {unit}".strip()
    return Tile(figure.label, text, exact(value, unit), note)


def amount(value: float | None, unit: str = "", digits: int = 3) -> str:
    """Format a figure in a suitable unit, with `digits` significant digits.

    >>> [amount(63_668, "KB"), amount(250.3, "s"), amount(0.42, "ms"), amount(86.4, "%"), amount(None, "ms")]
    ['62.2 MB', '4.17 min', '420 us', '86.4 %', '–']
    """
    if value is None:
        return _NONE
    if unit in _TIMES:
        return duration(value * _TIMES[unit])
    if unit in _SIZES:
        return size(value * _SIZES[unit])
    return f"{significant(value, digits)} {unit}".strip()


def exact(value: float | None, unit: str = "") -> str:
    """Format a figure without rounding, in its original unit.

    >>> exact(63_668, "KB"), exact(None)
    ('63,668 KB', '')
    """
    if value is None:
        return ""
    text = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".strip()


def lost(ledgers: Iterable[Mapping[str, int | None]]) -> str:
    """Return a text with the total number of lost records of several traces; empty if none were lost.

    >>> lost([{"lost": 2}, {"lost": 0}]), lost([{}])
    ('2 lost', '')
    """
    count = sum(ledger.get("lost") or 0 for ledger in ledgers)
    return f"{count:,} lost" if count else ""
