"""`emmclab explain TRACE|DEVICE|SETTING|RESULT|WORD`, and `emmclab explain --glossary`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab import _core
from emmclab.advice.wear_rate import erase_limits
from emmclab.calibration.health import health
from emmclab.calibration.register_files import holds_registers
from emmclab.calibration.registers import registers
from emmclab.cli.command import command
from emmclab.cli.console import print_json, stdout
from emmclab.cli.explain_pair import Pair, explain_pair, is_device
from emmclab.cli.explain_texts import (
    READING,
    explain_option,
    explain_results,
    find_meanings,
    keys,
    option_meanings,
    print_meanings,
    provenance_groups,
    show_provenance,
)
from emmclab.cli.glossary import Term, define, glossary, words
from emmclab.cli.name_completion import device_names, explained_words
from emmclab.cli.options import AsJson, Reading, argument, option
from emmclab.cli.preset import Health, explain_health, explain_registers, show_recorded
from emmclab.cli.progress import Meter
from emmclab.cli.show_profile import show_activity
from emmclab.cli.simulation_options import Capacity, configured
from emmclab.cli.tables import framed, print_line, show_explained, show_table
from emmclab.core_types import ClockJumpRow, RecordedActivity
from emmclab.errors import ConfigError, InputError
from emmclab.real_devices.health import read_health_report
from emmclab.runtime.document import Row, size
from emmclab.simulation.device import Device
from emmclab.simulation.result_text import completion_of
from emmclab.simulation.stored_result import holds_results, read_results, run_of
from emmclab.traces.profile_fields import JUMP_FIELDS, LEDGER_MEANINGS, jump_cells
from emmclab.traces.profile_notes import unrecorded
from emmclab.traces.reading import bundled_by_name, or_bundled
from emmclab.traces.recorded_registers import RecordedDeviceFields, recorded_devices
from emmclab.traces.trace import Ledger

_METAVAR = "WHAT"
#: Text that states how the format of a file was recognised.
_SIGNS = {"content": "its content", "--format": "--format", "--columns": "--columns"}
#: Fields of a trace header whose values are JSON text.
_JSON_FIELDS = ("activity", "clock_jumps", "registers")
#: Formats of traces that emmclab recorded or generated, rather than converted from a file.
_OWN = ("record", "synthetic")
_CLOCKS = {
    "unix": "time 0 is 1 January 1970 UTC",
    "monotonic": "time 0 is when the recording machine started",
    "relative": "time 0 is the start of the recording",
}


# Unknown options are accepted, because the argument may be an option of another command: `emmclab explain --rate`.
@command(
    "emmclab explain trace.txt",
    "emmclab explain nexus5",
    "emmclab explain ext_csd.txt # what the registers of a real device mean",
    "emmclab explain --health report.bin@hynix-v1 # erase counts, spare and bad blocks",
    "emmclab explain ufs31 pixel6a",
    "emmclab explain before.json after.json --one-at-a-time",
    "emmclab explain gc.policy",
    "emmclab explain watermark",
    context_settings={"ignore_unknown_options": True},
)
def explain(
    *,
    subject: Annotated[
        Path | None,
        argument(
            _METAVAR,
            "A trace, the name or the TOML file of a device, the registers of a real device (EXT_CSD, UFS "
            "descriptors), a setting (`gc.policy`) or group of settings (`gc`), a field of a result, a "
            "result as JSON, a word of the glossary, or `reading`: the options on how to read a trace.",
            autocompletion=explained_words,
        ),
    ] = None,
    other: Annotated[
        str | None,
        argument("OTHER", "Another device or result; only the differences are printed.", autocompletion=device_names),
    ] = None,
    whole_glossary: Annotated[bool, option("Print all words of the glossary.", None, "--glossary")] = False,
    health_file: Health = None,
    read_health: Annotated[
        str | None,
        option(
            "Read the health report of an eMMC or SD card (as root), by one reading command; formats that need another "
            "are refused. With --json, the dump is stored, too.",
            None,
            "--read-health",
            metavar="DEVICE@FORMAT",
        ),
    ] = None,
    changed: Annotated[bool, option("Print only those settings of a device that differ from the defaults.")] = False,
    capacity: Capacity = None,
    pair: Pair,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Describe a trace (format, clock, ledger, columns), a device, a setting, a result, or a word.

    For two results or devices, print their differences: settings, inputs and figures.
    """
    if whole_glossary:
        _explain_terms(glossary(), as_json)
        return
    if read_health is not None:
        explain_health(*read_health_report(read_health), as_json)
        return
    if health_file is not None:
        explain_health(health(health_file), None, as_json)
        return
    if subject is None:
        raise ConfigError(
            "the trace, device or word to explain is missing",
            field=_METAVAR,
            hint="give a trace, a device, or a word of the glossary; --glossary lists all words",
        )
    for text in (str(subject), other or ""):
        if text.startswith("--") and not find_meanings(text):
            rows = option_meanings(text) if other is None else []
            if not rows:
                raise ConfigError(
                    f"no such option: {text}", field=text, hint="`--help` after a command lists its options"
                )
            explain_option(rows, as_json)
            return
    trace = subject
    if other is not None:
        if changed:
            message = "`--changed` is for one device; for two, only the differences are printed"
            raise ConfigError(message, field="--changed", hint="leave out --changed, which applies only to devices")
        explain_pair(str(subject), other, capacity, pair, reading, as_json)
        return
    pair.refuse()
    if is_device(str(trace)):
        reading.refuse(str(subject))
        _explain_device(configured(str(trace), [], capacity), as_json, changed=changed)
        return
    for name, verb, is_given in (("--changed", "is for", changed), ("--capacity", "scales", capacity is not None)):
        if is_given:
            raise ConfigError(
                f"`{name}` {verb} devices, and `{subject}` is not a device",
                field=name,
                hint="use this option with the name of a device",
            )
    if reading.format is None and holds_registers(trace):
        reading.refuse(str(subject))
        explain_registers(registers(trace), as_json)
        return
    if holds_results(trace):
        reading.refuse(str(subject))
        explain_results(read_results(trace), as_json)
        return
    if not trace.exists():
        if str(trace) == READING:
            explain_option(option_meanings(READING), as_json)
            return
        is_path = "/" in str(trace) or str(trace) == "-"
        if define(str(trace)) is None and not is_path and (meanings := find_meanings(str(trace))):
            reading.refuse(str(subject))
            print_meanings(meanings, as_json)
            return
        if str(trace) not in bundled_by_name() and _is_word(str(trace)):
            reading.refuse(str(subject))
            _explain_word(str(trace), as_json)
            return
        trace = or_bundled(trace)
    source = reading.open(trace)
    with Meter(f"read {source.name}") as meter:
        for _ in source.batches(meter):
            pass
    about = {entry["name"]: entry["about"] for entry in _core.formats()}
    about["record"] = "recorded by emmclab"
    file_format, by = source.recognised[0]
    reading.note_changed(source.name, source.ledger)
    explained: _ExplainedTrace = {
        "file": str(trace),
        "digest": source.digest,
        "file_format": file_format,
        "recognised_by": _SIGNS[by],
        "format": source.header["format"],
        "format_recognised_by": _SIGNS.get(source.header["recognised"] or ""),
        "format_about": about.get(source.header["format"] or ""),
        "clock_about": _CLOCKS.get(source.header["clock"] or ""),
        "header": {name: text for name, text in source.header.items() if name not in _JSON_FIELDS},
        "clock_jumps": source.clock_jumps,
        "activity": json.loads(source.header["activity"] or "{}"),
        "devices": [
            {"device": name, "requests": count, "requests_pct": 100 * count / (source.ledger["kept"] or 1)}
            for name, count in source.devices.items()
        ],
        "ledger": source.ledger,
        "columns": _core.trace_columns(),
    }
    run = run_of(trace)
    devices = recorded_devices(source.header, str(trace))
    if as_json:
        explained["registers"] = [device.to_dict() for device in devices]
        print_json(explained if run is None else {**explained, "run": provenance_groups(run)})
        return
    _show(stdout(), explained)
    show_recorded(stdout(), devices, str(trace))
    if run is not None:
        stdout().print(Text("Simulated run", "bold"))
        show_provenance(stdout(), run)


