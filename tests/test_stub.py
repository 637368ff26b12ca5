"""The type stub of the compiled core has its names, methods and parameters, and no others."""

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from conftest import ROOT
from emmclab import _core

STUB = ROOT / "python" / "emmclab" / "_core.pyi"


def stated(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, list[str] | None]]:
    """Yield the names in the stub; `__init__` counts as the class itself."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            given = node.args
            taken = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs]
            names = [one.arg for one in taken if one is not None and one.arg not in ("self", "cls")]
            is_property = "property" in map(ast.unparse, node.decorator_list)
            name = f"{prefix}{node.name}".removesuffix(".__init__")
            yield name, None if is_property else names
        elif isinstance(node, ast.ClassDef):
            yield node.name, None
            yield from stated(node.body, f"{node.name}.")
        elif isinstance(node, ast.AnnAssign):
            yield prefix + ast.unparse(node.target), None


def compiled(thing: Any, prefix: str = "") -> Iterator[tuple[str, list[str] | None]]:
    """Yield the names in the core, except for those that every object or module has."""
    common = {*dir(object), "__module__", "__doc__"}
    for name in vars(thing):
        if name in common or (not prefix and name.startswith("_")):
            continue
        member = getattr(thing, name)
        yield prefix + name, parameters(member)
        if inspect.isclass(member):
            yield from compiled(member, f"{name}.")


def parameters(thing: Any) -> list[str] | None:
    """Return the names of parameters from the text signature, if any, without `self`."""
    try:
        return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]
    except (TypeError, ValueError):
        return None


def test_the_stub_agrees_with_the_core() -> None:
    stub, core = dict(stated(ast.parse(STUB.read_text()).body)), dict(compiled(_core))
    assert set(stub) - {"__version__"} == set(core)
    known = [name for name in stub if stub[name] is not None and core.get(name) is not None]
    assert len(known) > 100
    assert {name: stub[name] for name in known} == {name: core[name] for name in known}
