"""Private folders for mounts and images, which are removed even if this process is killed."""

import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from emmclab.runtime.files import folder_aside, lock, stale_folders, sweep

#: The kernel's list of mounted file systems.
_MOUNTS = Path("/proc/self/mounts")
#: Folder in memory (tmpfs), and a divisor: files are put there only if they take at most an eighth of the free memory.
_MEMORY, _SHARE_OF_MEMORY = Path("/dev/shm"), 8  # noqa: S108 - only as a parent of private folders.
#: Signals that request the end of a process.
_ENDS = {signal.SIGTERM, signal.SIGHUP}


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """Make a private folder in `parent`, by default in the system's temporary folder.

    It is removed afterwards, together with mounts in it. Folders that killed processes left in `parent` are
    removed first.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_stale(parent)
    # Signals are blocked here: one between the creation of the folder and the `try` would leave the folder behind.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        with folder_aside(parent) as folder:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                yield folder
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
                unmount_below(folder)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def in_memory(size: int = 0) -> Path | None:
    """Return a folder in memory with enough space for files of `size` bytes; `None` if there is none.

    Also returns `None` if the user has chosen the folder for temporary files with `TMPDIR`.
    """
    if os.environ.get("TMPDIR"):
        return None
    try:
        free = os.statvfs(_MEMORY)
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    room = min(free.f_bavail * free.f_frsize, available)
    if not os.access(_MEMORY, os.W_OK) or size * _SHARE_OF_MEMORY > room:
        return None
    return _MEMORY


def remove_stale(parent: Path | None = None) -> None:
    """Remove folders and mounts of killed processes in `parent`, by default in the temporary folder and /dev/shm."""
    parents = [Path(tempfile.gettempdir()), in_memory()] if parent is None else [parent]
    for folder in filter(None, parents):
        for stale in stale_folders(folder):
            _unmount_stale(stale)
        sweep(folder)


def _unmount_stale(folder: Path) -> None:
    """Unmount everything that a killed process left in its folder; skip a folder that is locked, thus in use."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # Another process has removed it.
        return
    try:
        if lock(handle, wait=False):
            unmount_below(folder)
    finally:
        os.close(handle)


def unmount_below(folder: Path) -> None:
    """Unmount everything in a folder; a loop device that `mount` created is detached with its mount."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # On other systems than Linux, nothing is mounted here.
        return
    # In /proc/self/mounts, a space in a path is written as an octal escape.
    begin = str(folder.resolve()).replace(" ", "\\040") + "/"
    for place in reversed([line.split()[1] for line in lines if line.split()[1].startswith(begin)]):
        path = place.replace("\\040", " ")
        for flags in ([], ["-l"]):
            if subprocess.run(["umount", *flags, path], capture_output=True, check=False).returncode == 0:
                break


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM end a worker process cleanly, so that its folders and mounts are removed.

    Does nothing outside a worker process or outside its main thread. A nested use of this context manager does nothing
    either.
    """
    is_worker = multiprocessing.parent_process() is not None
    is_main = threading.current_thread() is threading.main_thread()
    if not is_worker or not is_main or signal.getsignal(signal.SIGTERM) is _end:
        yield
        return
    previous = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    except SystemExit:
        # Exit at once, because a worker of a process pool would otherwise start its next task.
        os._exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _end(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)
