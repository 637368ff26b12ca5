"""`emmclab durability [TARGET]`."""

import shlex
import sys
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from emmclab.cli.command import command
from emmclab.cli.console import STDOUT, in_a_folder_or_stdout, print_json, print_stderr, print_stdout, stderr, stdout
from emmclab.cli.crash import FOUND
from emmclab.cli.failures import stop_on_signals
from emmclab.cli.options import AsJson, argument, option
from emmclab.cli.probe import confirm_overwriting
from emmclab.errors import ConfigError

if TYPE_CHECKING:
    from emmclab.real_devices.durability.log import Session, Verdict
    from emmclab.real_devices.durability.session import RunEnd
    from emmclab.real_devices.durability.targets import Target

_CHECK = "After the cut"
_before = partial(option, panel="Before the cut")
#: Default size of the tested region of the target, MB.
_SPAN_MB = 32


@command(
    "emmclab durability /dev/mmcblk1 --write --log cuts.log",
    "emmclab durability /dev/mmcblk1 --check cuts.log",
    "emmclab durability --check cuts.log # all cuts so far",
)
def durability(
    *,
    target: Annotated[
        str | None,
        argument(
            "/dev/X|FILE|NBD",
            "A block device, a file, or a disk over NBD as nbd+unix:///?socket=PATH.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        bool, _before("Write records until the power is cut; this overwrites the first part of the target.")
    ] = False,
    log: Annotated[
        Path | None,
        _before(
            "Log of acknowledged writes, on another disk; an existing log is continued. `-` for stdout, "
            "so that another machine can store the log.",
            callback=in_a_folder_or_stdout,
        ),
    ] = None,
    yes: Annotated[bool, _before("Do not ask before the target is overwritten.")] = False,
    span_mb: Annotated[
        int | None,
        _before(
            f"Size of the part to use, MB; default: {_SPAN_MB}, or the whole target if smaller.", metavar="MB", min=1
        ),
    ] = None,
    check: Annotated[
        Path | None,
        option(
            "Check the last run of this log and add the verdict to the log; without a target, summarise all cuts. "
            "`-` reads the log from stdin and prints the line to add.",
            _CHECK,
            metavar="LOG",
        ),
    ] = None,
    same_device: Annotated[
        bool, option("Accept the target even if it is smaller than that of the log, or contains no record.", _CHECK)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test whether a real device keeps acknowledged data when you cut its power.

    Write, cut the power (relay, plug, hypervisor, pulled card), turn it on, check. Repeat this until the confidence
    is sufficient. A reset or a reboot does not cut the power. Exit status 4: a promise was broken.
    """
    if write == (check is not None):
        raise ConfigError(
            "a run either writes before a power cut or checks the data after it",
            field="--write" if write else "--check",
            hint="give `--write --log cuts.log` before a power cut, `--check cuts.log` after it",
        )
    if check is not None:
        if log is not None:
            raise ConfigError(
                "`--log` applies only to a run with `--write`",
                field="--log",
                hint="leave out `--log`: `--check LOG` adds its verdict to the log that it reads",
            )
        _check(target, check, same_device, as_json)
    if target is None or log is None:
        raise ConfigError(
            f"`--write` requires {'a target' if target is None else 'a log'}",
            field="TARGET" if target is None else "--log",
            hint="write the command as `emmclab durability /dev/sdX --write --log cuts.log`",
        )
    if as_json:
        raise ConfigError("a run with `--write` prints no JSON", field="--json", hint="use --json only with --check")
    _write(target, log, yes, span_mb)


def _write(target: str, log: Path, yes: bool, span_mb: int | None) -> None:
    from emmclab.real_devices.durability.targets import open_target

    with closing(open_target(target, write=True)) as disk:
        if not yes:
            confirm_overwriting(target)
        _write_until_cut(disk, log, span_mb)


def _write_until_cut(disk: "Target", log: Path, span_mb: int | None) -> None:
    from emmclab.real_devices.durability.log import Log
    from emmclab.real_devices.durability.session import write
    from emmclab.real_devices.durability.targets import refuse_same_disk

    with Log(log) as log_file:
        refuse_same_disk(disk, log_file.fileno())
        span = min(_SPAN_MB << 20, disk.size) if span_mb is None else span_mb << 20
        print_stderr(f"writing the first {span >> 20:,} MB of {disk.name} once")

        def ready() -> None:
            print_stderr("cut the power at any moment from now on; Ctrl-C ends without a cut")

        with stop_on_signals() as stop:
            end = write(disk, log_file, span, ready=ready, asked_to_end=lambda: stop.is_requested)
    _print_end(disk.name, log, end)


def _print_end(target: str, log: Path, end: "RunEnd") -> None:
    syncs = f"{end.syncs:,} syncs were acknowledged"
    if end.reason == "stopped":
        print_stderr(f"ended without a cut: {syncs}; this run is not counted")
        return
    reason = end.said or "it no longer answers"
    print_stderr(f"{target} is gone ({reason}): {syncs}")
    name = "LOG" if log == STDOUT else str(log)
    print_stderr(f"turn its power on again, then: {shlex.join(['emmclab', 'durability', target, '--check', name])}")


def _check(target: str | None, log: Path, same_device: bool, as_json: bool) -> NoReturn:
    from emmclab.cli.show_durability import show_report, show_verdict
    from emmclab.real_devices.durability.log import read_log, report_of

    is_stream = log == STDOUT
    if is_stream and as_json:
        raise ConfigError(
            "stdout cannot receive both the JSON and the new line of the log",
            field="--json",
            hint="leave out --json, or give the log as a file",
        )
    session = read_log(log, sys.stdin.buffer.read() if is_stream else None)
    verdict = None if target is None else _check_last_run(session, target, log, same_device)
    report = report_of(session)
    if as_json:
        print_json({"verdict": verdict and asdict(verdict), "session": asdict(report)})
    else:
        console = stderr() if is_stream else stdout()
        if verdict is not None:
            show_verdict(console, str(target), session.runs[-1], verdict)
        show_report(console, report)
    broken = bool(verdict.broken) if verdict is not None else report.broken > 0
    raise typer.Exit(FOUND if broken else 0)


def _check_last_run(session: "Session", target: str, log: Path, same_device: bool) -> "Verdict":
    """Check the device after the last run, and add the verdict to the log."""
    from emmclab.real_devices.durability.log import Log, line
    from emmclab.real_devices.durability.session import judge
    from emmclab.real_devices.durability.targets import open_target

    run = session.runs[-1]
    with closing(open_target(target, write=False)) as disk:
        run.verdict = judge(run, disk, same_device=same_device)
    parts = ("checked", run.plan.run, asdict(run.verdict))
    if log == STDOUT:
        print_stdout(line(*parts).rstrip("\n"))
    else:
        with Log(log) as log_file:
            log_file.add(*parts)
    return run.verdict
