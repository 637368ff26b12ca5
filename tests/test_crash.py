"""Power cuts: controls that must be detected, states that are no defect, and the ends of the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, emmclab
from emmclab.cli import main
from emmclab.crash.checks import CheckFiles, CheckLog, CheckSqlite
from emmclab.crash.explore import Exploration, Options, explore, open_run
from emmclab.crash.recording import Workload, _is_ordered, record_run
from emmclab.crash.scaling import scaled_down
from emmclab.crash.workloads import record, sqlite_setting
from emmclab.devices.device import Device, presets
from emmclab.errors import ConfigError, EmmclabError

#: Number of cuts of one test; `EMMCLAB_CUTS=1000` for a long one.
CUTS = os.environ.get("EMMCLAB_CUTS", "50")
DEVICE = ["--device", "emmc51-cache"]


class Runs:
    """Runs the command in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, status: int | None = None) -> dict[str, Any]:
        done = self.run("--json", *arguments)
        assert done.returncode == status if status is not None else done.returncode in (0, 4), done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (4 if result["findings"] else 0)
        return result

    def environment(self) -> dict[str, str]:
        """Return an environment with temporary files, and so mounts, in this folder."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        return os.environ | {"TMPDIR": str(temporary)}

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a run in its own session, so that a signal reaches only this run."""
        return subprocess.Popen(
            [sys.executable, "-m", "emmclab", "crash", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command, with one process unless the arguments specify another number."""
        jobs = () if "--jobs" in arguments else ("--jobs", "1")
        # What follows `--` belongs to the workload.
        return emmclab("crash", *jobs, *arguments, cwd=self.folder, env=self.environment())


@pytest.fixture
def crash(root: None, tmp_path: Path) -> Runs:
    del root
    return Runs(tmp_path)


def levels(result: dict[str, Any]) -> set[str]:
    return {one["level"] for one in result["findings"]}


def left(folder: Path) -> list[Path]:
    """Return the remaining temporary files, except for the sockets of Python's own server of processes."""
    return [path for path in (folder / "temporary").iterdir() if not path.name.startswith("pymp-")]


def loop_devices() -> str:
    return subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout


def nothing_left(folder: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    # The kernel releases a loop device when the last program that inspects all devices has closed it.
    while str(folder) in loop_devices() and time.monotonic() < end:
        time.sleep(0.05)
    assert str(folder) not in loop_devices()
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not left(folder)
    assert not list(folder.glob("emmclab-results/crash/.emmclab-*"))


@pytest.mark.parametrize("name", presets())
def test_the_capacity_that_power_is_cut_at_is_the_least_that_a_device_can_have(name: str) -> None:
    device = Device.preset(name)
    scaled = scaled_down(device)
    assert scaled.capacity_bytes <= device.capacity_bytes
    sizes = (f"{size}MB" if size < 1024 else f"{size >> 10}GB" for size in (256 << n for n in range(20)))
    for size in sizes:
        if scaled.name in (f"{name}-{size}", name):
            break
        with pytest.raises(ConfigError, match="capacity"):
            device.with_capacity(size)


def test_power_is_cut_under_a_device_that_cannot_be_small(crash: Runs) -> None:
    found = crash("--device", "galaxys2", "--workload", "sqlite-wal-full", "--operations", "5", "--cuts", "3")
    assert found["run"]["device"].startswith("galaxys2-") and found["cuts"] == 3


@pytest.mark.parametrize("workload", ["files", "append-log", "sqlite-wal", "sqlite-delete-extra"])
def test_ext4_on_an_honest_device_loses_nothing_that_was_said_to_be_safe(crash: Runs, workload: str) -> None:
    result = crash(*DEVICE, "--workload", workload, "--operations", "40", "--cuts", CUTS)
    assert result["findings"] == [] and result["documented"] == []
    assert result["states"] >= result["cuts"] / 4 and result["log"]["acknowledgements"] > 0


def test_a_device_that_ignores_flushes_is_caught_at_its_own_level(crash: Runs) -> None:
    lies = ["--set", "cache.lies=flush"]
    result = crash(*DEVICE, *lies, "--workload", "append-log", "--operations", "40", "--cuts", CUTS, status=4)
    assert levels(result) == {"device"}
    assert result["findings"][0]["promise"] == "flush" and result["log"]["lies"] == "flush"


@pytest.mark.parametrize(
    ("lie", "layers", "is_noted"),
    [("fua", [], True), ("barrier", [], True), ("fua", ["pass-through"], False)],
)
def test_a_lie_that_no_file_system_can_find_out_is_noted(
    crash: Runs, lie: str, layers: list[str], is_noted: bool
) -> None:
    above = [word for layer in layers for word in ("--layer", layer)]
    lies = [*DEVICE, "--set", f"cache.lies={lie}", *above]
    result = crash(*lies, "--workload", "files", "--operations", "8", "--cuts", "5", status=0)
    notes = [note for note in result["run"]["notes"] if f"cache.lies = {lie} has no effect here" in note]
    assert len(notes) == is_noted


def test_a_file_system_that_sends_no_flushes_breaks_the_rules_of_its_journal(crash: Runs) -> None:
    result = crash(
        *DEVICE, "--mount-options", "nobarrier", "--workload", "files", "--operations", "30", "--cuts", CUTS
    )
    assert "journal" in levels(result)
    finding = result["findings"][0]
    assert finding["promise"] == "commit" and finding["minimal"]["missing"]
    assert (
        len(finding["minimal"]["missing"]) < finding["minimal"]["before"] or finding["minimal"]["before"] == 1
    )


#: Blocks are allocated by the commit of another file, before the data of this one is written.
UNSYNCED = (
    "for i in 1 2 3 4; do head -c 40000 /dev/urandom > data$i; echo $i > other$i; sync other$i; echo $i; done"
)
#: Ways to allocate blocks and to lose them again.
BUSY = """
for i in 1 2 3 4 5 6; do
    head -c 30000 /dev/urandom > a$i; fallocate -l 100K f$i
    dd if=/dev/urandom of=f$i bs=4k seek=$i count=2 conv=notrunc status=none; sync a$((i / 2)) . 2>/dev/null
    truncate -s 50001 s$i; dd if=/dev/urandom of=s$i bs=1000 seek=$i count=2 conv=notrunc status=none
    fallocate -p -o 8192 -l 8192 f$i; rm -f a$((i - 2)); truncate -s 5000 f$((i - 3)) 2>/dev/null; echo $i
done
sync"""


@pytest.mark.usefixtures("crash")
@pytest.mark.parametrize(
    ("options", "script", "breaks"),
    [
        ("data=ordered", BUSY, set[str]()),
        pytest.param("nodelalloc,discard", BUSY, set[str](), marks=pytest.mark.slow),
        pytest.param("nodelalloc", UNSYNCED, set[str](), marks=pytest.mark.slow),
        ("nodelalloc,data=journal", UNSYNCED, set[str]()),
        pytest.param("nodelalloc,data=writeback", UNSYNCED, {"data"}, marks=pytest.mark.slow),
        ("nodelalloc,nobarrier", UNSYNCED, {"data", "commit"}),
    ],
)
def test_ordered_data_is_durable_before_its_commit_and_writeback_data_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, script: str, breaks: set[str]
) -> None:
    # Every log counts as ordered, so that the rule is also checked on a log that breaks it.
    monkeypatch.setattr("emmclab.crash.recording._is_ordered", lambda *_: True)
    log = tmp_path / "run.log"
    workload = Workload(command=("sh", "-c", script))
    assert record_run("emmc51-cache", workload, log, mount_options=options).status == 0
    run, _ = open_run(str(log))
    assert {rule for _, rule, _, _ in run.journal_rules("mounted")} == breaks


@pytest.mark.parametrize(
    ("file_system", "options", "is_ordered"),
    [
        ("ext4", None, True),
        ("ext4", "noatime,data=ordered", True),
        ("ext4", "data=writeback", False),
        ("ext4", "noatime,data=journal", False),
        ("xfs", None, False),
    ],
)
def test_only_a_mount_in_ordered_mode_is_marked(
    file_system: str, options: str | None, is_ordered: bool
) -> None:
    assert _is_ordered(file_system, options) == is_ordered


@pytest.mark.slow
def test_sqlite_without_syncs_is_caught_and_its_documented_loss_is_no_defect(crash: Runs) -> None:
    few = ["--operations", "20", "--cuts", CUTS]
    off = crash(*DEVICE, "--workload", "sqlite-wal-off", *few, status=4)
    assert levels(off) == {"application"}
    full = crash(*DEVICE, "--workload", "sqlite-delete-full", *few, status=0)
    assert full["documented"] and "EXTRA" in full["documented"][0]["documented"]


@pytest.mark.parametrize("layer", ["advil", "ressd"])
def test_layers_recover_from_every_cut_and_from_cuts_of_their_recovery(crash: Runs, layer: str) -> None:
    size = ["--set", f"{layer}.reserved=8MiB"]
    few = ["--operations", "15", "--cuts", CUTS, "--states", "device,boundary,omit1:2,random:2"]
    assert crash(*DEVICE, "--layer", layer, *size, "--workload", "files", *few)["findings"] == []


def test_a_log_recovers_from_every_cut_and_a_lie_of_the_device_is_named(crash: Runs) -> None:
    few = ["--operations", "15", "--cuts", CUTS, "--states", "device,boundary,omit1:2,random:2"]
    logged = [*DEVICE, "--layer", "lfs", "--workload", "files", *few]
    assert crash(*logged)["findings"] == []
    lied = crash(*logged, "--set", "cache.lies=flush", status=4)
    assert lied["findings"][0]["level"] == "device"


@pytest.mark.slow
def test_a_log_of_zones_recovers_from_every_cut(crash: Runs) -> None:
    # Zones of 6 MB, because 256 MB have enough of them.
    zones = ["--device", "zufs", "--capacity", "256MB", "--set", "geometry.block_groups.0.pages_per_block=24"]
    few = ["--operations", "15", "--cuts", CUTS, "--states", "device,boundary,omit1:2,random:2"]
    assert crash(*zones, "--layer", "lfs", "--workload", "files", *few)["findings"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        ("pair", "--device2", "emmc51-tlc", "--set", "pair.routing=striping", "--set", "pair.chunk=16KB"),
        ("nvm-buffer", "--device2", "pcm-16mb", "--set", "nvm-buffer.size=512KB"),
    ],
    ids=lambda layer: layer[0],
)
def test_layers_over_two_devices_lose_nothing_and_a_lie_of_the_first_is_named(
    crash: Runs, layer: tuple[str, ...]
) -> None:
    two = [*DEVICE, "--layer", *layer, "--workload", "files", "--operations", "80", "--cuts", CUTS]
    found = crash(*two, status=0)
    assert found["states"] > 10
    lied = crash(*two, "--set", "cache.lies=flush", status=4)
    assert lied["findings"][0]["level"] == "device"


def test_a_second_device_with_a_cache_cannot_be_logged(crash: Runs) -> None:
    striping = ["--layer", "pair", "--set", "pair.routing=striping", "--device2", "emmc51-cache"]
    failed = crash.run(*DEVICE, *striping, "--workload", "files")
    assert failed.returncode == 2 and "the second device has a cache" in failed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "lost"), [("files", "fsync"), ("append-log", "fdatasync"), ("sqlite-wal", "integrity")]
)
def test_what_is_said_to_be_safe_without_a_sync_is_lost(crash: Runs, workload: str, lost: str) -> None:
    unsynced = [*DEVICE, "--workload", f"{workload}-unsynced", "--operations", "60"]
    found = crash(*unsynced, "--cuts", CUTS, status=4)
    assert lost in {one["promise"] for one in found["findings"]}
    # The file system keeps what it promises without syncs.
    assert levels(found) <= {"filesystem", "application"}


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["files", "sqlite-wal-full"])
@pytest.mark.parametrize("mode", ["legacy", "ordered_fua", "delta", "packed", "aware"])
def test_a_layer_below_the_journal_loses_nothing_in_its_safe_modes(
    crash: Runs, mode: str, workload: str
) -> None:
    few = ["--operations", "20", "--cuts", CUTS]
    result = crash(*DEVICE, "--layer", f"journal:{mode}", "--workload", workload, *few, status=0)
    assert result["findings"] == [] and result["documented"] == []
    assert result["states"] >= result["cuts"] / 4 and result["log"]["acknowledgements"] > 0


