"""`emmclab preset --ext-csd FILE | --ufs PATH | --from RECORDING`: makes a device preset."""

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
from emmclab.cli.console import PresetFile, PresetName, print_json, print_stderr, stderr, stdout
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import AsJson, option
from emmclab.cli.tables import framed, print_line
from emmclab.core_types import HealthReport, RegisterReport
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.files import write_atomically
from emmclab.simulation.device import Device
from emmclab.traces.recorded_registers import RecordedDevice

#: Option that reads the registers of a device, by kind of device.
_OPTIONS = {"emmc": "--ext-csd", "ufs": "--ufs"}
#: Hint that lists all options with which the registers of a device can be given.
_SOURCES = (
    "give the EXT_CSD register of an eMMC with --ext-csd, the descriptors of a UFS with --ufs, or a "
    "recording with --from"
)

ExtCsd = Annotated[
    Path | None,
    option(
        "EXT_CSD register of an eMMC: 512 bytes, or the output of debugfs, mmc-utils, U-Boot or "
        "hexdump; `-` for stdin.",
        None,
        "--ext-csd",
    ),
]
Ufs = Annotated[
    Path | None,
    option(
        "Descriptors of a UFS: its folder in sysfs, an archive or a listing (`grep -r .`) of this folder, or the "
        "output of ufs-utils.",
        None,
        "--ufs",
        metavar="PATH",
    ),
]

Health = Annotated[
    str | None, option("Erase counts: a vendor's health report.", None, "--health", metavar="FILE[@FORMAT]")
]


@command(
    "emmclab preset --ext-csd /sys/kernel/debug/mmc0/mmc0:0001/ext_csd -o my.toml",
    "emmclab preset --ext-csd mmc-utils.txt --like emmc51-tlc -o my.toml",
    "emmclab preset --ufs /sys/devices/platform/soc/1d84000.ufshc -o my.toml",
    "emmclab preset --from phone.parquet -o my.toml",
)
def preset(
    *,
    # A file name without an option is accepted only to print an error that names the option to use.
    word: Annotated[str | None, typer.Argument(metavar="FILE", hidden=True)] = None,
    ext_csd: ExtCsd = None,
    ufs: Ufs = None,
    recording: Annotated[
        Path | None,
        option("Registers that `emmclab record` has stored with a trace.", None, "--from", metavar="RECORDING"),
    ] = None,
    like: Annotated[
        str | None,
        option(
            "Preset for the settings that registers do not contain (latencies, flash, garbage collection); default: "
            "by kind and version.",
            metavar="DEVICE",
            autocompletion=device_names,
        ),
    ] = None,
    output: PresetFile = None,
    name: PresetName = None,
    as_json: AsJson = False,
) -> None:
    """Create a device preset from the registers of a real device."""
    if word is not None:
        raise _without_option(word)
    device_registers = read_registers(ext_csd, ufs, recording)
    derived = device_registers.preset(like=like, name=name or (output.stem if output is not None else None))
    if output is not None:
        write_atomically(output, derived.toml)
    if as_json:
        device = {"digest": derived.device.digest, "capacity_bytes": derived.device.capacity_bytes}
        notes = {name: getattr(derived, name) for name in ("settings", "notes", "assumed_capacity")}
        print_json({"toml": derived.toml, "like": derived.like, **device, **notes})
        return
    if output is None:
        sys.stdout.write(derived.toml)
        return
    show_preset(stderr(), device_registers, derived)
    print_stderr(
        f"{output}: `emmclab simulate TRACE --device {output}` simulates this device; `emmclab calibrate` measures "
        "the latencies of your device"
    )


def _without_option(word: str) -> ConfigError:
    """Return the error for a file or device name without an option; the hint contains the option that it needs."""
    field = "FILE"
    try:
        file_registers = registers(word)
    except EmmclabError as error:
        if _is_device(word):
            field = "--like"
            hint = (
                f"it is a device preset: use `--device {word}` with other commands; with `--like {word}` "
                "it provides the settings that the registers of --ext-csd, --ufs or --from do not contain"
            )
        else:
            hint = f"{error}; {_SOURCES}" if Path(word).exists() else _SOURCES
    else:
        field = "--from" if is_recording(Path(word)) else _OPTIONS[file_registers.kind]
        hint = f"it contains {file_registers.standard} registers: write `emmclab preset {field} {word}`"
    return ConfigError(f"`{word}` has no option", field=field, hint=hint)


