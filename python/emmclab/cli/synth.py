"""`emmclab synth NAME OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.helping import examples
from emmclab.cli.meter import Meter
from emmclab.cli.names import workload_names
from emmclab.cli.options import AsJson
from emmclab.cli.outputs import To, to_stdout
from emmclab.cli.show import framed
from emmclab.errors import ConfigError
from emmclab.workload import Workload, workload_groups


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab synth Messaging messaging.parquet --seed 7"))(synth)


def synth(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="A workload that comes with emmclab, or a model that `emmclab fit` wrote (.toml).",
            autocompletion=workload_names,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="The trace; its ending selects the format; `-` for stdout, with --to."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed; the same one gives the same trace.")
    ] = 1,
    requests: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of requests.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time from first arrival to last completion, in seconds."),
    ] = None,
    rate_pct: Annotated[
        int,
        typer.Option(min=1, metavar="PERCENT", help="Rate of arrivals, in percent of that of the workload."),
    ] = 100,
    to: To = None,
    format: Annotated[str | None, typer.Option("--format", hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Generate a trace from the model of a workload; without a name, list the workloads."""
    if name is None:
        _list(as_json)
        return
    if out is None:
        raise ConfigError(
            "the output file is missing",
            kind="config",
            field="OUT",
            hint=f"name it, as `emmclab synth {name} trace.parquet`",
        )
    if duration is not None and not 0 < duration < 1e9:
        raise ConfigError(
            f"a trace of {duration} s is impossible",
            kind="config",
            field="--duration",
            hint="give 0 to 1e9 s",
        )
    to_stdout(out, as_json)
    model = Workload.named(name)
    trace = model.trace(seed, requests=requests, duration_s=duration, rate_pct=rate_pct)
    with Meter(f"synthesise {model.name}") as meter:
        # The option had the name of the one for inputs before.
        ledger = trace.write(out, to or format, progress=meter).ledger
    made = {
        "workload": model.name,
        "model": model.digest,
        "seed": seed,
        "requests": ledger["kept"],
        "out": str(out),
    }
    if as_json:
        print_json(made)
    else:
        line = f"{out}: {ledger['kept']:,} requests of {model.name} (model {model.digest}, seed {seed})"
        say(line)


def _list(as_json: bool) -> None:
    models = [(group, Workload.preset(name)) for group, names in workload_groups().items() for name in names]
    if as_json:
        print_json(
            [{"workload": model.name, "model": model.digest, "group": group} for group, model in models]
        )
        return
    table = framed("Workloads: of IISWC 2015 (applications, combos), fitted to traces of 2022 (phones)")
    table.add_column("Workload")
    table.add_column("Model")
    table.add_column("Group")
    for group, model in models:
        table.add_row(model.name, model.digest, group)
    stdout().print(table)