@pytest.mark.parametrize("workload", [pytest.param("files", marks=pytest.mark.slow), "sqlite-wal-full"])
def test_a_layer_that_drops_flushes_is_caught(crash: Runs, workload: str) -> None:
    few = ["--operations", "20", "--cuts", CUTS]
    result = crash(*DEVICE, "--layer", "journal:no_barrier", "--workload", workload, *few, status=4)
    assert levels(result) <= {"layer", "journal", "filesystem", "application"} and levels(result)


def test_every_recovery_comes_to_the_same_verdict(crash: Runs) -> None:
    for options in ([], ["--mount-options", "nobarrier"]):
        log = str(crash.folder / "run.log")
        few = ["--states", "boundary", "--cuts", "6", "--seed", "3"]
        first = crash(*DEVICE, *options, "--workload", "files", "--operations", "12", *few, "--save-log", log)
        for recovery in ("e2fsck", "mount"):
            other = crash("--log", log, "--check", "files", *few, "--recovery", recovery)
            assert other["states"] == first["states"]
            assert bool(other["findings"]) == bool(first["findings"]), (recovery, other["findings"])
    nothing_left(crash.folder)


def test_a_command_judges_what_each_recovery_leaves(crash: Runs) -> None:
    log = str(crash.folder / "run.log")
    few = ["--states", "boundary", "--cuts", "6", "--seed", "3"]
    first = crash(*DEVICE, "--workload", "files", "--operations", "12", *few, "--save-log", log)
    (crash.folder / "check.sh").write_text("""#!/bin/sh
grep '^safe' "$EMMCLAB_ACKNOWLEDGED" | grep -v gone$ > /dev/null || exit 0
test -n "$(ls | grep -v lost+found)" || { echo "no file is left"; exit 1; }
""")
    for recovery in ("process", "e2fsck", "mount"):
        again = ["--log", log, *few, "--recovery", recovery]
        told = crash(*again, "--check", f"sh {crash.folder / 'check.sh'}")
        assert told["states"] == first["states"] and not told["findings"], (recovery, told["findings"])
        lost = crash(*again, "--check", "echo lost it; false", status=4)
        assert {finding["promise"] for finding in lost["findings"]} == {"check"}, recovery
        assert lost["findings"][0]["detail"] == "lost it"
    nothing_left(crash.folder)


