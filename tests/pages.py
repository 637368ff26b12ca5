"""Executes a page of documentation: writes its files, runs its commands, and compares their output.

A ```console block contains commands, after `$ `, and the output of each. A command after `# ` is run by root
and begins with `emmclab`. `...` matches any text, and if it is a complete line, any lines. A block of
another language whose first line is a comment with a file name, such as `# study.toml`, is that file; any
other block is text. Progress lines, which only a slow machine prints, are ignored.
"""

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from conftest import COMMAND, PATIENCE_S, environment

WIDTH = 100
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")
PROMPT = re.compile(r"^(\$ |# (?=emmclab ))", re.MULTILINE)
#: Exit status of `emmclab crash` if a promise was broken.
FINDING = 4
#: Progress that a command prints if it works for longer than a second.
PROGRESS = re.compile(
    r".*(?:[\d,]+ requests, [\d.,]+(?: M)?/s|[\d,]+ of [\d,]+ (?:cells|simulations(?: of options)?)(?:, .*)?"
    r"|: [\d]+ (?:s|min|h) so far(?:, .*)?)\n"
)


@dataclass(frozen=True)
class Step:
    """A command of a page, with the output that the page shows below it."""

    command: str
    shown: tuple[str, ...]
    as_root: bool = False

    def agrees(self, printed: str) -> bool:
        """Return whether the printed lines match those of the page."""
        pattern = ""
        for line in self.shown:
            inside = ".*".join(re.escape(part) for part in line.rstrip().split("..."))
            pattern += r"(?:.*\n)*?" if line == "..." else inside + r"\n"
        lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        return re.fullmatch(pattern, PROGRESS.sub("", lines)) is not None


@dataclass(frozen=True)
class File:
    """A file of a page."""

    name: str
    text: str


def parts(page: Path) -> list[Step | File]:
    """Return the commands and files of a page, in order."""
    result: list[Step | File] = []
    for language, text in BLOCK.findall(page.read_text()):
        if language == "console":
            _, *pieces = PROMPT.split(text)
            for prompt, piece in zip(pieces[::2], pieces[1::2], strict=True):
                command, *output = re.sub(r"\\\n", "\\\0", piece).splitlines()
                result.append(Step(command.replace("\0", "\n"), tuple(output), prompt == "# "))
        elif name := FILE.match(text):
            result.append(File(name[1], text))
    return result


def run(step: Step, folder: Path) -> str:
    """Run a command in a folder like a shell; return its output on stdout and stderr.

    Raises:
        AssertionError: The command failed.
    """
    program = folder / ".bin" / "emmclab"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o755)
    env = environment(COLUMNS=str(WIDTH))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{step.command}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=env | {"PATH": f"{program.parent}:{Path(COMMAND[0]).parent}:{env['PATH']}"},
        timeout=PATIENCE_S,
        check=False,
    )
    statuses = (0, FINDING) if step.command.startswith("emmclab crash ") else (0,)
    assert done.returncode in statuses, f"$ {step.command}\nexit status {done.returncode}\n{done.stdout}"
    return done.stdout


def follow(page: Path, folder: Path, *, as_root: bool = True) -> list[str]:
    """Execute everything on a page in a folder; return the differences between its output and the page.

    Without `as_root`, commands that need root are skipped.
    """
    faults = []
    for part in parts(page):
        if isinstance(part, File):
            (folder / part.name).write_text(part.text)
        elif as_root or not part.as_root:
            printed = run(part, folder)
            if not part.agrees(printed):
                text = "\n".join(part.shown)
                faults.append(f"{page.name}: $ {part.command}\nprints\n{printed}\nthe page shows\n{text}\n")
    return faults
