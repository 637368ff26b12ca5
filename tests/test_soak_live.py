"""Files on a served device keep their content; `make soak-live` runs these tests for hours."""

import ctypes
import errno
import mmap
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import need

DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "nexus5": ("nexus5", {}),
    "nexus5 under Advil": ("nexus5", {"layers": ["advil"], "layer_settings": {"advil.reserved": "64MB"}}),
    "emmc51-cache": ("emmc51-cache", {}),
}
#: Options of mkfs without background work of the file system, and with a journal that wraps around.
MKFS = ["-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=8", "-N", "4096"]


@pytest.mark.slow
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", DEVICES)
def test_files_on_a_served_device_hold_what_was_written(name: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "fsck.ext4")
    preset, options = DEVICES[name]
    mount = tmp_path / "mnt"
    serve_options: dict[str, Any] = {"mkfs": "ext4", "mkfs_options": MKFS, "mount": mount, "mount_options": "discard"}
    with lab.serve(preset, clock="free", **serve_options, **options) as disk:

        def remount() -> None:
            disk.unmount()
            check = f"PATH=$PATH:/usr/sbin:/sbin; fsck.ext4 -fn {disk.path} >{tmp_path}/fsck 2>&1"
            assert disk.run(["sh", "-c", check]) == 0, (SEED, (tmp_path / "fsck").read_text())
            disk.mount(mount, options="discard")

        rounds = Rounds(mount, SEED)
        try:
            rounds.run(time.monotonic() + SECONDS, remount)
        except DifferenceError as difference:
            pytest.fail(f"seed {SEED}: {difference}")
        finally:
            rounds.close()
        assert disk.stats().failed == 0
    print(f"{name}: {sum(rounds.done.values()):,} operations: {rounds.done}")
    assert all(rounds.done.values())


#: Duration of one test in seconds; `EMMCLAB_SOAK_S=3600` for a long one.
SECONDS = float(os.environ.get("EMMCLAB_SOAK_S", "6"))
#: Seed of the operations; it is part of the failure message.
SEED = int(os.environ.get("EMMCLAB_SOAK_SEED", "2012"))
_MOST, _PAGE, _FILES = 2 << 20, 4096, 3
#: Flags of fallocate(2).
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16
#: Number of operations between two mounts.
_REMOUNT = 2000

_libc = ctypes.CDLL(None, use_errno=True)


class DifferenceError(AssertionError):
    """A file differs from what was written to it."""


class File:
    """A file and its expected content."""

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, bytearray()
        self.open(os.O_CREAT | os.O_TRUNC)

    def open(self, flags: int = 0) -> None:
        """Open it twice: through the page cache and with direct I/O."""
        self.cached = os.open(self.path, os.O_RDWR | flags, 0o600)
        self.direct = os.open(self.path, os.O_RDWR | os.O_DIRECT)

    def close(self) -> None:
        for handle in (self.cached, self.direct):
            if handle >= 0:
                os.close(handle)
        self.cached = self.direct = -1

    def wrote(self, at: int, data: bytes) -> None:
        """Record data that was written."""
        if len(self.held) < at:
            self.held.extend(bytes(at - len(self.held)))
        self.held[at : at + len(data)] = data

    def check(self, at: int, data: bytes, length: int, how: str) -> None:
        """Compare data that was read with the expected content."""
        expected = bytes(self.held[at : at + length])
        if data == expected:
            return
        size = min(len(data), len(expected))
        first = next((i for i in range(size) if data[i] != expected[i]), size)
        raise DifferenceError(
            f"{self.path.name}: {how} at {at}: {len(data)} bytes for {len(expected)}, the first other one at "
            f"{at + first}"
        )


