"""Runs `emmclab crash` for tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import emmclab, wait_until

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
