"""Mounts an image by the kernel, and reports the kernel's message if that fails."""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from emmclab.crash.kernel_log import KernelLog
from emmclab.crash.tools import run_tool
from emmclab.errors import EmmclabError
from emmclab.runtime.files import lock

#: ioctl requests of <linux/loop.h>: LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LOOP_SET_FD and LOOP_SET_STATUS64.
_GET_FREE, _CONFIGURE, _SET_FD, _SET_STATUS = 0x4C82, 0x4C0A, 0x4C00, 0x4C04
_AUTOCLEAR = 4
#: Maximum number of attempts to get a free loop device, since another process may take it first.
_MOST_TRIES = 64
#: ioctl request of <linux/btrfs.h> that makes the kernel forget an unmounted device (BTRFS_IOC_FORGET_DEV).
_FORGET_DEVICE = 0x50009405
#: First kernel version that can mount several btrfs file systems with the same UUID at once (by temporary UUIDs).
_SAME_UUID_BTRFS = (6, 7)
#: Magic numbers that identify a file system: byte offset, bytes and name.
_MAGIC = (
    *((0, b"XFSB", "xfs"), (0x10040, b"_BHRfS_M", "btrfs"), (0x400, b"\x10\x20\xf5\xf2", "f2fs")),
    *((0x438, b"\x53\xef", "ext4"), (0x36, b"FAT1", "vfat"), (0x52, b"FAT32", "vfat")),
)
#: Flag of <sys/mount.h>: unmount as soon as the file system is no longer used.
_DETACH = 2
#: Numbers of the 4 KiB blocks that contain the magic numbers of file systems.
KIND_BLOCKS = tuple({offset // 4096 for offset, _, _ in _MAGIC})


class NotMountedError(Exception):
    """Raised if the kernel refuses to mount an image; the text is its reason."""


@contextmanager
def mounted(
    image: Path, folder: Path, patience_s: float, attached: Callable[[str], object] = lambda _device: None
) -> Iterator[None]:
    """Mount an image in a folder; `attached` is called with the path of its loop device before the mount.

    All images of one disk contain a file system with the same UUID. xfs refuses to mount a UUID twice, unless
    it is mounted with `nouuid`. btrfs mistakes a second image for the first, so its images are mounted one
    after the other, and the kernel is told to forget each afterwards.
    """
    kind = kind_of(image)
    with _after_others(kind), _loop_device(image) as device:
        attached(device)
        complaints = KernelLog()
        problem = _mount(kind, device, folder) if kind else _mount_by_tool(device, folder, patience_s)
        message = complaints.about(Path(device).name)
        if problem:
            raise NotMountedError(message or problem)
        try:
            _require_this(device, folder)
            yield
        finally:
            _unmount(folder)
            if kind == "btrfs":
                _forget(device)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(kind: str, device: str, folder: Path) -> str:
    """Mount a device by a system call, and return the problem, if any; `mount` would take 7 ms more."""
    options = b"nouuid" if kind == "xfs" else None
    arguments = (os.fsencode(device), os.fsencode(folder), kind.encode(), ctypes.c_ulong(0), options)
    return "" if _libc().mount(*arguments) == 0 else os.strerror(ctypes.get_errno())


def _mount_by_tool(device: str, folder: Path, patience_s: float) -> str:
    """Mount a device with the tool `mount`, which detects the file system; return the error, or an empty text."""
    process = run_tool(["mount", device, str(folder)], patience_s)
    return _mount_message(process.stderr, device, folder) if process.returncode else ""


def _unmount(folder: Path) -> None:
    for flags in (0, _DETACH):
        if _libc().umount2(os.fsencode(folder), flags) == 0:
            break


def kind_of(image: Path) -> str:
    """Return the name of the file system of an image; empty if it is not recognised."""
    with image.open("rb") as file:
        for offset, word, name in _MAGIC:
            file.seek(offset)
            if file.read(len(word)) == word:
                return name
    return ""


@contextmanager
def _after_others(kind: str) -> Iterator[None]:
    """Wait until no other process of emmclab has mounted a btrfs file system, if the kernel requires this."""
    numbers = re.findall(r"\d+", platform.release())[:2]
    if kind != "btrfs" or tuple(int(number) for number in numbers) >= _SAME_UUID_BTRFS:
        yield
        return
    handle = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


@contextmanager
def _loop_device(image: Path) -> Iterator[str]:
    """Attach an image to a loop device; it is detached after use, even if this process is killed."""
    with image.open("r+b") as file:
        path, handle = _attached(file.fileno(), image)
        try:
            yield path
        finally:
            os.close(handle)


def _attached(file: int, image: Path) -> tuple[str, int]:
    name = os.fsencode(image)[-63:]
    loop_info = struct.pack("=5Q4I64s64s32s2Q", *[0] * 5, 0, 0, 0, _AUTOCLEAR, name, b"", b"", 0, 0)
    for _ in range(_MOST_TRIES):
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
        finally:
            os.close(control)
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _attach_file(handle, file, loop_info)
        except OSError as error:
            os.close(handle)
            if error.errno != errno.EBUSY:
                raise
            continue
        return path, handle
    raise EmmclabError(
        "no loop device of this machine was free",
        kind="failed",
        hint="detach unused loop devices (`losetup -a` lists all), or use fewer processes (--jobs)",
    )


def _attach_file(handle: int, file: int, loop_info: bytes) -> None:
    """Attach a file to a loop device; kernels before 5.8 need two requests for that."""
    try:
        fcntl.ioctl(handle, _CONFIGURE, struct.pack("=2I", file, 0) + loop_info + bytes(64))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTTY):
            raise
        fcntl.ioctl(handle, _SET_FD, file)
        fcntl.ioctl(handle, _SET_STATUS, loop_info)


def _require_this(device: str, folder: Path) -> None:
    """Raise an error if the kernel has mounted another device with the same UUID in the folder."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        place, _, source_fields = line.partition(" - ")
        if place.split()[4].replace("\\040", " ") == str(folder.resolve()):
            source = source_fields.split()[1]
            if source != device:
                raise NotMountedError(f"the kernel mounted {source} instead, a disk with the same UUID")


def _forget(device: str) -> None:
    """Make the kernel forget a btrfs device, because the next image may contain an older state of it."""
    with contextlib.suppress(OSError):
        control = os.open("/dev/btrfs-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            # A buffer of more than 1,024 bytes must be writable, because fcntl.ioctl() copies only shorter ones.
            fcntl.ioctl(control, _FORGET_DEVICE, bytearray(struct.pack("=q4088s", 0, device.encode())))
        finally:
            os.close(control)


def _mount_message(output: str, device: str, folder: Path) -> str:
    """Return the first line that `mount` printed, without device and folder names, which differ between states."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    message = lines[0] if lines else "mount failed"
    return message.replace(f"{folder}: ", "").replace(device, "the device")
