"""Runs the command lines in `tests/messages` again, and writes their outputs below them.

A case is a line that begins with `$ ` and the output below it: stdout, stderr after `! `, and the exit status if it is
not 0, or not 2 after an error. To add a case, write its line into the file of its command. A line with `<`, `>` or a
pipe runs in a shell; `| head -N` does not, but shortens stdout to N lines. `command_outputs.py check` compares instead
of writing, and prints the differences.
"""

import contextlib
import difflib
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from emmclab import __version__
from emmclab.cli import failures, main, progress
from emmclab.runtime import files

ROOT = Path(__file__).parents[1]
OUTPUTS = ROOT / "tests" / "messages"
COLUMNS = 80

#: Patterns of outputs that differ between machines, each with its replacement.
_REPLACED = ((re.compile(re.escape(__version__)), "VERSION"), (re.compile(r"build [0-9a-f]{8,}"), "build BUILD"))


def outputs(stored: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the new text of each file. The cases run in this process, in a folder with `inputs`."""
    terminal = _environment(COLUMNS=str(COLUMNS))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), terminal:
        inputs(Path(folder))
        for name, old in stored.items():
            texts = []
            for line in re.findall(r"^\$ (.*)$", old, re.MULTILINE):
                alone, _, most = line.partition(" | head -")
                code, out, err = _shell(line) if re.search("[<>|]", alone) else run(shlex.split(alone)[1:])
                out = "".join(out.splitlines(keepends=True)[: int(most) if most else None])
                status = [] if code == (2 if "error: " in err else 0) else [f"exit status {code}\n"]
                text = "".join([f"$ {line}\n", out, *(f"! {row}\n" for row in err.splitlines()), *status])
                texts += [f"{line.rstrip()}\n" for line in _plain(text, folder).splitlines()]
            yield name, "".join(texts)


def run(words: list[str]) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, stdout and stderr."""
    progress._SILENCE_S = math.inf
    progress._LINE_S = threading.TIMEOUT_MAX
    failures.complete_files.clear()
    files.written_files.clear()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, out.getvalue(), err.getvalue()


def _ext_csd() -> list[str]:
    """Return the EXT_CSD register of an 8 GB eMMC 5.1 in the rows that U-Boot prints."""
    fields = {33: 1, 166: 4, 192: 8, 194: 2, 196: 0x57, 214: 0xE9, 226: 32, 251: 1, 267: 1, 268: 1}
    fields |= {269: 2, 307: 15, 308: 1, 500: 63, 501: 63, 504: 1}
    cells = [f"{fields.get(at, 0):02x}" for at in range(512)]
    return [f"{at:03}: {' '.join(cells[at : at + 10])}" for at in range(0, 512, 10)]


def inputs(folder: Path) -> None:
    """Write the files that cases read: small valid traces, and a file for each kind of fault."""
    rows = [
        f"{at * 2_000_000},{at * 2_000_000 + 350_000},{at % 7 * 64},8,{'write' if at % 3 else 'read'}"
        for at in range(60)
    ]
    heading, arrivals = "arrival_ns,complete_ns,sector,sectors,op", "arrival_ns,sector,sectors,op"
    good = [heading, *rows[:2]]
    study = ['name = "small"', "[[grid]]", 'name = "a"']
    ext_csd = _ext_csd()
    texts = {
        "small.csv": [heading, *rows],
        "arrivals.csv": [arrivals, *(f"{at * 2_000_000},{at * 8},8,write" for at in range(60))],
        "coarse.csv": [
            "complete_ms,response_ns,sector,sectors,op",
            *(f"{at // 4},300000,{at * 8},8,write" for at in range(60)),
        ],
        "jump.csv": [arrivals, *(f"{(at + 9_000 * (at > 30)) * 10**9},{at * 8},8,write" for at in range(60))],
        "timed.csv": [
            "arrival_ns,start_ns,complete_ns,sector,sectors,op",
            *(
                f"{at},{at},{at + 200_000 + 10_000 * kb},{number % 97 * 512},{2 * kb},{op}"
                for number in range(600)
                for at, kb in [(number * 10**7, (4, 16, 64, 128)[number % 4])]
                for op in ["read" if number % 3 else "write"]
            ),
        ],
        "seconds.csv": [arrivals, *(f"{at},{at * 8},8,write" for at in range(9_000))],
        "empty.txt": [],
        "words.txt": ["a text", "that is not a trace"],
        "heading.csv": ["arrival,lba,sectors,op", "1,8,8,write"],
        "no-request.csv": [heading],
        "field.csv": [*good, "8000000,8350000,twelve,8,write"],
        "operation.csv": [*good, "8000000,8350000,12,8,scribble"],
        "backwards.csv": [*good, "8000000,7350000,12,8,write"],
        "cut.csv": [*good, "8000000,83"],
        "far.csv": [heading, "0,350000,99999999999,8,write"],
        "device.toml": ["[geometry]", "chanels = 2"],
        "syntax.toml": ["[geometry", "channels = 2"],
        "study.toml": [*study, 'devices = ["nexus5"]', 'inputs = ["Nowhere"]'],
        "key.toml": [*study, 'devcies = ["nexus5"]', 'inputs = ["Idle"]'],
        "app.toml": ['name = "app"'],
        "ext_csd.txt": ext_csd,
        "cut_ext_csd.txt": ext_csd[:20],
        "damaged_ext_csd.txt": [*ext_csd[:20], "140: 00 zz", *ext_csd[21:]],
        "ufs.txt": [
            "device_descriptor/specification_version:0x0310",
            "device_descriptor/queue_depth:0x20",
            "health_descriptor/life_time_estimation_a:0x02",
            "0:0:0:0/unit_descriptor/logical_block_size:0x0C",
            "0:0:0:0/unit_descriptor/logical_block_count:0x0000000001DC0000",
        ],
        "figures.csv": ["rw,bs_kb,jobs,depth,iops", "randread,4,1,1,5000", "randread,4,1,?,9000"],
        "wrong_figures.csv": ["rw,bs_kb,jobs,depth,iops", "randread,4,1,many,5000"],
        "fsync.txt": [
            "# tracer: nop",
            *(
                f"{task} [001] ..... 100.{at:06}: {event}"
                for at, task, event in [
                    (10_000, "sqlite3-71", "ext4_sync_file_enter: dev 8,1 ino 7 parent 2 datasync 1"),
                    (11_000, "sqlite3-71", "block_bio_queue: 8,0 WS 64 + 8 [sqlite3]"),
                    (11_500, "sqlite3-71", "block_rq_issue: 8,0 WS 4096 () 64 + 8 [sqlite3]"),
                    (13_000, "<idle>-0", "block_rq_complete: 8,0 WS () 64 + 8 [0]"),
                    (13_100, "jbd2/sda1-8-9", "block_bio_queue: 8,0 WSMF 512 + 8 [jbd2/sda1-8]"),
                    (13_100, "jbd2/sda1-8-9", "block_rq_issue: 8,0 WSMF 4096 () 512 + 8 [jbd2/sda1-8]"),
                    (19_000, "<idle>-0", "block_rq_complete: 8,0 WSMF () 512 + 8 [0]"),
                    (20_000, "sqlite3-71", "ext4_sync_file_exit: dev 8,1 ino 7 ret 0"),
                ]
            ),
        ],
        "readings.txt": [
            line
            for hour, writes in enumerate((2000, 52_000))
            for line in (
                f"{3600 * hour}",
                f"179 0 mmcblk0 9 0 80 5 {writes} 10 {40 * writes} 9 0 1 14 5 0 0 0 {writes} 0",
            )
        ],
        "later.txt": ["179 0 mmcblk0 9 0 80 5 10 10 40 9 0 1 14"],
        "no_ufs.txt": ["device_descriptor/queue_depth:many"],
        "fio.json": ['{"fio version": "fio-3.36", "jobs": []}'],
        "model.toml": ["version = 99"],
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    (folder / "garbage.bin").write_bytes(bytes(range(256)) * 16)
    (folder / "folder").mkdir()
    (folder / "fleet").mkdir()
    for name in ("small.csv", "arrivals.csv", "field.csv"):
        (folder / "fleet" / name).write_text((folder / name).read_text())
    run(["convert", "small.csv", "small.parquet", "--json"])
    (folder / "cut.parquet").write_bytes((folder / "small.parquet").read_bytes()[:-100])
    run(["convert", "small.csv", "small.csv.gz", "--json"])
    (folder / "cut.csv.gz").write_bytes((folder / "small.csv.gz").read_bytes()[:-20])


def _shell(line: str) -> tuple[int, str, str]:
    command = line.replace("emmclab", f"{shlex.quote(sys.executable)} -m emmclab", 1)
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests' / 'tested_core'}", "NO_COLOR": "1"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=env, check=False)
    return done.returncode, done.stdout, done.stderr


def _plain(text: str, folder: str) -> str:
    text = text.replace(str(Path(folder).resolve()), "FOLDER").replace(folder, "FOLDER")
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    return text


def _environment(**variables: str) -> contextlib.AbstractContextManager[object]:
    """Replace the environment by one without variables of the package and without colours."""
    kept = {name: value for name, value in os.environ.items() if name not in ("EMMCLAB_TRACES", "EMMCLAB_DEBUG")}
    return mock.patch.dict(os.environ, {**kept, "NO_COLOR": "1", **variables}, clear=True)


def update(check: bool) -> int:
    """Write each output to its file, or print the differences from the stored output; return the exit status."""
    stored = {path.name: path.read_text() for path in sorted(OUTPUTS.glob("*.txt"))}
    new_outputs = dict(outputs(stored))
    for name, text in new_outputs.items():
        if check:
            old, new = (texts[name].splitlines(keepends=True) for texts in (stored, new_outputs))
            sys.stdout.writelines(difflib.unified_diff(old, new, f"{name} (stored)", f"{name} (new)"))
        else:
            (OUTPUTS / name).write_text(text)
    if check and new_outputs != stored:
        print("the outputs of commands have changed; if the changes are intended, run `make generate`")
    return int(check and new_outputs != stored)


if __name__ == "__main__":
    sys.exit(update(sys.argv[1:] == ["check"]))
