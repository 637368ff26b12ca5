"""`emmclab serve` and its control socket: other software uses a device, and nothing remains afterwards."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import (
    COMMAND,
    PATIENCE_S,
    ROOT,
    assert_fails,
    assert_refused,
    begin,
    emmclab,
    emmclab_json,
    emmclab_ok,
    missing,
    need,
    wait_until,
)
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.live import control
from emmclab.live.control import Control, ask
from emmclab.live.device import CHANGING
from emmclab.simulation.result import Result
from emmclab.simulation.result_text import warnings

#: A small device, which is prepared fast.
TINY = ("small-1gb", "--set", "geometry.block_groups.0.blocks=32")
SMALL_DEVICE = lab.Device.preset("small-1gb").set({"geometry.block_groups.0.blocks": 32})
#: A small device with a new file system, which is mounted on the folder that follows.
MOUNTED = ("serve", *TINY, "--clock", "free", "--mkfs", "ext4", "--mount")
#: A small device whose clock ignores the time of the host, served at the socket that follows.
FREE = ("serve", *TINY, "--clock", "free", "--nbd")


class Served:
    """A device served by the command line."""

    def __init__(self, folder: Path, *options: object) -> None:
        self.socket, self.control = folder / "nbd.sock", folder / "control.sock"
        self.uri = f"nbd+unix:///?socket={self.socket}"
        words = ["serve", *TINY, "--nbd", self.socket, "--control", self.control, *options]
        self.process = begin(*words)
        wait_until(lambda: self.control.exists(), self.process)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Send a command to the control socket."""
        return emmclab("control", self.control, *words)

    def end(self, number: int = signal.SIGINT) -> tuple[str, str]:
        """Send a signal, after which the command must succeed; return output and messages."""
        self.process.send_signal(number)
        out, stderr = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, stderr
        return out, stderr

    def status(self) -> dict[str, Any]:
        """Return the answer to the command `status`."""
        status: dict[str, Any] = json.loads(self.ask("status").stdout)
        return status


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that only this user can write to."""
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def serve(folder: Path) -> Iterator[Any]:
    """Provide a function that serves a device, which ends with the test."""
    with contextlib.ExitStack() as ends:

        def start(*options: object) -> Served:
            served = Served(folder, *options)
            ends.callback(served.process.kill)
            return served

        yield start


def qemu_io(uri: str, *commands: str, cache: str = "writethrough") -> subprocess.CompletedProcess[str]:
    """Run commands of qemu-io on an NBD server; with the cache `writethrough`, all writes have FUA."""
    words = [word for command in commands for word in ("-c", command)]
    command = ["qemu-io", "-f", "raw", "-t", cache, *words, uri]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def test_an_nbd_client_reads_what_it_wrote_and_the_end_sums_the_run_up(serve: Any) -> None:
    need("qemu-io", "nbdinfo")
    served = serve("--clock", "free", "--json", "--set", "cache.size_kb=64")
    info = json.loads(subprocess.run(["nbdinfo", "--json", served.uri], capture_output=True, check=True).stdout)
    assert info["exports"][0]["can_fua"] and info["exports"][0]["export-size"] > 1 << 20
    done = qemu_io(served.uri, "write -P 7 4096 64k", "flush", "read -P 7 4096 64k", "read -P 0 0 4096")
    assert done.returncode == 0 and "verification failed" not in done.stdout, done.stdout
    result = json.loads(served.end()[0])
    assert result["requests"]["bytes_written"] == 65536
    assert result["response"]["mean_response_ms"] > 0
    assert result["live"]["failed"] == 0
    assert not served.socket.exists() and not served.control.exists()


def test_the_sum_of_a_run_is_that_of_a_replay_of_its_trace(serve: Any, folder: Path) -> None:
    need("qemu-io")
    trace = folder / "run.parquet"
    served = serve("--clock", "free", "--record", trace, "--json")
    writes = [f"write -P {i % 250} {i * 37 % 500 * 4}k 4k" for i in range(60)]
    assert qemu_io(served.uri, *writes, "flush", "read 0 64k").returncode == 0
    live = json.loads(served.end()[0])
    rerun = emmclab_json("simulate", trace, "--device", *TINY, "--mode", "closed", "--json")
    assert rerun["requests"]["total"] == live["requests"]["total"]
    ratio = rerun["response"]["mean_response_ms"] / live["response"]["mean_response_ms"]
    assert 0.95 < ratio < 1.05
    assert "requests" in emmclab("profile", trace).stdout


def test_a_cut_fails_requests_until_power_is_back(serve: Any) -> None:
    need("qemu-io")
    served = serve("--clock", "free")
    assert qemu_io(served.uri, "write -f -P 9 0 4k").returncode == 0
    assert served.ask("cut").returncode == 0
    assert "Input/output error" in qemu_io(served.uri, "read 0 4k").stdout
    status = served.status()
    assert status["cuts"] == 1 and not status["powered"]
    assert served.ask("restore").returncode == 0
    assert qemu_io(served.uri, "read -P 9 0 4k").returncode == 0
    assert served.ask("set", "clock=x2").returncode == 0
    assert served.status()["clock"] == "x2"
    assert served.ask("stop").returncode == 0
    assert served.process.wait(PATIENCE_S) == 0


def test_settings_change_in_use_and_everything_made_under_them_says_so(serve: Any, folder: Path) -> None:
    need("qemu-io")
    image = folder / "disk.img"
    cached = ("--set", "cache.size_kb=64", "--set", "cache.write_back=when_full")
    served = serve("--clock", "free", *cached, "--image", image)
    assert served.ask("set", "cache.lies=flush").returncode == 0
    assert qemu_io(served.uri, "write -P 9 0 4k", "flush", cache="writeback").returncode == 0
    for command in ("cut", "restore"):
        assert served.ask(command).returncode == 0
    assert qemu_io(served.uri, "read -P 0 0 4k").returncode == 0, "the flush lied"
    for setting, message in (
        ("gc.policy=fifo", "in a device in use"),
        ("mapping.unwritten_read=free", "it determines the layout of the map"),
        ("cache.size_kb=0", "cache"),
        ("cache.flush_us=-3", "flush_us"),
        ("cache.flish_us=3", "flush_us"),
    ):
        refused = served.ask("set", setting)
        assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    [change] = served.status()["setting_changes"]
    assert (change["key"], change["from"], change["to"]) == ("cache.lies", '"none"', '"flush"')
    assert "cache.lies from none to flush at" in " ".join("".join(served.end()).split())
    _, message = serve("--clock", "free", *cached, "--image", image).end()
    assert "in the last run of this image settings changed: cache.lies from none to flush" in message


def test_a_second_device_holds_what_a_layer_puts_there(serve: Any, folder: Path) -> None:
    need("qemu-io")
    layer = ("--layer", "advil", "--set", "advil.second_device=true", "--set", "advil.reserved=8MB")
    extra = ("--device2", "small-1gb", "--image", folder / "a.img", "--image2", folder / "b.img")
    served = serve("--clock", "free", "--json", *layer, *extra)
    writes = [f"write -P {i + 1} {i * 3}M 4k" for i in range(8)]
    assert qemu_io(served.uri, *writes, "flush").returncode == 0
    result = json.loads(served.end()[0])
    assert result["second_device"]["device"] == "small-1gb" and result["options"]["second"] == "small-1gb"
    assert result["second_device"]["host_bytes_written"] >= 8 * 4096
    served = serve("--clock", "free", *layer, *extra)
    reads = [f"read -P {i + 1} {i * 3}M 4k" for i in range(8)]
    done = qemu_io(served.uri, *reads)
    assert done.returncode == 0 and "failed" not in done.stdout, done.stdout
    served.end()


def test_contents_stay_with_an_image_and_another_device_is_refused(serve: Any, folder: Path) -> None:
    need("qemu-io")
    image = folder / "disk.img"
    served = serve("--clock", "free", "--image", image)
    assert qemu_io(served.uri, "write -P 5 0 64k").returncode == 0
    served.end(signal.SIGTERM)
    with image.open("rb") as file:
        assert file.read(4096) == b"\x05" * 4096
    served = serve("--clock", "free", "--image", image)
    assert qemu_io(served.uri, "write -f -P 6 0 4k").returncode == 0
    served.process.kill()
    served.process.wait()
    # The killed process could not remove its control socket.
    served.control.unlink()
    served = serve("--clock", "free", "--image", image)
    assert qemu_io(served.uri, "read -P 6 0 4k", "read -P 5 4k 60k").returncode == 0
    _, stderr = served.end()
    assert "did not end cleanly" in stderr
    assert_fails(emmclab("serve", "nexus5", "--image", image, "--nbd", folder / "x.sock"), "the image has")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_ends_a_server_leaves_whole_files(serve: Any, folder: Path, number: int) -> None:
    need("qemu-io")
    image, trace, page = folder / "disk.img", folder / "x.parquet", folder / "page.html"
    served = serve("--clock", "free", "--image", image, "--record", trace, "--html", page)
    assert qemu_io(served.uri, "write -P 5 0 64k").returncode == 0
    served.end(number)
    assert image.read_bytes()[:4096] == b"\x05" * 4096
    assert lab.read(trace).ledger["kept"] >= 1 and "</html>" in page.read_text()
    assert not served.socket.exists() and not served.control.exists()


def test_a_card_for_a_virtual_machine_comes_with_the_options_of_qemu(serve: Any, folder: Path) -> None:
    card = folder / "card.sock"
    _, stderr = serve("--clock", "free", "--sdhci", card).end()
    [line] = [line for line in stderr.splitlines() if "qemu-system" in line]
    words = shlex.split(line.partition(": ")[2])
    device = json.loads(words[words.index("-device") + 1])
    assert device == {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(card)}}
    assert "share=on" in words[words.index("-object") + 1]


@pytest.mark.usefixtures("root")
def test_a_command_runs_on_a_mounted_file_system_and_nothing_is_left(folder: Path) -> None:
    need("mkfs.ext4", "sqlite3")
    mount = folder / "mnt"
    script = f"sqlite3 {mount}/db 'create table t(a); insert into t values(42); select a from t;' && exit 7"
    done = emmclab(*MOUNTED, mount, "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("42\n") and "write amplification" in done.stdout.lower()
    assert "not counted: making and mounting the file system" in done.stderr
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not mount.exists()


@pytest.mark.usefixtures("root")
def test_figures_begin_once_the_file_system_is_mounted(folder: Path) -> None:
    need("mkfs.ext4")
    result = json.loads(emmclab(*MOUNTED, folder / "mnt", "--json", "--", "true").stdout)
    before = result["prepared"]
    assert before["requests"]["bytes_written"] > 1 << 20 > result["requests"]["bytes_written"]
    assert result["flash"]["page_programs"]["total"] < before["flash"]["page_programs"]["total"]


@pytest.mark.usefixtures("root")
def test_work_of_the_device_on_data_from_before_a_command_is_not_counted(folder: Path) -> None:
    need("mkfs.ext4")
    # The SLC cache, which contains the data of mkfs, is folded while the command sleeps.
    words = ["serve", "emmc51-cache", "--clock", "real", "--mkfs", "ext4", "--mount", folder / "mnt", "--json"]
    result = json.loads(emmclab(*words, "--", "sleep", "1").stdout)
    assert result["settled"]["slc"]["folded_blocks"] > 0 == result["slc"]["folded_blocks"]
    assert result["settled"]["flash"]["page_programs"]["gc"] > 0
    assert result["flash"]["page_programs"]["gc"] == result["flash"]["block_erases"] == 0


def test_a_host_that_does_not_keep_up_with_the_clock_is_the_first_warning() -> None:
    result = lab.Device.preset("small-1gb").simulate(lab.read(lab.bundled()[0]), wrap_addresses=True)
    mean_us = 1000 * result["response.mean_response_ms"]
    live = {"clock": "real", "late_p50_us": 80 * mean_us, "late_p99_us": 200 * mean_us}
    texts = warnings(Result(result.to_dict() | {"live": live}))
    assert "did not keep up with the clock `real`" in texts[0]
    live |= {"late_p50_us": mean_us / 100}
    assert not any("keep up" in text for text in warnings(Result(result.to_dict() | {"live": live})))


def test_what_a_command_prints_does_not_mix_with_json(folder: Path) -> None:
    done = emmclab(*FREE, folder / "nbd.sock", "--json", "--", "echo", "of the command")
    assert json.loads(done.stdout)["device"] == "small-1gb" and "of the command" in done.stderr


def test_a_command_is_a_client_of_the_socket_where_there_is_no_disk(folder: Path) -> None:
    words = (*FREE, folder / "nbd.sock", "--control", folder / "c.sock")
    script = f'echo "at $EMMCLAB_DEVICE"; {" ".join(COMMAND)} control {folder}/c.sock cut; exit 7'
    done = emmclab(*words, "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert f"at nbd+unix:///?socket={folder}/nbd.sock" in done.stdout
    assert emmclab(*words, "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert_refused(emmclab(*words, "--", "no-such-command"), "no-such-command: command not found")
    assert not (folder / "nbd.sock").exists()


def test_the_end_of_a_server_ends_the_client_that_it_started(folder: Path) -> None:
    process = begin(*FREE, folder / "nbd.sock", "--", "sleep", "1000")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(
        lambda: "sleep" in [Path(f"/proc/{child}/comm").read_text().strip() for child in _ids(children)], process
    )
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def _ids(children: Path) -> list[str]:
    """Return the process ids in a list of the kernel whose processes still exist."""
    return [child for child in children.read_text().split() if Path(f"/proc/{child}/comm").exists()]


@pytest.mark.usefixtures("root")
def test_a_killed_server_leaves_no_mount(folder: Path) -> None:
    need("mkfs.ext4")
    mount = folder / "mnt"
    process = begin(*MOUNTED, mount)
    wait_until(lambda: os.path.ismount(mount), process)
    (mount / "file").write_bytes(b"x" * 10000)
    process.kill()
    process.wait()
    wait_until(lambda: str(mount) not in Path("/proc/mounts").read_text())


@pytest.mark.parametrize("more", [[], ["--mkfs", "ext4"], ["--", "true"]])
def test_a_host_without_ublk_is_told_what_it_takes(folder: Path, more: list[str]) -> None:
    if Path("/dev/ublk-control").exists():
        pytest.skip("this host has ublk_drv")
    done = emmclab("serve", *TINY, "--clock", "free", "--ublk", "--image", folder / "disk.img", *more)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    text = " ".join(done.stderr.split())
    needs = ["needs root"]
    if os.geteuid() == 0:
        needs = ["modprobe ublk_drv", "Linux 6.0", "CONFIG_BLK_DEV_UBLK"]
    assert all(word in text for word in needs), text
    assert "/dev/loop" not in text


def test_a_device_is_a_loop_device_or_a_ublk_device(folder: Path) -> None:
    assert_fails(
        emmclab("serve", *TINY, "--ublk", "--loop", "--image", folder / "disk.img"), "both a loop and a ublk device"
    )
    assert not (folder / "disk.img").exists()


@pytest.mark.usefixtures("ublk")
@pytest.mark.parametrize("more", [[], ["--mkfs", "ext4"]])
def test_a_ublk_device_of_a_killed_server_is_deleted(folder: Path, more: list[str]) -> None:
    def devices() -> set[Path]:
        return set(Path("/dev").glob("ublk*"))

    before = devices()
    mount = folder / "mnt"
    words = ["serve", *TINY, "--clock", "free", "--ublk", *more]
    words += ["--mount", str(mount)] if more else []
    process = begin(*words)
    wait_until(lambda: len(devices() - before) == 2 and (not more or os.path.ismount(mount)), process)
    process.kill()
    process.wait()
    wait_until(lambda: devices() == before and str(mount) not in Path("/proc/mounts").read_text())


def test_a_device_that_lies_says_so(serve: Any) -> None:
    lie = ("--set", "cache.size_kb=64", "--set", "cache.lies=flush")
    assert "cache.lies = flush" in serve("--clock", "free", *lie).end()[1]


def test_the_delay_begins_when_its_file_is_there(serve: Any, folder: Path) -> None:
    trigger = folder / "now"
    served = serve("--delay-from", trigger)
    assert served.status()["clock"] == "free"
    trigger.touch()
    wait_until(lambda: served.status()["clock"] == "real")
    served.end()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--tcp", "0.0.0.0:10809"], "other machines"),
        (["--image", "/no/such/folder/x.img"], "/no/such/folder"),
        (["--layer", "advil", "--set", "advil.recovery=false"], "recovery"),
        (["--precondition", __file__], "preconditioned by a trace"),
        (["--html", "/no/such/folder/x.html"], "folder"),
        (["--set", "cache.lies=flush"], "cache"),
        (["--device2", "small-1gb"], "no layer uses it"),
        (["--layer", "advil", "--set", "advil.second_device=true"], "there is no second device"),
        (["--image2", "/tmp/x.img"], "no effect without --device2"),
    ],
)
def test_impossible_options_are_refused(folder: Path, options: list[str], problem: str) -> None:
    assert_fails(emmclab("serve", *TINY, "--nbd", folder / "nbd.sock", *options), problem)
    assert not (folder / "nbd.sock").exists()


def test_a_socket_that_exists_or_lies_open_is_refused(serve: Any, folder: Path) -> None:
    served = serve("--clock", "free")
    assert_fails(emmclab("serve", *TINY, "--nbd", served.socket))
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for place in (("--nbd", shared / "x.sock"), ("--nbd", folder / "y.sock", "--control", shared / "x.sock")):
        assert_fails(emmclab("serve", *TINY, *place), str(shared))
    assert_fails(emmclab("control", folder / "nothing", "status"), "no served device answers")


def test_a_device_is_served_from_python() -> None:
    with lab.serve(SMALL_DEVICE.set({"cache.size_kb": 64}), nbd="auto", clock="free") as disk:
        socket = Path(disk.path.partition("socket=")[2])
        assert socket.is_socket() and socket.stat().st_mode & 0o777 == 0o600
        assert disk.stats().requests == 0
        disk.cut()
        disk.restore()
        disk.set("geometry.block_groups.0.program_us", "77")
        with pytest.raises(lab.ConfigError, match="cannot change"):
            disk.set("gc.policy", "fifo")
    assert not socket.exists()
    assert disk.result()["requests"]["total"] == 0
    assert [change["to"] for change in disk.result()["setting_changes"]] == ["77.0"]


@pytest.mark.usefixtures("root")
def test_the_recorded_trace_spans_what_the_result_counts(folder: Path) -> None:
    need("mkfs.ext4")
    trace, mount = folder / "served.parquet", folder / "mnt"
    words = (*MOUNTED, mount, "--record", trace, "--json")
    result = json.loads(emmclab_ok(*words, "--", "sh", "-c", f"echo hello > {mount}/file; sync").stdout)
    recorded = lab.read(trace)
    assert recorded.ledger["kept"] == result["requests"]["total"] > 0
    written = [512 * row["sectors"] for row in recorded.to_arrow().to_pylist() if row["op"] == "write"]
    assert sum(written) == result["requests"]["bytes_written"]
    assert sorted(path.name for path in folder.iterdir()) == ["served.parquet"], "nothing else is left"


@pytest.mark.usefixtures("root")
def test_the_page_cache_of_a_loop_device_is_limited_while_it_is_served() -> None:
    with lab.serve(SMALL_DEVICE, loop=True, clock="free", dirty_bytes=64 << 20) as disk:
        limits = Path("/sys/block", Path(disk.path).name, "bdi")
        if not (limits / "strict_limit").exists():
            missing("a kernel that limits dirty data of a device", "use Linux 6.2 or later")
        assert (limits / "strict_limit").read_text() == "1\n"
        # The kernel stores a share of its own limit, in steps of a millionth.
        assert int((limits / "max_bytes").read_text()) <= 72 << 20
    assert (limits / "strict_limit").read_text() == "0\n"
    assert (limits / "max_ratio").read_text() == "100\n"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("road", ["file", "loop"])
def test_a_path_is_text_on_every_road(road: str) -> None:
    with lab.serve(SMALL_DEVICE, clock="free", file=road == "file", loop=road == "loop") as disk:
        # The representation of the device in an interpreter contains the path.
        assert isinstance(disk.path, str) and disk.path in repr(disk)


def requests_of(path: Path) -> list[tuple[str, int, int, int]]:
    """Return operation, sector, sectors and response time (ns) of each request with data."""
    frame = lab.read(path).to_arrow().to_pylist()
    return [
        (row["op"], row["sector"], row["sectors"], row["complete_ns"] - row["arrival_ns"])
        for row in frame
        if row["op"] in ("read", "write")
    ]


@pytest.mark.usefixtures("tracefs")
def test_the_kernel_and_the_device_record_the_same_requests(folder: Path) -> None:
    need("fio")
    own, kernels = folder / "own.parquet", folder / "kernel.parquet"
    with lab.serve(SMALL_DEVICE, loop=True, record=own, clock="real") as disk:
        job = ["fio", "--name=x", f"--filename={disk.path}", "--direct=1", "--ioengine=psync", "--rw=randrw"]
        job += ["--bsrange=4k-64k", "--number_ios=150", "--size=100m", "--allow_file_create=0", "--fsync=16"]
        emmclab_ok("record", "--device", disk.path, "-o", kernels, "--json", "--", *job)
    recorded, served = requests_of(kernels), requests_of(own)
    assert len(recorded) >= 150
    # The kernel read the new disk before the recording, and may read it afterwards.
    names = [row[:3] for row in served]
    starts = [at for at in range(len(names)) if names[at : at + len(recorded)] == [row[:3] for row in recorded]]
    assert starts, (names[:5], recorded[:5])
    pairs = zip(recorded, served[starts[0] :], strict=False)
    # The time that the kernel measures includes the path to the device.
    assert all(kernel[3] >= device[3] for kernel, device in pairs)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_large_device_takes_little_memory_while_all_of_it_is_discarded(folder: Path, check: list[str]) -> None:
    need("mkfs.ext4")
    mount = folder / "mnt"
    words = ["serve", "emmc51-tlc", "--clock", "free", *check, "--mkfs", "ext4", "--mount", mount]
    done = emmclab_ok(*words, "--", "sh", "-c", "grep VmHWM /proc/$PPID/status")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("VmHWM")]
    assert int(line.split()[1]) < 300 * 1024, line


@pytest.mark.usefixtures("root")
def test_a_full_disk_below_the_image_loses_nothing_durable_and_room_ends_it(serve: Any, folder: Path) -> None:
    need("qemu-io")
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], check=True)
    try:
        served = serve("--clock", "free", "--image", small / "disk.img")
        assert qemu_io(served.uri, "write -P 1 0 1M", "flush", "write -P 2 4M 12M").returncode == 0
        assert "No space left" in qemu_io(served.uri, "write -P 3 20M 1M").stdout
        assert "space" in served.status()["image_error"]
        assert qemu_io(served.uri, "read -P 1 0 1M", "read -P 2 4M 12M").returncode == 0
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        rerun = qemu_io(served.uri, "write -P 3 20M 1M", "flush", "read -P 2 4M 12M", "read -P 3 20M 1M")
        assert rerun.returncode == 0 and "failed" not in rerun.stdout, rerun.stdout
        served.end()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_the_page_on_live_devices_lists_every_setting_that_can_change() -> None:
    text = (ROOT / "docs" / "concepts" / "live.md").read_text(encoding="utf-8")
    part = text.partition("## Settings that change in use")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z_]+(?:\.[a-z_*]+)+)`", part)) | {"clock"} == set(CHANGING)


@pytest.mark.parametrize("think", [False, True])
def test_a_clock_with_idle_time_ends_the_work_of_the_device_before_a_run_is_counted(think: bool) -> None:
    """Blocks in SLC mode are folded in idle time, which a free clock has only if it includes the host's time."""
    need("qemu-io")
    # Folding begins after 30 s: later than the end of this test, but within the time that `settle` simulates.
    device = lab.Device.preset("emmc51-cache").with_capacity("2GB").set({"slc.fold_after_us": 30_000_000})
    with lab.serve(device, clock="free", think=think, nbd="auto") as disk:
        assert qemu_io(disk.path, "write 0 16M", cache="writeback").returncode == 0
        moved = disk.settle()["flash.page_programs.total"]
        assert (moved > 0) == think
        assert disk.result()["flash.page_programs.total"] == 0


