"""Runs the Python blocks of the guide `python.md`: a test compares their output, the site shows their HTML views."""

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Pattern of a block of Python, and of the following block of text with its output, if any.
_BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


class Output(NamedTuple):
    """The output of a block: its end in the guide, the text in the guide, and text and HTML of a run."""

    end: int
    told: str | None
    text: str
    html: str


def outputs(guide: str) -> Iterator[Output]:
    """Run the blocks in order; yield the output of each, with the value of its last line."""
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
        yield Output(block.end(), block[2], text, value._repr_html_() if hasattr(value, "_repr_html_") else "")


def with_views(guide: str) -> str:
    """Return the guide with the HTML view of each value that has one."""
    for block in reversed([*outputs(guide)]):
        if block.html:
            guide = f"{guide[: block.end]}\n```{{raw}} html\n{block.html}\n```\n{guide[block.end :]}"
    return guide
