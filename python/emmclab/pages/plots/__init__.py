"""The figures: one function each, from rows to a chart, for report pages and `--figures`.

Rows are those of `figures` in a profile's JSON, each with the name of its `trace`; a chart contains them all,
so that a figure shows exactly the data that is stored with it.
"""

from emmclab.pages.plots.catalogue import FIGURES
from emmclab.pages.plots.figure import Chart, Figure, Rows
from emmclab.pages.plots.files import write_charts, write_figures
from emmclab.pages.plots.marks import chart_of, dots, in_order, symlog, tooltip
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
