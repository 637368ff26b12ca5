"""The texts that `emmclab explain` prints about settings, differences between devices, and results."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from rich.console import Console
from rich.text import Text

from emmclab import _core
from emmclab.cli.command import READING_PANEL
from emmclab.cli.console import print_json, stdout
from emmclab.cli.tables import framed, show_explained
from emmclab.simulation.device import Device, presets
from emmclab.simulation.layers import layers as layer_kinds
from emmclab.simulation.result_fields import result_fields
from emmclab.simulation.result_text import completion
from emmclab.simulation.run_options import RUN_OPTIONS
from emmclab.simulation.stored_result import NAMING_SETTINGS, StoredResult
from emmclab.traces.profile_fields import KEY_FIELDS, LEDGER_MEANINGS, TABLES, Field

#: Matches the index of a list entry in a key: `.0` in `geometry.block_groups.0.blocks`.
_NUMBER = re.compile(r"\.\d+(?=\.|$)")
#: Value of `kind` in table rows that describe a device setting.
_OF_A_DEVICE = "setting of a device"
#: Value of `kind` in table rows that describe an option of a run.
_OPTION = "option of a run"
#: Prefix of the result fields with the settings in which a device differs from its preset.
_SETTINGS = "provenance.settings."
#: Settings that name or describe a device and do not affect its behaviour.
_NAMES = ("name", "about")


def _plain(key: str) -> str:
    """Return a key of a setting in lower case and without list indices.

    >>> _plain("geometry.block_groups.0.Blocks")
    'geometry.block_groups.blocks'
    """
    return _NUMBER.sub("", key).casefold()


def keys() -> list[str]:
    """Return the names that `find_meanings` accepts: settings, options of runs, fields of results, ledger counts."""
    devices = {_plain(row.key): None for row in Device.preset("ufs31").explain()}
    layers = [f"{kind['name']}.{setting['name']}" for kind in layer_kinds() for setting in kind["settings"]]
    fields = [*(field.path for field in result_fields()), *(field.name for field in _profile_fields())]
    return [*devices, *layers, *RUN_OPTIONS, *fields, READING, *(f"ledger.{count}" for count in LEDGER_MEANINGS)]


class Meaning(TypedDict):
    """The meaning of a setting, option or figure; `presets` lists the values of a setting by device preset."""

    kind: str
    key: str
    unit: str
    allowed: str
    meaning: str
    default: str | None
    presets: dict[str, list[str]]


def find_meanings(name: str) -> list[Meaning]:
    """Return the meanings of a name: a setting, a group of settings (`gc`), an option of runs, a field or a count."""
    name_or_group = _plain(name.strip("."))
    settings: dict[str, Meaning] = {}
    for preset in presets():
        for row in Device.preset(preset).explain():
            key = _plain(row.key)
            if key not in _NAMES and _belongs(key, name_or_group):
                meaning = settings.setdefault(key, _meaning(_OF_A_DEVICE, key, row.unit, row.allowed, row.doc))
                if row.origin == "default":
                    meaning["default"] = row.value
                else:
                    values = meaning["presets"].setdefault(preset, [])
                    values.append(row.value)
    rows = list(settings.values())
    for kind in layer_kinds():
        for setting in kind["settings"]:
            key = f"{kind['name']}.{setting['name']}"
            if _belongs(key, name_or_group):
                # A default of None means that the layer computes the value from other settings.
                default = None if setting["default"] is None else json.dumps(setting["default"])
                rows.append(_meaning("setting of a layer", key, "", setting["unit"], setting["about"], default))
    if option := RUN_OPTIONS.get(name_or_group.removeprefix("--").replace("-", "_")):
        default = json.dumps(option.default)
        rows.append(_meaning(_OPTION, option.name, "", option.range, option.about, default))
    for field in result_fields():
        if _belongs(field.path, name_or_group):
            rows.append(_meaning("field of a result", field.path, field.unit, "", field.about))
    for profile_field in _profile_fields():
        if profile_field.name == name_or_group:
            rows.append(_meaning("field of a profile", name_or_group, profile_field.unit, "", profile_field.about))
    for count, about in LEDGER_MEANINGS.items():
        if _belongs(f"ledger.{count}", name_or_group):
            rows.append(_meaning("count of a ledger", f"ledger.{count}", "", "", about))
    return rows


def _profile_fields() -> list[Field]:
    fields = [*KEY_FIELDS, *(field for _, table in TABLES for field in table)]
    return list({field.name: field for field in fields}.values())


def _belongs(key: str, name_or_group: str) -> bool:
    return key == name_or_group or key.startswith(f"{name_or_group}.")


def _meaning(kind: str, key: str, unit: str, allowed: str, meaning: str, default: str | None = None) -> Meaning:
    return {
        "kind": kind,
        "key": key,
        "unit": unit,
        "allowed": allowed,
        "meaning": meaning,
        "default": default,
        "presets": {},
    }


#: Name of the topic of `emmclab explain` that lists the options on how to read a trace.
READING = READING_PANEL.lower()


class OptionMeaning(TypedDict):
    """The meaning of an option of the command line, and the commands in which it has this meaning."""

    option: str
    meaning: str
    commands: list[str]


def option_meanings(option: str) -> list[OptionMeaning]:
    """Return the meanings of a command-line option, each with the commands that have it.

    `READING` stands for all options for reading traces.
    """
    from emmclab.cli import application
    from emmclab.cli.command import walk_commands

    commands_of: dict[tuple[str, str], list[str]] = {}
    for command_name, command in walk_commands(application()):
        for parameter in command.params:
            names = (*parameter.opts, *parameter.secondary_opts)
            panel = getattr(parameter, "rich_help_panel", None)
            if option in names or (option == READING and panel == READING_PANEL):
                name = option if option in names else f"{names[0]} {parameter.metavar or ''}".rstrip()
                commands_of.setdefault((name, str(getattr(parameter, "help", None) or "")), []).append(command_name)
    return [{"option": name, "meaning": text, "commands": commands} for (name, text), commands in commands_of.items()]


def explain_option(rows: Sequence[OptionMeaning], as_json: bool) -> None:
    """Print the meanings of options, and the commands that have them."""
    if as_json:
        print_json(rows)
        return
    shared = rows[0]["commands"] if len(rows) > 1 else None
    if shared and all(row["commands"] == shared for row in rows):
        stdout().print(Text(f"Options of {', '.join(shared)}:"))
    else:
        shared = None
    for row in rows:
        commands = "" if shared else f" (option of {', '.join(row['commands'])})"
        stdout().print(Text.assemble((row["option"], "bold"), f"{commands}: {row['meaning']}"))


def print_meanings(rows: Sequence[Meaning], as_json: bool) -> None:
    """Print settings and fields: a single one in full, several as a table."""
    if as_json:
        print_json(rows)
        return
    console = stdout()
    if len(rows) > 1:
        table = framed("", "Name", "Default", "Unit", words=3)
        for row in rows:
            table.add_row(*(Text(row[part] or "") for part in ("key", "default", "unit")))
        show_explained(console, table, [Text(row["meaning"], "dim") for row in rows])
        return
    (row,) = rows
    unit = f", {row['unit']}" if row["unit"] else ""
    console.print(Text.assemble((row["key"], "bold"), f" ({row['kind']}{unit}): {row['meaning']}"))
    if row["allowed"]:
        console.print(Text(f"allowed: {row['allowed']}"))
    for word, meaning in choices(row["key"]) if row["kind"] == _OF_A_DEVICE else ():
        console.print(Text.assemble(f"  {word}: ", (meaning, "dim")))
    if row["default"] is not None:
        console.print(Text(f"default: {row['default']}"))
    others = {name: values for name, values in row["presets"].items() if {*values} != {row["default"]}}
    for preset, values in others.items():
        console.print(Text(f"  {preset}: {', '.join(values)}", "dim"))
    if row["kind"].startswith("setting"):
        console.print(Text(f"Change it with --set {row['key']}=VALUE", "dim"))
    if row["kind"] == _OPTION:
        # Imported here because importing the study modules takes long.
        from emmclab.studies.grid import AXES

        option = RUN_OPTIONS[row["key"]]
        places = [f"In Python {option.name}="]
        if option.command_line:
            places.append(f"on the command line {option.command_line}")
        if option.name in AXES:
            places.append("in a study a key or an axis of a grid")
        console.print(Text("; ".join(places), "dim"))


def difference_of(first: Device, second: Device) -> list[dict[str, str | None]]:
    """Return the settings in which two devices differ: key, both values (None: no such setting), unit, meaning."""
    rows = [{row.key: row for row in device.explain()} for device in (first, second)]
    differing = []
    for key in dict.fromkeys([*rows[0], *rows[1]]):
        pair = [settings.get(key) for settings in rows]
        values = [None if row is None else row.value for row in pair]
        if values[0] != values[1] and key.partition(".")[0] not in NAMING_SETTINGS:
            about = next(row for row in pair if row is not None)
            key_and_values = {"key": key, "first": values[0], "second": values[1]}
            differing.append({**key_and_values, "unit": about.unit, "meaning": about.doc})
    return differing


def explain_difference(first: Device, second: Device, as_json: bool) -> None:
    """Print only the settings in which two devices differ."""
    rows = difference_of(first, second)
    if as_json:
        print_json({"first": first.name, "second": second.name, "differences": rows})
        return
    console = stdout()
    if not rows:
        console.print(Text(f"{first.name} and {second.name} have the same settings"))
        return
    title = f"Settings that differ: {len(rows)} of {len(first.explain())}"
    table = framed(title, "Setting", first.name, second.name, "Unit", words=4)
    for row in rows:
        cells = (row["key"], row["first"] or "–", row["second"] or "–", row["unit"])
        table.add_row(*(Text(cell or "") for cell in cells))
    show_explained(console, table, [Text(row["meaning"] or "", "dim") for row in rows])


def explain_results(results: Sequence[StoredResult], as_json: bool) -> None:
    """Print how stored results were computed, as far as the results contain this information."""
    if as_json:
        print_json([_result_provenance(result) for result in results])
        return
    console = stdout()
    for result in results:
        console.print(Text(result.name, "bold"))
        show_provenance(console, result.fields)


def _brief(groups: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten the provenance of a result: keep only those device settings that differ from the presets."""
    provenance = dict(groups.get("provenance") or {})
    provenance.pop("devices", None)
    for group in ("inputs", "aged_by"):
        inputs = provenance.pop(group, ())
        for number, trace in enumerate(inputs, 1):
            reading = "".join(f", {key}={value}" for key, value in (trace.get("reading") or {}).items())
            key = group if len(inputs) == 1 else f"{group}.{number}"
            name, digest = trace.get("path") or trace.get("name"), trace.get("sha256") or "–"
            provenance[key] = f"{name} (SHA-256 {digest}{reading})"
    return {**groups, **({"provenance": provenance} if provenance else {})}


