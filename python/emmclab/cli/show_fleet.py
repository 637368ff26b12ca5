"""Prints summaries and comparisons of fleets."""

from rich.console import Console
from rich.text import Text

from emmclab.cli.tables import show_table
from emmclab.fleet.summary import (
    TEST_RULE,
    FleetComparison,
    Summary,
    differences_table,
    figures_table,
    outlier_remarks,
    outliers_table,
    refused_table,
)


def show_summary(console: Console, summary: Summary, most: int) -> None:
    """Print the summary sentence, figures over all recordings, and the first `most` outliers and unreadable files."""
    console.print(Text(summary.headline(), "bold"), soft_wrap=True)
    show_table(console, figures_table(summary))
    if summary.outliers:
        show_table(console, outliers_table(summary, most))
    for text in outlier_remarks(summary, most):
        console.print(Text(text, "dim"), soft_wrap=True)
    _show_refused(console, summary, most)


def show_comparison(console: Console, comparison: FleetComparison, most: int) -> None:
    """Print the summary sentence, each figure of both fleets, the test, and the first `most` unreadable files."""
    console.print(Text(comparison.headline(), "bold"), soft_wrap=True)
    for text in comparison.cautions:
        console.print(Text(text, "yellow"), soft_wrap=True)
    show_table(console, differences_table(comparison))
    console.print(Text(f"{TEST_RULE}.", "dim"), soft_wrap=True)
    for summary in (comparison.before, comparison.after):
        _show_refused(console, summary, most)


def _show_refused(console: Console, summary: Summary, most: int) -> None:
    if summary.refused:
        show_table(console, refused_table(summary.refused, most))
        if len(summary.refused) > most:
            console.print(Text(f"{len(summary.refused) - most:,} more are in the table.", "dim"))