def _is_device(word: str) -> bool:
    """Return whether a word is the name of a preset or of a device file."""
    try:
        Device.named(word)
    except EmmclabError:
        return False
    return True


def read_registers(ext_csd: Path | None, ufs: Path | None, recording: Path | None = None) -> Registers:
    """Read registers from the source that is not None; it is an error if none or several are given."""
    sources = [path for path in (ext_csd, ufs, recording) if path is not None]
    if len(sources) != 1:
        raise ConfigError(
            "there are registers of more than one device" if sources else "the registers of a device are missing",
            field="--ext-csd",
            hint=_SOURCES,
        )
    device_registers = registers(sources[0])
    if recording is not None:
        return device_registers
    kind = "emmc" if ext_csd is not None else "ufs"
    if device_registers.kind != kind:
        raise ConfigError(
            f"these are registers of another kind of device ({device_registers.standard})",
            field=_OPTIONS[kind],
            hint=f"use {_OPTIONS[device_registers.kind]}",
        ).in_file(str(sources[0]))
    return device_registers


def explain_registers(device_registers: Registers, as_json: bool) -> None:
    """Print the identity, the capabilities and the wear of a device, from its registers."""
    if as_json:
        names = ("kind", "standard", "facts", "fields", "notes")
        print_json({"file": device_registers.source, **{name: getattr(device_registers, name) for name in names}})
        return
    console = stdout()
    _facts(console, "", device_registers.report)
    print_line(
        console,
        f"`emmclab preset {_OPTIONS[device_registers.kind]} {device_registers.source} -o my.toml` creates a device "
        "preset from it; `--json` prints every field",
        "dim",
    )


def explain_health(report: HealthReport, content: bytes | None, as_json: bool) -> None:
    """Print what a health report states; `content` are its bytes if they were read from a device."""
    if as_json:
        print_json({**report.to_dict(), **({} if content is None else {"dump": content.hex()})})
        return
    console = stdout()
    table = framed(f"Health report {report.format}: {report.parts}", "", "Value", "Bytes", words=3)
    for field in report.fields:
        table.add_row(field.name, Text(f"{field.value:,}"), Text(field.place, "dim"))
    console.print(table)
    for source in dict.fromkeys(field["from"] for field in report.fields):
        print_line(console, f"described by {source}", "dim")


def show_recorded(console: Console, devices: Sequence[RecordedDevice], recording: str) -> None:
    """Print the registers of the devices of a recording, and which could not be read."""
    for device in devices:
        if device.report is None:
            _notes(console, [device.line()])
            continue
        _facts(console, f"{device.name}: ", device.report)
        _notes(console, [f"not read: {gap}" for gap in device.gaps])
    if len(devices) == 1 and devices[0].report is not None:
        print_line(console, f"`emmclab preset --from {recording} -o my.toml` creates a device preset from it", "dim")


def _facts(console: Console, prefix: str, report: RegisterReport) -> None:
    """Print the properties and capabilities in a register report; `prefix` precedes the title."""
    source = "according to its EXT_CSD register" if report.kind == "emmc" else "according to its descriptors"
    table = framed(f"{prefix}{report.standard}, {source}", "", "Value", "Field", words=3)
    for fact in report.facts:
        table.add_row(fact.topic, Text(fact.text or "–"), Text(", ".join(fact.from_), "dim"))
    console.print(table)
    _notes(console, report.notes)


def show_preset(console: Console, device_registers: Registers, derived: RegisterPreset) -> None:
    """Print the settings that were derived from registers, and notes on registers that were not used."""
    if derived.assumed_capacity:
        console.print(f"warning: {derived.assumed_capacity}", style="yellow", markup=False, soft_wrap=True)
    table = _settings(
        f"{device_registers.standard}: settings read from registers; the others are those of {derived.like}", derived
    )
    console.print(table)
    _notes(console, derived.notes)


def _settings(title: str, derived: RegisterPreset) -> Table:
    table = framed(title)
    for heading in ("Setting", "Value", "From"):
        table.add_column(heading, overflow="fold")
    assumed = f"assumed: {derived.like}" if derived.assumed_capacity else ""
    rows = [("capacity", f"{derived.device.capacity_bytes:,} B", assumed)]
    rows += [(setting.key, setting.value, setting.from_) for setting in derived.settings]
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _notes(console: Console, notes: list[str]) -> None:
    for note in notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
