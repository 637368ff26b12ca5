"""System programs that judge a disk: their search path, and how they are run."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Search path for programs, including those of the administrator.
TOOLS_PATH = {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}


def run_tool(
    command: Sequence[str], patience_s: float, *, cwd: Path | None = None, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program without input, with `more` in its environment, and return what it printed.

    If it does not end, or this process is to end, it is killed together with the programs that it started,
    because the disk in whose folder they run would stay mounted.
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | TOOLS_PATH | dict(more or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=patience_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def full_path_hint(program: str) -> str:
    """Hint at the full path of a program that is searched in the folder of the disk; empty if not needed.

    >>> full_path_hint("/bin/sh"), full_path_hint("no-such-program")
    ('', '')
    """
    path = Path(program)
    if path.is_absolute() or not path.is_file():
        return ""
    return f"it runs in the folder of the disk: give the whole path, as {path.absolute()}"
