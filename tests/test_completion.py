"""Completion in bash, by the script that `--show-completion` prints."""

import shlex
import subprocess
from pathlib import Path

import pytest

from conftest import COMMAND, PATIENCE_S, environment
from emmclab.cli import COMMANDS
from emmclab.simulation.device import presets
from emmclab.simulation.layers import layers

#: Loads the completion script, then completes the last word as the Tab key does.
TYPED = """
eval "$(_EMMCLAB_COMPLETE=source_bash "$0")"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_emmclab_completion "$0"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], [*COMMANDS]),
        (["apps", ""], ["list", "show", "hosts", "schema", "run", "compare", "solutions", "live", "learn"]),
        (["apps", "show", "ema"], ["email"]),
        (["papers", "t"], ["tables"]),
        (["simulate", "--device", ""], presets()),
        (["compare", "--devices", "nexus5,galax"], ["nexus5,galaxys2"]),
        (["simulate", "--layer", ""], [layer["name"] for layer in layers()]),
        (["simulate", "--set", "timing.paral"], ["timing.parallelism="]),
        (["simulate", "--mode", "back"], ["back_to_back"]),
        (["simulate", "--capac"], ["--capacity"]),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_bash_offers_commands_options_and_names(words: list[str], offered: list[str], tmp_path: Path) -> None:
    program = tmp_path / "emmclab"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", TYPED, str(program), "emmclab", *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")
