"""What a device keeps after a power cut: honest ones have no findings, and each visible lie is detected."""

import contextlib
import errno
import os
import random
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

import emmclab as lab
from conftest import PATIENCE_S, assert_refused, begin, emmclab, emmclab_json, emmclab_ok, need, wait_until
from emmclab.apps.closed_loop import durability_line, run_application
from emmclab.errors import ConfigError, FormatError
from emmclab.live.control import Control
from emmclab.real_devices.durability.log import Log, Report, Session, Verdict, line, read_log, report_of
from emmclab.real_devices.durability.records import BLOCK, SECTOR, Kind
from emmclab.real_devices.durability.session import judge, write
from emmclab.real_devices.durability.targets import open_target
from emmclab.simulation.device import Device
from emmclab.simulation.result import DURABILITY
from emmclab.simulation.result_fields import result_field
from emmclab.traces.reading import read

MB = 1 << 20
CACHED = {
    "geometry.block_groups.0.blocks": 64,
    "cache.size_kb": 512,
    "cache.write_back": "when_full",
    "power.sleep_after_us": 0,
}


class Memory:
    """A disk with a cache, which loses power after some calls, and may break a promise."""

    name = "memory"

    def __init__(self, lie: str = "none", size: int = MB) -> None:
        self.size, self.lie = size, lie
        self.cells, self.cache = bytearray(size), dict[int, bytes]()
        self.calls, self._dice, self._lock = 0, random.Random(7), threading.Lock()
        self._trims: deque[tuple[int, int]] = deque(maxlen=8)

    def _call(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, at: int, data: bytes, *, through: bool) -> None:
        with self._lock:
            self._call()
            for begin in range(0, len(data), BLOCK):
                self.cache[at + begin] = data[begin : begin + BLOCK]
                if through and self.lie != "fua":
                    self._program(at + begin)

    def _program(self, at: int) -> None:
        place = (at + BLOCK) % self.size if self.lie == "astray" and self._dice.random() < 0.05 else at
        self.cells[place : place + BLOCK] = self.cache.pop(at)

    def clear(self, kind: Kind, at: int, length: int) -> None:
        if kind is Kind.TRIM:
            self._trims.append((at, length))
        if kind is Kind.ZEROES or self.lie != "trim":
            self.write(at, bytes(length), through=False)
            return
        with self._lock:
            self._call()
            for begin in range(at, at + length, BLOCK):
                if begin in self.cache:
                    self._program(begin)

    def flush(self, _kind: Kind) -> None:
        with self._lock:
            self._call()
            if self.lie != "flush":
                for at in list(self.cache):
                    self._program(at)

    def read(self, at: int, length: int) -> bytes:
        return bytes(self.cells[at : at + length])

    def can(self, _kind: Kind) -> bool:
        return True

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.size, "identity": {}}

    def close(self) -> None:
        pass

    def lose_power(self) -> None:
        """Lose the cached data, except for what is programmed by chance."""
        for at in list(self.cache):
            if self.lie == "tear" and self._dice.random() < 0.1:
                self.cells[at : at + SECTOR] = self.cache[at][:SECTOR]
            elif self.lie == "garble" and self._dice.random() < 0.1:
                self.cells[at : at + SECTOR] = b"?" * SECTOR
            elif self._dice.random() < 0.5:
                self._program(at)
        self.cache.clear()
        for at, length in self._trims if self.lie == "late_trim" else ():
            self.cells[at : at + length] = bytes(length)
        if self.lie == "rot":
            for _ in range(8):
                self.cells[self._dice.randrange(self.size)] ^= 1


def cut_memory(folder: Path, lie: str, cuts: int) -> Session:
    """Cut the power of a disk in memory `cuts` times; return the log."""
    disk, log, dice = Memory(lie), folder / f"{lie}.log", random.Random(3)
    for _ in range(cuts):
        disk.calls = dice.randrange(20, 250)
        with Log(log) as log_file:
            write(disk, log_file, disk.size, ready=lambda: None, asked_to_end=lambda: False)
            disk.lose_power()
            run = read_log(log).runs[-1]
            log_file.add("checked", run.plan.run, asdict(judge(run, disk)))
    return read_log(log)


