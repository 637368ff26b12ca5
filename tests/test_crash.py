"""Power cuts: control faults must be detected, allowed states are no defect, and equal states are judged once."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import assert_fails, assert_refused, emmclab, emmclab_json
from crash_runs import CUTS, DEVICE, Runs, nothing_left
from emmclab.crash.explore import Exploration, Options, explore, open_run
from emmclab.crash.kernel_log import BlockReads, _blocks_of
from emmclab.crash.promises import CutTally
from emmclab.crash.recording import Workload, _is_ordered, record_run, scaled_down
from emmclab.crash.scratch_folders import in_memory, scratch
from emmclab.crash.summary import ALPHA, POWER, difference, recordings_that_may_differ
from emmclab.errors import ConfigError
from emmclab.runtime.statistics import fisher_exact, trials_to_show
from emmclab.simulation.device import Device, presets


def levels(result: dict[str, Any]) -> set[str]:
    return {finding["level"] for finding in result["findings"]}


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
    result = crash("--device", "galaxys2", "--workload", "sqlite-wal-full", "--operations", "5", "--cuts", "3")
    assert result["run"]["device"].startswith("galaxys2-") and result["cuts"] == 3


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
    ("lie", "layers", "is_noted"), [("fua", [], True), ("barrier", [], True), ("fua", ["pass-through"], False)]
)
def test_a_lie_that_no_file_system_finds_is_noted(crash: Runs, lie: str, layers: list[str], is_noted: bool) -> None:
    above = [word for layer in layers for word in ("--layer", layer)]
    lies = [*DEVICE, "--set", f"cache.lies={lie}", *above]
    result = crash(*lies, "--workload", "files", "--operations", "8", "--cuts", "5", status=0)
    notes = [note for note in result["run"]["notes"] if f"cache.lies = {lie} has no effect here" in note]
    assert len(notes) == is_noted


def test_a_file_system_that_sends_no_flushes_breaks_the_rules_of_its_journal(crash: Runs) -> None:
    result = crash(*DEVICE, "--mount-options", "nobarrier", "--workload", "files", "--operations", "30", "--cuts", CUTS)
    assert "journal" in levels(result)
    finding = result["findings"][0]
    assert finding["promise"] == "commit" and finding["minimal"]["missing"]
    assert len(finding["minimal"]["missing"]) < finding["minimal"]["before"] or finding["minimal"]["before"] == 1


#: The commit of another file allocates the blocks of a file before its data is written.
UNSYNCED = "for i in 1 2 3 4; do head -c 40000 /dev/urandom > data$i; echo $i > other$i; sync other$i; echo $i; done"


#: Commands that allocate blocks and free them again.
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
    # Every log is treated as ordered, so that the rule is also checked on a log that breaks it.
    monkeypatch.setattr("emmclab.crash.recording._is_ordered", lambda *_: True)
    log = tmp_path / "run.log"
    workload = Workload(command=("sh", "-c", script))
    assert record_run("emmc51-cache", workload, log, mount_options=options).status == 0
    run, _ = open_run(str(log))
    result = {rule for _, rule, _, _ in run.journal_rules("mounted")}
    # The final write-back may break more rules.
    assert breaks <= result and bool(result) == bool(breaks)


def test_only_a_mount_in_ordered_mode_is_marked() -> None:
    mounts = [("ext4", None), ("ext4", "noatime,data=ordered")]
    others = [("ext4", "data=writeback"), ("ext4", "noatime,data=journal"), ("xfs", None)]
    assert [mount for mount in [*mounts, *others] if _is_ordered(*mount)] == mounts


@pytest.mark.slow
def test_sqlite_without_syncs_is_caught_and_its_documented_loss_is_no_defect(crash: Runs) -> None:
    few = ["--operations", "20", "--cuts", CUTS]
    off = crash(*DEVICE, "--workload", "sqlite-wal-off", *few, status=4)
    assert levels(off) == {"application"}
    full = crash(*DEVICE, "--workload", "sqlite-delete-full", *few, status=0)
    assert full["documented"] and "EXTRA" in full["documented"][0]["documented"]


#: A short workload, and a few states of each cut.
FILES = ["--workload", "files", "--operations", "15", "--states", "device,boundary,omit1:2,random:2"]
#: Zones of 6 MB, so that a device of 256 MB contains enough of them.
ZONES = ["--device", "zufs", "--capacity", "256MB", "--set", "geometry.block_groups.0.pages_per_block=24"]


@pytest.mark.parametrize(
    "layer",
    [
        [*DEVICE, "--layer", "advil", "--set", "advil.reserved=8MiB"],
        [*DEVICE, "--layer", "ressd", "--set", "ressd.reserved=8MiB"],
        pytest.param([*ZONES, "--layer", "lfs"], marks=pytest.mark.slow),
    ],
    ids=["advil", "ressd", "lfs of zones"],
)
def test_layers_recover_from_every_cut_and_from_cuts_of_their_recovery(crash: Runs, layer: list[str]) -> None:
    assert crash(*layer, *FILES, "--cuts", CUTS)["findings"] == []


def test_a_log_recovers_from_every_cut_and_a_lie_of_the_device_is_named(crash: Runs) -> None:
    logged = [*DEVICE, "--layer", "lfs", *FILES]
    assert crash(*logged, "--cuts", CUTS)["findings"] == []
    # On a busy machine the device writes back most data before the next command.
    lied = crash(*logged, "--cuts", "500", "--set", "cache.lies=flush", status=4)
    assert lied["findings"][0]["level"] == "device"


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        ("pair", "--device2", "emmc51-tlc", "--set", "pair.routing=striping", "--set", "pair.chunk=16KB"),
        ("nvm-buffer", "--device2", "pcm-16mb", "--set", "nvm-buffer.size=512KB"),
    ],
    ids=lambda layer: layer[0],
)
def test_layers_over_two_devices_lose_nothing_and_a_lie_is_named(crash: Runs, layer: tuple[str, ...]) -> None:
    two = [*DEVICE, "--layer", *layer, "--workload", "files", "--operations", "80", "--cuts", CUTS]
    result = crash(*two, status=0)
    assert result["states"] > 10
    lied = crash(*two, "--set", "cache.lies=flush", status=4)
    assert lied["findings"][0]["level"] == "device"


def test_a_second_device_with_a_cache_cannot_be_logged(crash: Runs) -> None:
    striping = ["--layer", "pair", "--set", "pair.routing=striping", "--device2", "emmc51-cache"]
    assert_fails(crash.run(*DEVICE, *striping, "--workload", "files"), "the second device has a cache")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "lost"), [("files", "fsync"), ("append-log", "fdatasync"), ("sqlite-wal", "integrity")]
)
def test_what_is_said_to_be_safe_without_a_sync_is_lost(crash: Runs, workload: str, lost: str) -> None:
    unsynced = [*DEVICE, "--workload", f"{workload}-unsynced", "--operations", "60"]
    result = crash(*unsynced, "--cuts", CUTS, status=4)
    assert lost in {finding["promise"] for finding in result["findings"]}
    # The file system keeps its promises about data without syncs.
    assert levels(result) <= {"filesystem", "application"}


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["files", "sqlite-wal-full"])
@pytest.mark.parametrize("mode", ["legacy", "ordered_fua", "delta", "packed", "aware"])
def test_a_layer_below_the_journal_loses_nothing_in_its_safe_modes(crash: Runs, mode: str, workload: str) -> None:
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
        few = ["--states", "boundary", "--cuts", "6", "--seed", "3"]
        first = crash(*DEVICE, *options, "--workload", "files", "--operations", "12", *few, "--save-log", crash.log)
        for recovery in ("e2fsck", "mount"):
            other = crash("--log", crash.log, "--check", "files", *few, "--recovery", recovery)
            assert other["states"] == first["states"]
            assert bool(other["findings"]) == bool(first["findings"]), (recovery, other["findings"])
    nothing_left(crash.folder)


def test_a_command_judges_what_each_recovery_leaves(crash: Runs) -> None:
    few = ["--states", "boundary", "--cuts", "6", "--seed", "3"]
    first = crash(*DEVICE, "--workload", "files", "--operations", "12", *few, "--save-log", crash.log)
    (crash.folder / "check.sh").write_text("""#!/bin/sh
