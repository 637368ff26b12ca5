"""Prints solutions compared with the plain device."""

from statistics import median

from rich.console import Console
from rich.text import Text

from emmclab.apps.solutions import SolutionComparison
from emmclab.cli.tables import framed

#: Runs with at most this gain count as equally fast as that of the plain device.
_NO_CHANGE = 1.01


def show_comparison(console: Console, comparison: SolutionComparison) -> None:
    """Print gain, cost and risk of each solution."""
    settings = dict.fromkeys((run["application"], run["device"], run["network"]) for run in comparison.runs)
    if len(settings) > 1:
        _show_spread(console, comparison)
    for setting in settings:
        application, device, network = setting
        runs = [run for run in comparison.runs if (run["application"], run["device"], run["network"]) == setting]
        console.print(Text(f"{application} on {device} over {network}", "bold"), soft_wrap=True)
        headings = ("Runtime, s", "Gain", "Storage, s", "Pages programmed", "of plain", "Blocks erased", "To NVM, MB")
        table = framed("Compared with the plain device", "Solution", *headings, "Buys", text=["Buys"])
        hardware = {row["name"]: row["hardware"] for row in comparison.solutions}
        for run in runs:
            gain, plain, nvm_bytes = run["gain"], run["plain_page_programs"], run["second_bytes"]
            table.add_row(
                run["solution"],
                f"{run['runtime_s']:,.2f}",
                "–" if gain is None else f"{gain:.2f} x",
                f"{run['storage_s']:,.2f}",
                f"{run['page_programs']:,}",
                f"{100 * run['page_programs'] / plain:.0f} %" if plain else "–",
                f"{run['block_erases']:,}",
                f"{nvm_bytes / 2**20:,.1f}" if nvm_bytes else "–",
                hardware[run["solution"]] or "nothing",
            )
        console.print(table)
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


def _show_spread(console: Console, comparison: SolutionComparison) -> None:
    """Print each solution over all applications, devices and networks."""
    table = framed(
        "Over all applications, devices and networks",
        "Solution",
        "Gain: least",
        "Median",
        "Most",
        "Faster in",
        "Pages programmed: median of plain",
    )
    for solution in comparison.solutions:
        runs = [run for run in comparison.runs if run["solution"] == solution["name"]]
        gains = [run["gain"] for run in runs if run["gain"] is not None]
        pages = [100 * run["page_programs"] / run["plain_page_programs"] for run in runs if run["plain_page_programs"]]
        faster = sum(gain > _NO_CHANGE for gain in gains)
        table.add_row(
            solution["name"],
            *(f"{pick(gains):.2f} x" if gains else "–" for pick in (min, median, max)),
            f"{faster} of {len(runs)}",
            f"{median(pages):.0f} %" if pages else "–",
        )
    console.print(table)
    console.print()
