"""The figures: one function each, from rows to a chart, for report pages and `--figures`.

Rows are those of `figures` in a profile's JSON, each with the name of its `trace`; a chart contains them all,
so that a figure shows exactly the data that is stored with it.
"""

from emmclab.pages.plots.chart_parts import chart_of, dots, in_order, symlog, tooltip
from emmclab.pages.plots.figure import Chart, Figure, Rows
from emmclab.pages.plots.figure_files import write_charts, write_figures
from emmclab.pages.plots.profile_figures import FIGURES
from emmclab.runtime.table_row import Row

__all__ = [
    "FIGURES",
    "Chart",
    "Figure",
    "Row",
    "Rows",
    "chart_of",
    "dots",
    "in_order",
    "symlog",
    "tooltip",
    "write_charts",
    "write_figures",
]