def cuts_with(report: Report) -> dict[str, int]:
    """Return each finding with the number of cuts that show it."""
    return {share.finding: share.cuts for share in report.shares if share.cuts}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not sync the log to its disk after each line, because the power of this machine is not cut."""
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.mark.usefixtures("quick")
def test_an_honest_disk_is_clean_over_many_cuts(tmp_path: Path) -> None:
    report = report_of(cut_memory(tmp_path, "none", 60))
    assert (report.cuts, cuts_with(report), report.trims_old) == (60, {}, 0)
    assert report.shares[0].high == pytest.approx(1 - 0.005 ** (1 / 60))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("lie", "finding", "is_broken"),
    [
        ("flush", "lost", True),
        ("flush", "order", True),
        ("fua", "lost_through", True),
        ("astray", "corrupt", True),
        ("rot", "corrupt", True),
        ("tear", "torn", False),
        ("garble", "garbled", False),
        ("late_trim", "broken", True),
    ],
)
def test_each_lie_of_a_disk_is_named(tmp_path: Path, lie: str, finding: str, is_broken: bool) -> None:
    report = report_of(cut_memory(tmp_path, lie, 20))
    assert report.cuts == 20
    assert finding in cuts_with(report)
    assert bool(report.broken) == is_broken


@pytest.mark.usefixtures("quick")
def test_trimmed_blocks_that_return_old_data_are_told_and_are_no_lie(tmp_path: Path) -> None:
    report = report_of(cut_memory(tmp_path, "trim", 20))
    assert report.trims_old > 2
    assert not report.broken


class Power:
    """A served device whose power is cut by another process while the command line writes."""

    def __init__(self, served: lab.LiveDevice, control: Path, target: str) -> None:
        self.served, self.control, self.target = served, control, target
        self.dice = random.Random(5)

    def cut_while_written(self, log: Path, mb: int = 4) -> subprocess.CompletedProcess[str]:
        """Write, cut the power, restore it; return the messages of the command."""
        begun = begin("durability", self.target, "--write", "--yes", "--log", log, "--span-mb", mb)
        assert begun.stderr is not None
        text = ""
        while "cut the power" not in text:
            piece = begun.stderr.readline()
            assert piece, text
            text += piece
        time.sleep(self.dice.uniform(0.05, 0.4))
        assert emmclab("control", self.control, "cut").returncode == 0
        text += begun.communicate(timeout=PATIENCE_S)[1]
        assert emmclab("control", self.control, "restore").returncode == 0
        return subprocess.CompletedProcess(begun.args, begun.returncode, "", text)

    def rounds(self, log: Path, cuts: int) -> Report:
        """Cut the power `cuts` times within this process."""
        for _ in range(cuts):
            ready = threading.Event()
            cutting = threading.Thread(target=self._cut_after, args=(ready,))
            cutting.start()
            with contextlib.closing(open_target(self.target, write=True)) as disk, Log(log) as log_file:
                try:
                    write(disk, log_file, 4 * MB, ready=ready.set, asked_to_end=lambda: False)
                finally:
                    ready.set()
                    cutting.join()
            self.served.restore()
            with contextlib.closing(open_target(self.target, write=False)) as disk, Log(log) as log_file:
                run = read_log(log).runs[-1]
                log_file.add("checked", run.plan.run, asdict(judge(run, disk)))
        return report_of(read_log(log))

    def until(self, log: Path, holds: Callable[[Report], bool]) -> Report:
        """Cut the power until the report has the finding, or until `MOST_CUTS` cuts."""
        report = self.rounds(log, few())
        while not holds(report) and report.cuts < MOST_CUTS:
            report = self.rounds(log, few())
        return report

    def _cut_after(self, ready: threading.Event) -> None:
        ready.wait()
        time.sleep(self.dice.uniform(0.05, 0.3))
        self.served.cut()


@contextlib.contextmanager
def served(folder: Path, lie: str, *, loop: bool = False, clock: str = "x0.1") -> Iterator[Power]:
    """A served device with a cache, over NBD or as a loop device."""
    folder.chmod(0o700)
    device = lab.Device.preset("small-1gb").set(CACHED | {"cache.lies": lie})
    where: dict[str, Any] = {"loop": True} if loop else {"nbd": folder / "disk.sock"}
    control = folder / "control.sock"
    with lab.serve(device, clock=clock, **where) as disk, Control(disk, control, lambda: None):
        yield Power(disk, control, disk.path)


@pytest.fixture
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a log that does not exist yet."""
    return tmp_path_factory.mktemp("log") / "cuts.log"


