"""Generates the Python types of the core's results, and the table of the fields of a result, from the core's schemas.

`make generate` runs it; `tests/test_types.py` fails if the files are not current.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.runtime.field_mapping import attribute_name

PACKAGE = Path(__file__).parents[1] / "python" / "emmclab"
TYPES = PACKAGE / "core_types.py"
FIELDS = PACKAGE / "data" / "result-fields.json"

Schema = Mapping[str, Any]

#: Keys in the declaration of an option besides default, meaning, words and range.
_DECLARED = ("option", "metavar", "panel", "advanced", "stored")

_PLAIN = {"number": "float", "integer": "int", "string": "str", "boolean": "bool", "null": "None"}
#: Units by the suffixes of names; the unit of a name that contains `bytes` is bytes.
_UNITS = {
    "_ms": "ms",
    "mb_per_s": "MB/s",
    "_per_s": "1/s",
    "_s": "s",
    "_pct": "%",
    "_kb": "KB",
    "_mj": "mJ",
    "_points": "points",
}
_WORDS = {"bytes": "byte", "blocks": "block", "units": "map unit", "unit": "map unit"}
#: Keys of a field in the table besides path, unit and meaning.
_SHOWN = ("label", "short", "digits", "better", "shown_in", "column")


def target(schema: Schema) -> str | None:
    """Return the name of the structure to which a schema refers, directly or as an optional value."""
    choices = [schema, *schema.get("anyOf", ())]
    return next((choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice), None)


def is_optional(schema: Schema) -> bool:
    """Return whether a value may be null."""
    return "null" in schema.get("type", ()) or {"type": "null"} in schema.get("anyOf", ())


def python_type(schema: Schema, schemas: Mapping[str, Schema]) -> str:
    """Return the Python type of a schema."""
    if "python" in schema:
        return str(schema["python"])
    if name := target(schema):
        inner = schemas[name]
        plain = name if is_typed(inner) else python_type(inner, schemas)
        return f"{plain} | None" if is_optional(schema) else plain
    if "anyOf" in schema:
        return " | ".join(python_type(choice, schemas) for choice in schema["anyOf"])
    if "oneOf" in schema or "enum" in schema or "const" in schema:
        return "str"
    kinds = schema.get("type", "any")
    return " | ".join(_of_kind(kind, schema, schemas) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _of_kind(kind: str, schema: Schema, schemas: Mapping[str, Schema]) -> str:
    if kind == "array" and "prefixItems" in schema:
        return f"tuple[{', '.join(python_type(item, schemas) for item in schema['prefixItems'])}]"
    if kind == "array":
        return f"list[{python_type(schema['items'], schemas)}]"
    if kind == "object":
        more = schema.get("additionalProperties")
        return f"dict[str, {python_type(more, schemas)}]" if more and "properties" not in schema else "dict[str, Any]"
    return _PLAIN.get(kind, "Any")


def properties(schema: Schema) -> dict[str, Schema]:
    """Return the fields of a structure: first the required fields in their order, then the others."""
    return {name: schema["properties"][name] for name in (*schema.get("required", ()), *schema["properties"])}


def is_typed(schema: Schema) -> bool:
    """Return whether a structure has only named fields."""
    return "properties" in schema and not isinstance(schema.get("additionalProperties"), dict)


def record(name: str, schema: Schema, schemas: Mapping[str, Schema]) -> str:
    """Return the class of a structure."""
    fields = []
    required = schema.get("required", ())
    for field, field_schema in properties(schema).items():
        kind = python_type(field_schema, schemas)
        # A list that may be absent is read as an empty one, another field as None.
        always = field in required or kind.startswith("list[")
        hint = kind if always else f"{kind.removesuffix(' | None')} | None"
        # Lines are broken only between fields.
        fields.append(f"{attribute_name(field)}: {hint}".replace(" ", "\0"))
    lines = textwrap.wrap("; ".join(fields), 112, break_long_words=False)
    body = "\n".join(f"    {line.rstrip(';')}" for line in lines).replace("\0", " ")
    return f"class {name}(FieldMapping):\n{body}\n"


def types(schemas: Mapping[str, Schema]) -> str:
    """Return the module of types, in which inner types come first."""
    done: dict[str, str] = {}

    def write(name: str) -> None:
        schema = schemas[name]
        for field in schema.get("properties", {}).values():
            for inner in _named(field):
                if inner not in done:
                    write(inner)
        if is_typed(schema):
            done[name] = record(name, schema, schemas)

    for name in sorted(schemas.keys() - {"ReplayOptions"}):
        if name not in done:
            write(name)
    head = (
        '"""Types of what the core returns, by the names of its structs, which describe them.\n\n'
        'Written by scripts/generate_types.py (`make generate`).\n"""\n\n'
        "# fmt: off\n# ruff: noqa: D101, E501, E702\n\nfrom collections.abc import Iterable\n"
        "from typing import Annotated, Any, TypedDict\n\n"
        "from emmclab.runtime.field_mapping import FieldMapping\nfrom emmclab.runtime.option import Option\n\n\n"
    )
    return head + "".join(done.values()) + "\n\n" + options(schemas)