class _DeviceShare(TypedDict):
    """A device of a trace, and its share of the requests."""

    device: str
    requests: int
    requests_pct: float


class _ExplainedTrace(TypedDict):
    """Description of a trace: file, format, header, record counts (ledger), clock, activity, devices and columns."""

    file: str
    digest: str | None
    file_format: str
    recognised_by: str
    format: str | None
    format_recognised_by: str | None
    format_about: str | None
    clock_about: str | None
    header: dict[str, str | None]
    clock_jumps: list[ClockJumpRow]
    #: Recorded activity, with the fields of `RecordedActivity`.
    activity: dict[str, Any]
    devices: list[_DeviceShare]
    ledger: Ledger
    columns: list[Row]
    registers: NotRequired[list[RecordedDeviceFields]]


def _is_word(text: str) -> bool:
    """Return whether an argument is a word of the glossary or a setting, rather than a path.

    A text with a slash or a file extension is a path.
    """
    group = text.partition(".")[0]
    is_key = "." in text and any(key.startswith(f"{group}.") for key in keys())
    return define(text) is not None or is_key or not ("/" in text or "." in text or text == "-")


def _explain_word(word: str, as_json: bool) -> None:
    term = define(word)
    if term is None:
        similar = _core.closest(word, [*words(), *_core.device_presets(), *keys()])
        lists = "`emmclab devices` lists devices, `emmclab explain --glossary` words"
        raise InputError(
            f"`{word}` is neither a file, nor a device, nor a word of the glossary, nor a setting",
            field=_METAVAR,
            hint=f"did you mean `{similar}`? {lists}" if similar else lists,
        )
    _explain_terms([term], as_json)
    if not as_json and len(find_meanings(word)) > 1:
        stdout().print(Text(f"`emmclab explain {word}.` lists the settings and fields of this name", "dim"))