#: After this number of cuts a test gives up waiting for a lie to show.
MOST_CUTS = 96


def few(cuts: int = 8) -> int:
    """Return the number of cuts of a served device; `EMMCLAB_CUTS` increases it."""
    return max(cuts, int(os.environ.get("EMMCLAB_CUTS", "0")))


def slowly(*case: Any) -> Any:
    """Mark a case as slow: it takes 15 s, and the other cases show that cuts reach the device."""
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("lie", "findings"),
    [
        ("none", set()),
        ("flush", {"lost"}),
        slowly("early_flush", {"lost"}),
        ("fua", {"lost_through"}),
        slowly("tear", {"torn"}),
        slowly("reorder", {"broken"}),
        slowly("recent", {"broken"}),
    ],
)
def test_each_liar_is_caught_over_nbd(tmp_path: Path, log: Path, lie: str, findings: set[str]) -> None:
    with served(tmp_path, lie) as power:
        report = power.until(log, lambda report: findings <= set(cuts_with(report)))
    assert findings <= set(cuts_with(report))
    assert bool(report.broken) == (lie not in ("none", "tear"))


def test_zeros_that_are_a_trim_which_is_not_done_are_a_lie_over_nbd(tmp_path: Path, log: Path) -> None:
    with served(tmp_path, "trim") as power:
        report = power.until(log, lambda report: bool(report.trims_old and report.broken))
    assert report.trims_old
    assert report.broken


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("lie", "violations"),
    [
        ("none", set()),
        ("flush", {"broken"}),
        slowly("early_flush", {"broken"}),
        slowly("reorder", {"broken"}),
        slowly("recent", {"broken"}),
        slowly("tear", {"torn"}),
        slowly("trim", {"trim"}),
    ],
)
def test_each_liar_is_caught_under_a_loop_device(tmp_path: Path, log: Path, lie: str, violations: set[str]) -> None:
    def violations_of(report: Report) -> set[str]:
        trims = {"trim"} if report.trims_old else set()
        return trims | ({"broken", "torn"} & set(cuts_with(report)))

    with served(tmp_path, lie, loop=True, clock="real") as power:
        report = power.until(log, lambda report: violations_of(report) == violations)
    assert violations_of(report) == violations


@pytest.mark.usefixtures("root")
def test_a_file_on_a_mounted_device_is_judged_after_its_recovery(tmp_path: Path, log: Path) -> None:
    need("mkfs.ext4", "mount")
    folder = tmp_path / "mounted"
    folder.mkdir()
    with served(tmp_path, "none", loop=True) as power:
        device, scratch = power.target, folder / "scratch"
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        subprocess.run(["mount", device, folder], check=True)
        try:
            scratch.write_bytes(bytes(4 * MB))
            os.sync()
            power.target = str(scratch)
            assert power.cut_while_written(log).returncode == 0
            subprocess.run(["umount", folder], check=True)
            subprocess.run(["mount", device, folder], check=True)
            result = emmclab("durability", scratch, "--check", log)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no acknowledged data was lost" in result.stdout
    assert "cuts checked: 1" in result.stdout
    # What a file system reads back after a trim does not depend on the device.
    plan = read_log(log).runs[0].plan
    assert not (plan.trims or plan.zeroes)


def test_the_command_line_writes_is_cut_and_checks(tmp_path: Path, log: Path) -> None:
    with served(tmp_path, "flush") as power:
        for number in range(1, 9):
            done = power.cut_while_written(log)
            assert done.returncode == 0, done.stderr
            assert "is gone" in done.stderr and f"--check {log}" in done.stderr
            result = emmclab("durability", power.target, "--check", log)
            assert f"cuts checked: {number}" in result.stdout, result.stdout + result.stderr
            if result.returncode:
                break
        assert result.returncode == 4
        assert "acknowledged data was lost" in result.stdout
        assert "was promised" in result.stdout
    # All cuts, without opening a device.
    assert '"finding": "broken"' in emmclab_ok("durability", "--check", log, "--json", status=4).stdout


