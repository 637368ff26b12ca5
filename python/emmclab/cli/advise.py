"""`emmclab advise TRACE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

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
        str, typer.Option(metavar="mean|p99|waf|lifetime", help="What the options are ranked by.")
    ] = "mean",
    mode: Mode = "open",
    precondition: Precondition = "none",
    fold: Fold = False,
    images: Images = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page.")] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Try design options on your own trace and rank them, with what each costs."""
    configuration = configured(device, settings)
    opened = [reading.open(path) for path in traces]
    with Meter(f"advise on {configuration.name}") as meter:

        def note(done: int, total: int) -> None:
            meter(done, total, done)

        base, found, refused = try_options(
            configuration,
            opened,
            by=by,
            progress=note,
            mode=mode,
            precondition=precondition,
            fold=fold,
            images=images,
        )
    if html is not None:
        from emmclab.report.advice import write_advice

        write_advice(base, found, refused, by, html)
        say(f"report: {html}")
    if as_json:
        print_json(
            {
                "device": base.to_dict(),
                "ranked_by": by,
                "options": [advice.to_dict() for advice in found],
                "refused": refused,
            }
        )
        return
    console = stdout()
    show_provenance(console, [base])
    table = framed()
    for heading in (
        "Option",
        "Mean ms",
        "%",
        "p99 ms",
        "%",
        "WAF",
        "Life GB",
        "Capacity %",
        "RAM KB",
        "Note",
    ):
        left = heading in ("Option", "Note")
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left)
    life = base["lifetime"]
    table.add_row(
        Text(f"{base['device']} as it is", "bold"),
        f"{base['mean_response_ms']:,.3f}",
        "",
        f"{base['p99_response_ms']:,.3f}",
        "",
        f"{base['waf']:.3f}",
        f"{life['even_host_bytes'] / 2**30:,.0f}" if life else "–",
        "",
        f"{base['ram_kb']}",
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
            "–" if advice.lifetime_gb is None else f"{advice.lifetime_gb:,.0f}",
            f"{advice.capacity_change_pct:+.1f}",
            f"{advice.ram_kb:+d}" if advice.ram_kb else "0",
            Text(advice.note, "dim"),
        )
    console.print(table)
    for name, reason in refused.items():
        console.print(Text(f"not possible here: {name}: {reason}", "yellow"), soft_wrap=True)
