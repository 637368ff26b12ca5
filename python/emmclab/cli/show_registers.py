"""Prints the registers of a device on the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab.calibration.registers import RegisterPreset, Registers
from emmclab.cli.console import print_json, stdout
from emmclab.cli.tables import framed, print_line
from emmclab.core_types import DerivedSetting, RegisterReport
from emmclab.traces.recorded_registers import RecordedDevice

#: The option of `emmclab preset` for each kind of device.
_OPTIONS = {"emmc": "--ext-csd", "ufs": "--ufs"}


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
