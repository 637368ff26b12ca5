"""`emmclab replay` sends a trace to a disk, and `emmclab serve` puts layers above one; both spare what is in use."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import (
    COMMAND,
    PATIENCE_S,
    assert_refused,
    begin,
    biotracer,
    emmclab,
    emmclab_json,
    emmclab_ok,
    execute,
    missing,
    need,
    wait_until,
)
from emmclab.errors import ConfigError
from emmclab.real_devices.disk_replay import replay_on_disk

MB = 1 << 20
_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


def _mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def written(seed: int, number: int, sector: int) -> bytes:
    """Return the data of a sector as request `number` of a replay writes it: 64 outputs of SplitMix64."""
    state = _mix(_mix(seed ^ (number * _STEP) & _MASK) ^ sector)
    return struct.pack("<64Q", *(_mix((state + word * _STEP) & _MASK) for word in range(1, 65)))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of 16 MB, filled with a pattern, on a file system with direct I/O."""
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(range(256)) * (16 * MB // 256))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        missing("direct I/O in the folder for temporary files", "set TMPDIR to a folder on a disk")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of 300 requests within 1 MB, one each 0.1 ms."""
    rows = ["arrival_us,op,sector,sectors"]
    for i in range(300):
        op = ("write", "read", "write", "discard", "flush")[i % 5]
        rows.append(f"{i * 100},{op},{i * 37 % 200 * 8},{0 if op == 'flush' else 8 * (1 + i % 4)}")
    path = tmp_path / "small.csv"
    path.write_text("\n".join([*rows, ""]))
    return path


Attach = Callable[[Path], str]


@pytest.fixture
def attach(root: None) -> Iterator[Attach]:
    """Provide a function that attaches an image to a loop device, until the end of the test."""
    del root
    need("losetup")
    with contextlib.ExitStack() as ends:

        def start(path: Path) -> str:
            device = execute("losetup", "--find", "--show", "--direct-io=on", path).stdout.strip()
            ends.callback(subprocess.run, ["losetup", "-d", device], check=True)
            return device

        yield start


def test_the_contents_are_those_of_the_requests_and_the_rest_of_the_disk_is_spared(
    image: Path, trace: Path, tmp_path: Path
) -> None:
    before, out = image.read_bytes(), tmp_path / "real.parquet"
    words = ("replay", trace, image, "--yes", "--range", "4MB..6MB", "--seed", 7, "-o", out)
    result = emmclab_json(*words)
    expected = bytearray(before)
    requests = [row.split(",") for row in trace.read_text().splitlines()[1:]]
    for number, (_, op, sector, sectors) in enumerate(requests):
        for at in range(int(sector), int(sector) + int(sectors)):
            place = slice(4 * MB + at * 512, 4 * MB + at * 512 + 512)
            if op == "write":
                expected[place] = written(7, number, at)
            elif op == "discard":
                expected[place] = bytes(512)
    assert image.read_bytes() == expected
    counts = {op: sum(row[1] == op for row in requests) for op in ("read", "write", "flush", "discard")}
    assert {op: result["requests"][op] for op in counts} == counts
    assert result["requests"]["completed"] == 300 and not result["failed"] and not result["left_out"]
    assert result["run"]["mode"] == "open" and result["run"]["elapsed_s"] >= 0.0299
    assert result["ledger"]["kept"] == 300
    # The other commands read the written trace, whose times are the measured ones.
    profile = emmclab_json("profile", out)[0]
    data_requests = counts["read"] + counts["write"]
    assert profile["requests"] == data_requests and profile["mean_response_ms"] == pytest.approx(
        result["response"]["mean_response_ms"], rel=0.01
    )
    simulated = emmclab_json("simulate", out, "--device", "small-1gb")
    assert simulated["recorded"]["response"]["all"]["recorded_ms"] == pytest.approx(profile["mean_response_ms"])
    emmclab_ok("compare", out, "--devices", "small-1gb,nexus5")
    emmclab_ok("calibrate", out, "-o", tmp_path / "fitted.toml")
    emmclab_ok("validate", out)


def test_reads_alone_need_no_leave_and_change_nothing(image: Path, trace: Path) -> None:
    before = image.read_bytes()
    done = emmclab_ok("replay", trace, image, "--reads-only", "--depth", 3, "--percentiles", "50,99.9")
    assert "240 requests were left out: only reads are sent (--reads-only)" in done.stderr
    assert "60 of 60 requests" in done.stdout and "p99.9 of read" in done.stdout
    assert image.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "would overwrite data between the bytes"),
        (("--depth", 0), "depth"),
        (("--depth", 4, "--mode", "open"), "`depth` replaces `mode`"),
        (("--depth", 4, "--rate", 2), "`rate` has no effect at a given depth"),
        (("--yes", "--mode", "closed"), "no recorded completion"),
        (("--yes", "--range", "4MB"), "`4MB` is not a range"),
        (("--yes", "--range", "4MB..4MB"), "is empty"),
        (("--yes", "--range", "4MB..99GB"), "ends beyond the 16777216 bytes"),
        (("--yes", "--range", "100..8192"), "is not aligned"),
        (("--yes", "--range", "0..4096"), "end after the last sector"),
        (("--yes", "--rate", 0), "rate"),
        (("--yes", "-o", "/nowhere/out.parquet"), "/nowhere"),
    ],
)
def test_bad_input_is_refused_and_the_disk_is_spared(
    image: Path, trace: Path, words: tuple[Any, ...], what: str
) -> None:
    before = image.read_bytes()
    assert_refused(emmclab("replay", trace, image, *words), what)
    assert image.read_bytes() == before


