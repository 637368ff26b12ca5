"""Prints the comparison of the pilot solutions of FAST 2012 with the plain device."""

from rich.console import Console
from rich.text import Text

from emmclab.apps.solution_tables import all_settings_table, settings_of, solutions_table
from emmclab.apps.solutions import SolutionComparison
from emmclab.cli.tables import table_of


def show_comparison(console: Console, comparison: SolutionComparison) -> None:
    """Print gain, cost and risk of each solution."""
    settings = settings_of(comparison)
    if len(settings) > 1:
        console.print(table_of(all_settings_table(comparison)))
        console.print()
    for application, device, network in settings:
        console.print(Text(f"{application} on {device} over {network}", "bold"), soft_wrap=True)
        console.print(table_of(solutions_table(comparison, (application, device, network))))
        console.print()
    for row in comparison.impossible:
        where = f"{row['solution']} for {row['application']} on {row['device']} over {row['network']}"
        console.print(Text(f"{where} is not possible: {row['reason']}"), soft_wrap=True)
    if comparison.impossible:
        console.print()
    console.print(Text("Losses after a cut of power", "bold"))
    for row in comparison.solutions:
        console.print(Text.assemble((row["name"], "bold"), f": {row['about']}"), soft_wrap=True)
        console.print(Text(f"  {row['risk']}"), soft_wrap=True)
    console.print(
        Text(f"measured on {comparison.risks['device']} by {comparison.risks['command']}", "dim"), soft_wrap=True
    )
