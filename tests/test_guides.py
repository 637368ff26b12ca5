"""The guides match the program: the messages in their tables are those in the code, and vice versa."""

import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, emmclab
from emmclab.cli import application
from repository import complain, place, tracked

GUIDE = ROOT / "docs/guides/record-your-phone.md"
CUTS_GUIDE = ROOT / "docs/guides/power-cuts.md"
#: Code with the messages of `emmclab record` and `emmclab top`; another guide covers files of other tools.
RECORDER = (
    "crates/record/src/",
    "python/emmclab/cli/record.py",
    "python/emmclab/cli/top.py",
    "python/emmclab/cli/machine_options.py",
    # Options that exclude each other.
    "python/emmclab/cli/command.py",
)
#: Matches the beginning of the next message of a row.
NEXT = re.compile(
    r", (?=is |N KB |pages |expected |the format|`header|there |this process|the command has|cannot start)|; "
)
NOT_LIVE = ("trace_dat/", "page.rs")
#: Matches a message in the code: of Rust's `Error::new` and helpers, or of Python's errors.
MESSAGE = re.compile(r'(?:Error::new\(\s*Kind::\w+,\s*|ConfigError\(\s*)(?:format!\(\s*)?f?"((?:[^"\\\\]|\\\\.)+)"')


def _table(guide: Path) -> list[str]:
    """Return the messages that a guide explains."""
    text = guide.read_text().partition("## What the messages mean")[2]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", text, re.MULTILINE)
    return [row for row in rows if row not in ("message", "---")]


def _pieces(message: str) -> list[str]:
    """Return the fixed parts of a message, without what is filled in."""
    return [piece.strip("` :,;") for piece in re.split(r"\{[^}]*\}|\.\.\.|\bN\b|\bM\b|`COMMAND`", message)]


def _sources() -> dict[Path, str]:
    here = [path for path in tracked(".rs", ".py") if str(path.relative_to(ROOT)).startswith(RECORDER)]
    return {path: path.read_text() for path in here}


def test_each_message_of_the_guide_is_one_of_the_programs() -> None:
    code = " ".join(" ".join(_sources().values()).split())
    faults = []
    for row in _table(GUIDE):
        for message in NEXT.split(row):
            said = message.removeprefix("note: ").removeprefix("`top`: ").removeprefix("the recording ended early: ")
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


def _crash_options() -> set[str]:
    command: Any = application()
    return {name for one in command.commands["crash"].params for name in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("page", [CUTS_GUIDE, ROOT / "docs/concepts/power-cuts.md"])
def test_every_option_of_power_cuts_that_a_page_names_is_one_of_the_command(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if not re.match(r" +\$ (?!emmclab)", line)]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
    assert named and named <= _crash_options()


@pytest.mark.usefixtures("root")
def test_the_workload_and_the_check_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    notes, check = re.findall(r"```sh\n(.*?)```", CUTS_GUIDE.read_text(), re.DOTALL)
    careless = notes.replace('    sync "note$n" .\n', "")
    assert careless != notes
    for name, text in (("notes.sh", notes), ("careless.sh", careless), ("check.sh", check)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    few = ("--device", "emmc51-cache", "--cuts", "12", "--states", "device", "--check", tmp_path / "check.sh")
    done = emmclab("crash", *few, "--", tmp_path / "notes.sh", cwd=tmp_path)
    assert done.returncode == 0 and "no acknowledged data was lost" in done.stdout, done.stderr
    done = emmclab("crash", *few, "--", tmp_path / "careless.sh", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert re.search(r"^application: check: note\d+ is lost$", done.stdout, re.MULTILINE)
    (again,) = re.findall(r"the first: emmclab (crash --again \S+)", done.stdout)
    done = emmclab(*again.split(), "--save-image", "state.img", cwd=tmp_path)
    assert done.returncode == 4 and (tmp_path / "state.img").stat().st_size > 0, done.stderr