@pytest.mark.parametrize(("row", "words"), [("write,0,8", "--reads-only"), ("flush,0,0", "--yes")])
def test_what_was_not_measured_is_no_zero(image: Path, tmp_path: Path, row: str, words: str) -> None:
    (tmp_path / "one.csv").write_text(f"arrival_ns,op,sector,sectors\n0,{row}\n")
    text = emmclab_ok("replay", tmp_path / "one.csv", image, words).stdout
    assert "no read or write completed" in text and "– MB/s" in text and "mean response" not in text


def test_what_is_no_disk_is_refused(image: Path, trace: Path, tmp_path: Path) -> None:
    assert_refused(emmclab("replay", trace, tmp_path, "--yes"), "neither a block device nor a file")
    assert_refused(emmclab("replay", trace, tmp_path / "gone", "--yes"), "gone")
    assert_refused(emmclab("replay", tmp_path / "gone.csv", image, "--yes"), "gone.csv")
    (tmp_path / "empty").touch()
    assert_refused(emmclab("replay", trace, tmp_path / "empty", "--yes"), "the disk is empty")
    with pytest.raises(ConfigError, match="would overwrite"):
        replay_on_disk(lab.read(trace), image)
    assert_refused(emmclab("serve", image, "--yes"), "name a layer to put above it")
    for option in (("--clock", "free"), ("--image", "x.img"), ("--capacity", "1GB"), ("--html", "x.html")):
        assert_refused(emmclab("serve", image, "--layer", "advil", "--yes", *option), "only on a simulated device")
    assert_refused(emmclab("serve", "small-1gb", "--yes", "--nbd", tmp_path / "s"), "overwrites no disk")


def test_a_disk_in_use_is_refused(image: Path, trace: Path, attach: Attach, tmp_path: Path) -> None:
    need("mkfs.ext4")
    device, before = attach(image), image.read_bytes()
    assert_refused(emmclab("replay", trace, image, "--yes"), f"attached to {device}")
    execute("mkfs.ext4", "-q", device)
    folder = tmp_path / "mounted"
    folder.mkdir()
    execute("mount", device, folder)
    try:
        assert_refused(emmclab("replay", trace, device, "--yes"), f"is mounted at {folder}")
        assert_refused(emmclab("serve", device, "--layer", "advil", "--yes"), f"is mounted at {folder}")
        emmclab_ok("replay", trace, device, "--reads-only")
    finally:
        execute("umount", folder)
    assert emmclab_json("replay", trace, device, "--yes")["requests"]["completed"] == 300
    assert image.read_bytes() != before