def test_jobs_and_shards_find_the_same_and_a_state_is_shown_again(crash: Runs) -> None:
    log = str(crash.folder / "run.log")
    few = ["--cuts", "40"]
    options = ["--mount-options", "nobarrier", "--workload", "files", "--operations", "20"]
    one = crash(*DEVICE, *options, *few, "--jobs", "1", "--save-log", log)
    explored = ["--log", log, "--check", "files", *few]
    for jobs in ("2", "3"):
        many = crash(*explored, "--jobs", jobs, "--results", f"jobs{jobs}")
        for key in ("findings", "documented", "states", "cuts", "covered"):
            assert many[key] == one[key], key
    parts = [crash(*explored, "--shard", f"{i}/3", "--results", f"part{i}") for i in (1, 2, 3)]
    assert sum(part["states"] for part in parts) == one["states"]
    again = one["findings"][0]["again"]
    shown = crash("--again", again, "--save-image", "state.img", status=4)
    assert {one["findings"][0]["promise"]} <= {finding["promise"] for finding in shown["findings"]}
    assert (crash.folder / "state.img").stat().st_size > 0


def test_garbage_in_flight_is_caught_named_and_shown_again(crash: Runs) -> None:
    log = str(crash.folder / "run.log")
    few = ["--check", "append-log", "--cuts", CUTS]
    crash(
        *DEVICE,
        "--workload",
        "append-log",
        "--operations",
        "20",
        "--cuts",
        CUTS,
        "--tear",
        "sector",
        "--save-log",
        log,
        status=0,
    )
    # Records share sectors, and nothing protects the last one while the next one is written.
    found = crash("--log", log, *few, "--tear", "inside", status=4)["findings"]
    assert {(one["level"], one["promise"]) for one in found} == {("filesystem", "fdatasync")}
    missing = found[0]["minimal"]["missing"]
    assert missing and all(one["sectors"] == 1 for one in missing)
    assert any(one["garbled"] for one in missing)
    shown = crash("--again", found[0]["again"], status=4)["findings"]
    assert [one["detail"] for one in shown] == [found[0]["detail"]]
    text = crash.run("--log", log, *few, "--tear", "inside").stdout
    assert "with garbage for command" in text


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        ("sqlite-wal-full", ()),
        ("sqlite-delete-extra", ()),
        ("append-log", ("--mount-options", "data=journal")),
    ],
)
def test_what_writes_nothing_safe_again_in_place_survives_garbage_in_flight(
    crash: Runs, workload: str, options: tuple[str, ...]
) -> None:
    few = ["--operations", "15", "--cuts", CUTS, "--tear", "inside"]
    result = crash(*DEVICE, *options, "--workload", workload, *few, status=0)
    sources = [one["documented"] for one in result["documented"] if one["level"] == "application"]
    assert all("psow" in source for source in sources) and (not sources or "wal" in workload)


