"""Prints what a trace recorded besides its requests, such as journal commits."""

from rich.console import Console

from emmclab.cli.show_profile import show_table
from emmclab.traces.activity import Activity, activity_tables


def show_activity(console: Console, activity: Activity) -> None:
    """Print the activity that was recorded besides the requests, such as journal commits."""
    for part in activity_tables({**activity, "journals": []}):
        show_table(console, part)
    # One line per journal; usually there is only one.
    for row in activity.get("journals", []):
        parts = f"{row['commits']:,} commits, {row['blocks']:,} blocks, {row['handles']:,} handles"
        console.print(f"journal of {row['device']}: {parts}", markup=False)