def _slow(path: Path) -> Path:
    rows = [f"{i * 20_000},write,{i % 100 * 8},8" for i in range(5_000)]
    path.write_text("\n".join(["arrival_us,op,sector,sectors", *rows, ""]))
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_says_what_was_done_and_leaves_nothing_behind(
    image: Path, tmp_path: Path, number: signal.Signals
) -> None:
    trace, out = _slow(tmp_path / "slow.csv"), tmp_path / "out.parquet"
    process = begin("replay", trace, image, "--yes", "-o", out, "--json")
    first = written(1, 0, 0)
    wait_until(lambda: image.read_bytes()[:512] == first, process)
    asked = time.monotonic()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    took = time.monotonic() - asked
    if number == signal.SIGKILL:
        # A later command in the folder removes the temporary file of the killed run.
        emmclab_ok("replay", trace, image, "--reads-only", "-o", tmp_path / "next.parquet", "--depth", 1)
        assert {path.name for path in tmp_path.iterdir()} == {"disk.img", "slow.csv", "next.parquet"}
        return
    assert process.returncode == 3, stderr
    result = json.loads(stdout)
    counts = result["requests"]
    assert "the run was interrupted" in stderr and result["run"]["stopped"]
    assert 0 < counts["completed"] < 5_000 == counts["completed"] + counts["unsent"] + counts["unfinished"]
    assert emmclab_json("profile", out)[0]["requests"] == counts["completed"]
    # A second on an idle machine.
    assert took < 20


@pytest.mark.usefixtures("root")
def test_requests_that_fail_are_counted_and_the_run_goes_on(trace: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    control = tmp_path / "control.sock"
    options = ("--clock", "free", "--set", "geometry.block_groups.0.blocks=32", "--loop", "--control", control)
    server = begin("serve", "small-1gb", *options)
    try:
        wait_until(lambda: control.exists(), server)
        assert server.stderr is not None
        device = next(line.rpartition(" ")[2].strip() for line in server.stderr if line.startswith("serving"))
        emmclab_ok("control", control, "cut")
        done = emmclab_ok("replay", trace, device, "--yes", "--json")
        result = json.loads(done.stdout)
        assert {row["op"] for row in result["failed"]} >= {"read", "write"} and {
            row["errno"] for row in result["failed"]
        } == {5}
        assert result["requests"]["failed"] == sum(row["requests"] for row in result["failed"]) > 0
        assert "failed: Input/output error" in done.stderr
        emmclab_ok("control", control, "restore")
        assert emmclab_json("replay", trace, device, "--yes")["requests"]["failed"] == 0
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=PATIENCE_S)


@pytest.mark.usefixtures("root")
def test_a_full_disk_fails_only_the_writes_without_space(tmp_path: Path) -> None:
    need("mkfs.ext4")
    small, folder = tmp_path / "small.img", tmp_path / "mounted"
    with small.open("wb") as file:
        file.truncate(8 * MB)
    execute("mkfs.ext4", "-q", small)
    folder.mkdir()
    execute("mount", "-o", "loop", small, folder)
    try:
        with (folder / "disk.img").open("wb") as file:
            file.truncate(64 * MB)
        rows = [f"{i * 10},write,{i * 128},128" for i in range(512)]
        trace = tmp_path / "big.csv"
        trace.write_text("\n".join(["arrival_us,op,sector,sectors", *rows, ""]))
        result = emmclab_json("replay", trace, folder / "disk.img", "--yes")
        assert [row["errno"] for row in result["failed"]] == [28]
        assert (
            0 < result["requests"]["completed"] < 512 == result["requests"]["completed"] + result["requests"]["failed"]
        )
    finally:
        execute("umount", folder)


