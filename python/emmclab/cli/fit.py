"""`emmclab fit TRACE -o profile.toml`."""

from pathlib import Path
from typing import Annotated

from emmclab.cli.command import command
from emmclab.cli.console import STDOUT, in_a_folder_or_stdout, output_option, print_stderr, write_text
from emmclab.cli.options import Reading, TraceFile, option
from emmclab.cli.progress import Meter
from emmclab.traces.workload import FITTED, fit_note
from emmclab.traces.workload import fit as fit_workload


@command("emmclab fit trace.txt -o behaviour.toml")
def fit(
    *,
    trace: TraceFile,
    output: Annotated[
        Path | None, output_option("Output file for the model; default or `-`: stdout.", callback=in_a_folder_or_stdout)
    ] = None,
    name: Annotated[str, option("Name of the model; the name of the trace is not stored.", metavar="NAME")] = FITTED,
    reading: Reading,
) -> None:
    """Fit a workload model to a trace; the model contains no addresses, names or dates of the trace."""
    recorded = reading.open(trace)
    with Meter(f"fit {recorded.name}") as meter:
        model = fit_workload(recorded, progress=meter, name=name)
    reading.note_changed(recorded.name, recorded.ledger)
    if note := fit_note(recorded):
        print_stderr(f"warning: {note}")
    write_text(output, model.to_toml())
    if output is None or output == STDOUT:
        return
    line = f"{output}: model {model.digest}; `emmclab synth {output} OUT` generates traces from it"
    print_stderr(line)