def test_a_name_of_a_state_means_its_exploration_or_asks_for_it(crash: Runs) -> None:
    log, options = str(crash.folder / "run.log"), ["--mount-options", "nobarrier", "--workload", "files"]
    few = ["--operations", "12", "--cuts", "20"]
    first = crash(*DEVICE, *options, *few, "--save-log", log)["findings"][0]["again"]
    short = first.rsplit(":", 1)[0]
    one = crash("--again", short)
    assert crash("--again", first)["findings"] == one["findings"]
    other = crash("--log", log, "--check", "files", "--cuts", "20", "--tear", "sector", "--seed", "9")
    assert other["run"]["mount_options"] == "nobarrier"
    named = other["findings"][0]["again"]
    assert named.rsplit(":", 1)[1] != first.rsplit(":", 1)[1]
    # The name in the earlier report still has the same meaning.
    assert crash("--again", first)["findings"] == one["findings"]
    assert crash("--again", named)["options"]["tear"] == "sector"
    refused = crash.run("--again", short)
    assert refused.returncode == 2 and first in refused.stderr and "tear sector" in refused.stderr
    unknown = crash.run("--again", f"{short}:000000")
    assert unknown.returncode == 2 and "was not explored with the options 000000" in unknown.stderr


def ended(crash: Runs, number: int, *, worker: bool, jobs: str) -> None:
    """Start an exploration by mounts, and end it, or one of its processes, while a state is mounted."""
    log = str(crash.folder / "run.log")
    arguments = ["--log", log, "--check", "files", "--cuts", "1000", "--jobs", jobs, "--recovery", "mount"]
    # Every state is mounted, so that the exploration takes long enough.
    arguments.append("--no-prune")
    process = crash.begin(*arguments)
    mounts, end = Path("/proc/mounts"), time.monotonic() + PATIENCE_S
    while str(crash.folder) not in mounts.read_text():
        assert process.poll() is None and time.monotonic() < end
    target = process.pid
    if worker:
        folder = next((crash.folder / "temporary").glob(".emmclab-*"))
        # The oldest process, because a program that it starts has its files for a short time, too.
        target = min(
            int(pid.name)
            for pid in Path("/proc").glob("[0-9]*")
            if any(_points_to(link, folder) for link in pid.glob("fd/*"))
        )
    os.kill(target, number)
    process.communicate(timeout=PATIENCE_S)


