"""Guests: a kernel of the user with its modules, and power cuts that are explored on it."""

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import cast

import pytest

import emmclab as emmclab_package
from conftest import assert_refused, begin, emmclab, emmclab_json, need, wait_until
from emmclab.crash import Workload
from emmclab.crash.explore import open_run
from emmclab.crash.guest import machine, wire
from emmclab.crash.guest.machine import Kernel, contents, write_initramfs
from emmclab.crash.mounted_files import Node, Status
from emmclab.crash.recording import run_in_guest
from emmclab.errors import ConfigError, InputError, UnsupportedError

VERSION = "6.1.0-9-made"
#: Programs that end with a sync of all files.
PROGRAMS = "program a\ncreate new\nwrite new 0 5000\nsync\nprogram b\nmkdir A\ncreate A/foo\nsync\n"


def made_kernel(folder: Path, modules: dict[str, bytes], *, built_in: str = "") -> Path:
    """Write a file that begins like a kernel, with modules in the folders of a package."""
    (folder / "boot").mkdir()
    head = bytearray(0x400)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x100).to_bytes(2, "little")
    head[0x300 : 0x300 + len(VERSION) + 8] = f"{VERSION} (made)".encode()
    file = folder / "boot/vmlinuz"
    file.write_bytes(bytes(head))
    place = folder / "lib/modules" / VERSION
    for name, about in modules.items():
        path = place / "kernel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF\0" + about + b"\0")
    place.mkdir(parents=True, exist_ok=True)
    (place / "modules.builtin").write_text(built_in)
    return file


def disk_modules() -> dict[str, bytes]:
    return {
        "drivers/virtio/virtio_pci.ko": b"depends=virtio_ring,virtio",
        "drivers/virtio/virtio_ring.ko": b"depends=",
        "drivers/virtio/virtio.ko": b"depends=virtio_ring",
        "drivers/block/virtio_blk.ko": b"depends=virtio",
        "fs/f2fs/f2fs.ko": b"depends=lz4\0softdep=pre: crc32",
        "lib/lz4/lz4.ko": b"depends=",
        "crypto/crc32_generic.ko": b"alias=crypto-crc32\0depends=",
    }


def test_a_module_is_loaded_behind_those_that_it_needs(tmp_path: Path) -> None:
    file = made_kernel(tmp_path, disk_modules(), built_in="kernel/drivers/char/virtio_console.ko\n")
    names = [path.name for path in Kernel.of(str(file)).files_of("f2fs")]
    assert sorted(names) == sorted(Path(name).name for name in disk_modules())
    for modules in (("virtio_ring", "virtio", "virtio_pci"), ("lz4", "f2fs"), ("crc32_generic", "f2fs")):
        places = [names.index(f"{module}.ko") for module in modules]
        assert places == sorted(places)


def test_an_algorithm_may_be_named_by_its_alias(tmp_path: Path) -> None:
    more = {
        "fs/ext4/ext4.ko": b"softdep=pre: crypto-crc32c\0depends=",
        "crypto/crc32c_generic.ko": b"alias=crypto-crc32c\0depends=",
    }
    file = made_kernel(tmp_path, disk_modules() | more, built_in="kernel/drivers/char/virtio_console.ko\n")
    names = [path.name for path in Kernel.of(str(file)).files_of("ext4")]
    assert names[-2:] == ["crc32c_generic.ko", "ext4.ko"]


def test_a_packed_module_is_unpacked(tmp_path: Path) -> None:
    import lzma

    packed = tmp_path / "f2fs.ko.xz"
    packed.write_bytes(lzma.compress(b"a module"))
    assert contents(packed) == b"a module"


def test_a_kernel_without_the_file_system_is_refused(tmp_path: Path) -> None:
    file = made_kernel(tmp_path, disk_modules(), built_in="kernel/drivers/char/virtio_console.ko\n")
    with pytest.raises(ConfigError, match="has no module xfs"):
        Kernel.of(str(file)).files_of("xfs")


def test_what_is_no_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vmlinuz").write_bytes(b"not a kernel")
    with pytest.raises(ConfigError, match="not a kernel for x86-64"):
        Kernel.of(str(tmp_path / "vmlinuz"))
    with pytest.raises(InputError, match="not found"):
        Kernel.of(str(tmp_path / "none"))


def test_a_kernel_without_its_modules_is_refused(tmp_path: Path) -> None:
    file = made_kernel(tmp_path, {})
    (tmp_path / "lib/modules" / VERSION).rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match=f"modules of this kernel \\({VERSION}\\) are in none"):
        Kernel.of(str(file))


def test_without_qemu_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TOOLS_PATH", {"PATH": str(tmp_path)})
    with pytest.raises(UnsupportedError) as refused:
        machine.require(str(tmp_path / "vmlinuz"))
    assert refused.value.hint == "apt-get install qemu-system-x86"


