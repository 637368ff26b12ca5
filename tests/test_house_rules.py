"""The rules of the house on files, names and words; each message says the cure."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

MAX_LINES = 800
CODE = (".rs", ".py", ".js", ".css", ".j2", ".sh")


def tracked(*endings: str) -> list[Path]:
    """The files of the project with one of these endings, by git; by a walk where there is no git."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False
    )
    names = done.stdout.decode().splitlines()
    if done.returncode != 0:
        skipped = {".git", ".venv", "target", "build"}
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if path.is_file() and not skipped & {*path.parts}
        ]
    return [ROOT / name for name in sorted(names) if name.endswith(endings) and (ROOT / name).is_file()]


def complain(faults: list[str], cure: str) -> None:
    """Fails with every fault at once and the cure."""
    if faults:
        pytest.fail("\n".join([*faults, f"cure: {cure}"]), pytrace=False)


def place(path: Path, line: int | None = None) -> str:
    """Names a place."""
    return f"{path.relative_to(ROOT)}" + (f":{line}" if line else "")


def test_no_file_is_too_long() -> None:
    faults = [
        f"{place(path)} has {lines} lines"
        for path in tracked(*CODE)
        if (lines := path.read_text().count("\n")) > MAX_LINES
    ]
    complain(faults, f"split it by noun; a file has at most {MAX_LINES} lines")


def test_file_names_are_words_in_lower_case() -> None:
    good = re.compile(r"[a-z0-9_]+\.(rs|py|js|css|html\.j2|sh)$")
    faults = [place(path) for path in tracked(*CODE) if not good.match(path.name)]
    complain(faults, "name files in lower_case_words, by the one noun that they hold")


def test_no_file_is_called_after_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "stuff", "tools"}
    faults = [place(path) for path in tracked(".rs", ".py") if path.stem in vague]
    complain(faults, "name the file after what it holds, or move its parts to where they are used")


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|un" r"implemented!|to" r"do!\(")
    faults = [
        place(path, number)
        for path in tracked(*CODE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    complain(faults, "do it now, or open an issue and drop the mark")


def test_the_page_loads_nothing() -> None:
    load = re.compile(
        r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\(\s*["']?(https?:)?//|fetch\(|XMLHttp"""
    )
    parts = [path for path in tracked(".j2", ".css", ".js", ".html") if "emmclab" in path.parts]
    assert parts
    faults = [
        place(path, number)
        for path in parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if load.search(line)
    ]
    complain(faults, "inline it: the page has to open from disk, without a network")


def test_python_modules_and_public_names_are_documented() -> None:
    faults = []
    for path in tracked(".py"):
        if "tests" in path.parts:
            continue
        module = ast.parse(path.read_text())
        nodes = [module, *(node for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef))]
        for node in nodes:
            name = getattr(node, "name", path.stem)
            if not name.startswith("_") and ast.get_docstring(node) is None:
                faults.append(f"{place(path, getattr(node, 'lineno', 1))}: {name}")
    complain(faults, "say in a line what it is, with units and source")


def test_rust_does_not_panic_on_input() -> None:
    faults = []
    for path in tracked(".rs"):
        if {"tests", "tests.rs", "benches", "examples", "fuzz", "fuzz_targets"} & {*path.parts}:
            continue
        code = path.read_text().split("#[cfg(test)]")[0]
        for number, line in enumerate(code.splitlines(), 1):
            if re.search(r"""\.unwrap\(\)|\.expect\("|\bpanic!\(""", line) and not line.strip().startswith(
                "//"
            ):
                faults.append(place(path, number))
    complain(faults, "return an Error with file, line, field, value and hint")


def test_hints_say_what_to_do() -> None:
    """A hint starts with a verb or a command, not with a capital, and has no full stop."""
    faults = []
    for path in tracked(".rs", ".py"):
        if "tests" in path.parts:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for hint in re.findall(r"""(?:\.hint\(|hint=)f?"([^"]+)\"""", line):
                if hint.endswith(".") or hint[0].isupper():
                    faults.append(f"{place(path, number)}: {hint}")
    complain(faults, "write the hint as a phrase in lower case without a full stop")


def test_comments_on_items_name_a_component() -> None:
    riddle = re.compile(
        r"^\s*//[/!] (What|Whatever|Whoever|Nobody|Somebody|(None|Why|When|How|One|Two)\.)(\s|$)"
    )
    faults = [
        f"{place(path, number)}: {line.strip()}"
        for path in tracked(".rs")
        if "src" in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if riddle.match(line)
    ]
    complain(faults, "name the component, the quantity or the event, or leave the comment out")


def test_every_crate_has_its_sentence() -> None:
    table = (ROOT / "crates" / "README.md").read_text()
    crates = sorted(path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml"))
    complain([name for name in crates if f"| {name} |" not in table], "add its row to crates/README.md")
