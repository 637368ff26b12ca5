"""The outputs of commands are stored in `messages`; `make generate` accepts a change."""

import re
import subprocess
import sys

import pytest
from typer.core import TyperGroup

from conftest import PATIENCE_S, ROOT, emmclab, environment
from emmclab.cli import application
from emmclab.cli.command_groups import walk_commands
from repository import complain


def test_commands_print_what_is_kept() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "command_outputs.py"), "check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, check=False)
    assert done.stderr == "", done.stderr
    if done.returncode != 0:
        pytest.fail(done.stdout, pytrace=False)


def test_bad_input_gives_an_error_with_a_hint_and_never_a_traceback() -> None:
    faults = []
    for path in sorted((ROOT / "tests" / "messages").glob("*.txt")):
        for case in re.split(r"^\$ ", path.read_text(), flags=re.MULTILINE):
            if "bug in emmclab" in case or "Traceback" in case:
                faults.append(case)
            if "! error: " in case and "! hint: " not in case:
                faults.append(case)
    complain(faults, "give each error a hint that says what to do")


def test_help_fits_the_terminal() -> None:
    faults = []
    for words, command in walk_commands(application()):
        option = "--help" if isinstance(command, TyperGroup) else "--help-all"
        lines = emmclab(*words.split(), option, env={"COLUMNS": "80"}).stdout.splitlines()
        faults += [f"{words}: {line}" for line in lines if len(line) > 80 or "…" in line]
    complain(faults, "shorten the metavar or the word that does not fit")
