"""Fleets of small recordings, and runs on them that block at a known point, to be interrupted there."""

import subprocess
import sys
from pathlib import Path

from conftest import biotracer, environment

#: Models and builds of the small fleet.
PLACES = [f"model={model}/build={build}" for model in ("Pixel%206a", "N5") for build in ("B1", "B2")]


def make(folder: Path, count: int, first: int = 0) -> None:
    """Write recordings of different lengths, spread over models and builds."""
    for number in range(first, first + count):
        place = folder / PLACES[number % len(PLACES)]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:04}.txt").write_text(biotracer(40 + 7 * number, first_s=1_400_000_000 + number))


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
