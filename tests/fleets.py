"""Fleets of small recordings, and runs on them that block at a known point, to be interrupted there."""

import json
import subprocess
import sys
from pathlib import Path

from conftest import biotracer, emmclab, environment

#: Models and builds of the small fleet.
PLACES = [f"model={model}/build={build}" for model in ("Pixel%206a", "N5") for build in ("B1", "B2")]


def recorded(count: int, first: int = 0) -> dict[str, bytes]:
    """Return recordings of different lengths by name, spread over models and builds."""
    return {
        f"{PLACES[number % len(PLACES)]}/{number:04}.txt": biotracer(40 + 7 * number, 1_400_000_000 + number).encode()
        for number in range(first, first + count)
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def profiled(*words: object) -> int:
    """Run the command; return the number of recordings that it profiled."""
    done = emmclab("fleet", *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    count: int = json.loads(done.stdout)["tables"][0]["run"]["profiled"]
    return count


#: Code of a command line that blocks after it has stored seven rows, like on a hanging disk.
HELD = """
import sys, threading
from emmclab.__main__ import main
from emmclab.fleet.table_state import State
append = State._append
def held(state, one):
    append(state, one)
    if state.added == 7:
        state._open.flush()
        print("held", flush=True)
        threading.Event().wait()
State._append = held
sys.argv[0] = "emmclab"
sys.exit(main())
"""


def blocked_run(*words: object) -> subprocess.Popen[str]:
    """Start a run on a fleet that has stored seven rows and then blocks."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, "fleet", *map(str, words)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n", process.communicate()
    return process
