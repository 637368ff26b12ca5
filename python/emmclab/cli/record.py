"""`emmclab record [-- COMMAND ...]`."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from emmclab import _core
from emmclab.cli.console import print_json, stderr, stdout
from emmclab.cli.options import AsJson
from emmclab.errors import ConfigError
from emmclab.profile import ledger_line

_UNITS = {"s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0}
#: Longest wait for a batch; how soon an end is noticed, seconds.
_WAIT_S = 0.1
_LINE_S = 5.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: [cyan]emmclab record --duration 60s -o phone.parquet --adb[/]   "
        "[cyan]emmclab record --device /dev/sda -- make test[/]",
        context_settings={"allow_interspersed_args": False},
    )(record)


def record(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="Record while this runs here.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="Disk, partition, mapped device or mount point; may be repeated.",
        ),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this time, as 60s, 10m or 2h.")
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The trace, in any format that can be written."),
    ] = Path("recording.parquet"),
    ssh: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="Record that machine; nothing is written there.")
    ] = None,
    ssh_option: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="A word for the ssh client, as -p; may be repeated."),
    ] = None,
    adb: Annotated[bool, typer.Option("--adb", help="Record the phone on adb; needs root there.")] = False,
    serial: Annotated[
        str | None, typer.Option(metavar="SERIAL", help="Which phone, where adb knows several.")
    ] = None,
    buffer_kb: Annotated[
        int | None, typer.Option(metavar="KB", help="Ring buffer of each CPU; larger where events are lost.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record what is asked of block devices: this host, a machine over ssh, or a phone over adb.

    Ends with the command, after the duration, on Ctrl-C, or when the link breaks: always with a whole file.
    """
    if ssh and (adb or serial):
        raise ConfigError("one machine at a time", kind="config", field="--ssh", hint="give --ssh or --adb")
    seconds = None if duration is None else parse_duration(duration)
    recorder = _core.Recorder(
        list(device or []),
        ssh=(ssh, list(ssh_option or [])) if ssh else None,
        adb=(serial or "") if adb or serial else None,
        buffer_kb=buffer_kb,
    )
    stderr().print(f"recording {', '.join(recorder.disks())}; Ctrl-C ends it", markup=False)
    writer = _core.Writer(output, recorder.header())
    try:
        ledger, header, ended = _run(recorder, writer, list(command or []), seconds)
        writer.finish(ledger, header)
    except BaseException:
        writer.abort()
        raise
    if ended:
        stderr().print(f"note: the recording ended early: {ended}", markup=False, soft_wrap=True)
    if as_json:
        print_json({"trace": str(output), "header": header, "ledger": ledger, "ended_early": ended})
    else:
        stdout().print(f"{output}: {ledger_line(ledger)}", markup=False, soft_wrap=True)


def parse_duration(text: str) -> float:
    """Understand `60s`, `1.5h`, `10m`, `500ms`; a bare number is seconds.

    >>> parse_duration("60s"), parse_duration("1.5m"), parse_duration("2")
    (60.0, 90.0, 2.0)
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * _UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < 10**9:
        raise ConfigError(
            f"`{text}` is no duration", kind="config", field="--duration", hint="as 60s, 10m or 2h"
        )
    return seconds


def _run(
    recorder: _core.Recorder, writer: _core.Writer, command: list[str], seconds: float | None
) -> tuple[dict[str, int], dict[str, str | None], str | None]:
    """Write batches until the end; a signal is an end like any other."""
    over = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal over
        over = True

    former = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    child = None
    try:
        if command:
            try:
                child = subprocess.Popen(command)
            except OSError as error:
                raise ConfigError(
                    f"`{command[0]}` cannot be run: {error.strerror}", kind="config", field="COMMAND"
                ) from None
        begin = time.monotonic()
        written, told = 0, begin
        while not over and not recorder.has_ended():
            if (batch := recorder.next(_WAIT_S)) is not None:
                writer.write(batch)
                written += len(batch)
            now = time.monotonic()
            over = over or (seconds is not None and now - begin >= seconds)
            over = over or (child is not None and child.poll() is not None)
            if now - told >= _LINE_S:
                told = now
                stderr().print(f"{now - begin:,.0f} s, {written:,} requests", markup=False)
        batches, ledger, header, ended = recorder.stop()
        for batch in batches:
            writer.write(batch)
        return ledger, header, ended
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            child.wait()
        for number, handler in former.items():
            signal.signal(number, handler)