def _explain_terms(terms: Sequence[Term], as_json: bool) -> None:
    if as_json:
        print_json(
            [{"term": term.term, "topic": term.topic, "meaning": term.text, "also": list(term.also)} for term in terms]
        )
        return
    console = stdout()
    topic = ""
    for term in terms:
        if term.topic != topic and len(terms) > 1:
            console.print(Text(f"\n{term.topic}" if topic else term.topic, "bold underline"))
            topic = term.topic
        also = f" ({', '.join(term.also)})" if term.also else ""
        console.print(Text.assemble((term.term, "bold"), f"{also}: {term.text}"))


def _explain_device(device: Device, as_json: bool, *, changed: bool) -> None:
    rows = device.explain()
    settings = [row for row in rows if not changed or row.value != row.default]
    if as_json:
        print_json(settings)
        return
    title = f"Settings of {device.name}, {size(device.capacity_bytes)}; [allowed values]"
    defaults = ("Default",) if changed else ()
    table = framed(title, "Setting", "Value", *defaults, "Unit", "From", words=5)
    meanings = []
    for setting in settings:
        meaning = Text(setting.doc, "dim")
        if setting.allowed:
            meaning.append(f" [{setting.allowed}]")
        if setting.key == "timing.write_complete":
            cache_kb = next(row.value for row in rows if row.key == "cache.size_kb")
            completion = completion_of(setting.value.strip('"'), cache_kb != "0")
            meaning.append(f" Here: writes complete {completion}.")
        meanings.append(meaning)
        default = (setting.default or "–",) if changed else ()
        cells = (setting.key, setting.value, *default, setting.unit, setting.origin)
        table.add_row(*map(Text, cells))
    console = stdout()
    show_explained(console, table, meanings)
    console.print()
    if changed:
        return
    show_table(console, erase_limits(device))
    if not device.capabilities.ext_csd:
        return
    register = framed("Capabilities, as its EXT_CSD register reports them", "Field", "Byte", "Value", words=5)
    for field in device.capabilities.ext_csd:
        last = field.byte + field.bytes - 1
        byte_range = f"{last}:{field.byte}" if field.bytes > 1 else str(last)
        register.add_row(field.name, byte_range, str(field.value))
    console.print(register)
    print_line(
        console,
        "PRE_EOL_INFO, DEVICE_LIFE_TIME_EST and BKOPS_STATUS change in use: a served card reports them "
        "(`emmclab serve DEVICE --sdhci SOCKET`), and a result has wear.lifetime.used_pct.",
        "dim",
    )


def _show(console: Console, explained: _ExplainedTrace) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    header = explained["header"]
    facts.add_row("file", Text(explained["file"]))
    if explained["digest"]:
        facts.add_row("digest", Text(f"{explained['digest']} (SHA-256 of its bytes, first 16 digits)"))
    facts.add_row("format", Text(f"{explained['file_format']}, recognised by {explained['recognised_by']}"))
    first = header["source"] or ""
    if explained["format"]:
        about = f": {explained['format_about']}" if explained["format_about"] else ""
        first += f" ({explained['format']}{about})"
    # The original format is known only for files that emmclab converted; other programs do not store it in a trace.
    if explained["file_format"] != explained["format"] and explained["format"] not in ("", *_OWN):
        first += f", recognised by {explained['format_recognised_by'] or 'an unknown method (not recorded)'}"
    facts.add_row("first read from", Text(first))
    facts.add_row("clock", Text(f"{header['clock']}: {explained['clock_about']}"))
    facts.add_row("device", Text(_devices(explained["devices"]) or header["device"] or "not recorded"))
    if missing := unrecorded(header["recorded"]):
        facts.add_row("not recorded", Text(missing))
    if header["coarse_clock"]:
        facts.add_row("clock step", Text(f"{header['coarse_clock']}, longer than a usual response"))
    facts.add_row("note", Text(header["note"] or "none"))
    console.print(facts)
    labels = _core.ledger_labels()
    ledger = framed("Ledger", "Count", "", "Of", words=0, text=["", "Of"])
    for name, count in explained["ledger"].items():
        text = "–" if count is None else f"{count:,}"
        ledger.add_row(text, labels[name], Text(LEDGER_MEANINGS.get(name, "")))
    console.print(ledger)
    if explained["clock_jumps"]:
        jumps = framed("Clock jumps or pauses of the recording", *(field.heading for field in JUMP_FIELDS), words=9)
        for jump in explained["clock_jumps"]:
            jumps.add_row(*jump_cells(jump))
        console.print(jumps)
    show_activity(console, RecordedActivity(explained["activity"]))
    columns = framed("Columns", "Name", "Type", "Unit", "Meaning", words=5)
    for column in explained["columns"]:
        columns.add_row(column["name"], column["type"], column["unit"], Text(column["about"]))
    console.print(columns)


def _devices(devices: Sequence[_DeviceShare]) -> str:
    """Return the names of the devices; if there are several, with their shares of the requests.

    >>> _devices([{"device": "8,0", "requests": 3, "requests_pct": 75.0}])
    '8,0'
    """
    if len(devices) == 1:
        return str(devices[0]["device"])
    return ", ".join(f"{row['device']} ({row['requests']:,} requests, {row['requests_pct']:.1f} %)" for row in devices)
