"""HTML views of studies for notebooks, for light and dark backgrounds."""

from typing import TYPE_CHECKING

from emmclab.runtime.document import TextTable
from emmclab.runtime.notebook import heading_html, pairs_html, table_html

if TYPE_CHECKING:
    from emmclab.studies.definition import Study


def study_html(study: "Study") -> str:
    """Return a table of a study's grids with inputs, devices, swept settings and seeds."""
    rows = []
    for grid in study.grids:
        axes = [f"{key} = {', '.join(map(str, values))}" for key, values in grid.axes.items()]
        seeds = ", ".join(map(str, grid.seeds or study.seeds))
        rows.append([grid.name, ", ".join(grid.devices), "; ".join(axes) or "–", ", ".join(grid.modes), seeds])
    facts = [("about", study.about or "–"), ("inputs", ", ".join(study.inputs))]
    headings = ["grid", "devices", "settings", "modes", "seeds"]
    return heading_html("Study", study.name) + pairs_html(facts) + table_html(TextTable("", headings, rows, words=5))