def _points_to(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "worker", "jobs"),
    [
        (signal.SIGTERM, False, "1"),
        (signal.SIGTERM, False, "2"),
        (signal.SIGTERM, True, "2"),
        (signal.SIGKILL, False, "2"),
    ],
    ids=["term-alone", "term-parent", "term-worker", "kill-parent"],
)
def test_an_exploration_that_is_ended_leaves_no_mount_and_no_folder(
    crash: Runs, number: int, worker: bool, jobs: str
) -> None:
    log = str(crash.folder / "run.log")
    crash(*DEVICE, "--workload", "files", "--operations", "60", "--cuts", "2", "--save-log", log)
    ended(crash, number, worker=worker, jobs=jobs)
    end = time.monotonic() + PATIENCE_S
    # Workers of a killed parent clean up by themselves.
    while left(crash.folder) and time.monotonic() < end:
        time.sleep(0.05)
    nothing_left(crash.folder)


def test_what_a_killed_exploration_left_is_gone_after_the_next_one(crash: Runs) -> None:
    log = str(crash.folder / "run.log")
    crash(*DEVICE, "--workload", "files", "--operations", "60", "--cuts", "2", "--save-log", log)
    ended(crash, signal.SIGKILL, worker=False, jobs="1")
    assert left(crash.folder)
    crash("--log", log, "--check", "files", "--cuts", "2")
    nothing_left(crash.folder)