def test_a_log_is_kept_and_judged_through_pipes(tmp_path: Path, log: Path) -> None:
    with served(tmp_path, "none") as power:
        with log.open("wb") as log_file:
            words = ("durability", power.target, "--write", "--yes", "--log", "-", "--span-mb", "4")
            begun = begin(*words, stdout=log_file)
            wait_until(lambda: log.read_bytes().count(b"ack") > 10)
            power.served.cut()
            begun.communicate(timeout=PATIENCE_S)
        power.served.restore()
        with log.open("rb") as log_file, log.open("ab") as more:
            checked = begin("durability", power.target, "--check", "-", stdin=log_file, stdout=more)
            _, messages = checked.communicate(timeout=PATIENCE_S)
    assert checked.returncode == 0, messages
    assert emmclab_json("durability", "--check", log)["session"]["cuts"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_without_a_sign_of_a_cut_counts_for_nothing(tmp_path: Path, log: Path, number: int) -> None:
    with served(tmp_path, "flush") as power:
        begun = begin("durability", power.target, "--write", "--yes", "--log", log, "--span-mb", "4")
        wait_until(lambda: log.exists() and log.read_bytes().count(b"ack") > 10)
        begun.send_signal(number)
        begun.communicate(timeout=PATIENCE_S)
        result = emmclab_ok("durability", power.target, "--check", log)
    assert "is not counted" in result.stdout
    assert "cuts checked: 0; runs without a cut: 1" in result.stdout


def one_cut(folder: Path, disk: Memory | None = None) -> tuple[Memory, Path]:
    """A disk and the log of its only cut, which has not been checked yet."""
    disk, log = disk or Memory(), folder / "one.log"
    disk.calls = 300
    with Log(log) as log_file:
        write(disk, log_file, disk.size, ready=lambda: None, asked_to_end=lambda: False)
    disk.lose_power()
    return disk, log


def test_a_log_that_lost_its_end_or_lines_still_holds_for_the_rest(tmp_path: Path) -> None:
    disk, log = one_cut(tmp_path)
    full = log.read_bytes()
    syncs = judge(read_log(log).runs[0], disk).syncs
    dice = random.Random(1)
    first = full.index(b"\n", 1) + 1
    for _ in range(50):
        torn = full[: dice.randrange(first, len(full))]
        run = read_log(log, torn).runs[0]
        verdict = judge(run, disk)
        assert (verdict.found, verdict.syncs <= syncs) == ([], True)
    holes = bytearray(full)
    for _ in range(5):
        at = dice.randrange(first, len(full) - 64)
        holes[at : at + 64] = bytes(64)
    session = read_log(log, bytes(holes))
    assert session.damaged
    assert judge(session.runs[0], disk).found == []


def test_a_torn_log_is_continued(tmp_path: Path) -> None:
    disk, log = one_cut(tmp_path)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 7)
    disk.calls = 300
    with Log(log) as log_file:
        write(disk, log_file, disk.size, ready=lambda: None, asked_to_end=lambda: False)
    disk.lose_power()
    session = read_log(log)
    assert (len(session.runs), session.damaged) == (2, 1)
    assert judge(session.runs[-1], disk).found == []
    assert report_of(session).unchecked == 2
    with pytest.raises(ConfigError, match="this is not the device of the log's last run"):
        judge(session.runs[0], disk)


def test_a_cut_in_the_first_pass_promises_nothing(tmp_path: Path) -> None:
    disk, log = Memory(), tmp_path / "early.log"
    disk.calls = 2
    with Log(log) as log_file:
        ended = write(disk, log_file, disk.size, ready=lambda: None, asked_to_end=lambda: False)
    assert (ended.reason, ended.syncs) == ("gone", 0)
    disk.lose_power()
    verdict = judge(read_log(log).runs[0], disk)
    assert (verdict.is_cut, verdict.found) == (False, [])


