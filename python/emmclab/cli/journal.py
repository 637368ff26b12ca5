"""`emmclab journal TRACE`."""

from pathlib import Path
from typing import Annotated

from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.options import AsJson, Reading, TraceFile, option
from emmclab.cli.progress import Meter
from emmclab.traces.profile_fields import ledger_line


@command("emmclab journal trace.parquet --html journal.html")
def journal(
    *,
    trace: TraceFile,
    html: Annotated[
        Path | None, option("Also write a page: one file that needs no network.", callback=in_a_folder)
    ] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Measure the cost of journaling: commits, logged blocks, their changed parts, flushes and FUA.

    If the trace has notes attached to its blocks, the role of each block is known. Otherwise only some roles are known,
    from flags and addresses.
    """
    source = reading.open(trace)
    with Meter(f"journal {source.name}") as meter:
        report = source.journal(meter)
    reading.note_changed(source.name, report["ledger"])
    if html is not None:
        report.write_html(html)
        print_stderr(f"report: {html}")
    if as_json:
        print_json(report.to_dict())
    else:
        from emmclab.cli.show_profile import show_journal

        console = stdout()
        show_journal(console, report)
        console.print()
        header = report["header"]
        console.print(Text.assemble((source.name, "bold"), f"  {header['source']}, {header['format']}"))
        console.print(Text(f"  ledger: {ledger_line(report['ledger'])}"), soft_wrap=True)
