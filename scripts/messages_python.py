"""The texts in Python sources that people read, by the syntax tree: errors, hints, messages, help."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

#: Calls whose texts have a kind of their own, by the last part of the name.
CALLS = {
    "say": "says",
    "put": "says",
    "print": "says",
    "_report": "error",
    "Option": "help",
    "Argument": "help",
    "option": "help",
    "switch": "help",
}
KEYWORDS = {"hint": "hint", "help": "help", "epilog": "help", "metavar": "help"}

#: A text for people has two words; what looks like code, SQL or markup does not.
_WORDS = re.compile(r"""[A-Za-z0-9,.;:)`}"'%] +[A-Za-z({`"']""")
_CODE = re.compile(
    r"^\s*(select|create|insert|update|copy|with|drop|alter|pragma|from|union|where|order by|group by)\b"
    r"|^\s*[<#]|^\s*(function|const|let)\b|\\[swdb(]|\(\?[:P=!]"
)


def is_text(text: str) -> bool:
    """Whether a literal reads as a text for people."""
    return bool(_WORDS.search(text)) and not _CODE.search(text)


def python_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Give each text of a file with its kind, in the order of the file; docstrings are no messages."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    yield from _visited(tree, "text", docstrings)


def _visited(node: ast.AST, kind: str, docstrings: set[int]) -> Iterator[tuple[str, str]]:
    if id(node) in docstrings:
        return
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = template(node)
        if text is not None and text.strip() and (kind in ("error", "hint", "says") or is_text(text)):
            yield kind, text
        for part in node.values if isinstance(node, ast.JoinedStr) else []:
            if isinstance(part, ast.FormattedValue):
                yield from _visited(part.value, "text", docstrings)
        return
    if isinstance(node, ast.Call):
        name = _name(node.func)
        inner = "error" if name.endswith("Error") else CALLS.get(name, kind if kind != "help" else "text")
        yield from _visited(node.func, "text", docstrings)
        for argument in node.args:
            yield from _visited(argument, inner, docstrings)
        for keyword in node.keywords:
            of_name = KEYWORDS.get(keyword.arg or "", "text" if inner in ("error", "says") else inner)
            yield from _visited(keyword.value, of_name, docstrings)
        return
    if isinstance(node, ast.Compare | ast.Subscript):
        kind = "text"  # Keys and operands are no messages of the call around them.
    for child in ast.iter_child_nodes(node):
        yield from _visited(child, kind, docstrings)


def template(node: ast.expr) -> str | None:
    """Give a literal with its expressions in braces; none where it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            form = template(part.format_spec) if part.format_spec is not None else ""
            parts.append("{" + _brief(part.value) + (f":{form}" if form else "") + "}")
        else:
            parts.append(template(part) or "")
    return "".join(parts)


def _brief(node: ast.expr) -> str:
    """Give an expression as it stands in a template; texts in it have lines of their own."""
    text = ast.unparse(node)
    return text if len(text) <= 40 and not re.search(r"['\"]", text) else f"{_name(node) or '...'}"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return f"{_name(node.func)}(...)"
    return ""
