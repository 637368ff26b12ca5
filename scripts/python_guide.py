"""Runs the Python blocks of the guide `python.md`: a test compares what they print, the site shows their HTML views."""

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: A block of Python, and the block of text after it with what it prints, if there is one.
_BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


class Shown(NamedTuple):
    """What a block shows: where it ends in the guide, the text that the guide has, and text and HTML of a run."""

    end: int
    told: str | None
    text: str
    html: str


def shown(guide: str) -> Iterator[Shown]:
    """Run the blocks in order; yield what each prints, with the value of its last line."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in _BLOCK.finditer(guide):
        tree = ast.parse(block[1])
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "<block>", "exec"), names)  # noqa: S102 - the guide is ours
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<block>", "eval"), names)  # noqa: S307
        text = printed.getvalue() + ("" if value is None else f"{value!r}\n")
        yield Shown(block.end(), block[2], text, value._repr_html_() if hasattr(value, "_repr_html_") else "")


def with_views(guide: str) -> str:
    """Return the guide with the HTML view of each value that has one."""
    for one in reversed([*shown(guide)]):
        if one.html:
            guide = f"{guide[: one.end]}\n```{{raw}} html\n{one.html}\n```\n{guide[one.end :]}"
    return guide
