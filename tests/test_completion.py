"""Completion, as typed into real shells: every name that an option takes, and no process for it."""

from __future__ import annotations

import functools
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import PATIENCE_S, emmclab
from emmclab.apps import applications, hosts
from emmclab.cli import COMMANDS
from emmclab.cli.completion import SHELLS
from emmclab.cli.completion import script as made
from emmclab.cli.completion.parameters import commands
from emmclab.device import presets
from emmclab.layers import layers
from emmclab.study.bundled import bundled
from emmclab.workload import workloads

#: Made once for all tests.
script = functools.cache(made)
#: Interactive shells without files of the user, each with what reads the script, and stands in for emmclab.
START = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'bind "set bell-style none"; source {folder}/bash; emmclab() {{ printf "<%s>\\n" "$*"; }}',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -u -D; source {folder}/zsh; unsetopt beep auto_list; "
        'emmclab() {{ printf "<%s>\\n" "$*"; }}',
    ),
    "zsh by its path of functions": (
        ["zsh", "-f", "-i"],
        "fpath=({folder}/functions $fpath); autoload -Uz compinit; compinit -u -D; unsetopt beep auto_list; "
        'emmclab() {{ printf "<%s>\\n" "$*"; }}',
    ),
}
#: What is typed before the Tab key, and the arguments that it becomes.
TYPED = {
    "prof": "profile",
    "simulate --capac": "simulate --capacity",
    "simulate --device nexuso": "simulate --device nexusone",
    "simulate --device=galax": "simulate --device=galaxys2",
    "simulate --device2 transc": "simulate --device2 transcend-c2",
    "simulate --layer adv": "simulate --layer advil",
    "simulate --mode back": "simulate --mode back_to_back",
    "simulate --set timing.paral": "simulate --set timing.parallelism=",
    "convert --to mqs": "convert --to mqsim",
    "profile --format bio": "profile --format biotracer",
    "synth Mess": "synth Messaging",
    "apps solu": "apps solutions",
    "apps run webb": "apps run webbench",
    "apps run --host phone-2020-": "apps run --host phone-2020-ext4",
    "apps compare --network us": "apps compare --network usb",
    "compare --devices nexus5,galax": "compare --devices nexus5,galaxys2",
    "run fast1": "run fast12",
    "claims --paper dsn": "claims --paper dsn17",
    "control c.sock rest": "control c.sock restore",
    "crash --workload append": "crash --workload append-log",
    "serve nexus5 --mkfs btr": "serve nexus5 --mkfs btrfs",
    "profile only-fi": "profile only-file.txt",
    "simulate --images only-fo": "simulate --images only-folder",
    "serve nexus5 -- only-fi": "serve nexus5 -- only-file.txt",
    # What is a number is not completed.
    "simulate --rate only-fi": "simulate --rate only-fi",
}


def need(program: str) -> None:
    """Skip a test without this program."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing")


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder with the script of each shell, a file and a folder."""
    for shell in SHELLS:
        (tmp_path / shell).write_text(script(shell))
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "_emmclab").write_text(script("zsh"))
    (tmp_path / "only-file.txt").touch()
    (tmp_path / "only-folder").mkdir()
    return tmp_path


class Terminal:
    """An interactive shell at a terminal of its own, in which a function stands in for emmclab."""

    def __init__(self, shell: str, folder: Path) -> None:
        words, start = START[shell]
        self._master, slave = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}
        self._process = subprocess.Popen(
            *(words,),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self._said = ""
        self._type(f"{start.format(folder=folder)}; echo rea''dy\n")
        self._wait(r"\nready\r?\n")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._master)
        self._process.kill()
        self._process.wait(timeout=PATIENCE_S)

    def completed(self, words: str) -> str:
        """Type a command line, Tab and Enter; give the arguments that it was run with."""
        self._type(f"emmclab {words}\t\n")
        return self._wait(r"<([^<>]*)>\r?\n")[1].strip()

    def _type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _wait(self, pattern: str) -> re.Match[str]:
        end = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self._said)) is None:
            assert time.monotonic() < end, self._said
            if select.select([self._master], [], [], 0.1)[0]:
                self._said += os.read(self._master, 1 << 16).decode(errors="replace")
        self._said = self._said[found.end() :]
        return found


@pytest.mark.parametrize("shell", START)
def test_a_shell_completes_names_options_files_and_lists(shell: str, scripts: Path) -> None:
    need(START[shell][0][0])
    with Terminal(shell, scripts) as terminal:
        found = {words: terminal.completed(words).rstrip("/") for words in TYPED}
    assert found == TYPED


def test_fish_completes_names_options_files_and_lists(scripts: Path) -> None:
    need("fish")
    asked = "; ".join(f"echo '<{words}>'; complete -C 'emmclab {words}'" for words in TYPED)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source fish; {asked}"],
        capture_output=True,
        text=True,
        cwd=scripts,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stderr == ""
    found = {}
    for part in done.stdout.split("<")[1:]:
        words, _, offered = part.partition(">\n")
        before, _, _ = words.rpartition(" ")
        # Each line is a word, a tab, and its meaning; nothing is offered where nothing is known.
        lines = [line.split("\t")[0].rstrip("/") for line in offered.splitlines()]
        found[words] = (
            f"{before} {lines[0]}".strip() if len(lines) == 1 else words if not lines else f"{lines}"
        )
    assert found == TYPED


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_offers_every_command_option_and_name(shell: str) -> None:
    text = script(shell)
    for command in commands():
        for parameter in command.options:
            for name in parameter.names:
                bare = name.lstrip("-") if shell == "fish" else name
                assert re.search(rf"(?<![\w-]){re.escape(bare)}(?![\w-])", text), f"{command.name} {name}"
    names = [
        *COMMANDS,
        *presets(),
        *workloads(),
        *bundled(),
        *(layer["name"] for layer in layers()),
        *(one["name"] for one in (*applications(), *hosts())),
    ]
    assert [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)] == []


def test_names_are_offered_wherever_an_option_takes_them() -> None:
    """An option that takes a device, a layer or a format has its names, whichever command it belongs to."""
    kinds = {
        "--device": {*presets()},
        "--devices": {*presets()},
        "--device2": {*presets()},
        "--layer": {layer["name"] for layer in layers()},
        "--layers": {layer["name"] for layer in layers()},
    }
    # The disks of another machine are not known here.
    machine = {"record", "top"}
    tried = 0
    for command in commands():
        for parameter in command.options:
            for name in {*parameter.names} & {*kinds} if command.name not in machine else ():
                assert parameter.value is not None and {*parameter.value.words} >= kinds[name], command.name
                tried += 1
    assert tried > 12


def test_the_script_of_an_unknown_shell_is_refused_with_those_there_are() -> None:
    done = emmclab("--show-completion", "tcsh")
    assert done.returncode == 2
    assert "tcsh" in done.stderr and "bash, zsh, fish" in done.stderr
    assert done.stdout == ""
