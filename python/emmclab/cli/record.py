"""`emmclab record [-- COMMAND ...]`."""

import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from emmclab import _core
from emmclab.cli.command import command
from emmclab.cli.console import note_picture, output_option, print_json, print_stderr, stdout
from emmclab.cli.failures import output_aside, stop_on_signals
from emmclab.cli.machine_options import Duration, Machine
from emmclab.cli.options import AsJson, argument
from emmclab.cli.show_profile import show_activity
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.document import parse_duration
from emmclab.traces.activity import activity_of, longest_waits
from emmclab.traces.profile_fields import ledger_line
from emmclab.traces.recorded_registers import recorded_devices

#: Maximum time to wait for a batch of requests, seconds. The end of the recording is noticed after at most this time.
_WAIT_S = 0.1
#: Time between two progress lines, seconds.
_LINE_S = 5.0
#: Time for the command to end after SIGTERM, before SIGKILL, seconds.
_GRACE_S = 5.0
#: Free space that must remain on the file system of the trace, bytes; it exceeds the data still in memory.
_RESERVE_BYTES = 64 << 20


class _RecordingEnd(NamedTuple):
    ledger: dict[str, int]
    header: dict[str, str | None]
    early: str | None
    remarks: list[str]


#: Kinds of recorded activity besides requests, in the order of the JSON output.
_ACTIVITY = ("hosts", "syncs", "stalls", "journals")


@command(
    "emmclab record --duration 60s -o phone.parquet --adb",
    "emmclab record --device /dev/sda -- make test",
    context_settings={"allow_interspersed_args": False},
)
def record(
    *,
    command: Annotated[
        list[str] | None, argument("[-- COMMAND ...]", "Record while this command runs on this host.")
    ] = None,
    duration: Duration = None,
    output: Annotated[Path, output_option("Output file for the trace; the extension selects the format.")] = Path(
        "recording.parquet"
    ),
    machine: Machine,
    as_json: AsJson = False,
) -> None:
    """Record the requests to block devices of this host, of a machine over ssh, or of a phone over adb.

    Ends with the command, after the duration, on Ctrl-C, or when the connection breaks; the file is always complete.
    With a command, the exit status is that of the command; with --json, its output goes to stderr.
    """
    seconds = None if duration is None else parse_duration(duration)
    if (problem := _nearly_full(output)) is not None:
        raise ConfigError(problem, field="--output", hint="free some space, or write the recording to another disk")
    note_picture(output)
    status = 0
    with closing(machine.record()) as recorder:
        writer = _core.Writer(output, recorder.header())
        try:
            with output_aside(as_json):
                end, status = _run(recorder, writer, output, list(command or []), seconds)
            if not end.ledger["kept"] and output.is_file() and output.stat().st_size:
                raise EmmclabError(
                    "no request was recorded, and the existing recording is not replaced",
                    kind="failed",
                    hint="choose other disks with --device, or use another file with -o",
                ).in_file(str(output))
            writer.finish(end.ledger, end.header)
        except BaseException:
            writer.abort()
            raise
    early = [f"the recording ended early: {end.early}"] if end.early else []
    for remark in early + end.remarks:
        print_stderr(f"note: {remark}")
    activity = activity_of(end.header)
    devices = recorded_devices(end.header, str(output))
    if as_json:
        header = {name: text for name, text in end.header.items() if name not in ("activity", "registers")}
        print_json(
            {
                "trace": str(output),
                "header": header,
                "ledger": end.ledger,
                "activity": {**{part: activity.get(part, []) for part in _ACTIVITY}, "stalls": longest_waits(activity)},
                "registers": [device.to_dict() for device in devices],
                "ended_early": end.early,
                "command_status": status if command else None,
                "remarks": end.remarks,
            }
        )
    else:
        stdout().print(f"{output}: {ledger_line(end.ledger)}", markup=False, soft_wrap=True)
        for device in devices:
            stdout().print(device.line(), markup=False, soft_wrap=True)
        show_activity(stdout(), activity)
    if status:
        print_stderr(f"note: the command ended with status {status}; the recording is complete")
        raise typer.Exit(status)


def _status(child: subprocess.Popen[bytes] | None) -> int:
    """Return the exit status of a command as a shell reports it; 0 if the command was still running at the end."""
    code = None if child is None else child.poll()
    if code is None:
        return 0
    return code if code >= 0 else 128 - code


def _nearly_full(output: Path) -> str | None:
    """Return a message if the disk is so full that the end of the recording might not fit; otherwise None."""
    try:
        free = shutil.disk_usage(output.resolve().parent).free
    except OSError:
        # If the folder is not accessible, creating the output file reports the error.
        return None
    return f"only {free >> 20} MB are free where {output} is written" if free < _RESERVE_BYTES else None


def _run(
    recorder: _core.Recorder, writer: _core.Writer, output: Path, command: list[str], seconds: float | None
) -> tuple[_RecordingEnd, int]:
    """Write batches until the recording ends or a signal arrives; return how it ended, and the exit status."""
    child = None
    full = None
    with stop_on_signals() as stop:
        try:
            chosen = recorder.chosen()
            note = f" ({chosen}; choose others with --device)" if chosen else ""
            print_stderr(f"recording {', '.join(recorder.disks())}{note}; Ctrl-C ends it")
            if command:
                try:
                    child = subprocess.Popen(command)
                except OSError as error:
                    raise ConfigError(
                        f"`{command[0]}` cannot be run: {error.strerror}",
                        field="COMMAND",
                        hint="check the command that follows `--`",
                    ) from None
            begin = time.monotonic()
            written, reported = 0, begin
            while not stop.is_requested and not recorder.has_ended():
                if (batch := recorder.next(_WAIT_S)) is not None:
                    writer.write(batch)
                    written += len(batch)
                # Free space is checked even if no batch was written, because other processes may fill the disk.
                if (full := _nearly_full(output)) is not None:
                    break
                now = time.monotonic()
                if seconds is not None and now - begin >= seconds:
                    break
                if child is not None and child.poll() is not None:
                    break
                if now - reported >= _LINE_S:
                    reported = now
                    print_stderr(f"{now - begin:,.0f} s, {written:,} requests")
            batches, ledger, header, early, remarks = recorder.stop()
            for batch in batches:
                writer.write(batch)
            return _RecordingEnd(ledger, header, early or full, remarks), _status(child)
        finally:
            if child is not None and child.poll() is None:
                child.terminate()
                try:
                    child.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
