"""Runs system programs, such as e2fsck, that recover or check a disk."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Search path for programs: the user's PATH and the folders of administration tools.
TOOLS_PATH = {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}


def run_tool(
    command: Sequence[str], patience_s: float, *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program without input, with additional environment variables, and return its status and output.

    After the timeout, or if this process is interrupted, the program and its children are killed; otherwise the disk in
    whose folder they run could not be unmounted.
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | TOOLS_PATH | dict(environment or {}),
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
    """Return a hint to use the absolute path of a program that is a file in the current folder; else empty.

    >>> full_path_hint("/bin/sh"), full_path_hint("no-such-program")
    ('', '')
    """
    path = Path(program)
    if path.is_absolute() or not path.is_file():
        return ""
    return f"it runs in the folder of the disk: give the absolute path, {path.absolute()}"
