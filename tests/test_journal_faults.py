"""Whatever happens to the journal of a file system, the layer below it loses no data."""

import hashlib
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import make_btrfs, need

_MB = 1 << 20
#: A journal of 4 MB wraps around within a test, and is made by mkfs, not later by the kernel.
_MKFS = ["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4", "-N", "4096"]
_TOOLS = "PATH=$PATH:/usr/sbin:/sbin; "


class _Files:
    """Files that were written and synced, with their expected content."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._random = folder, random.Random(1)
        self._digests: dict[str, str] = {}

    def write(self, count: int) -> None:
        """Write and sync files, and sometimes rename or remove them, each in a separate commit."""
        for number in range(count):
            name = f"f{len(self._digests)}-{number}"
            data = self._random.randbytes(self._random.randrange(1, 20_000))
            path = self._folder / name
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if number % 5 == 0:
                path = path.rename(path.with_name(name + "-renamed"))
            self._digests[path.name] = hashlib.sha256(data).hexdigest()
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def check(self) -> None:
        """Check that every file has its expected content."""
        found = {path.name: path for path in self._folder.iterdir() if path.is_file()}
        assert set(self._digests) <= set(found), sorted(set(self._digests) - set(found))
        for name, digest in self._digests.items():
            assert hashlib.sha256(found[name].read_bytes()).hexdigest() == digest, name


def _served(mode: str, **more: Any) -> lab.LiveDevice:
    return lab.serve(
        lab.Device.named("emmc51-cache").with_capacity("256MB"),
        clock="free",
        layers=["journal"],
        layer_settings={"journal.mode": mode, "journal.log": "8MB"},
        **more,
    )


def _shell(disk: lab.LiveDevice, command: str, status: int = 0) -> None:
    # It runs as a child of the test: its output goes to pytest, which shows it for a failure.
    done = subprocess.run(
        ["sh", "-c", _TOOLS + command], env=os.environ | {"DISK": disk.path}, capture_output=True, text=True
    )
    assert done.returncode <= status, f"{command}: {done.stdout}{done.stderr}"


def _journal_block(disk: lab.LiveDevice) -> int:
    """Return the first block of the journal, as the file system's own tool prints it."""
    command = f"{_TOOLS} debugfs -R 'bmap <8> 0' {disk.path}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def _damaged(disk: lab.LiveDevice) -> None:
    """Overwrite the journal's superblock and the next blocks with garbage; e2fsck makes a new journal."""
    block = _journal_block(disk)
    _shell(disk, f"dd if=/dev/urandom of=$DISK bs=4096 seek={block} count=64 conv=fsync,notrunc status=none")
    _shell(disk, "e2fsck -fy $DISK", status=1)


def _removed(disk: lab.LiveDevice) -> None:
    """Remove the journal; the file system continues without it."""
    _shell(disk, "tune2fs -O ^has_journal $DISK && e2fsck -fn $DISK")


def _made_anew(disk: lab.LiveDevice) -> None:
    """Remove the journal and make one of another size at another place."""
    _shell(disk, "tune2fs -O ^has_journal $DISK && tune2fs -J size=8 $DISK && e2fsck -fn $DISK")


def _other_identity(disk: lab.LiveDevice) -> None:
    """Change the file system's UUID, with which its journal's tags are checked."""
    _shell(disk, "e2fsck -fy $DISK && yes | tune2fs -f -U random $DISK && e2fsck -fn $DISK")


def _resized(disk: lab.LiveDevice) -> None:
    """Shrink the file system, which moves blocks, and extend it again."""
    _shell(disk, "e2fsck -fy $DISK && resize2fs $DISK 60M && e2fsck -fy $DISK && resize2fs $DISK")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mode", ["ordered_fua", "delta", "aware"])
@pytest.mark.parametrize("change", [_damaged, _removed, _made_anew, _other_identity, _resized])
def test_a_journal_may_be_damaged_removed_resized_or_made_anew_between_mounts(
    mode: str, change: Callable[[lab.LiveDevice], None], tmp_path: Path
) -> None:
    need("mkfs.ext4", "tune2fs", "debugfs", "e2fsck")
    mount = tmp_path / "mnt"
    with _served(mode, mkfs="ext4", mkfs_options=_MKFS, mount=mount) as disk:
        files = _Files(mount)
        files.write(60)
        disk.unmount()
        change(disk)
        disk.mount(mount)
        files.check()
        files.write(60)
        files.check()
        disk.unmount()
        _shell(disk, "e2fsck -fn $DISK")
        disk.mount(mount)
        files.check()
        assert disk.stats()["failed"] == 0


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mode", ["ordered_fua", "delta", "aware"])
def test_a_file_system_may_grow_while_it_is_written_to(mode: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "resize2fs", "e2fsck")
    mount = tmp_path / "mnt"
    with _served(mode) as disk:
        _shell(disk, f"mkfs.ext4 -q {' '.join(_MKFS)} $DISK 48M")
        disk.mount(mount)
        files = _Files(mount)
        for size in ("96M", "180M", ""):
            files.write(40)
            command = f"{_TOOLS} resize2fs {disk.path} {size}"
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
            if "Permission denied" in done.stderr:
                pytest.skip("the kernel refuses to resize what is mounted here (CAP_SYS_RESOURCE)")
            assert done.returncode == 0, done.stderr
        files.write(40)
        assert os.statvfs(mount).f_blocks * 4096 > 180 * _MB
        files.check()
        disk.unmount()
        _shell(disk, "e2fsck -fn $DISK")
        disk.mount(mount)
        files.check()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mode", ["delta", "aware"])
def test_another_file_system_in_its_place_finds_nothing_of_the_one_before(mode: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "e2fsck")
    mount = tmp_path / "mnt"
    with _served(mode, mkfs="ext4", mkfs_options=_MKFS, mount=mount) as disk:
        _Files(mount).write(30)
        disk.unmount()
        make_btrfs(disk.path)
        disk.mount(mount)
        foreign = _Files(mount)
        foreign.write(30)
        foreign.check()
        disk.unmount()
        _shell(disk, f"mkfs.ext4 -F -q {' '.join(_MKFS)} $DISK && e2fsck -fn $DISK")
        disk.mount(mount)
        assert [path.name for path in mount.iterdir()] == ["lost+found"]
        again = _Files(mount)
        again.write(60)
        again.check()
        disk.unmount()
        _shell(disk, "e2fsck -fn $DISK")
