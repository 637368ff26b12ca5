"""Generates the reference pages of the site, docs/reference, from the code alone; `make docs` runs it."""

import dataclasses
import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

import emmclab
from emmclab import _core
from emmclab.cli import application
from emmclab.cli.command import walk_commands
from emmclab.cli.failures import EXIT_CODES
from emmclab.cli.glossary import glossary
from emmclab.cli.layers import default_text
from emmclab.pages.profile_figures import FIGURES
from emmclab.runtime.document import size
from emmclab.runtime.persistence_contract import persistence_contract
from emmclab.simulation.device import Device, presets
from emmclab.simulation.layers import layers
from emmclab.simulation.result_fields import result_groups
from emmclab.simulation.run_options import RUN_OPTIONS
from emmclab.studies.grid import AXES, Grid
from emmclab.traces.profile_fields import (
    FSYNC_FIELDS,
    FSYNC_PARTS,
    FSYNC_SHARED,
    JUMP_FIELDS,
    KEY_FIELDS,
    LEDGER_MEANINGS,
    REISSUE_FIELDS,
    TABLES,
    Field,
)

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
#: Modules in the order of the page on Python; the first one is the package, which exports names of other modules.
MODULES = (
    *("emmclab", "emmclab.traces.workload", "emmclab.simulation.layers", "emmclab.apps.closed_loop"),
    *("emmclab.studies", "emmclab.fleet", "emmclab.traces.parallel_profile", "emmclab.advice.advise"),
    *("emmclab.advice.device_state", "emmclab.real_devices.probe", "emmclab.traces.journal"),
    *("emmclab.papers.claims", "emmclab.traces.published", "emmclab.pages.profiles"),
    *("emmclab.pages.simulation", "emmclab.pages.applications", "emmclab.pages.solutions"),
    *("emmclab.pages.probe", "emmclab.pages.plots", "emmclab.errors"),
)