def test_a_log_of_dm_log_writes_is_explored_with_its_base(crash: Runs) -> None:
    dm, base = str(crash.folder / "dm.log"), str(crash.folder / "base.img")
    crash(*DEVICE, "--workload", "append-log", "--operations", "20", "--cuts", "5", "--save-dm-log", dm)
    refused = crash.run("--log", dm)
    assert refused.returncode == 2 and "--base" in refused.stderr
    with Path(base).open("wb") as image:
        image.truncate(Device.preset("emmc51-cache", capacity="256MB").capacity_bytes)
    result = crash("--log", dm, "--base", base, "--check", "append-log", "--cuts", CUTS)
    assert result["log"]["writer"] == "dm-log-writes" and result["findings"] == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo one; sleep 60", "ended after 2 s"),
        ("echo one; exit 3", "exit status 3"),
        ("echo one; kill -9 $$", "signal 9"),
        ("head -c 1000000 /dev/urandom; echo", "states"),
        ("touch a; sync", "printed no line"),
        ("fallocate -l 215M a; dd if=/dev/urandom of=big bs=1M status=none; echo done", "states"),
    ],
    ids=["hangs", "fails", "dies", "prints-garbage", "says-nothing", "fills-the-disk"],
)
def test_any_workload_comes_to_a_clear_end_and_leaves_nothing(crash: Runs, script: str, said: str) -> None:
    # Only hanging processes have to be ended.
    patience_s = 2 if "sleep" in script else PATIENCE_S
    few = ("--cuts", "5", "--states", "boundary", "--timeout", str(patience_s))
    done = crash.run(*DEVICE, *few, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert said in done.stderr + done.stdout
    nothing_left(crash.folder)


def test_a_check_of_the_user_judges_what_is_mounted(crash: Runs) -> None:
    script = "for i in 1 2 3; do echo $i > f$i; sync f$i .; echo $i; done"
    judge = 'test "$(cat f$n)" = "$n" || { echo "f$n is lost"; exit 1; }'
    check = f'while read n; do {judge}; done < "$EMMCLAB_ACKNOWLEDGED"'
    few = ["--cuts", "8", "--states", "device,boundary", "--check", check]
    assert crash(*DEVICE, *few, "--", "sh", "-c", script)["findings"] == []
    result = crash(*DEVICE, "--mount-options", "nobarrier", *few, "--", "sh", "-c", script, status=4)
    assert any("is lost" in one["detail"] for one in result["findings"])


@pytest.mark.parametrize("words", [("--", "./own.sh"), ("--check", "own.sh", "--", "true")])
def test_a_program_beside_the_user_is_to_be_named_by_its_whole_path(
    crash: Runs, words: tuple[str, ...]
) -> None:
    own = crash.folder / "own.sh"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    done = crash.run(*DEVICE, *words)
    assert done.returncode == 2 and f"give the whole path, as {own}" in done.stderr, done.stderr
    own.unlink()
    nothing_left(crash.folder)


def test_without_a_check_no_verdict_on_what_was_acknowledged_is_given(crash: Runs) -> None:
    few = ("--cuts", "5", "--states", "boundary")
    done = crash.run(*DEVICE, *few, "--", "sh", "-c", "echo 1 > f; echo 1")
    assert "nothing checked the data of the workload" in done.stdout, done.stderr
    assert "whether acknowledged data is still there: --check sqlite" in done.stdout
    assert "no acknowledged data was lost" not in done.stdout
    done = crash.run(*DEVICE, *few, "--check", "true", "--", "sh", "-c", "echo 1 > f; echo 1")
    assert "no acknowledged data was lost" in done.stdout and "Only a check" not in done.stdout


def test_a_file_system_without_a_journal_is_explored(crash: Runs) -> None:
    options = [
        "--mkfs-option",
        "-O",
        "--mkfs-option",
        "^has_journal",
        "--mkfs-option",
        "-J",
        "--mkfs-option",
        "size=4",
    ]
    done = crash.run(*DEVICE, *options, "--workload", "append-log", "--operations", "5", "--cuts", "5")
    assert done.returncode in (0, 2, 4) and "Traceback" not in done.stderr
    nothing_left(crash.folder)


@pytest.mark.usefixtures("root")
def test_a_finding_that_cannot_be_minimised_is_told_as_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_given: object) -> None:
        raise EmmclabError("the guest did not start", kind="failed")

    monkeypatch.setattr("emmclab.crash.minimal.minimize", fail)
    words = ("--set", "cache.lies=flush", "--workload", "files", "--cuts", "5", "--jobs", "1", "--json")
    assert main(["crash", *DEVICE, *words, "--results", str(tmp_path)]) == 4
    printed = capsys.readouterr()
    assert json.loads(printed.out)["findings"]
    assert "could not be minimised: the guest did not start" in printed.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--workload", "files"], "device"),
        ([*DEVICE], "workload"),
        ([*DEVICE, "--workload", "sqlite-none"], "sqlite-none"),
        ([*DEVICE, "--workload", "files", "--states", "some"], "states"),
        ([*DEVICE, "--workload", "files", "--tear", "pages"], "tear"),
        ([*DEVICE, "--workload", "files", "--recovery", "hope"], "recovery"),
        ([*DEVICE, "--workload", "files", "--shard", "3/2"], "shard"),
        (["--again", "c3f2"], "is not the name of a state"),
        (["--again", "c3f2:1:2"], "0 logs in"),
        (["--log", "no-such.log"], "no-such.log"),
        ([*DEVICE, "--", "/no/such/program"], "/no/such/program"),
    ],
)
def test_wrong_arguments_are_refused_by_name(crash: Runs, arguments: list[str], named: str) -> None:
    done = crash.run(*arguments)
    assert done.returncode == 2 and named in done.stderr and "Traceback" not in done.stderr, done.stderr
    nothing_left(crash.folder)