def test_another_empty_or_smaller_device_is_refused_unless_it_is_known_to_be_the_same(tmp_path: Path) -> None:
    # The disk supports only writes: its blocks cannot be zeroed or trimmed.
    disk = Memory()
    disk.can = lambda _kind: False  # type: ignore[method-assign]
    _, log = one_cut(tmp_path, disk)
    run = read_log(log).runs[0]
    with pytest.raises(ConfigError, match="no record of any run"):
        judge(run, Memory())
    with pytest.raises(ConfigError, match="it has 524,288 bytes"):
        judge(run, Memory(size=MB // 2))
    everything = judge(run, Memory(), same_device=True)
    assert everything.lost + everything.lost_through == run.plan.blocks
    smaller = judge(run, Memory(size=MB // 2), same_device=True)
    assert smaller.lost and smaller.corrupt


def test_another_serial_number_is_refused_and_the_same_one_is_known(tmp_path: Path) -> None:
    _, log = one_cut(tmp_path)
    run = read_log(log).runs[0]
    run.target["identity"] = {"serial": "0x1234"}
    other = Memory(size=MB // 2)
    other.identity = lambda: {"identity": {"serial": "0x9999"}}  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="its serial is 0x9999"):
        judge(run, other, same_device=True)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "the log contains no run: it is empty"),
        ("\n", "the log contains no run: it is empty"),
        ("hello\n", "the log contains no run in 1 lines"),
        (line("ack", 1, 0, 0), "the log contains no run in 1 lines"),
        (line("begin", 1, {"version": 99}), "has version 99"),
        (line("begin", 1, {"version": 1, "plan": {"blocks": 0}, "target": {}, "boot": None}), "no run"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: str, part: str) -> None:
    log = tmp_path / "no.log"
    log.write_text(content)
    with pytest.raises(FormatError, match=part):
        read_log(log)
    assert_refused(emmclab("durability", "--check", log))


def test_forged_lines_with_a_right_checksum_do_not_keep_the_check_busy(tmp_path: Path) -> None:
    disk, log = one_cut(tmp_path)
    (run,) = read_log(log).runs
    plan = {"blocks": 16, "writers": 1, "trims": False, "zeroes": False}
    target = {"name": "x", "bytes": MB, "identity": {}}
    begin = {"version": 1, "plan": plan, "target": target, "boot": None}
    forged = [
        line("ack", run.plan.run, 0, 10**15),
        line("ack", run.plan.run, -1, 1),
        line("ack", run.plan.run, 0, -1),
        line("end", run.plan.run, {"reason": 1}),
        line("checked", run.plan.run, {"is_cut": True, "lost": "a"}),
        line("begin", 1, begin | {"plan": plan | {"blocks": 16.5}}),
        line("begin", 1, begin | {"plan": plan | {"trims": "no"}}),
        line("begin", "1", begin),
        line("begin", 1, begin | {"target": target | {"bytes": "a"}}),
    ]
    with log.open("a") as file:
        file.writelines(forged)
    session = read_log(log)
    assert (len(session.runs), session.damaged) == (1, len(forged))
    assert judge(session.runs[0], disk).broken == judge(run, disk).broken


def test_a_verdict_survives_the_log() -> None:
    verdict = Verdict(is_cut=True, lost=3, examples=["one"])
    assert convert(asdict(verdict) | {"later": 1}, Verdict) == verdict


def test_a_log_on_the_device_that_is_tested_is_refused(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch.bin"
    scratch.write_bytes(bytes(2 * MB))
    done = emmclab("durability", scratch, "--write", "--yes", "--log", tmp_path / "cuts.log")
    assert_refused(done)
    assert "the log is on the device that is tested" in done.stderr or "direct I/O" in done.stderr
    assert not any(scratch.read_bytes())


def test_nothing_is_overwritten_without_leave(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch.bin"
    scratch.write_bytes(bytes(2 * MB))
    assert_refused(emmclab("durability", scratch, "--write", "--log", "-"), "--yes")
    assert not any(scratch.read_bytes())


ROWS = 40
#: Bits of the column `flags`: sync and FUA.
FUA = 0b11


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of writes, every fourth with FUA, and a flush after every tenth."""
    rows = ["arrival_ns,sector,sectors,op,flags"]
    for at in range(ROWS):
        rows.append(f"{at * 5_000_000},{at * 8},8,write,{FUA if at % 4 == 0 else 0}")
        if at % 10 == 9:
            rows.append(f"{at * 5_000_000 + 1_000_000},0,0,flush,0")
    path = tmp_path_factory.mktemp("synced") / "synced.csv"
    path.write_text("\n".join([*rows, ""]))
    return path


def _row(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_a_run_shows_its_flushes_and_the_latency_of_synchronous_writes(synced: Path) -> None:
    command = ("simulate", synced, "--device", "emmc51-cache", "--layer", "pass-through")
    result, text = emmclab_json(*command), emmclab(*command).stdout
    durable = result["durable"]
    assert durable["requests"] == ROWS // 4 + ROWS // 10
    assert _row(text, "Flushes and discards") == [str(ROWS // 10)]
    assert _row(text, "Flushes and synchronous writes") == [str(durable["requests"])]
    means = [line.split() for line in text.splitlines() if " of flushes and synchronous" in line]
    assert [words[-2:] for words in means] == [[f"{durable[name]:.3f}", "ms"] for name in ("mean_ms", "p99_ms")]


def test_figures_that_a_run_does_not_measure_are_a_dash(synced: Path) -> None:
    run = Device.preset("iiswc15-4ps").simulate(read(synced))
    figures = {result_field(path).label: run.measured(path) for path in DURABILITY}
    assert figures["Flushes and discards"] == ROWS // 10
    assert figures["Cache flushes with data"] is None, "the device has no cache"
    text = emmclab("simulate", synced, "--device", "iiswc15-4ps").stdout
    assert _row(text, "Cache flushes with data") == ["–"]
    for path in DURABILITY:
        label = result_field(path).label
        if path.startswith("durable.") and "durable" not in run:
            assert figures[label] is None and _row(text, label)[0] == "–"


@pytest.mark.parametrize(("mode", "noted"), [("open", True), ("back_to_back", False)])
def test_the_total_time_of_an_open_loop_is_said_to_be_that_of_the_trace(synced: Path, mode: str, noted: bool) -> None:
    done = emmclab("compare", synced, "--devices", "emmc51-cache,ufs31", "--mode", mode)
    assert ("In open loop the time is that of the trace" in " ".join(done.stdout.split())) is noted, done.stderr


def test_a_comparison_shows_total_time_throughput_and_flushes(synced: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("compare", synced, "--devices", "emmc51-cache,iiswc15-4ps", "--mode", "back_to_back")
    results = emmclab_json(*command, "--html", page)
    text = emmclab(*command).stdout
    table = text[text.index("Total time") :].splitlines()
    for result in results:
        (line,) = [line for line in table if line.startswith(result["device"])]
        words = line.split()
        assert words[1] == f"{result['run']['simulated_s']:,.3f}"
        assert words[3] == f"{result['run']['throughput_mb_per_s']:,.3f}"
        assert words[4] == str(ROWS // 10)
    for label in ("Flushes and discards", "p99 of flushes and synchronous writes", "Throughput"):
        assert label in page.read_text()


def test_an_application_shows_its_syncs_and_what_each_took() -> None:
    result = run_application("email", "nexus5")
    waited = sum(thread["states"]["fsync"] for thread in result["app"]["threads"])
    assert result.sync_mean_ms == pytest.approx(waited / result["app"]["file_syncs"] / 1e6)
    message = durability_line(result)
    assert f"{result['app']['file_syncs']:,} syncs of files, mean {result.sync_mean_ms:,.3f} ms" in message
    text = emmclab("apps", "run", "email").stdout
    assert f"durability: {message}" in text


def test_a_comparison_of_one_device_calls_it_neither_fastest_nor_slowest(synced: Path) -> None:
    first = emmclab("compare", synced, "--devices", "nexus5").stdout.splitlines()[0]
    assert first.startswith("nexus5: mean response ") and "fast" not in first