#: The required settings of a file, with the smallest values of a valid device.
NEEDED = {"page_kb": 4, "blocks": 512, "pages_per_block": 64}
#: Settings of which some choices have further settings.
CHOICES = ("gc.policy", "allocation.policy", "mapping.scheme")
#: Maximum values of the number formats in the schema.
MOST = {"uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**63 - 1}
_ABOUT_SETTINGS = """# Settings of a device

A device file is TOML; `--set SECTION.KEY=VALUE` changes one setting, an axis of a study sweeps it, and
`emmclab explain DEVICE` prints all of them with the values of that device and where each came from. An
unknown key, a value outside its range and settings that contradict each other are errors, all found at
once, before a run begins.

A file gives at least one `[[geometry.block_groups]]` with `page_kb`, `blocks` and `pages_per_block`. *0
to N* is the range in which a number is accepted by itself; other settings bound some further, and the
error says which.
"""


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def command_line() -> str:
    """Describe each command with its arguments and options."""
    parts = [
        "# Command line\n\n",
        "Results go to stdout, messages to stderr. Exit codes: ",
        ", ".join(f"{code} {about}" for code, about in EXIT_CODES.items()),
        ". `NO_COLOR` turns colours off; ",
        "`EMMCLAB_DEBUG=1` shows the traceback of a bug.\n",
    ]
    panel = None
    for name, command in walk_commands(application()):
        if " " not in name and command.rich_help_panel != panel:
            panel = command.rich_help_panel
            parts.append(f"\n## {panel}\n")
        parts += _command(name, command)
    return "".join(parts)


def _command(name: str, command: Any) -> list[str]:
    usage = ["emmclab", name]
    rows = []
    for parameter in command.params:
        shown_name = ", ".join(parameter.opts)
        if parameter.param_type_name == "argument":
            shown_name = parameter.metavar or parameter.name
            usage.append(shown_name)
        elif parameter.metavar:
            shown_name = f"{shown_name} {parameter.metavar}"
        if not getattr(parameter, "hidden", False):
            rows.append([f"`{shown_name}`", parameter.help or "", _default(parameter)])
    usage.append("COMMAND" if isinstance(command, TyperGroup) else "[OPTIONS]")
    example = (command.epilog or "").replace("[cyan]", "`").replace("[/]", "`")
    return [
        f"\n### emmclab {name}\n\n{command.help}\n\n    {' '.join(usage)}\n\n",
        table(["argument or option", "meaning", "default"], rows) if rows else "",
        f"\n{example}\n" if example else "",
    ]


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default in (None, False, []) else f"`{parameter.default}`"


def trace_columns() -> str:
    """Describe the columns of a trace."""
    rows = [
        [f"`{column['name']}`", column["type"], column["unit"], "yes" if column["optional"] else "", column["about"]]
        for column in _core.trace_columns()
    ]
    ledger = [
        [f"`{field}`", label, LEDGER_MEANINGS.get(field, label)] for field, label in _core.ledger_labels().items()
    ]
    return (
        "# Columns of a trace\n\nIn Parquet, Arrow, CSV and Python alike. Rows are in order of arrival. "
        "Lists are block notes ([guide](../guides/journal.md#block-notes)), which CSV has no place for.\n\n"
        + table(["column", "type", "unit", "may be missing", "meaning"], rows)
        + "\n## Ledger\n\nStored with the trace and printed above every output.\n\n"
        + table(["field", "label", "counts"], ledger)
    )


def formats() -> str:
    """List the trace formats."""
    rows = [
        [
            f"`{entry['name']}`",
            "yes" if entry["reads"] else "",
            "yes" if entry["writes"] else "",
            entry["about"],
            entry["known_by"],
        ]
        for entry in _core.formats()
    ]
    columns = [
        [
            f"`{column['name']}`",
            ", ".join(f"`{column['name']}{unit}`" for unit in column["units"]),
            column["needed"],
            column["about"],
        ]
        for column in _core.csv_columns()
    ]
    return (
        "# Trace formats\n\nA format is detected by content, or selected with `--format`; files may be compressed with "
        "gzip, bzip2, zstd or xz. An output is compressed if its name ends in `.gz`, `.zst` or `.xz` (Parquet has its "
        "own compression).\n\n"
        + table(["name", "read", "write", "about", "known by"], rows)
        + "\n## Columns of CSV\n\nThe names are in a heading, or in `--columns` in the order of the file; fields "
        "are separated by commas, semicolons, tabs or blanks. The unit of a name without one is `--time-unit` or "
        "`--size-unit`. A file needs a time, an address, a length and an operation; with "
        "`--time-unit none` it needs an address.\n\n" + table(["name", "with its unit", "needed", "meaning"], columns)
    )


def what_can_be_read() -> str:
    """Describe each kind of file: origin, content, and unknown columns; and files that are not traces."""
    optional = [column["name"] for column in _core.trace_columns() if column["optional"]]
    of_requests = optional[: optional.index("role")]
    rows = []
    for entry in sorted(_core.formats(), key=lambda entry: str(entry["name"])):
        gives = [name for name in of_requests if name in entry["gives"]]
        missing = [name for name in of_requests if name not in entry["gives"]]
        stored_columns = "all columns" if not missing else ", ".join(f"`{name}`" for name in gives)
        rows.append([f"`{entry['name']}`", entry["from"], stored_columns, entry["unknown"]])
    kinds = [[kind, cure] for kind, cure in _core.file_kinds()]
    return (
        "# What can I read, and what do I get from it?\n\n"
        "Every command reads these files, plain or in gzip, bzip2, xz and zstd. The format is detected by the "
        "content; `--format` selects another one. Each contains the arrival, address, length and operation of every "
        "request, and in addition at most the columns listed here ([their meaning](trace-columns.md)). A column "
        "that is not listed is empty: figures that need it are missing in a profile, and are never guessed.\n\n"
        + table(["format", "comes from", "columns besides arrival, sector, sectors, op", "unknown"], rows)
        + "\nHow to record, and the columns from each event of the kernel: [what others "
        "recorded](../guides/read-what-others-recorded.md). A table of your own: [columns of "
        "CSV](trace-formats.md#columns-of-csv).\n\n"
        "## Files that are not traces\n\nThese are rejected by kind.\n\n" + table(["file", "what to do"], kinds)
    )


def described(fields: Iterable[Field]) -> str:
    """List fields with unit and meaning."""
    rows = [[f"`{field.name}`", field.unit, field.about] for field in fields]
    return table(["field", "unit", "meaning"], rows)


def profile_fields() -> str:
    """Describe the fields of a profile."""
    profile = emmclab.read(emmclab.bundled()[0]).profile(percentiles=[99.9])
    figures = [
        [
            f"`{figure.name}`",
            f"{figure.title}. {figure.about}",
            ", ".join(f"`{field}`" for field in next(iter(profile.figure(figure.name)), {})),
        ]
        for figure in FIGURES
        if not figure.source
    ]
    journal = emmclab.read(emmclab.bundled()[0]).journal()
    whence = ("name", "trace_digest", "ledger", "header")
    elsewhere = {field.name for _, fields in TABLES for field in fields}
    elsewhere |= {
        "figures",
        "findings",
        "clock_jumps",
        "key_figures",
        "key_figures_without_jumps",
        "reissues",
        "journal",
    }
    rules = [[f"`{finding['id']}`", finding["title"], finding["rule"]] for finding in profile.findings]
    parts = [
        "# Fields of a profile\n\n`emmclab profile TRACE --json` prints a list with one object per trace; ",
        "`emmclab.profile(path)` returns the same fields. A field that the trace does not record is `null`.\n",
        *(f"\n## {title}\n\n{described(fields)}" for title, fields in TABLES),
        "\n## Figures\n\nRows under `figures`; field names end in their unit.\n\n",
        table(["figure", "content", "fields of a row"], figures),
        "\n## Clock jumps\n\n`clock_jumps` lists clock jumps and pauses of the recording ",
        "([rules](../guides/first-look.md#a-clock-that-jumps)), each with:\n\n",
        described(JUMP_FIELDS),
        "\n`key_figures` are the figures that a jump distorts, `key_figures_without_jumps` the figures without ",
        "the jumps that remain in the trace (`null` if there are none):\n\n",
        described(KEY_FIELDS),
        "\n## Suspected re-issues\n\n`reissues` describes requests that were issued twice ",
        "([rule](../guides/first-look.md#requests-that-were-issued-twice)), `null` if the trace does not show them: ",
        ", ".join(f"`{name}`" for name in profile["reissues"]),
        ". `figures` are the figures that re-issues change, `figures_without` the figures without the ",
        "re-issues that remain in the trace (`null` if there are none):\n\n",
        described(REISSUE_FIELDS),
        "\n## Journal\n\n`journal` is the cost of journaling by roles of blocks, `null` if the trace ",
        "has no block notes. `emmclab journal TRACE --json` prints the same fields, and without notes those by ",
        "flags and addresses ([definitions](../guides/journal.md#definitions)): ",
        ", ".join(f"`{name}`" for name in journal if name not in whence),
        ".\n\n## Waits for durability\n\n`fsync` divides them into parts under `--fsync` ",
        "([definitions](../concepts/fsync.md)). ",
        "The rows of `by_process` contain the process, the file system, and:\n\n",
        described(FSYNC_FIELDS),
        "\nEach part is `NAME_ms`, and in `by_process` also `NAME_pct`, a share of `split_ms`:\n\n",
        described((*FSYNC_PARTS, FSYNC_SHARED)),
        "\n## Other fields\n\n",
        ", ".join(f"`{name}`" for name in profile if name not in elsewhere),
        ".\n\n## Findings\n\n`findings` judges the characteristics and implications of the paper, each with ",
        ", ".join(f"`{name}`" for name in profile.findings[0]),
        ".\n\n",
        table(["id", "title", "shown if"], rules),
    ]
    return "".join(parts)


def devices() -> str:
    """List the devices that come with the project."""
    rows = []
    for name in presets():
        device = Device.preset(name)
        values = {row["key"]: row["value"].strip('"') for row in device.explain()}
        rows.append([f"`{name}`", size(device.capacity_bytes), values["interface.kind"], values["about"]])
    return (
        "# Devices\n\nThe presets of `--device`. `emmclab explain NAME` prints the [settings](settings.md) "
        "of one, and `presets/devices/NAME.toml` contains the source of each figure. `--capacity 128GB` scales "
        "a device by its number of blocks; `emmclab devices --check NAME` compares it with the published figures "
        "to which it was fitted.\n\n" + table(["name", "capacity", "link", "description"], rows)
    )


def run_options() -> str:
    """Describe the options of a simulated run."""
    keys = {option.name for option in dataclasses.fields(Grid)} | AXES.keys()
    rows = [
        [
            f"`{name}`",
            f"`{option.command_line}`" if option.command_line else "",
            "yes, and as an axis" if name in AXES else "yes" if name in keys else "",
            f"`{option.default!r}`",
            option.range,
            option.about,
        ]
        for name, option in RUN_OPTIONS.items()
    ]
    return (
        "# Options of a run\n\nThese options are keywords of `Device.simulate` and `compare` in Python, "
        "options of `emmclab simulate` and of other commands, and keys of the grids of a "
        "[study](../guides/studies.md#the-file-of-a-study) (`modes` and `seeds` are lists there).\n\n"
        + table(["Python", "command line", "study", "default", "allowed", "meaning"], rows)
    )


def layer_settings() -> str:
    """Describe the layers with their settings."""
    parts = [
        "# Layers\n\nHost software above the device: `--layer NAME`, with `--set NAME.SETTING=VALUE`. ",
        "Derived values are computed from the device or from other settings.\n",
    ]
    for layer in layers():
        parts.append(f"\n## {layer['name']}\n\n{layer['about'][0].upper()}{layer['about'][1:]}.\n")
        rows = [
            [f"`{row['name']}`", default_text(row["default"]), row["unit"], row["about"]] for row in layer["settings"]
        ]
        parts.append(f"\n{table(['setting', 'default', 'unit', 'meaning'], rows)}" if rows else "")
    return "".join(parts)


def result_page() -> str:
    """Describe the fields of a simulation's result."""
    parts = [
        "# Fields of a result\n\n`emmclab simulate TRACE --json` prints one object with these groups, ",
        "`emmclab compare --json` a list of such objects. In Python `result.response.p99_ms` and ",
        '`result["response.p99_ms"]` are the same, and a group that a result lacks is None. In `emmclab query` each ',
        "field that is not a list is a column of `runs`.\n",
    ]
    for group in result_groups():
        rows = [
            [f"`{row.path}`", row.unit, row.about, row.label, row.better, f"`{row.column}`"] for row in group.fields
        ]
        title = f"`{group.name}`" if group.name not in ("", "others") else group.name.capitalize() or "Identity"
        parts.append(f"\n## {title}\n\n{group.about}\n\n")
        parts.append(table(["field", "unit", "meaning", "shown as", "better", "SQL column"], rows))
    return "".join(parts)


def glossary_page() -> str:
    """List the terms and their definitions, topic by topic."""
    parts = ["# Glossary\n\nEach term has one meaning in documentation, messages, results and code. "]
    parts.append("`emmclab explain WORD` prints its definition. 1 KB is 1,024 bytes, as in the papers.\n")
    for topic in dict.fromkeys(term.topic for term in glossary()):
        rows = [[f"**{term.term}**", ", ".join(term.also), term.text] for term in glossary() if term.topic == topic]
        parts.append(f"\n## {topic}\n\n{table(['word', 'also', 'meaning'], rows)}")
    return "".join(parts)


def contract_page() -> str:
    """List the clauses of the persistence contract."""
    parts = [
        "# The persistence contract\n\nWhat a flash device promises about its data after a power cut. The simulated "
        "devices keep these clauses, unless `cache.lies` says otherwise. "
        "[`emmclab crash`](../concepts/power-cuts.md) and [`emmclab durability`](../guides/sd-card-lies.md) cite them "
        "in findings, and `emmclab explain C3` prints one. Nothing else is promised: plain writes in a cache that "
        "keeps no order reach the flash in any order, and either of two overlapping writes in flight may win. "
        "An interface that is missing below a clause has no such function.\n"
    ]
    for clause in persistence_contract():
        rows = [[interface, source] for interface, source in clause.standards.items()]
        rows.append(["findings", ", ".join(f"`{finding.replace(':', ' ')}`" for finding in clause.findings) or "none"])
        rows.append(["broken by", ", ".join(f"`cache.lies={lie}`" for lie in clause.lies) or "no simulated device"])
        rows.append(["tested by", ", ".join(f"`{test.rpartition('::')[2]}`" for test in clause.tests)])
        parts.append(f"\n## {clause.number}: {clause.name}\n\n{clause.text}\n\n{table(['', ''], rows)}")
    return "".join(parts)


def limits_page() -> str:
    """List what the model leaves out, as the glossary declares it."""
    rows = [[term.term, term.does, term.helps] for term in glossary() if term.does]
    return (
        "# What emmclab does not model\n\nA simulation cannot show effects that the model does not contain. This page "
        "lists them, with alternatives.\n`emmclab explain WORD` prints the same for each term; both come from the "
        "glossary.\n\n"
        f"{table(['not modelled', 'what a simulated device does', 'what helps'], rows)}\n"
        "Each page of the model lists finer limits: [the device](device.md#limits-of-the-model), "
        "[eMMC](emmc.md#limits-of-the-model),\n[the host's file systems](host.md#what-is-not-modelled), and "
        "[what the exploration of power cuts cannot find](power-cuts.md).\n"
    )


def python_api() -> str:
    """List the public classes and functions, whose signatures and docstrings Sphinx inserts."""
    parts = [
        "# Python API\n\n`import emmclab` provides the names of the first section. The "
        "[guide](../guides/python.md) shows how to use them. Data frames need an extra: "
        "`pip install 'emmclab[dataframes]'` installs pandas, polars and pyarrow. Every error is an "
        "`EmmclabError` with file, line and field, if known, and a hint.\n"
    ]
    described: set[int] = set()
    for name in MODULES:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", None)
        public = {key: getattr(module, key) for key in exported or vars(module) if not key.startswith("_")}
        lines = []
        for key, member in public.items():
            is_own = exported is not None or getattr(member, "__module__", None) == name
            if is_own and (inspect.isclass(member) or inspect.isfunction(member)) and id(member) not in described:
                described.add(id(member))
                members = "\n   :members:" if inspect.isclass(member) else ""
                lines.append(f".. auto{'class' if members else 'function'}:: {key}{members}\n")
        summary = (inspect.getdoc(module) or "").partition("\n")[0]
        listed = "\n".join([f".. currentmodule:: {name}\n", *lines])
        parts.append(f"\n## {name}\n\n{summary}\n\n```{{eval-rst}}\n{listed}```\n" if lines else "")
    return "".join(parts)


def settings_page() -> str:
    """Describe every setting: default, unit, allowed values or range, meaning."""
    schema = _core.device_schema()
    rows = {row["key"]: row for row in _setting_rows()}
    for path in _paths(schema, schema):
        # Lists that are empty by default, but whose items have settings.
        doc = str(_node(schema, path).get("description", ""))
        rows.setdefault(path, {"key": path, "value": "", "unit": "", "doc": doc, "allowed": ""})
    parts = [_ABOUT_SETTINGS]
    sections = dict.fromkeys(key.rpartition(".")[0].partition(".")[0] for key in rows)
    for section in sorted(sections):
        node = _node(schema, section)
        title = f"`[{section}]`" if section else "At the top"
        about = node.get("description", "") if section else "The device itself."
        parts.append(f"\n## {title}\n\n{about}\n\n")
        mine = [row for key, row in sorted(rows.items()) if key.rpartition(".")[0].partition(".")[0] == section]
        parts.append(
            table(["setting", "default", "unit", "allowed", "meaning"], [_setting_cells(schema, row) for row in mine])
        )
    return "".join(parts)


def _setting_rows() -> Iterator[dict[str, Any]]:
    """Yield the settings of the smallest device, and the further settings of each choice."""
    lines = [f"{key} = {value}" for key, value in NEEDED.items()]
    plain = Device.from_toml("\n".join(["[[geometry.block_groups]]", *lines]))
    yield from plain.explain()
    plain_keys = {row["key"] for row in plain.explain()}
    allowed = {row["key"]: row["allowed"].split(", ") for row in plain.explain()}
    for choice in CHOICES:
        for word in allowed[choice]:
            yield from (row for row in plain.set({choice: word}).explain() if row["key"] not in plain_keys)


def _setting_cells(schema: dict[str, Any], row: dict[str, Any]) -> list[str]:
    key = row["key"]
    default = "required" if key.rpartition(".")[2] in NEEDED and "block_groups" in key else row["value"]
    default_cell = default if default in ("", "required") else f"`{default}`"
    return [f"`{key}`", default_cell, row["unit"], row["allowed"] or _kind(_node(schema, key)), row["doc"]]


def _kind(node: dict[str, Any]) -> str:
    """Return the range of a number by its format in the schema, or describe its type."""
    if node.get("type") == "integer" and node.get("format") in MOST:
        return f"{node.get('minimum', 0):,} to {MOST[node['format']]:,}"
    return {"string": "text", "array": "a list", "number": "a number", "integer": "a whole number"}.get(
        str(node.get("type")), ""
    )


def _paths(schema: dict[str, Any], node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every setting of the items of lists."""
    for key, inner in node.get("properties", {}).items():
        here = f"{path}.{key}" if path else key
        inner = _resolved(schema, inner)
        items = _resolved(schema, inner.get("items", {}))
        if "properties" in items:
            yield from (f"{here}.0.{name}" for name in items["properties"])
        else:
            yield from _paths(schema, inner, here)


def _node(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the schema of a dotted key; a number in the key is the index of an item of a list."""
    node = schema
    for part in filter(None, key.split(".")):
        inner = node.get("items", {}) if part.isdigit() else node.get("properties", {}).get(part, {})
        # The description of a setting takes precedence over that of its type.
        node = {**_resolved(schema, inner), **inner}
    return node


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    name = str(node.get("$ref", "")).rpartition("/")[2]
    resolved: dict[str, Any] = schema["$defs"][name] if name else node
    return resolved


PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "trace-columns.md": trace_columns,
    "trace-formats.md": formats,
    "what-can-be-read.md": what_can_be_read,
    "profile-fields.md": profile_fields,
    "result-fields.md": result_page,
    "settings.md": settings_page,
    "devices.md": devices,
    "run-options.md": run_options,
    "layers.md": layer_settings,
    "glossary.md": glossary_page,
    "contract.md": contract_page,
    "../concepts/limits.md": limits_page,
    "python.md": python_api,
}


def write() -> None:
    """Write every page; existing pages are replaced."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        page = FOLDER / name
        unfinished = page.with_name(f".{page.name}.{os.getpid()}")
        unfinished.write_text(make(), encoding="utf-8")
        unfinished.replace(page)


if __name__ == "__main__":
    write()