def provenance_groups(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the groups of fields of a result that describe how it was computed."""
    names = ["provenance", "options", "configuration", "setting_changes"]
    if "application" in fields:
        names = ["application", "device", "network", "seed", "limit_s", "what_if", *names]
    return {name: fields[name] for name in names if name in fields}


def show_provenance(console: Console, fields: Mapping[str, Any]) -> None:
    """Print how a result was computed."""
    groups = provenance_groups(fields)
    configuration, cache = groups.get("configuration"), fields.get("cache")
    if isinstance(configuration, dict) and "write_complete" in configuration and isinstance(cache, dict | None):
        # Print the meaning of `write_complete` instead of its value. The meaning depends on the write buffer.
        groups["configuration"] = {**configuration, "write_complete": completion(fields)}
    table = framed("", "Setting", "Value", words=2)
    for key, value in _flat(_brief(groups)):
        table.add_row(key, Text(value))
    console.print(table)


class _ResultProvenance(TypedDict):
    """The trace and device of a stored result, and how it was computed."""

    trace: str | None
    device: str | None
    made: dict[str, Any]


def _result_provenance(result: StoredResult) -> _ResultProvenance:
    made = provenance_groups(result.fields)
    return {"trace": result.fields.get("trace"), "device": result.fields.get("device"), "made": made}


def _flat(groups: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in groups.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{path}.")
        elif value == {} and prefix == _SETTINGS:
            yield path, f"as in the preset (`emmclab explain {name}`)"
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield path, "–" if value in (None, {}, []) else text


def choices(key: str) -> list[tuple[str, str]]:
    """Return the words that a device setting accepts, each with its meaning; empty for other settings.

    >>> [word for word, _ in choices("cache.write_back")]
    ['eager', 'idle', 'when_full']
    >>> choices("cache.size_kb")
    []
    """
    schema: dict[str, Any] = _core.device_schema()
    node = schema
    for part in key.split("."):
        if part.isdigit():
            continue
        node = _resolved(node.get("properties", {}).get(part, {}), schema)
    return [
        (choice["const"], " ".join(choice["description"].split()))
        for choice in node.get("oneOf", [])
        if "const" in choice and "description" in choice
    ]


def _resolved(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema definition to which a node refers; for a list, the definition of its elements."""
    while "$ref" in node or "items" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node["items"]
    return node
