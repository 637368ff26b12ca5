"""The first screen of each page: headline, main figures, and picture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from emmclab.runtime.number_format import duration, significant, size
from emmclab.traces.inputs import ProvenanceFields
from emmclab.traces.profile_fields import Field

#: Units that may be replaced by a larger or smaller one, with their length in seconds or bytes.
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
#: Text for a missing figure.
_NONE = "–"


@dataclass(frozen=True)
class Tile:
    """A figure with its label. `exact` is shown on hover, `note` below; `kind` is the badge of a label."""

    label: str
    value: str
    exact: str = ""
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Notice:
    """A reason not to trust the result; `link` leads to the details, `kind` is that of the badge."""

    badge: str
    text: str
    link: str = ""
    kind: str = "no"


class PageRecord(TypedDict):
    """Data for programs in a page: its provenance, and the simulated runs that it shows."""

    provenance: ProvenanceFields
    runs: NotRequired[list[Mapping[str, object]]]


@dataclass(frozen=True)
class Provenance:
    """Provenance of the page: one visible line, and folded details.

    Attributes:
        summary: one line.
        lines: label and text of each further fact.
        lost: description of lost records; empty if there are none.
        made: the group `provenance` of results: shown before the lines, and kept for `emmclab explain`.
        results: simulated runs, which `emmclab explain` finds in the page.
    """

    summary: str
    lines: Sequence[tuple[str, Any]] = ()
    lost: str = ""
    made: ProvenanceFields = field(default_factory=lambda: ProvenanceFields())
    results: Sequence[Mapping[str, object]] = ()

    @property
    def made_lines(self) -> list[tuple[str, str]]:
        """Labels and texts of the command, the inputs and the changed settings."""
        lines = [("Command", self.made["command"])] if self.made.get("command") else []
        for word, inputs in (
            ("Input", self.made.get("inputs", [])),
            ("Preconditioned by", self.made.get("aged_by", [])),
        ):
            for one in inputs:
                known = one["sha256"] or "not known: no file that can be read again"
                read = "".join(f", {key} = {value}" for key, value in one.get("reading", {}).items())
                lines.append((f"{word} {one['name']}", f"SHA-256 {known}{read}"))
        for device, changes in self.made.get("settings", {}).items():
            text = ", ".join(f"{key} = {value}" for key, value in changes.items()) or "none"
            lines.append((f"Settings of {device}, unlike its preset", text))
        return lines

    @property
    def record(self) -> PageRecord | None:
        """Data for programs in a page; None if nothing is known."""
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
        lead: paragraphs below it: what was measured, and on what.
        tiles: three to six figures that support the answer.
        notices: reasons not to trust it.
        picture: name of the figure that shows it; empty if the page has none.
    """

    answer: str
    lead: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    notices: Sequence[Notice] = ()
    picture: str = ""


def note_notices(text: str) -> list[Notice]:
    """Return a note as a notice; an empty list if it is empty."""
    return [Notice("note", text)] if text else []


def tile(label: str, value: float | None, unit: str = "", *, digits: int = 3, note: str = "") -> Tile:
    """Return a tile with a figure in a readable unit; the exact value is shown on hover."""
    return Tile(label, amount(value, unit, digits), exact(value, unit), note)


def tile_of(one: Field, value: float | None, *, note: str = "") -> Tile:
    """Return the tile of a field of a profile."""
    shown = f"{one.text(value)} {one.unit}".strip()
    suits = one.unit in _TIMES or one.unit in _SIZES
    return Tile(one.label, amount(value, one.unit) if suits else shown, exact(value, one.unit), note)


def amount(value: float | None, unit: str = "", digits: int = 3) -> str:
    """Format a figure in a suitable unit, with this many significant digits.

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
    """Format a figure exactly, in its own unit.

    >>> exact(63_668, "KB"), exact(None)
    ('63,668 KB', '')
    """
    if value is None:
        return ""
    text = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".strip()


def lost(ledgers: Iterable[Mapping[str, int | None]]) -> str:
    """Return how many records were lost over all ledgers; empty if none were.

    >>> lost([{"lost": 2}, {"lost": 0}]), lost([{}])
    ('2 lost', '')
    """
    count = sum(ledger.get("lost") or 0 for ledger in ledgers)
    return f"{count:,} lost" if count else ""
