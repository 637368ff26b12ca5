"""Runs `emmclab crash` for tests, and makes results of explorations for tests of their pages."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import emmclab, wait_until
from emmclab.crash.promises import CutTally
from emmclab.crash.stored_log import LoggedCommand
from emmclab.pages.crash import Scene
from emmclab.studies.power_cut_settings import CutResult, FirstLoss

#: Number of cuts of a test; `EMMCLAB_CUTS=1000` makes the tests longer.
CUTS = os.environ.get("EMMCLAB_CUTS", "50")

DEVICE = ["--device", "emmc51-cache"]


class Runs:
    """Runs the command in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, status: int | None = None) -> dict[str, Any]:
        done = self.run("--json", *arguments)
        expected = (0, 4) if status is None else (status,)
        assert done.returncode in expected, done.stderr + done.stdout
        result: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == {"broken": 4, "not tested": 5}.get(result["verdict"], 0)
        assert bool(result["findings"]) == (result["verdict"] == "broken")
        return result

    @property
    def log(self) -> str:
        """The path of the log that a test saves."""
        return str(self.folder / "run.log")

    def environment(self) -> dict[str, str]:
        """Return an environment in which temporary files, and therefore mounts, are in this folder."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        return os.environ | {"TMPDIR": str(temporary)}

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a run in its own session, so that a signal reaches only this run."""
        return subprocess.Popen(
            [sys.executable, "-m", "emmclab", "crash", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command, with one process unless the arguments specify another number, or one state."""
        jobs = () if {"--jobs", "--again"} & {*arguments} else ("--jobs", "1")
        # The number comes first, because everything after `--` is the command of the workload.
        return emmclab("crash", *jobs, *arguments, cwd=self.folder, env=self.environment())


def scratch_files(folder: Path) -> list[Path]:
    """Return the remaining temporary files, except for the sockets of Python's fork server."""
    return [path for path in (folder / "temporary").iterdir() if not path.name.startswith("pymp-")]


def nothing_left(folder: Path) -> None:
    # Workers of a killed parent clean up after it. The kernel releases a loop device only when every program
    # that has opened it, such as udev, has closed it.
    wait_until(
        lambda: not scratch_files(folder) and str(folder) not in subprocess.check_output(["losetup", "-a"], text=True)
    )
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not list(folder.glob("emmclab-results/crash/.emmclab-*"))


def dm_log(path: Path, line: str) -> None:
    """Write a log of dm-log-writes that contains one mark."""
    sector = 512
    head = (0x6A736677736872).to_bytes(8, "little") + (1).to_bytes(8, "little") + (1).to_bytes(8, "little")
    text = line.encode()
    words = (0, 0, 8, len(text))
    entry = b"".join(word.to_bytes(8, "little") for word in words) + text
    path.write_bytes((head + sector.to_bytes(4, "little")).ljust(sector, b"\0") + entry.ljust(sector, b"\0"))


#: A run of ext4 without barriers: the commit of a transaction does not wait for its blocks.
SUMMARY: dict[str, Any] = {
    "verdict": "broken",
    "doubts": [],
    "controls": {
        "text": "controls: the check understands 100 of 100 lines, passes on the whole disk",
        "lines": 100,
        "understood": 100,
        "foreign": "",
        "whole": {"held": True, "detail": ""},
        "before": {"held": True, "detail": "f0: gone"},
    },
    "cuts": 300,
    "states": 11_555,
    "findings": [
        {
            "promise": "commit",
            "level": "journal",
            "cut": 1544,
            "state": 0,
            "again": "d2553886:1544:0",
            "states": 9_887,
            "detail": "transaction 2: 5 of 5 blocks may still be lost",
            "chosen_by": "device",
            "at_ns": 300_558_920,
            "acknowledged": 3,
            "minimal": {
                "cut": 1541,
                "state": 8,
                "detail": "transaction 2: the copy of block 38 has a bad checksum",
                "missing": [{"command": 85, "at_ns": 300_352_120, "sector": 262_440, "sectors": 8, "garbled": False}],
                "before": 1,
                "tries": 43,
                "program": [],
                "earlier": None,
            },
        },
        {
            "promise": "tail",
            "level": "journal",
            "cut": 2142,
            "state": 0,
            "again": "d2553886:2142:0",
            "states": 3,
            "detail": "transaction 36: the tail moves to 50",
            "chosen_by": "commands",
            "at_ns": 0,
            "acknowledged": 0,
        },
    ],
    "documented": [],
    "covered": {
        "moments": 774,
        "cuts": 300,
        "legal_log10": 148.0899,
        "chosen": 13_462,
        "equal": 1_907,
        "most_unpromised": 492,
    },
    "seed": 1,
    "log": {
        "identity": "d2553886dbff48a7",
        "device": "emmc51-cache-256MB",
        "lies": "none",
        "layers": [],
        "writer": "emmclab 0.1.0",
        "moments": 2306,
        "commands": 238,
        "acknowledgements": 100,
        "truncated": False,
        "path": "emmclab-results/crash/d2553886/run.log",
    },
    "run": {
        "device": "emmc51-cache-256MB",
        "layers": [],
        "file_system": "ext4",
        "mkfs_options": [],
        "mount_options": "nobarrier",
        "workload": {"name": "files", "command": [], "operations": 50, "seed": 1, "timeout_s": 300.0},
        "status": 0,
        "notes": [],
    },
    "options": {
        "cuts": 300,
        "states": "device,boundary,omit1,only1,pairs,random",
        "seed": 1,
        "tear": "none",
        "recovery": "process",
        "check": "files",
        "recovery_cuts": 2,
        "share": [0, 1],
        "only": None,
    },
}


def _commands(last: int) -> list[LoggedCommand]:
    """Return commands of 100 us each; every fifth is a flush, and the last one is incomplete."""
    return [
        LoggedCommand(
            number,
            "write" if number % 5 else "flush",
            262_400 + 8 * (number - 80) if number % 5 else 0,
            8 if number % 5 else 0,
            ("RELIABLE",) if number % 7 == 0 and number % 5 else (),
            300_000_000 + 100_000 * number,
            None if number == last else 300_000_000 + 100_000 * (number + 1),
        )
        for number in range(last + 1)
    ]


def scene(cuts: int, findings: int, broken_every: int = 2) -> Scene:
    verdicts = {
        1540 + place: CutTally(300_000_000 + 37_000 * place, 30, 20 * (place % broken_every == 0), 0)
        for place in range(cuts)
    }
    last = 300_000_000 + 37_000 * cuts
    before = [(309_050_000, _commands(90)), (last, _commands(200))]
    return Scene(verdicts, [300_000_000 + 90_000 * line for line in range(100)], before[:findings])


def clean_run() -> tuple[dict[str, Any], Scene]:
    summary = copy.deepcopy(SUMMARY) | {"findings": []}
    summary["run"]["mount_options"] = None
    return summary, scene(300, 0, broken_every=10**9)


def cut_result(verdict: str, **changed: Any) -> CutResult:
    """Return the result of a study's cell with this verdict and some other fields."""
    fields: dict[str, Any] = {
        **dict.fromkeys(("journal_mode", "synchronous", "lost_at")),
        **dict.fromkeys(("log", "layer", "lies"), ""),
        **dict.fromkeys(("commands", "moments", "acknowledged", "lost_states", "documented_states"), 0),
        **{"cuts": 10, "states": 20, "lost": {}, "findings": [], "documented": [], "host": {}},
    }
    return CutResult(**fields | changed, verdict=verdict, first=FirstLoss(None, None, None))


DOCUMENTED = {
    **{key: value for key, value in SUMMARY["findings"][0].items() if key != "minimal"},
    "level": "application",
    "detail": "row 1 was committed, but the last row is 0",
    "documented": "without synchronous=EXTRA the folder is not synced",
    "states": 1_738,
}


def documented() -> tuple[dict[str, Any], Scene]:
    """Return a run whose only finding is a documented loss."""
    summary, quiet = clean_run()
    return summary | {"documented": [DOCUMENTED]}, quiet
