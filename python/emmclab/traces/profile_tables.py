"""The tables of profiles that have rows for some traces only: clock jumps, re-issues, devices."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emmclab.runtime.document import Cells, Column, Number, TextTable
from emmclab.traces.profile import Profile
from emmclab.traces.profile_fields import DEVICE_FIELDS, JUMP_FIELDS, KEY_FIELDS, REISSUE_FIELDS, Field, jump_cells

#: Fields of clock jumps that are words.
_WORDS = ("direction", "mended")


def clock_tables(profiles: Sequence[Profile], most: int | None = None) -> Iterator[TextTable]:
    """Yield the table of clock jumps, of each trace at most `most`, and that of the figures without them."""
    rows: list[Cells] = []
    for profile in profiles:
        jumps = profile.clock_jumps
        for jump in jumps[:most]:
            values: Mapping[str, Any] = {**jump}
            cells = zip(JUMP_FIELDS, jump_cells(jump), strict=True)
            rows.append(
                [
                    profile.name,
                    *(text if field.name in _WORDS else Number(text, values[field.name]) for field, text in cells),
                ]
            )
        if most is not None and len(jumps) > most:
            left_out = f"and {len(jumps) - most} more"
            rows.append([profile.name, left_out, *([""] * (len(JUMP_FIELDS) - 1))])
    if not rows:
        return
    columns = [one.column._replace(is_text=one.name in _WORDS) for one in JUMP_FIELDS]
    headings: list[str | Column] = ["Application", *columns]
    yield TextTable("Clock jumps or pauses of the recording", headings, rows, style="sortable")
    caption = "`--mend-clock` removes the jumps from all figures"
    yield _table("Key figures with and without the jumps", KEY_FIELDS, _without_jumps(profiles), caption)


def devices_table(profiles: Sequence[Profile]) -> TextTable:
    """Return the devices of traces with several devices, which have separate address spaces."""
    rows = [
        [profile.name, row["device"], *(field.text(row[field.name]) for field in DEVICE_FIELDS)]
        for profile in profiles
        if len(profile.devices) > 1
        for row in profile.devices
    ]
    headings: list[str | Column] = ["Application", "Device", *(field.column for field in DEVICE_FIELDS)]
    caption = "Figures are for all devices together; `--only device=NAME` selects one"
    return TextTable("Devices of the trace", headings, rows, words=2, caption=caption)


def reissues_table(profiles: Sequence[Profile]) -> TextTable:
    """Return the figures with and without suspected re-issues."""
    rows = (
        row
        for profile in profiles
        if (found := profile.reissues) and (without := found["figures_without"])
        for row in ((profile.name, found["figures"]), ("without re-issues", without))
    )
    caption = "`--drop-reissued` removes them from all figures"
    return _table("Figures with and without suspected re-issues", REISSUE_FIELDS, rows, caption)


#: A name, and figures by the name of their field.
_Figures = tuple[str, Any]


def _without_jumps(profiles: Sequence[Profile]) -> Iterator[_Figures]:
    for profile in profiles:
        if (without := profile.get("key_figures_without_jumps")) is not None:
            yield profile.name, profile["key_figures"]
            yield "without the jumps", without


def _table(title: str, fields: Sequence[Field], figures: Iterator[_Figures], caption: str) -> TextTable:
    """Return a table in which each row of figures is above one that differs by what is left out."""
    rows = [
        [f"  {name}" if number % 2 else name, *(field.text(values[field.name]) for field in fields)]
        for number, (name, values) in enumerate(figures)
    ]
    return TextTable(title, ["Application", *(field.column for field in fields)], rows, caption=caption)