@pytest.mark.parametrize("arguments", [["--recovery", "e2fsck"], ["--check", "true"], ["--", "true"]])
def test_what_a_guest_cannot_do_is_refused_before_it_starts(arguments: list[str], tmp_path: Path) -> None:
    file = made_kernel(tmp_path, disk_modules(), built_in="kernel/drivers/char/virtio_console.ko\n")
    workload = [] if arguments[0] == "--" else ["--workload", "ace:1"]
    assert_refused(emmclab("crash", "--device", "emmc51-cache", "--guest", file, *workload, *arguments), "guest")


def test_files_come_from_a_guest_as_they_are() -> None:
    nodes = {"A": Node("folder", 3, 2, b"", {}, Status(0o755, 5, 6, 1 << 33, 8))}
    nodes["A/\udcff"] = Node("file", 4, 1, b"\0\xff", {"user.one": b"\x80"}, nodes["A"].status)
    assert wire.nodes_unpacked(wire.nodes_packed(nodes)) == nodes


class TalkingGuest:
    """A guest whose workload prints lines, and waits after each until it is answered."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self._own = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=[lines], daemon=True)

    def _run(self, lines: list[str]) -> None:
        for line in lines:
            self._own.sendall(f"{line}\n".encode())
            assert self._own.recv(1) == b"."

    def tell(self, _verb: str, **_about: object) -> None:
        self._thread.start()

    def is_answered(self) -> bool:
        return not self._thread.is_alive()

    def answered(self) -> dict[str, int]:
        return {"status": 0, "pauses": 0}


def test_each_line_of_a_guest_is_logged_and_answered(tmp_path: Path) -> None:
    lines = ["begin 0 a", *(word for number in range(30) for word in (f"does {number}", "failed EIO")), "end 0"]
    log = tmp_path / "run.log"
    with emmclab_package.serve("small-1gb", clock="free", nbd="auto", log=log) as disk:
        recorded = run_in_guest(cast("machine.Guest", TalkingGuest(lines)), disk, Workload("ace:1"))
        disk.end_log()
    assert recorded.status == 0 and recorded.lines == len(lines)
    assert "30 operations failed (30 with EIO)" in recorded.notes[0]
    run, facts = open_run(str(log))
    assert run.acknowledgements() == lines and not facts["truncated"]


def test_the_initial_disk_holds_the_agent_and_its_python(tmp_path: Path) -> None:
    need("cpio")
    file = made_kernel(tmp_path, disk_modules(), built_in="kernel/drivers/char/virtio_console.ko\n")
    write_initramfs(Kernel.of(str(file)), "f2fs", tmp_path / "initrd")
    with (tmp_path / "initrd").open("rb") as archive:
        done = subprocess.run(["cpio", "-t", "--quiet"], stdin=archive, capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert {"init", "modules/f2fs.ko", "lib/guest/emmclab/crash/guest/agent.pyc", "dev/console"} <= {*names}
    assert len(names) == len({*names})


@pytest.fixture(scope="module")
def kernel() -> str:
    """A kernel for tests: `EMMCLAB_GUEST_KERNEL`, which scripts/test_guest.sh sets."""
    named = os.environ.get("EMMCLAB_GUEST_KERNEL", "")
    if not named:
        pytest.skip("no kernel for a guest; make test-guest fetches one, EMMCLAB_GUEST_KERNEL names another")
    machine.require(named, "f2fs")
    return named


def f2fs_words(kernel: str, folder: Path) -> list[object]:
    """Return a command that cuts the power of f2fs in a guest."""
    (folder / "some.prog").write_text(PROGRAMS)
    run = ["crash", "--device", "emmc51-cache", "--fs", "f2fs", "--guest", kernel]
    return [*run, "--workload", folder / "some.prog", "--results", folder / "results"]


@pytest.mark.slow
@pytest.mark.root
def test_what_f2fs_synced_is_there_on_the_kernel_of_a_guest(kernel: str, tmp_path: Path) -> None:
    result = emmclab_json(*f2fs_words(kernel, tmp_path), "--cuts", "20", "--jobs", "1")
    assert result["findings"] == []
    assert result["pruned_states"] > 0


@pytest.mark.slow
@pytest.mark.root
def test_a_killed_command_leaves_no_guest(kernel: str, tmp_path: Path) -> None:
    with begin(*f2fs_words(kernel, tmp_path)) as process:
        wait_until(lambda: guests_of(process.pid), process)
        guest = guests_of(process.pid)[0]
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path("/proc", str(guest)).exists())


def guests_of(parent: int) -> list[int]:
    """Return the QEMU processes that a process started."""
    guests = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            about = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "comm").read_text()
        except OSError:
            continue
        if int(about[1]) == parent and name.startswith("qemu-system"):
            guests.append(int(folder.name))
    return guests
