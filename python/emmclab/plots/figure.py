"""A figure: a chart of a profile, and the rows that it is drawn from."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from emmclab.profile import Profile

Row = dict[str, Any]
Rows = list[Row]
#: A chart of altair, whose chained methods carry no types.
Chart = Any


@dataclass(frozen=True)
class Figure:
    """A figure: `name` is its field in a profile.

    `paper` says that the paper has it, `each` that there is one chart per trace, not one for all, `wide` that
    it takes the width of the page, and `needs` names a field without which a row cannot be drawn.
    """

    name: str
    title: str
    about: str
    draw: Callable[[Rows], Chart]
    paper: bool = False
    each: bool = False
    wide: bool = False
    needs: str = "trace"

    def can_draw(self, rows: Rows) -> bool:
        """Tell whether any row has the values that the chart needs."""
        return any(row[self.needs] is not None for row in rows)


def rows_of(profiles: Iterable[Profile], figure: str) -> Rows:
    """Give the rows of a figure for several traces."""
    return [
        {"trace": profile.name, **row} for profile in profiles for row in profile["figures"].get(figure, [])
    ]


def to_csv(rows: Rows) -> str:
    """Write rows as CSV with a header; missing values stay empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
