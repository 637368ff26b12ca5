"""Prints the verdict on a power cut of a real device, and the summary of all cuts."""

from rich.console import Console

from emmclab.cli.tables import framed, print_line
from emmclab.real_devices.durability.log import FINDINGS, WEAKNESSES, Report, Run, Verdict
from emmclab.runtime.document import size


def show_verdict(console: Console, target: str, run: Run, verdict: Verdict) -> None:
    """Print the verdict on the target after one power cut."""
    broken = verdict.broken
    if not run.was_filled:
        outcome = "nothing was promised: the run ended before all blocks were written once"
    elif broken:
        outcome = "acknowledged data was lost" if broken != ["corrupt"] else "durable data was damaged"
    else:
        outcome = "no acknowledged data was lost"
    print_line(console, f"{target}: {outcome}", "red" if broken else "green")
    if run.was_filled and not verdict.is_cut:
        print_line(
            console,
            "There is no sign of a cut (the target did not fail, and the machine has not started again): "
            "this run is not counted.",
        )
    print_line(
        console,
        f"{verdict.syncs:,} syncs acknowledged in {size(run.plan.blocks * 4096)}; {verdict.promised:,} blocks of 4 KB "
        f"promised; {verdict.unflushed:,} written and not flushed, {verdict.unflushed_lost:,} of them lost (allowed)",
    )
    for name in verdict.found:
        print_line(console, f"{name}: {getattr(verdict, name):,} blocks: {FINDINGS[name]}")
    for example in verdict.examples:
        print_line(console, f"  {example}", "dim")
    if verdict.trimmed_old:
        print_line(
            console,
            f"trim: {verdict.trimmed_old:,} of {verdict.trimmed:,} trimmed blocks still return their old data "
            "(allowed: a trim promises nothing)",
        )
    if set(verdict.found) & set(WEAKNESSES):
        print_line(console, "No standard of eMMC, SD or UFS promises that a write of 4 KB is atomic.")


def show_report(console: Console, report: Report) -> None:
    """Print the summary of all power cuts in the log."""
    print_line(console, "")
    print_line(console, _count_text(report))
    if not report.cuts:
        return
    table = framed("All cuts, with 99 % bounds", "Finding", "Cuts", "%", "At least\n%", "At most\n%")
    for share in report.shares:
        if share.cuts or share.finding == "broken":
            name = "a broken promise" if share.finding == "broken" else share.finding
            percentages = (100 * share.cuts / report.cuts, 100 * share.low, 100 * share.high)
            table.add_row(name, f"{share.cuts:,}", *(f"{value:.2f}" for value in percentages))
    console.print(table)
    if report.harmless:
        print_line(
            console,
            f"cuts that lost no data, not even unflushed data: {report.harmless:,}. Such cuts cannot show a lie: the "
            "device has no cache, its cache was empty, or its power was not cut.",
        )
    if report.trims_old:
        print_line(console, f"cuts after which trimmed blocks returned old data (allowed): {report.trims_old:,}")
    if not report.broken:
        goals = [f"{needed:,} for {goal}" for goal, needed in report.goals.items()]
        print_line(
            console,
            f"With 99 % confidence, the probability that a cut breaks a promise is below "
            f"{100 * report.shares[0].high:.2g} %. Clean cuts needed: {', '.join(goals)}.",
        )


def _count_text(report: Report) -> str:
    parts = [f"cuts checked: {report.cuts:,}"]
    for count, label in (
        (report.uncut, "runs without a cut"),
        (report.unchecked, "runs not checked"),
        (report.damaged, "damaged lines of the log"),
    ):
        if count:
            parts.append(f"{label}: {count:,}")
    return "; ".join(parts)
