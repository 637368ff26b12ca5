"""Runs the notebooks among the guides and stores their outputs; `make generate` runs it."""

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

GUIDES = Path(__file__).parents[1] / "docs" / "guides"


def notebooks() -> list[Path]:
    """Return every notebook among the guides."""
    return sorted(GUIDES.glob("*.ipynb"))


def executed(path: Path) -> str:
    """Run the code cells of a notebook in order and return its text with their outputs.

    Raises:
        RuntimeError: a cell fails; the message names it.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        count += 1
        try:
            cell["outputs"] = _run("".join(cell["source"]), names, count)
        except Exception as error:
            raise RuntimeError(f"{path.name}: cell {number}: {type(error).__name__}: {error}") from error
        cell["execution_count"] = count
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; return what it prints, then the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102 - the notebook is ours
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        result = {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        outputs.append(result)
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for guide in notebooks():
        guide.write_text(executed(guide), encoding="utf-8")
