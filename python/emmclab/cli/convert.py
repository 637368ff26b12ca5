"""`emmclab convert IN OUT`, or `emmclab convert IN IN -o OUT` for several traces as one."""

import contextlib
from pathlib import Path
from typing import Annotated

from emmclab.cli.command import command
from emmclab.cli.console import To, note_picture, output_option, print_json, print_stderr, report, to_stdout
from emmclab.cli.options import AsJson, Reading, argument, one_per_recording, option
from emmclab.cli.progress import Meter
from emmclab.errors import ConfigError
from emmclab.runtime.document import parse_duration
from emmclab.runtime.lists import between_commas
from emmclab.traces.profile_fields import ledger_line
from emmclab.traces.reading import combine
from emmclab.traces.trace import Trace


@command(
    "emmclab convert log106_Messaging.txt messaging.parquet",
    "emmclab convert trace.dat trace.csv.zst",
    "emmclab convert trace.dat - --to csv | head",
    "emmclab convert trace.parquet picture.pftrace # for ui.perfetto.dev",
    "emmclab convert music.txt chat.txt -o both.parquet --offset 0s,10s # as one trace",
)
def convert(
    *,
    traces: Annotated[
        list[Path],
        argument(
            "TRACE... [OUT]",
            "Traces of any format, plain, gzip, bzip2, zstd or xz (`-` for stdin), and the output file "
            "unless --output is given. Several traces become one.",
        ),
    ],
    named: Annotated[
        Path | None,
        output_option(
            "Output file; its extension selects the format; a further .gz, .zst or .xz compresses text. "
            "`-` for stdout, with --to.",
            metavar="OUT",
            callback=None,
        ),
    ] = None,
    to: To = None,
    offset: Annotated[
        str | None,
        option(
            "Start times of several traces, in their order, for example `0s,10s,2m`; all at 0 by default.",
            metavar="TIMES",
        ),
    ] = None,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Write a trace in another format, or interleave several traces on one clock and write them as one trace.

    The output file appears only when it is complete. Traces for the simulators SSDsim and MQSim, and for fio, begin at
    time 0.
    """
    inputs, output = _inputs_and_output(traces, named)
    to_stdout(output, as_json)
    for trace in inputs:
        with contextlib.suppress(FileNotFoundError):
            if output.samefile(trace):
                raise ConfigError(f"{output} is also the input", file=str(output), hint="use another output file")
    source = _source([reading.open(trace) for trace in inputs], offset)
    with Meter(f"convert {source.name}") as meter:
        written = source.write(output, to, meter)
    reading.note_changed(source.name, written.ledger)
    if as_json:
        header = {name: text for name, text in source.header.items() if name != "clock_jumps"}
        names = [str(trace) for trace in inputs]
        files = {"input": names[0] if len(names) == 1 else names, "output": str(output), "header": header}
        print_json(files | {"clock_jumps": source.clock_jumps} | written._asdict())
    else:
        report(output, f"{output}: {ledger_line(written.ledger)}")
    note_picture(output, to)
    if written.left_out:
        _note(f"{written.left_out:,} requests were left out: the format cannot store their operation")
    if written.lost:
        values = ", ".join(f"{column} of {count:,} requests" for column, count in written.lost.items())
        _note(f"the format cannot store {values}")


def _inputs_and_output(traces: list[Path], named: Path | None) -> tuple[list[Path], Path]:
    """Return the input files and the output file; without --output, there must be two files, input and output."""
    if named is not None:
        return one_per_recording(traces), named
    if len(traces) != 2:
        missing = len(traces) == 1
        raise ConfigError(
            "the output file is missing" if missing else f"which of these {len(traces)} files is the output?",
            field="--output",
            hint=f"add it, for example `emmclab convert {traces[0]} out.parquet`"
            if missing
            else "give it as `-o OUT`; all other files are then interleaved as one trace",
        )
    return traces[:1], traces[1]


def _source(traces: list[Trace], offset: str | None) -> Trace:
    """Combine the traces into one; `offset` lists the time at which each begins."""
    if offset is None:
        return traces[0] if len(traces) == 1 else combine(traces)
    times = between_commas(offset, "--offset")
    seconds = [0.0 if text in ("0", "0s") else parse_duration(text, "--offset") for text in times]
    if len(traces) == 1:
        raise ConfigError(
            "--offset applies only if several traces are combined",
            field="--offset",
            hint="leave out --offset, or give several traces to combine and the output file with `-o OUT`",
        )
    return combine(traces, offsets_s=seconds)


def _note(text: str) -> None:
    print_stderr(f"note: {text}")