def test_a_truncated_log_is_explored_up_to_its_end_and_a_damaged_one_refused(crash: Runs) -> None:
    log = crash.folder / "run.log"
    crash(*DEVICE, "--workload", "append-log", "--operations", "30", "--cuts", "2", "--save-log", str(log))
    whole = log.read_bytes()
    log.write_bytes(whole[:-100])
    result = crash("--log", str(log), "--check", "append-log", "--cuts", "20")
    assert result["log"]["truncated"] and result["findings"] == []
    log.write_bytes(whole[:5000] + bytes([whole[5000] ^ 255]) + whole[5001:])
    done = crash.run("--log", str(log))
    assert done.returncode == 2 and "checksum" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--workload", "filse", "there is no workload `filse`"),
        ("--states", "device,omit2", "is not a way to choose states"),
        ("--tear", "half", "is not a way to tear"),
        ("--recovery", "fsck", "is not a way of recovery"),
        ("--check", "sqlte --strict", "is neither a check nor a program"),
        ("--shard", "0/3", "is not a part"),
    ],
)
def test_what_cannot_be_explored_is_refused_before_the_workload_runs(
    crash: Runs, option: str, value: str, says: str
) -> None:
    done = crash.run(*DEVICE, "--workload", "files", option, value)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert "running" not in done.stderr and not (crash.folder / "emmclab-results").exists()


def kept_shares(folder: Path) -> list[Path]:
    return list(folder.glob("emmclab-results/crash/*/share-*.json"))


@pytest.mark.slow
def test_an_exploration_that_is_interrupted_goes_on_where_it_was(crash: Runs) -> None:
    log = str(crash.folder / "run.log")
    made = ("--workload", "files", "--operations", "400", "--cuts", "2", "--jobs", "1")
    crash(*DEVICE, *made, "--save-log", log)
    arguments = ["--log", log, "--check", "files", "--cuts", "12000", "--jobs", "1", "--json"]
    process = crash.begin(*arguments)
    begun = time.monotonic()
    # Findings are stored after 2 seconds, and all states take more than 6.
    while len(kept_shares(crash.folder)) == 1 and time.monotonic() - begun < PATIENCE_S:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, stderr
    assert f"continue with --log {log} --check files" in stderr
    resumed = crash("--log", log, "--check", "files", "--cuts", "12000", "--jobs", "1")
    fresh = crash("--log", log, "--check", "files", "--cuts", "12000", "--jobs", "2", "--results", "other")
    for key in ("findings", "states", "cuts", "covered"):
        assert resumed[key] == fresh[key], key


