"""The guides say what the program says: each message in a table is in the code, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import ROOT
from test_house_rules import complain, place, tracked

GUIDE = ROOT / "docs/guides/record-your-phone.md"
#: Code whose messages people see of `emmclab record` and `emmclab top`; files of others are another guide's.
RECORDER = (
    "crates/record/src/",
    "python/emmclab/cli/record.py",
    "python/emmclab/cli/top.py",
    "python/emmclab/cli/machine.py",
)
#: Where the next message of a row begins.
NEXT = re.compile(
    r", (?=is |N KB |pages |expected |the format|`header|there |this process|the command has|cannot start)|; "
)
NOT_LIVE = ("trace_dat/", "page.rs")
#: A message in the code: of Rust's `Error::new` and helpers, of Python's errors.
MESSAGE = re.compile(
    r'(?:Error::new\(\s*Kind::\w+,\s*|ConfigError\(\s*)(?:format!\(\s*)?f?"((?:[^"\\\\]|\\\\.)+)"'
)


def _table(guide: Path) -> list[str]:
    """The messages that a guide explains."""
    text = guide.read_text().partition("## What the messages mean")[2]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", text, re.MULTILINE)
    return [row for row in rows if row not in ("message", "---")]


def _pieces(message: str) -> list[str]:
    """What of a message stands as it is: not what is filled in."""
    return [piece.strip("` :,;") for piece in re.split(r"\{[^}]*\}|\.\.\.|\bN\b|\bM\b|`COMMAND`", message)]


def _sources() -> dict[Path, str]:
    here = [path for path in tracked(".rs", ".py") if str(path.relative_to(ROOT)).startswith(RECORDER)]
    return {path: path.read_text() for path in here}


def test_each_message_of_the_guide_is_one_of_the_programs() -> None:
    code = " ".join(" ".join(_sources().values()).split())
    faults = []
    for row in _table(GUIDE):
        for message in NEXT.split(row):
            said = (
                message.removeprefix("note: ")
                .removeprefix("`top`: ")
                .removeprefix("the recording ended early: ")
            )
            pieces = [piece for piece in _pieces(said) if len(piece) > 2]
            if not pieces or any(piece not in code for piece in pieces):
                faults.append(f"{place(GUIDE)}: {message}")
    complain(faults, "say what the program says")


def test_each_message_of_the_recorder_is_in_the_guide() -> None:
    guide = GUIDE.read_text()
    faults = []
    for path, text in _sources().items():
        if any(part in str(path) for part in NOT_LIVE):
            continue
        text = text.partition("#[cfg(test)]")[0]
        for found in MESSAGE.finditer(text):
            piece = max(_pieces(found[1]), key=len)
            if piece not in guide:
                faults.append(f"{place(path, text.count(chr(10), 0, found.start()) + 1)}: {found[1]}")
    complain(faults, f"explain it in {place(GUIDE)}")