def test_an_existing_crash_log_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    with lab.serve("small-1gb", clock="free", nbd="auto", log=log):
        pass
    before = log.read_bytes()
    for existing in (log, tmp_path):
        with pytest.raises(lab.InputError, match="exists") as refused:
            lab.serve("small-1gb", clock="free", nbd="auto", log=existing)
        assert refused.value.hint == "choose another name: this one exists already"
    assert before and log.read_bytes() == before
    # A failed start leaves no log, and an empty file may be used for a log.
    log.write_bytes(b"")
    with pytest.raises(lab.EmmclabError):
        lab.serve("small-1gb", clock="free", nbd=tmp_path / "folder" / "n.sock", log=log)
    assert not log.exists()
    log.touch()
    lab.serve("small-1gb", clock="free", nbd="auto", log=log).stop()
    assert log.stat().st_size > 0


def test_a_start_that_fails_leaves_recording_image_and_state_as_they_were(folder: Path) -> None:
    recording, image, socket = folder / "r.parquet", folder / "disk.img", folder / "n.sock"
    words = ("serve", "small-1gb", "--clock", "free", "--record", recording, "--image", image)
    lab.read(lab.bundled()[0]).write(recording)
    before = recording.read_bytes()
    used_path = folder / "file"
    used_path.write_text("no socket")
    for wrong in (("--nbd", used_path), ("--nbd", socket, "--control", used_path)):
        assert_fails(emmclab(*words, *wrong))
        assert recording.read_bytes() == before
        assert sorted(path.name for path in folder.iterdir()) == ["file", "r.parquet"]
    # A complete run without requests also leaves the earlier recording unchanged, and prints a warning.
    done = emmclab_ok(*words, "--nbd", socket, "--", "true")
    assert f"warning: no request arrived, so {recording} is not written" in done.stderr
    assert recording.read_bytes() == before
    state = folder / "disk.img.state"
    contents = (image.read_bytes(), state.read_bytes())
    assert_fails(emmclab(*words, "--nbd", used_path))
    assert (image.read_bytes(), state.read_bytes()) == contents