def _named(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for part in schema.values():
            yield from _named(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _named(part)


def _plain(text: str) -> str:
    return " ".join(text.split())


def meaning(schema: Schema) -> str:
    """Return a doc comment as a part of a sentence: without initial capital and full stop."""
    text = _plain(schema.get("description", "")).removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def unit(name: str) -> str:
    """Return the unit in the name of a field; empty if there is none."""
    ending = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), None)
    return ending or next((unit for word, unit in _WORDS.items() if word in name.split("_")), "")


def rows(path: str, schema: Schema, schemas: Mapping[str, Schema], of: Schema) -> Iterator[dict[str, Any]]:
    """Yield the documented fields of a structure, followed by those of inner structures with their paths.

    `of` is the innermost enclosing field whose schema describes the figures in it, such as "responses of reads".
    """
    for name, field in properties(schema).items():
        inner = schemas.get(target(field) or "", {})
        is_group = is_typed(inner) and not inner.get("whole")
        if "description" not in field:
            continue
        if not is_group or is_optional(field):
            yield {
                "path": f"{path}{name}",
                "unit": field.get("unit", unit(name)),
                "about": _about(field, of),
                **_figure_format(name, field, of),
            }
        if is_group:
            yield from rows(f"{path}{name}.", inner, schemas, field if "of" in field else of)


def _about(field: Schema, of: Schema) -> str:
    about, label = meaning(field), field.get("label", "")
    if label.startswith("{of}"):
        return f"{of['of'].lower()} {about}"
    if "{of}" in label:
        return f"{about} {of['of']}"
    return f"{of['of']}, {about}" if not label and "of" in of else about


def _figure_format(name: str, field: Schema, of: Schema) -> dict[str, Any]:
    """Return the label and format of a figure; empty if no table shows it."""
    figure_format = {key: field[key] for key in _SHOWN if key in field}
    if "{of}" in figure_format.get("label", ""):
        figure_format["label"] = figure_format["label"].replace("{of}", of["of"])
        if "short" in of:
            figure_format["short"] = of["short"].get(name, "")
    return {key: value for key, value in figure_format.items() if value != ""}


def fields(schemas: Mapping[str, Schema]) -> str:
    """Return the table of the fields of a result by group: first plain fields, then groups, then lists."""
    plain, groups, others = [], [], []
    for name, field in properties(schemas["SimulationResult"]).items():
        inner = schemas.get(target(field) or "", {})
        if is_typed(inner) and not inner.get("whole"):
            groups.append((name, meaning(field), list(rows(f"{name}.", inner, schemas, field))))
        else:
            row = {"path": name, "unit": field.get("unit", unit(name)), "about": meaning(field)}
            (plain if field.get("type") == "string" else others).append(row)
    every_group = [("", "identity of the run", plain), *groups, ("others", "groups of counts by name", others)]
    text = [
        f'{{"name": "{name}", "about": {json.dumps(_sentence(about))}, "fields": [\n'
        + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        + "\n]}"
        for name, about, rows in every_group
    ]
    return "[" + ",\n".join(text) + "]\n"


def options(schemas: Mapping[str, Schema]) -> str:
    """Return the declarations of the options of a run that the core implements."""
    lines = []
    declared = schemas["ReplayOptions"]["properties"]
    for name, field in ((name, declared[name]) for name in _core.replay_defaults() if name in declared):
        parts = [repr(field["default"]), json.dumps(_plain(field["description"]))]
        if words := [choice["const"] for choice in schemas.get(target(field) or "", {}).get("oneOf", ())]:
            parts.append(f"words={tuple(words)!r}")
        parts += [f"{to}={field[key]!r}" for key, to in (("minimum", "least"), ("maximum", "most")) if key in field]
        parts += ["bits=32"] if field.get("format") == "uint32" else []
        parts += [f"{key}={field[key]!r}" for key in _DECLARED if key in field]
        lines.append(f"    {name}: Annotated[{python_type(field, schemas)}, Option({', '.join(parts)})]\n")
    about = _plain(schemas["ReplayOptions"]["description"]).partition(".")[0]
    return f'class ReplayOptions(TypedDict, total=False):\n    """{about}."""\n\n' + "".join(lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def generated() -> dict[Path, str]:
    """Return the text of each generated file."""
    schemas: dict[str, Schema] = _core.schemas()
    schemas |= schemas["ReplayOptions"].pop("$defs")
    return {TYPES: types(schemas), FIELDS: fields(schemas)}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
        print(path)
