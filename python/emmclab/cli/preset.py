"""`emmclab preset --ext-csd FILE | --ufs PATH | --from RECORDING`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from emmclab.calibration.register_files import is_recording
from emmclab.calibration.registers import Registers, registers
from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, stderr
from emmclab.cli.declared_options import option
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import AsJson
from emmclab.cli.output_files import PresetFile, PresetName
from emmclab.cli.show_registers import show_preset
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.files import write_atomically
from emmclab.simulation.device import Device

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
