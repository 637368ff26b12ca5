"""The page of solutions beside the plain device: what each gains, spends and risks."""

from __future__ import annotations

from emmclab.report.assemble import assemble
from emmclab.solutions import Comparison


def render(found: Comparison) -> str:
    """Give the page; the same comparison gives the same bytes."""
    hardware = {one["name"]: one["hardware"] or "nothing" for one in found["solutions"]}
    programs = list(dict.fromkeys(run["application"] for run in found["runs"]))
    return assemble(
        "solutions.html.j2",
        [],
        {},
        [],
        title=f"solutions: {', '.join(programs)}",
        headlines=[_headline(found, name) for name in programs],
        runs=[
            {
                **run,
                "second_mb": run["second_bytes"] / 2**20 if run["second_bytes"] else None,
                "of_plain": 100 * run["page_programs"] / run["plain_page_programs"]
                if run["plain_page_programs"]
                else None,
                "hardware": hardware[run["solution"]],
            }
            for run in found["runs"]
        ],
        solutions=found["solutions"],
        explored=[
            (name, one)
            for name, rows in found["risks"]["solutions"].items()
            if name in hardware
            for one in rows
        ],
        risks=found["risks"],
    )


def _headline(found: Comparison, application: str) -> str:
    """Name the solution that gains most of those that were not found to lose anything."""
    lossy = {one["name"] for one in found["solutions"] if one["loses"]}
    runs = [
        run
        for run in found["runs"]
        if run["application"] == application and run["gain"] is not None and run["solution"] not in lossy
    ]
    best = max(runs, key=lambda run: run["gain"], default=None)
    if best is None or best["solution"] == "plain":
        return f"{application}: no solution that keeps what is acknowledged gains"
    place = f"{best['device']} over {best['network']}"
    return f"{application}: {best['gain']:.2f} x on {place} with {best['solution']}"