@pytest.mark.usefixtures("root")
def test_a_replay_on_a_served_device_agrees_with_its_simulation(tmp_path: Path) -> None:
    """The served device completes no request before its simulated time; how much later depends on this machine."""
    trace, out = tmp_path / "chat.txt", tmp_path / "real.parquet"
    trace.write_text(biotracer(120))
    device = ("emmc51-tlc", "--capacity", "4GB")
    simulated = emmclab_json("simulate", trace, "--device", *device, "--mode", "open")
    words = f"replay {trace} $EMMCLAB_DEVICE --yes --mode open --json -o {out} >{tmp_path}/real.json"
    script = f"exec {' '.join(COMMAND)} {words}"
    served = json.loads(emmclab_ok("serve", *device, "--loop", "--json", "--", "sh", "-c", script).stdout)
    measured = json.loads((tmp_path / "real.json").read_text())
    assert measured["requests"]["completed"] == simulated["requests"]["total"] == 120
    for name in ("bytes_read", "bytes_written"):
        assert measured["requests"][name] == simulated["requests"][name]
    assert served["requests"]["bytes_written"] == simulated["requests"]["bytes_written"]
    assert measured["response"]["p50_ms"] >= 0.9 * simulated["response"]["p50_ms"]
    again = emmclab_json("compare", out, "--devices", "emmc51-tlc", "--mode", "open")
    assert again[0]["requests"]["total"] == 120


def _layered(disk: object, folder: Path, *more: object) -> Any:
    """Serve Advil above a disk over NBD; return the process when clients can connect."""
    server = begin(
        "serve", disk, "--layer", "advil", "--set", "advil.reserved=8MB", "--nbd", folder / "nbd.sock", *more
    )
    wait_until(lambda: (folder / "nbd.sock").exists(), server)
    return server


def test_data_above_a_disk_survives_stops_and_kills(tmp_path: Path, attach: Attach) -> None:
    need("qemu-io", "fio")
    tmp_path.chmod(0o700)
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(600 * MB)
    device, uri = attach(image), f"nbd+unix:///?socket={tmp_path}/nbd.sock"
    assert_refused(emmclab("serve", device, "--layer", "advil", "--nbd", tmp_path / "nbd.sock"), "would erase all data")
    log = tmp_path / "cuts.log"
    server = _layered(device, tmp_path, "--yes")
    # The product's own check: acknowledged syncs are there after a kill in the middle of writes.
    writer = begin("durability", uri, "--write", "--yes", "--log", log, "--span-mb", 4)
    wait_until(lambda: log.exists() and log.read_text().count("\n") > 200, writer)
    server.kill()
    server.communicate()
    writer.communicate(timeout=PATIENCE_S)
    (tmp_path / "nbd.sock").unlink(missing_ok=True)
    server = _layered(device, tmp_path)
    verdict = emmclab_ok("durability", uri, "--check", log)
    assert "no acknowledged data was lost" in verdict.stdout, verdict.stdout
    # fio writes blocks with checksums, and another run of the server verifies them.
    jobs = ("--name=v", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite", "--bs=4k", "--size=16m", "--verify=crc32c")
    done = subprocess.run(["fio", "--enghelp"], capture_output=True, text=True)
    has_fio = "nbd" in done.stdout.split()
    if has_fio:
        execute("fio", *jobs, "--do_verify=0", "--end_fsync=1", cwd=tmp_path)
    execute("qemu-io", "-f", "raw", "-c", "write -P 7 32M 64k", "-c", "flush", uri)
    server.send_signal(signal.SIGINT)
    assert server.wait(PATIENCE_S) == 0
    server = _layered(device, tmp_path, "--json")
    if has_fio:
        execute("fio", *jobs, "--verify_only", cwd=tmp_path)
    assert "verification failed" not in execute("qemu-io", "-f", "raw", "-c", "read -P 7 32M 64k", uri).stdout
    server.send_signal(signal.SIGINT)
    stdout, _ = server.communicate(timeout=PATIENCE_S)
    result = json.loads(stdout)
    assert not result["is_new"] and result["failed"] == 0 and result["layers"][0]["name"] == "advil"
    assert_refused(emmclab("serve", device, "--layer", "ressd", "--yes"), "other layers or settings (advil)")


def test_a_file_system_above_a_layered_disk_keeps_its_files(tmp_path: Path, attach: Attach) -> None:
    need("mkfs.ext4")
    image, folder = tmp_path / "disk.img", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(400 * MB)
    device = attach(image)
    base = ("serve", device, "--layer", "advil", "--set", "advil.reserved=8MB", "--mount", folder)
    source = Path(lab.__file__).parent / "real_devices"
    emmclab_ok(*base, "--yes", "--mkfs", "ext4", "--", "cp", "-r", source, folder)
    emmclab_ok(*base, "--", "diff", "-r", source, folder / "real_devices")
    assert not folder.exists()