set -- $(tail -n 1 "$EMMCLAB_ACKNOWLEDGED")
[ "$1 $#" != "safe 4" ] || [ -e "$2" ] || { echo "$2 is lost"; exit 1; }
""")
    for recovery in ("process", "e2fsck", "mount"):
        arguments = ["--log", crash.log, *few, "--recovery", recovery]
        result = crash(*arguments, "--check", f"sh {crash.folder / 'check.sh'}")
        assert result["states"] == first["states"] and not result["findings"], (recovery, result["findings"])
        wrong = 'n=$(wc -l < "$EMMCLAB_ACKNOWLEDGED"); case $n in 0|24) ;; *) echo lost it; exit 1;; esac'
        lost = crash(*arguments, "--check", wrong, status=4)
        assert {finding["promise"] for finding in lost["findings"]} == {"check"}, recovery
        assert lost["findings"][0]["detail"] == "lost it"
    nothing_left(crash.folder)


def test_jobs_and_shards_find_the_same_and_a_state_is_shown_again(crash: Runs) -> None:
    few = ["--cuts", "40"]
    options = ["--mount-options", "nobarrier", "--workload", "files", "--operations", "20"]
    single = crash(*DEVICE, *options, *few, "--jobs", "1", "--save-log", crash.log)
    explored = ["--log", crash.log, "--check", "files", *few]
    for jobs in ("2", "3"):
        many = crash(*explored, "--jobs", jobs, "--results", f"jobs{jobs}")
        for key in ("findings", "documented", "states", "cuts", "covered"):
            assert many[key] == single[key], key
    parts = [crash(*explored, "--shard", f"{i}/3", "--results", f"part{i}") for i in (1, 2, 3)]
    assert sum(part["states"] for part in parts) == single["states"]
    command = single["findings"][0]["again"]
    repeated = crash("--again", command, "--save-image", "state.img", status=4)
    assert {single["findings"][0]["promise"]} <= {finding["promise"] for finding in repeated["findings"]}
    assert (crash.folder / "state.img").stat().st_size > 0


def test_garbage_in_flight_is_caught_named_and_shown_again(crash: Runs) -> None:
    few = ["--check", "append-log", "--cuts", CUTS]
    recorded = ["--workload", "append-log", "--operations", "20", "--save-log", crash.log]
    crash(*DEVICE, *recorded, *few[2:], "--tear", "sector", status=0)
    # Records share sectors, so a torn write of the next record may damage the last one.
    findings = crash("--log", crash.log, *few, "--tear", "inside", status=4)["findings"]
    assert {(finding["level"], finding["promise"]) for finding in findings} == {("filesystem", "fdatasync")}
    missing = findings[0]["minimal"]["missing"]
    assert missing and all(finding["sectors"] == 1 for finding in missing)
    assert any(finding["garbled"] for finding in missing)
    repeated = crash("--again", findings[0]["again"], status=4)["findings"]
    assert [finding["detail"] for finding in repeated] == [findings[0]["detail"]]
    text = crash.run("--log", crash.log, *few, "--tear", "inside").stdout
    assert "with garbage for command" in text


@pytest.mark.parametrize(
    ("workload", "options"),
    [("sqlite-wal-full", ()), ("sqlite-delete-extra", ()), ("append-log", ("--mount-options", "data=journal"))],
)
def test_what_never_overwrites_survives_garbage_in_flight(crash: Runs, workload: str, options: tuple[str, ...]) -> None:
    few = ["--operations", "15", "--cuts", CUTS, "--tear", "inside"]
    result = crash(*DEVICE, *options, "--workload", workload, *few, status=0)
    sources = [loss["documented"] for loss in result["documented"] if loss["level"] == "application"]
    assert all("psow" in source for source in sources) and (not sources or "wal" in workload)


def test_a_name_of_a_state_means_its_exploration_or_asks_for_it(crash: Runs) -> None:
    options = ["--mount-options", "nobarrier", "--workload", "files"]
    few = ["--operations", "12", "--cuts", "20"]
    first = crash(*DEVICE, *options, *few, "--save-log", crash.log)["findings"][0]["again"]
    short = first.rsplit(":", 1)[0]
    state = crash("--again", short)
    assert crash("--again", first)["findings"] == state["findings"]
    other = crash("--log", crash.log, "--check", "files", "--cuts", "20", "--tear", "sector", "--seed", "9")
    assert other["run"]["mount_options"] == "nobarrier"
    named = other["findings"][0]["again"]
    assert named.rsplit(":", 1)[1] != first.rsplit(":", 1)[1]
    # The name in the earlier report still denotes the same state.
    assert crash("--again", first)["findings"] == state["findings"]
    assert crash("--again", named)["options"]["tear"] == "sector"
    assert_fails(crash.run("--again", short), first, "tear sector")
    assert_fails(crash.run("--again", f"{short}:000000"), "was not explored with the options 000000")


def test_a_log_of_dm_log_writes_is_explored_with_its_base(crash: Runs) -> None:
    dm, base = str(crash.folder / "dm.log"), str(crash.folder / "base.img")
    few = ("--operations", "20", "--cuts", "5")
    recorded = crash.run(*DEVICE, "--workload", "append-log", *few, "--save-dm-log", dm)
    (size,) = re.findall(r"`truncate -s (\d+) IMAGE`", recorded.stderr)
    assert_fails(crash.run("--log", dm), "--base")
    with Path(base).open("wb") as image:
        image.truncate(int(size))
    result = crash("--log", dm, "--base", base, "--check", "append-log", "--cuts", CUTS)
    assert result["log"]["writer"] == "dm-log-writes" and result["findings"] == []


def test_a_check_of_the_user_judges_what_is_mounted(crash: Runs) -> None:
    script = "for i in 1 2 3; do echo $i > f$i; sync f$i .; echo $i; done"
    judge = 'test "$(cat f$n)" = "$n" || { echo "f$n is lost"; exit 1; }'
    check = f'while read n; do {judge}; done < "$EMMCLAB_ACKNOWLEDGED"'
    few = ["--cuts", "8", "--states", "device,boundary", "--check", check]
    assert crash(*DEVICE, *few, "--", "sh", "-c", script)["findings"] == []
    result = crash(*DEVICE, "--mount-options", "nobarrier", *few, "--", "sh", "-c", script, status=4)
    assert any("is lost" in finding["detail"] for finding in result["findings"])


def test_without_a_check_no_verdict_on_what_was_acknowledged_is_given(crash: Runs) -> None:
    few = ("--cuts", "5", "--states", "boundary")
    done = crash.run(*DEVICE, *few, "--", "sh", "-c", "echo 1 > f; echo 1")
    assert "nothing checked the data of the workload" in done.stdout, done.stderr
    assert "loss of acknowledged data is not detected: use --check sqlite" in done.stdout
    assert "no acknowledged data was lost" not in done.stdout and done.returncode == 0
    done = crash.run(*DEVICE, *few, "--check", "true", "--", "sh", "-c", "echo 1 > f; echo 1")
    first = done.stdout.splitlines()[0]
    assert "not tested: the check passes on the disk from before" in first and done.returncode == 5


def test_verdicts_of_a_command_are_reused_only_on_request_and_it_may_write_files(crash: Runs) -> None:
    out = crash.folder / "out.txt"
    script = "for i in 1 2 3; do echo $i > f$i; echo f$i; done; sync"
    few = ("--cuts", "12", "--states", "device,boundary")
    (crash.folder / "lib.sh").write_text("exit 0\n")
    each = 'while read n; do [ -e "$n" ] || exit 1; done < "$EMMCLAB_ACKNOWLEDGED"'
    check = f'. {crash.folder}/lib.sh; : "$PWD" > {out}; {each}'
    first = crash(*DEVICE, *few, "--check", check, "--save-log", crash.log, "--", "sh", "-c", script, status=5)
    assert first["doubts"] and first["controls"]["before"]["held"] is False
    # The file that the check runs is now a real check.
    (crash.folder / "lib.sh").write_text("")
    real = crash("--log", crash.log, *few, "--check", check, status=4)
    assert real["reused_states"] == 0 and out.exists()
    assert real["controls"]["whole"]["held"] and real["controls"]["before"]["held"]
    (crash.folder / "lib.sh").write_text("exit 0\n")
    assert crash("--log", crash.log, *few, "--resume", "--check", check, status=4)["reused_states"] > 0
    assert crash("--log", crash.log, *few, "--fresh", "--check", check, status=5)["reused_states"] == 0


def test_an_included_check_refuses_the_output_of_another_program(crash: Runs) -> None:
    few = ("--cuts", "5", "--states", "boundary")
    for check, line in (("append-log", "safe log done"), ("files", "makes a big file"), ("programs", "begin 0 x")):
        refused = crash.run(*DEVICE, *few, "--check", check, "--", "echo", line)
        assert_fails(refused, "understands none of the 1 lines", line)
    some = crash(*DEVICE, *few, "--check", "append-log", "--", "sh", "-c", "echo safe log 0; echo bye", status=5)
    assert some["controls"]["understood"] == 1 and "`bye`" in some["doubts"][0]


def test_what_e2fsck_recovers_wrongly_is_its_own_fault(crash: Runs) -> None:
    fast = ("--mkfs-option=-O", "--mkfs-option=fast_commit", "--states", "device,boundary", "--cuts", "40")
    words = ("--workload", "files", "--operations", "20", "--recovery", "e2fsck")
    result = crash(*DEVICE, *words, *fast, status=0)
    assert all("e2fsck" in loss["documented"] for loss in result["documented"])


def test_a_structure_that_ext4_reads_before_the_replay_may_be_garbled(crash: Runs) -> None:
    programs = crash.folder / "names.prog"
    # The workload overwrites no data in place, which a garbled write in flight would damage.
    steps = "mkdir A\ncreate A/f\nfsync A/f\nrename A/f A/g\nfsync A/g\nunlink A/g\nsync\n"
    programs.write_text("".join(f"program n{number}\n{steps}" for number in range(8)))
    garbled = ("--workload", str(programs), "--tear", "inside", "--cuts", "300")
    result = crash(*DEVICE, *garbled, status=0)
    assert {"group descriptor", "journal inode"} & {loss["promise"] for loss in result["documented"]}


def test_a_file_system_without_a_journal_is_explored(crash: Runs) -> None:
    options = ["--mkfs-option", "-O", "--mkfs-option", "^has_journal", "--mkfs-option", "-J", "--mkfs-option", "size=4"]
    done = crash.run(*DEVICE, *options, "--workload", "append-log", "--operations", "5", "--cuts", "5")
    assert done.returncode in (0, 2, 4) and "Traceback" not in done.stderr
    nothing_left(crash.folder)


root = pytest.mark.usefixtures("root")
INSTANCES = Path("/sys/kernel/tracing/instances")


@pytest.mark.parametrize(
    "words",
    [
        ("--workload", "ace:2:6"),
        pytest.param(("--workload", "ace:2:8", "--fs", "xfs"), marks=pytest.mark.slow),
        pytest.param(("--workload", "ace:2:8", "--fs", "btrfs"), marks=pytest.mark.slow),
        pytest.param(
            ("--workload", "ace:2:8", "--fs", "btrfs", "--mount-options", "nobarrier"), marks=pytest.mark.slow
        ),
    ],
    ids=["ext4", "xfs", "btrfs", "btrfs-nobarrier"],
)
def test_pruning_changes_no_verdict(crash: Runs, words: tuple[str, ...]) -> None:
    few = ("--recovery", "mount", "--check", "true", "--cuts", "1", "--save-log", crash.log)
    done = crash.run(*DEVICE, *words, *few)
    # Exit status 5 (the check proves nothing) or 4 (a mount fails) is allowed, because only the log is needed.
    assert done.returncode in (4, 5), done.stderr
    options = Options(cuts=12, states="boundary,omit1:6,only1:6", recovery="mount", check="programs")
    pruned, unpruned = (explore(open_run(crash.log)[0], replace(options, prune=prune)) for prune in (True, False))
    assert unpruned.pruned == 0 < pruned.pruned < pruned.states == unpruned.states
    assert pruned.verdicts == unpruned.verdicts
    findings, unpruned_findings = (
        [(finding.promise, finding.level, finding.index, finding.count) for finding in exploration.findings()]
        for exploration in (pruned, unpruned)
    )
    assert findings == unpruned_findings
    assert bool(unpruned.findings()) == ("nobarrier" in words), "the control shows that verdicts differ at all"


def test_nothing_is_known_of_reads_where_the_kernel_lost_events() -> None:
    read = b"  mount-7 [000] ..... 1.2: block_bio_queue: 7,1 RM 8 + 8 [mount]\n"
    written = b"  mount-7 [000] ..... 1.3: block_bio_queue: 7,1 FWS 80 + 8 [mount]\n"
    other = b"  mount-7 [000] ..... 1.4: block_bio_queue: 7,2 R 800 + 8 [mount]\n"
    assert _blocks_of(read + written + other, 7, 1) == {1}
    assert _blocks_of(read + b"CPU:0 [LOST 12 EVENTS]\n" + read, 7, 1) is None


@root
def test_reads_of_a_device_are_told_while_it_is_watched(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    with BlockReads(tmp_path) as reads:
        if not reads.works:
            pytest.skip("this kernel has no tracefs")
        device = subprocess.check_output(["losetup", "-f", "--show", image], text=True).strip()
        try:
            read: set[int] = set()
            with reads.watching(read) as attached:
                attached(device)
                handle = os.open(device, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(handle, 4096, 5 * 4096)
                os.pread(handle, 512, 9 * 4096 + 512)
                os.close(handle)
            assert {5, 9} <= read and len(read) < 200
        finally:
            subprocess.run(["losetup", "-d", device], check=True)


@root
def test_the_trace_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom pathlib import Path\nfrom emmclab.crash.kernel_log import BlockReads\n"
        f"with BlockReads(Path({str(tmp_path)!r})) as reads:\n    print(reads.works, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    works = killed.stdout.read().strip() == "True"
    killed.wait()
    if not works or not INSTANCES.is_dir():
        pytest.skip("this kernel has no tracefs, or the system has not mounted it")
    remaining = INSTANCES / f"emmclab-crash-{killed.pid}-0"
    assert remaining.is_dir()
    with BlockReads(tmp_path):
        assert not remaining.exists()


def test_images_are_in_memory_only_where_there_is_plenty() -> None:
    assert in_memory(1 << 60) is None
    with scratch(in_memory(1 << 20)) as folder:
        assert folder.is_dir()


def exploration(cuts: int, losing: int) -> Exploration:
    """Return an exploration in which `losing` of `cuts` cuts lose data, and one has a documented loss."""
    exploration = Exploration(covered={"cuts": cuts})
    exploration.verdicts = {cut: CutTally(cut, 3, int(cut < losing), int(cut == losing)) for cut in range(cuts)}
    return exploration


def test_the_cuts_of_one_recording_are_compared_as_cuts_and_several_recordings_as_recordings() -> None:
    differs = difference([exploration(40, 0)], [exploration(20, 10), exploration(20, 10)])
    assert (differs.cuts, differs.losing, differs.recordings) == ((40, 40), (0, 20), (1, 2))
    assert (differs.unit, differs.p) == ("cuts", fisher_exact((0, 20), (40, 40)))
    assert differs.enough == trials_to_show((0, 0.5), ALPHA, POWER)
    few, enough = ([exploration(40, 0)] * number for number in (4, recordings_that_may_differ()))
    assert difference(few, [exploration(20, 10)] * len(few)).p > ALPHA > differs.p
    differs = difference(enough, [exploration(20, 10)] * len(enough))
    assert (differs.unit, differs.p < ALPHA, differs.enough) == ("recordings", True, 10)


@pytest.mark.parametrize("repeated", [1, 6])
def test_equal_shares_need_no_number_of_cuts_or_recordings(repeated: int) -> None:
    differs = difference([exploration(10, 2)] * repeated, [exploration(20, 4)] * repeated)
    assert (differs.p, differs.enough) == (1.0, None)


@root
def test_a_lying_device_is_told_from_an_honest_one_under_the_same_workload(tmp_path: Path) -> None:
    words = ("crash", "--device", "emmc51-cache", "--workload", "files", "--operations", 20, "--cuts", 40)
    against = ("--results", tmp_path, "--against", "--set cache.lies=flush")
    comparison = emmclab_json(*words, *against, status=4)
    assert comparison["against"]["losing"][0] == 0 < comparison["against"]["losing"][1]
    assert comparison["against"]["p"] < 0.01
    assert set(comparison["against"]) == {"cuts", "losing", "recordings", "unit", "p", "enough", "alpha", "power"}
    assert [run["log"]["lies"] for run in comparison["runs"]] == ["none", "flush"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [("--html a.html", "is not an option of a run"), (" ", "no option differs"), ("--set 'a", "cannot be read")],
)
def test_options_that_make_no_other_run_are_refused(words: str, problem: str) -> None:
    assert_refused(emmclab("crash", "--device", "emmc51-cache", "--workload", "files", "--against", words), problem)
