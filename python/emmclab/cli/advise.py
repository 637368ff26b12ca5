"""`emmclab advise TRACE`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from emmclab.advise import Life, said
from emmclab.advise import advise as try_options
from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.meter import Meter
from emmclab.cli.options import AsJson, Reading, TraceFiles, with_groups
from emmclab.cli.show import framed
from emmclab.cli.show_runs import show_provenance
from emmclab.cli.simulation import (
    DeviceName,
    Fold,
    Images,
    Mode,
    Precondition,
    Settings,
    Wrap,
    configured,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: [cyan]emmclab advise trace.txt --device nexus5 --by p99 --html advice.html[/]"
    )(with_groups(advise))


def advise(
    *,
    traces: TraceFiles,
    device: DeviceName = "nexus5",
    settings: Settings = [],  # noqa: B006
    by: Annotated[
        str, typer.Option(metavar="mean|p99|waf|lifetime", help="Figure by which the options are ranked.")
    ] = "mean",
    mode: Mode = "open",
    precondition: Precondition = "none",
    wrap_addresses: Wrap = False,
    fold: Fold = False,
    images: Images = None,
    lifetime: Annotated[
        bool,
        typer.Option(
            "--lifetime",
            help="Also estimate the lifetime, on a used device: some seconds more per option and 32 GB.",
        ),
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page.")] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Simulate design options under a trace and rank them, with the cost of each."""
    configuration = configured(device, settings)
    opened = [reading.open(path) for path in traces]
    with Meter(f"advise on {configuration.name}") as meter:

        def note(done: int, total: int) -> None:
            meter(done, total, done)

        advised = try_options(
            configuration,
            opened,
            by=by,
            lifetime=lifetime,
            progress=note,
            mode=mode,
            precondition=precondition,
            wrap_addresses=wrap_addresses or fold,
            images=images,
        )
    reading.note_changed(advised.base["trace"], advised.base["ledger"])
    if html is not None:
        from emmclab.report.advice import write_advice

        write_advice(advised, by, html)
        say(f"report: {html}")
    base, found = advised.base, advised.options
    if as_json:
        print_json(
            {
                "device": base.to_dict(),
                "life": None if advised.life is None else asdict(advised.life),
                "ranked_by": by,
                "options": [advice.to_dict() for advice in found],
                "refused": advised.refused,
            }
        )
        return
    console = stdout()
    show_provenance(console, [base])
    table = framed()
    lives = ("WAF in use", "TB", "years") if lifetime or by == "lifetime" else ()
    for heading in ("Option", "Mean ms", "%", "p99 ms", "%", "WAF", *lives, "Capacity %", "RAM KB", "Note"):
        left = heading in ("Option", "Note")
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left)

    def life_cells(life: Life | None) -> tuple[str, ...]:
        if not lives:
            return ()
        if life is None:
            return ("–", "–", "–")
        years = "–" if life.years is None else f"{life.years:,.2f}"
        return (f"{life.waf:.2f}", f"{life.host_gb / 1024:,.2f}", years)

    table.add_row(
        Text(f"{base['device']} as it is", "bold"),
        f"{base['response.mean_response_ms']:,.3f}",
        "",
        f"{base['response.p99_ms']:,.3f}",
        "",
        f"{base['write_amplification.waf']:.3f}",
        *life_cells(advised.life),
        "",
        f"{base['configuration.ram_kb']}",
        "",
    )
    for advice in found:
        table.add_row(
            Text(f"{advice.option}: {advice.about}"),
            f"{advice.mean_response_ms:,.3f}",
            f"{advice.mean_change_pct:+.1f}",
            f"{advice.p99_response_ms:,.3f}",
            f"{advice.p99_change_pct:+.1f}",
            f"{advice.waf:.3f}",
            *life_cells(advice.life),
            f"{advice.capacity_change_pct:+.1f}",
            f"{advice.ram_kb:+d}" if advice.ram_kb else "0",
            Text(advice.note, "dim"),
        )
    console.print(table)
    if life := advised.life:
        console.print(Text(said(life, base), "dim"), soft_wrap=True)
    for name, reason in advised.refused.items():
        console.print(Text(f"not possible here: {name}: {reason}", "yellow"), soft_wrap=True)