class Live:
    """A replacement for a served device with the methods that the socket needs."""

    def stats(self) -> dict[str, Any]:
        return {"powered": True}

    def cut(self) -> None:
        raise RuntimeError("the core is out of its mind")


@pytest.fixture
def path(folder: Path) -> Path:
    # The folder is short because of the limit for the path of a socket.
    return Path(os.path.relpath(folder / "s"))


@pytest.fixture
def served(path: Path) -> Iterator[Path]:
    with Control(Live(), path, lambda: None):
        yield path


def listening(path: Path) -> socket.socket:
    """Return a socket at which nothing answers."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener


def send(path: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(line)
        answer: dict[str, Any] = json.loads(client.makefile("rb").readline())
        return answer


@pytest.mark.parametrize(
    "line",
    [b"[" * 4000 + b"\n", b'{"a":' * 800 + b"\n", b"\xff\xfe\n", b"\0\n", b"[]\n", b"null\n", b'{"command": 3}\n'],
)
def test_whatever_line_comes_the_next_client_is_answered(served: Path, line: bytes) -> None:
    assert send(served, line + b"\n")["ok"] is False
    assert ask(served, "status")["status"] == {"powered": True}


def test_a_fault_in_one_command_is_told_and_the_next_is_answered(served: Path) -> None:
    with pytest.raises(ConfigError, match="out of its mind"):
        ask(served, "cut")
    assert ask(served, "status")["ok"] is True


def test_a_client_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_ANSWER_S", 0.2)
    with listening(path), pytest.raises(InputError, match=r"no answer arrived within") as caught:
        ask(path, "status")
    assert "emmclab serve --control" in str(caught.value.hint)


@pytest.mark.parametrize("answer", [b"hello\n", b"[]\n", b"[" * 100_000 + b"\n", b"{}\n"])
def test_an_answer_of_another_program_is_refused(path: Path, answer: bytes) -> None:
    with listening(path) as other:

        def tell() -> None:
            client, _ = other.accept()
            with client:
                client.recv(4096)
                client.sendall(answer)

        thread = threading.Thread(target=tell)
        thread.start()
        with pytest.raises(EmmclabError, match="no served device answers"):
            ask(path, "status")
        thread.join()


def test_a_socket_whose_process_was_killed_is_made_anew(path: Path) -> None:
    listening(path).close()
    assert path.is_socket()
    with Control(Live(), path, lambda: None):
        assert ask(path, "status")["ok"] is True
    assert not path.exists()


def test_a_socket_at_which_another_process_listens_stays_its_own(served: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        Control(Live(), served, lambda: None)
    assert "use another path" in str(caught.value.hint)
    assert ask(served, "status")["ok"] is True


def test_what_is_no_socket_is_not_removed_for_one(path: Path) -> None:
    path.write_text("kept")
    with pytest.raises(ConfigError, match="cannot be created"):
        Control(Live(), path, lambda: None)
    assert path.read_text() == "kept"


def test_silent_clients_do_not_keep_others_waiting(served: Path) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(130):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            silent.connect(str(served))
        begun = time.monotonic()
        assert ask(served, "status")["ok"]
        assert time.monotonic() - begun < 4, "less than the time that one silent client is given"
