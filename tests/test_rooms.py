"""The subpackages of the Python package: the purpose of each, and what it imports from the package itself."""

import ast
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT
from repository import complain, place

PACKAGE = ROOT / "python" / "emmclab"
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
ROOMS = [name for name in LAYERS if (PACKAGE / name).is_dir()]
#: What every subpackage may import from the package itself; everything else must come from subpackages.
OF_THE_PACKAGE = {"_core", "__version__"}


def imports(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Return the imports of a module, and whether each is inside of a function."""
    found = []

    def visit(node: ast.AST, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                found.append((child, in_function))
            visit(child, in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    visit(ast.parse(path.read_text()), False)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_in_a_paragraph_what_it_is_for(room: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    _, _, paragraph = text.partition("\n\n")
    assert paragraph.strip()


def test_rooms_take_of_the_package_only_the_core_and_the_version() -> None:
    faults = [
        f"{place(path)}:{node.lineno}: {alias.name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent != PACKAGE
        for node, _ in imports(path)
        if isinstance(node, ast.ImportFrom) and node.module == "emmclab"
        for alias in node.names
        if alias.name not in OF_THE_PACKAGE and alias.name not in LAYERS
    ]
    complain(faults, "import it from the room that declares it")
