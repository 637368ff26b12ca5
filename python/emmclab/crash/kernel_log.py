"""Reads what the kernel reports about a device: messages, and which blocks are read. Also runs in guests."""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from emmclab.crash.tools import run_tool

#: Maximum number of kernel messages that are quoted, and the highest log level that counts as a problem (4 = warning).
_MOST_QUOTED, _WARNING = 3, 4


class KernelLog:
    """The kernel messages that were logged since this object was created."""

    def __init__(self) -> None:
        """Skip the existing kernel messages; if this process may not read the log, there will be no messages."""
        self._lines: int | None = None
        with contextlib.suppress(OSError):
            self._lines = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._lines, 0, os.SEEK_END)

    def about(self, device: str) -> str:
        """Return the last kernel messages that complain about a device, with its name replaced by `device`.

        This closes the log.
        """
        if self._lines is None:
            return ""
        heard = []
        try:
            while True:
                try:
                    heard.append(os.read(self._lines, 8192).decode(errors="replace"))
                except BrokenPipeError:  # Older messages were overwritten.
                    continue
        except OSError:
            pass
        finally:
            os.close(self._lines)
            self._lines = None
        return complaints_about(device, heard)


def complaints_about(device: str, records: list[str]) -> str:
    """Select complaints about a device from records of `/dev/kmsg`.

    >>> complaints_about("loop1", ["4,9,5,-;XFS (loop1): has duplicate UUID", "4,10,6,-;XFS (loop10): other"])
    'XFS (device): has duplicate UUID'
    """
    device_name = re.compile(rf"\b{re.escape(device)}\b")
    messages: list[tuple[int, str]] = []
    for record in records:
        header, _, text = record.partition(";")
        text = text.split("\n")[0].strip()
        urgency = header.split(",")[0]
        if device_name.search(text) and urgency.isdecimal():
            messages.append((int(urgency) & 7, device_name.sub("device", text)))
    loud = [text for urgency, text in messages if urgency <= _WARNING] or [text for _, text in messages][-1:]
    return "; ".join(list(dict.fromkeys(loud))[-_MOST_QUOTED:])


#: Usual mount point of tracefs.
_TRACEFS = Path("/sys/kernel/tracing")
#: Prefix of the names of emmclab's trace instances in tracefs; the process ID and a number follow.
_PREFIX = "emmclab-crash-"
#: Size of the kernel's trace buffer per processor, KB; the mount of a small file system needs a tenth of it.
_BUFFER_KB = 1024
#: Number of 512-byte sectors in a block of 4 KiB.
_SECTORS = 8
_EVENT = re.compile(rb"block_bio_queue: (\d+),(\d+) F?(\w)\S* (\d+) \+ (\d+) ")
#: Text in the kernel's trace output if the trace buffer was too small.
_LOST = b"LOST"
_PATIENCE_S = 10.0


class BlockReads:
    """Records which 4 KiB blocks are read from a device; a context manager. Needs root.

    If the kernel cannot trace reads, or lost trace events, no blocks are reported.
    """

    _numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        """Set a private folder, in which tracefs is mounted if the system has not mounted it."""
        self._folder = folder
        self._events: int | None = None
        self._end = ExitStack()

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._start()
        return self

    def __exit__(self, *_ended: object) -> None:
        self._events = None
        self._end.close()

    @property
    def works(self) -> bool:
        """Whether the kernel can trace the reads of block devices."""
        return self._events is not None

    def _start(self) -> None:
        tracefs = self._tracefs()
        _remove_stale(tracefs)
        instance = tracefs / "instances" / f"{_PREFIX}{os.getpid()}-{next(self._numbers)}"
        instance.mkdir()
        self._end.callback(_remove, instance)
        (instance / "buffer_size_kb").write_text(str(_BUFFER_KB))
        (instance / "events/block/block_bio_queue/enable").write_text("1")
        events = os.open(instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._end.callback(os.close, events)
        self._events = events

    def _tracefs(self) -> Path:
        if (_TRACEFS / "instances").is_dir():
            return _TRACEFS
        mount_point = self._folder / "tracefs"
        mount_point.mkdir(exist_ok=True)
        run_tool(["mount", "-t", "tracefs", "tracefs", str(mount_point)], _PATIENCE_S)
        return mount_point

    @contextmanager
    def watching(self, read: set[int]) -> Iterator[Callable[[str], None]]:
        """Add the numbers of the 4 KiB blocks that are read in this context to `read`.

        If trace events are lost, nothing is added. Yields a function that must be called with the path of the device as
        soon as it exists.
        """
        devices: list[os.stat_result] = []
        self._drain()
        try:
            yield lambda path: devices.append(Path(path).stat())
        finally:
            events = self._drain()
            for device in devices:
                read |= _blocks_of(events, os.major(device.st_rdev), os.minor(device.st_rdev)) or set()

    def _drain(self) -> bytes:
        """Return the trace events since the last call."""
        parts = []
        if self._events is not None:
            with contextlib.suppress(BlockingIOError):
                while part := os.read(self._events, 1 << 16):
                    parts.append(part)
        return b"".join(parts)


def _blocks_of(events: bytes, major: int, minor: int) -> set[int] | None:
    """Return the blocks that were read from a device, according to trace events; `None` if events were lost.

    >>> text = b"mount-7 [000] ..... 1.2: block_bio_queue: 7,1 RM 8 + 9 [mount]"
    >>> sorted(_blocks_of(text, 7, 1))
    [1, 2]
    """
    if _LOST in events:
        return None
    device = (str(major).encode(), str(minor).encode())
    blocks: set[int] = set()
    for event in _EVENT.finditer(events):
        if event.group(1, 2) == device and event.group(3) == b"R":
            first, sectors = int(event.group(4)), int(event.group(5))
            blocks.update(range(first // _SECTORS, -(-(first + sectors) // _SECTORS)))
    return blocks


def _remove_stale(tracefs: Path) -> None:
    """Remove the trace instances that killed processes left in tracefs."""
    for instance in (tracefs / "instances").glob(f"{_PREFIX}*"):
        process = instance.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", process).exists():
            _remove(instance)


def _remove(instance: Path) -> None:
    with contextlib.suppress(OSError):
        instance.rmdir()