class Held:
    """Files in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def read(self, path: str) -> bytes | None:
        return self._files.get(path)


def test_files_may_be_what_they_were_or_what_was_begun_and_nothing_else() -> None:
    import hashlib

    def what(data: bytes) -> str:
        return f"{len(data)} {hashlib.sha256(data).hexdigest()}"

    check = CheckFiles()
    makes = [f"makes a {what(b'12345')}"]
    for data in (None, b"", b"12", b"99", b"12345"):
        files = {} if data is None else {"/a": data}
        assert check(Held(files), makes) is None
    safe = [*makes, f"safe a {what(b'12345')}"]
    for data in (None, b"", b"1234", b"12346"):
        assert check(Held({} if data is None else {"/a": data}), safe) is not None
    assert check(Held({"/a": b"12345"}), safe) is None
    grows = [*safe, f"grows a {what(b'1234567')}"]
    assert check(Held({"/a": b"123456"}), grows) is None
    assert check(Held({"/a": b"023456"}), grows) is not None
    turns = [*safe, f"turns a {what(b'xyz')}"]
    assert check(Held({"/a": b"xyz"}), turns) is None and check(Held({"/a": b"xy"}), turns) is not None
    gone = [*safe, "turns a gone"]
    assert check(Held({}), gone) is None
    assert check(Held({"/a": b"12345"}), [*gone, "safe a gone"]) is not None


def test_a_log_has_every_record_that_was_safe_and_may_have_more() -> None:
    check, lines = CheckLog(), ["safe log 1", "safe log 2"]
    assert check.wanted(lines) == ["/log"]
    assert check(Held({"/log": record(1) + record(2) + b"torn"}), lines) is None
    for data in (record(1), record(1) + record(3), record(1) + b"\0" * 256):
        assert check(Held({"/log": data}), lines) is not None


def test_a_database_that_is_damaged_or_lacks_a_row_is_told_from_a_documented_loss(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "d"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, data BLOB)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(n, bytes(500)) for n in range(1, 30)])
    database.commit()
    database.close()
    whole = path.read_bytes()

    def lost(name: str, safe: int, data: bytes | None, *, garbles: bool = False) -> Any:
        check = CheckSqlite(*(sqlite_setting(name) or (None, None)), garbles=garbles)
        files = {} if data is None else {"/test.db": data}
        return check(Held(files), [f"safe test.db {n}" for n in range(safe + 1)])

    assert lost("sqlite-delete", 29, whole) is None
    one = lost("sqlite-delete", 30, whole)
    assert one.promise == "commit" and one.documented
    assert lost("sqlite-delete", 31, whole).documented is None
    assert lost("sqlite-delete-extra", 30, whole).documented is None
    assert lost("sqlite-wal-normal", 40, whole).documented
    # The journal is truncated without a following sync.
    assert "atomiccommit" in lost("sqlite-truncate-normal", 30, whole).documented
    assert lost("sqlite-truncate-normal", 31, whole).documented is None
    for name in ("sqlite-truncate-full", "sqlite-persist-normal", "sqlite-persist-full", "sqlite-wal-full"):
        assert lost(name, 30, whole).documented is None, name
    assert lost("sqlite-wal", 1, None).promise == "commit"
    assert "psow" in lost("sqlite-wal", 30, whole, garbles=True).documented
    assert lost("sqlite-wal", 31, whole, garbles=True).documented is None
    assert lost("sqlite-truncate", 30, whole, garbles=True).documented is None
    damaged = lost("sqlite-wal-normal", 1, whole[:4096] + b"\xff" * 4096 + whole[8192:])
    assert damaged.promise == "integrity"
    assert lost("sqlite-delete", 1, b"no database at all" * 300).promise == "integrity"


def test_what_shares_found_is_one_whatever_their_order() -> None:
    def found(index: int) -> Exploration:
        from emmclab.crash.finding import CutTally, Finding

        verdicts = {index // 2: CutTally(at_ns=index // 2, states=2, broken=1)}
        part = Exploration(states=2, finished=True, verdicts=verdicts)
        part.add(Finding("flush", "device", index // 2, index, index, f"state {index}", "random", 0, 0))
        return part

    def merged(order: list[int]) -> Exploration:
        whole = Exploration(finished=True)
        for index in order:
            whole.merge(found(index))
        return whole

    one, other = merged([3, 0, 1, 2]), merged([0, 1, 2, 3])
    assert one == other and one.findings()[0].index == 0 and one.findings()[0].count == 4


def test_options_that_do_not_fit_a_log_are_refused(crash: Runs) -> None:
    log = str(crash.folder / "run.log")
    crash(*DEVICE, "--workload", "append-log", "--operations", "5", "--cuts", "2", "--save-log", log)
    run, facts = open_run(log)
    with pytest.raises(Exception, match="beyond the moments of the log, 0 to"):
        explore(run, Options(only=(facts["moments"], 0)))
