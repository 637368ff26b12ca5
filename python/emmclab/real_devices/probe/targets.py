"""Targets of a probe (simulated device, block device or file); each measures the time of a transfer."""

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from emmclab import _core
from emmclab.errors import ConfigError, InputError
from emmclab.simulation.device import Device

#: Maximum transfer of a probe, KB.
LONGEST_KB = 16 * 1024


class Target(Protocol):
    """A storage target that can be read and perhaps written by offset."""

    @property
    def name(self) -> str:
        """Return a name for people."""

    @property
    def size_kb(self) -> int:
        """Return the size in KB."""

    def transfer(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> list[float]:
        """Read or write at each offset, one after the other; return the time of each in ms."""


class Simulated:
    """A new simulated device, accessed by synchronous direct I/O."""

    def __init__(self, device: Device) -> None:
        """Make the device."""
        self._io = _core.DirectIo(device.core)
        self.name = device.name
        self.size_kb = self._io.sectors // 2

    def transfer(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> list[float]:
        """Return simulated times in ms."""
        took = self._io.transfer(write, [2 * offset for offset in offsets_kb], 2 * length_kb)
        return [ns / 1e6 for ns in took]


def open_direct(path: Path, *, write: bool, flags: int = 0) -> int:
    """Open a block device or a file with direct I/O; for writing, a block device must not be in use."""
    flags |= os.O_DIRECT | os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
    try:
        if write and path.is_block_device():
            flags |= os.O_EXCL
        return os.open(path, flags)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be opened for direct I/O: {error.strerror}",
            file=str(path),
            errno=error.errno,
            hint="run as root for a block device, which must not be mounted for writing, and use a file "
            "outside of tmpfs, which has no direct I/O",
        ) from error


class Disk:
    """A block device or a file, accessed without the page cache (`O_DIRECT`, `O_DSYNC`)."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Open the target; for writing, a block device must not be in use.

        Raises:
            InputError: it cannot be opened, or its file system does not support direct I/O.
        """
        self._file = open_direct(path, write=write, flags=os.O_DSYNC if write else 0)
        self.name = str(path)
        self.size_kb = os.lseek(self._file, 0, os.SEEK_END) // 1024
        # Direct I/O needs page-aligned memory, hence the mapping; random bytes do not compress.
        self._memory = mmap.mmap(-1, LONGEST_KB * 1024)
        block = os.urandom(1 << 20)
        for at in range(0, LONGEST_KB * 1024, len(block)):
            self._memory[at : at + len(block)] = block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def transfer(self, write: bool, offsets_kb: Sequence[int], length_kb: int) -> list[float]:
        """Return measured times in ms."""
        took = []
        with memoryview(self._memory) as whole, whole[: length_kb * 1024] as part:
            move = os.pwritev if write else os.preadv
            for offset in offsets_kb:
                begin = time.perf_counter_ns()
                try:
                    moved = move(self._file, [part], offset * 1024)
                except OSError as error:
                    raise InputError(
                        f"{self.name}: direct I/O fails at {offset} KB: {error.strerror}",
                        file=self.name,
                        errno=error.errno,
                        hint="check the device (`dmesg`), or use a smaller part of it (--span-mb)",
                    ) from error
                took.append((time.perf_counter_ns() - begin) / 1e6)
                if moved != length_kb * 1024:
                    raise InputError(
                        f"{self.name}: direct I/O moves {moved} of {length_kb * 1024} bytes",
                        file=self.name,
                        hint="use a smaller part of the target (--span-mb)",
                    )
        return took


def check_size(target: Target, span_kb: int) -> None:
    """Reject a span that exceeds the target or is too small for a measurement."""
    least_kb = 2 * LONGEST_KB
    if not least_kb <= span_kb <= target.size_kb:
        raise ConfigError(
            f"a span of {span_kb // 1024} MB is impossible on {target.name} of {target.size_kb // 1024} MB",
            field="--span-mb",
            hint=f"give {least_kb // 1024} to {target.size_kb // 1024} MB",
        )