class Rounds:
    """Operations on some files in a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.files = [File(folder / f"file-{number}") for number in range(_FILES)]
        self.done = dict.fromkeys(self._operations(), 0)

    def _operations(self) -> dict[str, Callable[[File], None]]:
        return {
            "write": self._write,
            "read": self._read,
            "write past the cache": self._write_direct,
            "read past the cache": self._read_direct,
            "write by mmap": self._write_mapped,
            "read by mmap": self._read_mapped,
            "truncate": self._truncate,
            "punch": lambda file: self._fallocate(file, _PUNCH_HOLE | _KEEP_SIZE),
            "zero": lambda file: self._fallocate(file, _ZERO_RANGE | _KEEP_SIZE),
            "sync": self._sync,
            "read from the device": self._read_cold,
            "replace": self._replace,
        }

    def run(self, until: float, remount: Callable[[], None]) -> None:
        """Run operations until a time of `time.monotonic`; compare every byte after each mount."""
        operations = self._operations()
        names = list(operations)
        weights = [1 if name in ("truncate", "replace", "sync") else 4 for name in names]
        while True:
            for _ in range(_REMOUNT):
                name = self.dice.choices(names, weights)[0]
                operations[name](self.dice.choice(self.files))
                self.done[name] += 1
                if time.monotonic() > until:
                    break
            for file in self.files:
                file.close()
            remount()
            for file in self.files:
                file.open()
                file.check(0, os.pread(file.cached, _MOST + 1, 0), _MOST + 1, "read after a mount")
            if time.monotonic() > until:
                return

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _range(self, end: int, unit: int = 1) -> tuple[int, int]:
        at = self.dice.randrange(max(end // unit, 1)) * unit
        most = self.dice.choice((64, 5000, 70_000, 300_000))
        length = max(self.dice.randrange(most) // unit, 1) * unit
        return at, min(length, max(end - at, 0))

    def _data(self, length: int) -> bytes:
        return self.dice.randbytes(64).ljust(64) * (length // 64) + self.dice.randbytes(length % 64)

    def _write(self, file: File) -> None:
        at, length = self._range(_MOST)
        data = self._data(length)
        file.wrote(at, data[: os.pwrite(file.cached, data, at)])

    def _read(self, file: File) -> None:
        at, length = self._range(len(file.held) + 100)
        file.check(at, os.pread(file.cached, length, at), length, "read")

    def _write_direct(self, file: File) -> None:
        at, length = self._range(_MOST, _PAGE)
        with mmap.mmap(-1, max(length, _PAGE)) as buffer:
            buffer[:length] = self._data(length)
            count = os.pwritev(file.direct, [memoryview(buffer)[:length]], at) if length else 0
            file.wrote(at, buffer[:count])

    def _read_direct(self, file: File) -> None:
        at, length = self._range(_MOST, _PAGE)
        with mmap.mmap(-1, max(length, _PAGE)) as buffer:
            count = os.preadv(file.direct, [memoryview(buffer)[:length]], at) if length else 0
            file.check(at, buffer[:count], length, "read past the cache")

    def _write_mapped(self, file: File) -> None:
        if not file.held:
            return
        at, length = self._range(len(file.held))
        with mmap.mmap(file.cached, len(file.held)) as mapped:
            mapped[at : at + length] = data = self._data(length)
        file.wrote(at, data)

    def _read_mapped(self, file: File) -> None:
        if not file.held:
            return
        at, length = self._range(len(file.held))
        with mmap.mmap(file.cached, len(file.held), prot=mmap.PROT_READ) as mapped:
            file.check(at, mapped[at : at + length], length, "read by mmap")

    def _truncate(self, file: File) -> None:
        size = self.dice.randrange(_MOST)
        os.ftruncate(file.cached, size)
        file.held = file.held[:size].ljust(size, b"\0")

    def _fallocate(self, file: File, mode: int) -> None:
        at, length = self._range(_MOST)
        if not length:
            return
        if _libc.fallocate(file.cached, mode, ctypes.c_long(at), ctypes.c_long(length)):
            number = ctypes.get_errno()
            if number == errno.EOPNOTSUPP:
                return
            raise OSError(number, os.strerror(number), str(file.path))
        end = min(at + length, len(file.held))
        if at < end:
            file.held[at:end] = bytes(end - at)

    def _sync(self, file: File) -> None:
        self.dice.choice((os.fsync, os.fdatasync))(file.cached)

    def _read_cold(self, file: File) -> None:
        os.fsync(file.cached)
        os.posix_fadvise(file.cached, 0, 0, os.POSIX_FADV_DONTNEED)
        at, length = self._range(len(file.held) + 100)
        file.check(at, os.pread(file.cached, length, at), length, "read from the device")

    def _replace(self, file: File) -> None:
        """Replace a file by a copy, as applications do to save it."""
        aside = file.path.with_suffix(".new")
        aside.write_bytes(file.held)
        file.close()
        aside.rename(file.path)
        file.open()
