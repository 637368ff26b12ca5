"""`emmclab preset --ext-csd FILE | --ufs PATH | --from RECORDING`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab.calibration.register_files import is_recording
from emmclab.calibration.registers import RegisterPreset, Registers, registers
from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, stderr, stdout
from emmclab.cli.declared_options import option
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import AsJson
from emmclab.cli.output_files import PresetFile, PresetName
from emmclab.cli.tables import framed, print_line
from emmclab.core_types import DerivedSetting, RegisterReport
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.files import write_atomically
from emmclab.simulation.device import Device
from emmclab.traces.recorded_registers import RecordedDevice

#: The option for the registers of each kind of device.
_OPTIONS = {"emmc": "--ext-csd", "ufs": "--ufs"}
#: A hint with all options for registers.
_SOURCES = (
    "name the EXT_CSD register of an eMMC with --ext-csd, the descriptors of a UFS with --ufs, or a "
    "recording with --from"
)


@command(
    "emmclab preset --ext-csd /sys/kernel/debug/mmc0/mmc0:0001/ext_csd -o my.toml",
    "emmclab preset --ext-csd mmc-utils.txt --like emmc51-tlc -o my.toml",
    "emmclab preset --ufs /sys/devices/platform/soc/1d84000.ufshc -o my.toml",
    "emmclab preset --from phone.parquet -o my.toml",
)
def preset(
    *,
    # Accepted only to report the option that the file needs.
    word: Annotated[str | None, typer.Argument(metavar="FILE", hidden=True)] = None,
    ext_csd: Annotated[
        Path | None,
        option(
            "EXT_CSD register of an eMMC: 512 bytes, or as debugfs, mmc-utils, U-Boot or hexdump print "
            "it; `-` for stdin.",
            None,
            "--ext-csd",
        ),
    ] = None,
    ufs: Annotated[
        Path | None,
        option(
            "Descriptors of a UFS: its folder in sysfs, an archive or a listing (`grep -r .`) of it, or "
            "the output of ufs-utils.",
            None,
            "--ufs",
            metavar="PATH",
        ),
    ] = None,
    recording: Annotated[
        Path | None,
        option("Registers that `emmclab record` has stored with a trace.", None, "--from", metavar="RECORDING"),
    ] = None,
    like: Annotated[
        str | None,
        option(
            "Preset that gives the settings that no register states (latencies, flash, collection); default: by kind "
            "and version.",
            metavar="DEVICE",
            autocompletion=device_names,
        ),
    ] = None,
    output: PresetFile = None,
    name: PresetName = None,
    as_json: AsJson = False,
) -> None:
    """Make a device preset from the registers of a real device."""
    if word is not None:
        raise _without_option(word)
    found = _read(ext_csd, ufs, recording)
    made = found.preset(like=like, name=name or (output.stem if output is not None else None))
    if output is not None:
        write_atomically(output, made.toml)
    if as_json:
        device = {"digest": made.device.digest, "capacity_bytes": made.device.capacity_bytes}
        notes = {name: getattr(made, name) for name in ("settings", "notes", "assumed_capacity")}
        print_json({"toml": made.toml, "like": made.like, **device, **notes})
        return
    if output is None:
        sys.stdout.write(made.toml)
        return
    show_preset(stderr(), found, made)
    print_stderr(
        f"{output}: `emmclab simulate TRACE --device {output}` runs on it; `emmclab calibrate` measures the "
        "latencies of your device"
    )


def _without_option(word: str) -> ConfigError:
    """Return the error for a file or device name without option; the hint names the option that it needs."""
    field = "FILE"
    try:
        found = registers(word)
    except EmmclabError as unread:
        if _is_device(word):
            field = "--like"
            hint = (
                f"it is a device already: use `--device {word}` with other commands; with "
                f"`--like {word}` it fills in what the registers of --ext-csd, --ufs or --from do not specify"
            )
        else:
            hint = f"{unread}; {_SOURCES}" if Path(word).exists() else _SOURCES
    else:
        field = "--from" if is_recording(Path(word)) else _OPTIONS[found.kind]
        hint = f"it holds {found.standard} registers: write `emmclab preset {field} {word}`"
    return ConfigError(f"`{word}` has no option", field=field, hint=hint)


def _is_device(word: str) -> bool:
    """Return whether a word names a preset or a device file."""
    try:
        Device.named(word)
    except EmmclabError:
        return False
    return True


def _read(ext_csd: Path | None, ufs: Path | None, recording: Path | None) -> Registers:
    """Read the registers of the given source; exactly one is required."""
    given = [path for path in (ext_csd, ufs, recording) if path is not None]
    if len(given) != 1:
        raise ConfigError(
            "give the registers of one device" if given else "the registers of a device are missing",
            field="--ext-csd",
            hint=_SOURCES,
        )
    found = registers(given[0])
    if recording is not None:
        return found
    kind = "emmc" if ext_csd is not None else "ufs"
    if found.kind != kind:
        raise ConfigError(
            f"{given[0]}: these are registers of the other kind ({found.standard})",
            file=str(given[0]),
            field=_OPTIONS[kind],
            hint=f"give it with {_OPTIONS[found.kind]}",
        )
    return found


def explain_registers(found: Registers, as_json: bool) -> None:
    """Print the identity, the capabilities and the wear of a device, from its registers."""
    if as_json:
        names = ("kind", "standard", "facts", "fields", "notes")
        print_json({"file": found.source, **{name: getattr(found, name) for name in names}})
        return
    console = stdout()
    _facts(console, "", found.report)
    print_line(
        console,
        f"`emmclab preset {_OPTIONS[found.kind]} {found.source} -o my.toml` makes a device preset of it; "
        "`--json` has every field",
        "dim",
    )


def show_recorded(console: Console, devices: Sequence[RecordedDevice], recording: str) -> None:
    """Print the registers of the devices of a recording, and what could not be read."""
    for device in devices:
        if device.report is None:
            _notes(console, [device.line()])
            continue
        _facts(console, f"{device.name}: ", device.report)
        _notes(console, [f"not read: {gap}" for gap in device.gaps])
    if len(devices) == 1 and devices[0].report is not None:
        print_line(console, f"`emmclab preset --from {recording} -o my.toml` makes a device preset of it", "dim")


def _facts(console: Console, of: str, report: RegisterReport) -> None:
    """Print the facts of a report on registers; the title begins with `of`."""
    what = "according to its EXT_CSD register" if report["kind"] == "emmc" else "according to its descriptors"
    table = framed(f"{of}{report['standard']}, {what}", "", "Says", "Field", words=3)
    for fact in report["facts"]:
        table.add_row(fact["topic"], Text(fact["text"] or "–"), Text(", ".join(fact["from"]), "dim"))
    console.print(table)
    _notes(console, report["notes"])


def show_preset(console: Console, found: Registers, made: RegisterPreset) -> None:
    """Print the settings that were derived from registers, and what was not taken over."""
    if made.assumed_capacity:
        console.print(f"warning: {made.assumed_capacity}", style="yellow", markup=False, soft_wrap=True)
    table = _settings(f"{found.standard}: settings read from registers; the others are those of {made.like}", made)
    console.print(table)
    _notes(console, made.notes)


def _settings(title: str, made: RegisterPreset) -> Table:
    table = framed(title)
    for heading in ("Setting", "Value", "From"):
        table.add_column(heading, overflow="fold")
    rows: list[DerivedSetting] = [
        {
            "key": "capacity",
            "value": f"{made.device.capacity_bytes:,} B",
            "from": f"assumed: {made.like}" if made.assumed_capacity else "",
        },
        *made.settings,
    ]
    for row in rows:
        table.add_row(*map(Text, (row["key"], row["value"], row["from"])))
    return table


def _notes(console: Console, notes: list[str]) -> None:
    for note in notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
