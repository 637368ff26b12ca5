"""A figure: a chart of a profile, with the rows that it shows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from emmclab.runtime.table_row import Row
from emmclab.traces.profile import Profile

Rows = list[Row]
#: A chart of altair, whose chained methods have no type annotations.
Chart = Any


@dataclass(frozen=True)
class Figure:
    """A figure; `name` is its field in a profile.

    `paper`: the figure is in the paper. `each`: there is one chart per trace, not one for all. `wide`: it has
    the width of the page. `needs` is a field without which a row cannot be drawn. `source` is the field in a
    profile if it differs from `name`. `fields` are the fields of rows that are drawn; empty means all.
    `optional`: the figure is left out if it has no rows. `of_all`: its rows are of all traces together,
    independent of the trace that they name.
    """

    name: str
    title: str
    about: str
    draw: Callable[[Rows], Chart]
    paper: bool = False
    each: bool = False
    wide: bool = False
    needs: str = "trace"
    source: str = ""
    fields: tuple[str, ...] = ()
    optional: bool = False
    of_all: bool = False

    def rows(self, profiles: Iterable[Profile]) -> Rows:
        """Return the rows that are drawn."""
        rows = []
        for profile in profiles:
            for row in profile["figures"][self.source or self.name]:
                own = {name: row.get(name) for name in self.fields} if self.fields else row
                rows.append({"trace": profile.name, **own})
        return rows

    def can_draw(self, rows: Rows) -> bool:
        """Return whether any row has the values that the chart needs."""
        return any(row.get(self.needs) is not None for row in rows)


def specification(chart: Chart) -> dict[str, Any]:
    """Return a chart in Vega-Lite.

    It is not checked against the schema of Vega-Lite, which takes longer than the rest of a page. The tests
    of the pages check it.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec
