"""Files on a served device keep their content; `make soak-live` runs these tests for hours."""

import time
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import need
from file_rounds import SECONDS, SEED, DifferenceError, Rounds

DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "nexus5": ("nexus5", {}),
    "nexus5 under Advil": ("nexus5", {"layers": ["advil"], "layer_settings": {"advil.reserved": "64MB"}}),
    "emmc51-cache": ("emmc51-cache", {}),
}
#: Without background work of the file system, and with a journal that wraps around.
MKFS = ["-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=8", "-N", "4096"]


@pytest.mark.slow
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", DEVICES)
def test_files_on_a_served_device_hold_what_was_written(name: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "fsck.ext4")
    preset, options = DEVICES[name]
    mount = tmp_path / "mnt"
    made: dict[str, Any] = {"mkfs": "ext4", "mkfs_options": MKFS, "mount": mount, "mount_options": "discard"}
    with lab.serve(preset, clock="free", **made, **options) as disk:

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
        assert disk.stats()["failed"] == 0
    print(f"{name}: {sum(rounds.done.values()):,} operations: {rounds.done}")
    assert all(rounds.done.values())
