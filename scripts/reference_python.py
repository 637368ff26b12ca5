"""Makes the page of the Python API, from signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

#: Modules in the order of the page; the first contains what can be imported from the package.
MODULES = (
    *(
        "emmclab",
        "emmclab.traces.workload",
        "emmclab.simulation.layers",
        "emmclab.apps.closed_loop",
        "emmclab.studies",
        "emmclab.fleet",
        "emmclab.traces.parallel_profile",
        "emmclab.advice.advise",
        "emmclab.advice.device_state",
        "emmclab.real_devices.probe",
    ),
    *(
        "emmclab.traces.journal",
        "emmclab.papers.claims",
        "emmclab.traces.published",
        "emmclab.pages.profiles",
        "emmclab.pages.simulation",
        "emmclab.pages.applications",
        "emmclab.pages.solutions",
        "emmclab.pages.probe",
        "emmclab.pages.plots",
        "emmclab.errors",
    ),
)
#: Sections of a docstring whose lines are entries.
_LISTS = ("Args:", "Raises:", "Attributes:")
_INTRODUCTION = """# Python API

`import emmclab` gives the names of the first section. The [notebook](../guides/python.ipynb) shows them at
work. Data frames need an extra: `pip install 'emmclab[dataframes]'` brings pandas, polars and pyarrow.
Every error is an `EmmclabError` that names file, line and field where they are known, and a hint.
"""


def python_api() -> str:
    """Describe every public class and function of the public modules."""
    parts = [_INTRODUCTION]
    described: set[int] = set()
    for name in MODULES:
        module = importlib.import_module(name)
        found = [one for one in _public(module) if id(one[1]) not in described]
        described |= {id(thing) for _, thing in found}
        if not found:
            continue
        summary = (inspect.getdoc(module) or "").partition("\n")[0]
        parts.append(f"\n## {name}\n\n{summary}\n")
        for own, thing in found:
            parts.append(f"\n### {own}\n\n{_described(thing, own)}")
            if inspect.isclass(thing):
                parts += [
                    f"\n#### {own}.{method}\n\n{_described(bare, method)}" for method, bare in _methods(thing)
                ]
    return "".join(parts)


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions that a module defines or exports."""
    exported = getattr(module, "__all__", None)
    for name in exported or sorted(vars(module), key=lambda one: _line(vars(module)[one])):
        thing = getattr(module, name)
        own = exported is not None or getattr(thing, "__module__", None) == module.__name__
        if own and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            yield name, thing


def _line(thing: Any) -> int:
    """Return the line of a definition, for the order of a page."""
    try:
        return inspect.getsourcelines(thing)[1]
    except (OSError, TypeError):
        return 0


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, in the order of the file."""
    for name, member in vars(thing).items():
        bare = getattr(member, "__func__", None) or getattr(member, "func", None) or member
        if not name.startswith("_") and (inspect.isfunction(bare) or isinstance(member, property)):
            yield name, bare


def _described(thing: Any, name: str) -> str:
    function = thing.fget if isinstance(thing, property) else thing
    heading = (
        f"property `{name}`\n\n"
        if isinstance(thing, property)
        else f"```python\n{_signature(thing, name)}\n```\n\n"
    )
    return heading + _body(inspect.getdoc(function) or "")


def _signature(thing: Any, name: str) -> str:
    """Return a signature, on one line if it is short."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return name
    shown = [
        parameter.replace(annotation=_bare(parameter.annotation))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    gives = inspect.Signature.empty if inspect.isclass(thing) else _bare(signature.return_annotation)
    whole = f"{name}{signature.replace(parameters=shown, return_annotation=gives)}"
    if len(whole) <= 100 or not shown:
        return whole
    opened, _, result = whole.partition("(")
    texts = [str(parameter) for parameter in shown]
    first_keyword = next((at for at, one in enumerate(shown) if one.kind is one.KEYWORD_ONLY), None)
    if first_keyword is not None and not any(one.kind is one.VAR_POSITIONAL for one in shown):
        texts.insert(first_keyword, "*")
    _, _, result = whole.rpartition(")")
    return f"{opened}(\n" + "".join(f"    {text},\n" for text in texts) + f"){result}"


class _Bare(str):
    """An annotation as written in the code, where annotations are strings."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _body(text: str) -> str:
    """Return a docstring as Markdown: entries as lists, examples as code."""
    lines: list[str] = []
    in_list = False
    for block in text.split("\n\n"):
        rows = block.split("\n")
        if rows[0].startswith(">>>"):
            lines += ["```python", *rows, "```", ""]
            continue
        title = rows[0]
        in_list = title in _LISTS
        if in_list or title == "Returns:":
            lines += [f"**{title[:-1]}**", ""]
            rows = [row[4:] for row in rows[1:]]
        lines += _entries(rows) if in_list else [row.strip() for row in rows]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _entries(rows: list[str]) -> list[str]:
    """Return the entries of a section as a list; indented lines belong to the previous entry."""
    found: list[str] = []
    for row in rows:
        if row.startswith(" "):
            found[-1] += f" {row.strip()}"
        else:
            name, _, about = row.partition(": ")
            found.append(f"- `{name}`: {about}")
    return found
