"""Prints solutions next to the plain device."""

from statistics import median

from rich.console import Console
from rich.text import Text

from emmclab.apps.solutions import Comparison
from emmclab.cli.tables import framed

#: Gain up to which a run is as fast as the plain one.
_NO_CHANGE = 1.01


def show_comparison(console: Console, found: Comparison) -> None:
    """Print gain, cost and risk of each solution."""
    places = dict.fromkeys((run["application"], run["device"], run["network"]) for run in found["runs"])
    if len(places) > 1:
        _show_spread(console, found)
    for place in places:
        application, device, network = place
        runs = [run for run in found["runs"] if (run["application"], run["device"], run["network"]) == place]
        console.print(Text(f"{application} on {device} over {network}", "bold"), soft_wrap=True)
        headings = ("Runtime, s", "Gain", "Storage, s", "Pages programmed", "of plain", "Blocks erased", "To NVM, MB")
        table = framed("Compared with the plain device", "Solution", *headings, "Buys", text=["Buys"])
        hardware = {one["name"]: one["hardware"] for one in found["solutions"]}
        for run in runs:
            gain, plain, other = run["gain"], run["plain_page_programs"], run["second_bytes"]
            table.add_row(
                run["solution"],
                f"{run['runtime_s']:,.2f}",
                "–" if gain is None else f"{gain:.2f} x",
                f"{run['storage_s']:,.2f}",
                f"{run['page_programs']:,}",
                f"{100 * run['page_programs'] / plain:.0f} %" if plain else "–",
                f"{run['block_erases']:,}",
                f"{other / 2**20:,.1f}" if other else "–",
                hardware[run["solution"]] or "nothing",
            )
        console.print(table)
        console.print()
    for one in found["impossible"]:
        where = f"{one['solution']} for {one['application']} on {one['device']} over {one['network']}"
        console.print(Text(f"{where} is not possible: {one['reason']}"), soft_wrap=True)
    if found["impossible"]:
        console.print()
    console.print(Text("Losses after a cut of power", "bold"))
    for one in found["solutions"]:
        console.print(Text.assemble((one["name"], "bold"), f": {one['about']}"), soft_wrap=True)
        console.print(Text(f"  {one['risk']}"), soft_wrap=True)
    console.print(Text(f"measured on {found['risks']['device']} by {found['risks']['command']}", "dim"), soft_wrap=True)


def _show_spread(console: Console, found: Comparison) -> None:
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
    for one in found["solutions"]:
        runs = [run for run in found["runs"] if run["solution"] == one["name"]]
        gains = [run["gain"] for run in runs if run["gain"] is not None]
        pages = [100 * run["page_programs"] / run["plain_page_programs"] for run in runs if run["plain_page_programs"]]
        faster = sum(gain > _NO_CHANGE for gain in gains)
        table.add_row(
            one["name"],
            *(f"{pick(gains):.2f} x" if gains else "–" for pick in (min, median, max)),
            f"{faster} of {len(runs)}",
            f"{median(pages):.0f} %" if pages else "–",
        )
    console.print(table)
    console.print()
