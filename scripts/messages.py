"""Writes or checks `tests/messages`, every text that a user can meet: `messages.py write|check`.

`catalogue` has the templates of the sources, by file: errors, hints, messages on stderr, sentences, headings.
`help` has the help texts, `outputs` the outputs of the cases in `cases.txt`, each as a user sees it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from messages_pages import page_texts
from messages_python import python_texts
from messages_rust import rust_texts

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "messages"
CURE = "look at the difference; if the texts are right, run `make generate`"


def catalogue() -> Iterator[tuple[Path, str]]:
    """Give a file of templates for each crate, each part of the Python package, and the pages."""
    parts: dict[str, list[str]] = {}
    for path in sorted((ROOT / "python" / "emmclab").rglob("*.py")):
        folder = path.relative_to(ROOT / "python" / "emmclab").parts[:-1]
        _add(parts, f"python-{folder[0]}" if folder else "python", path, python_texts)
    for path in sorted((ROOT / "python" / "emmclab").rglob("*.j2")):
        _add(parts, "pages", path, page_texts)
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        crate = path.relative_to(ROOT / "crates").parts[0]
        if "tests" not in path.parts and path.stem != "tests" and crate != "testing":
            _add(parts, f"rust-{crate}", path, rust_texts)
    for name, lines in parts.items():
        yield FOLDER / "catalogue" / f"{name}.txt", "\n".join(lines) + "\n"


def _add(
    parts: dict[str, list[str]], name: str, path: Path, texts: Callable[[Path], Iterable[tuple[str, str]]]
) -> None:
    lines = [f"  {kind:<5} {_one_line(text)}" for kind, text in texts(path)]
    if lines:
        before = parts.setdefault(name, [])
        before += [*([""] if before else []), str(path.relative_to(ROOT)), *lines]


def _one_line(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\x1b", "\\e").rstrip()
    )


def texts() -> Iterator[tuple[Path, str]]:
    """Give every file with its text."""
    from messages_outputs import helps, outputs

    yield from catalogue()
    for name, text in helps():
        yield FOLDER / "help" / f"{name}.txt", text
    for name, text in outputs():
        yield FOLDER / "outputs" / f"{name}.txt", text


def main(arguments: list[str]) -> int:
    """Write the files, or check that they are as they would be written; print each difference."""
    if arguments not in (["write"], ["check"]):
        print("error: say what to do\nhint: messages.py write|check", file=sys.stderr)
        return 2
    wanted = dict(texts())
    there = {path for part in ("catalogue", "help", "outputs") for path in (FOLDER / part).glob("*.txt")}
    stale = 0
    for path in sorted({*wanted, *there}):
        old = path.read_text() if path in there else ""
        new = wanted.get(path, "")
        if old == new:
            continue
        stale += 1
        if arguments == ["check"]:
            name = str(path.relative_to(ROOT))
            difference = difflib.unified_diff(
                old.splitlines(keepends=True),
                new.splitlines(keepends=True),
                f"{name} (kept)",
                f"{name} (now)",
            )
            sys.stdout.writelines(difference)
        elif path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
        else:
            path.unlink()
    if stale and arguments == ["check"]:
        print(f"{stale} files of messages are stale; {CURE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
