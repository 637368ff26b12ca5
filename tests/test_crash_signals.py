"""`emmclab crash` rejects impossible requests, and cleans up however it ends."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from conftest import PATIENCE_S, assert_fails, wait_until
from crash_runs import DEVICE, Runs, nothing_left, scratch_files
from emmclab.cli import main
from emmclab.crash.explore import Options, explore, open_run
from emmclab.errors import EmmclabError

FILES = [*DEVICE, "--workload", "files"]


def ended(crash: Runs, number: int, *, worker: bool, jobs: str, group: bool = False) -> None:
    """Start an exploration that mounts states; kill it, or a worker, while each worker has mounted a state.

    With `group`, all its processes are killed at once.
    """
    arguments = ["--log", crash.log, "--check", "files", "--cuts", "1000", "--jobs", jobs, "--recovery", "mount"]
    # All states are mounted, so that the exploration takes long enough.
    arguments.append("--no-prune")
    process = crash.begin(*arguments)
    mounts = Path("/proc/mounts")
    # Before the workers, another process mounts the states of the controls, one at a time.
    wait_until(lambda: sum(str(crash.folder) in line for line in mounts.read_text().splitlines()) >= int(jobs), process)
    target = process.pid
    if worker:
        folder = next((crash.folder / "temporary").glob(".emmclab-*"))
        # The oldest process is the worker: a program that it starts inherits its open files for a short time.
        target = min(
            int(pid.name)
            for pid in Path("/proc").glob("[0-9]*")
            if any(_points_to(link, folder) for link in pid.glob("fd/*"))
        )
    (os.killpg if group else os.kill)(target, number)
    process.communicate(timeout=PATIENCE_S)


def ended_in_the_controls(crash: Runs, jobs: str) -> None:
    """Kill an exploration whose check hangs on the mounted disk of a control."""
    begun = crash.folder / "begun"
    # The check is a child of a shell, like the programs of a script.
    check = f"touch {begun}; sleep {2 * PATIENCE_S}; true"
    process = crash.begin("--log", crash.log, "--check", check, "--jobs", jobs)
    wait_until(begun.exists, process)
    assert str(crash.folder) in Path("/proc/mounts").read_text()
    process.kill()
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
        (signal.SIGKILL, False, "1"),
        (signal.SIGKILL, False, "2"),
    ],
    ids=["term-alone", "term-parent", "term-worker", "kill-alone", "kill-parent"],
)
def test_an_ended_exploration_leaves_no_mount_nor_folder(crash: Runs, number: int, worker: bool, jobs: str) -> None:
    crash(*DEVICE, "--workload", "files", "--operations", "60", "--cuts", "2", "--save-log", crash.log)
    ended(crash, number, worker=worker, jobs=jobs)
    nothing_left(crash.folder)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_command_killed_during_its_controls_leaves_no_mount_and_no_loop_device(crash: Runs, jobs: str) -> None:
    crash(*DEVICE, "--workload", "files", "--operations", "5", "--cuts", "2", "--save-log", crash.log)
    ended_in_the_controls(crash, jobs)
    nothing_left(crash.folder)


def test_what_a_killed_exploration_left_is_gone_after_the_next_one(crash: Runs) -> None:
    crash(*DEVICE, "--workload", "files", "--operations", "60", "--cuts", "2", "--save-log", crash.log)
    # The workers are killed, too, as if memory had run out, so that none of them unmounts.
    ended(crash, signal.SIGKILL, worker=False, jobs="1", group=True)
    assert scratch_files(crash.folder)
    crash("--log", crash.log, "--check", "files", "--cuts", "2")
    nothing_left(crash.folder)


@pytest.mark.parametrize(
    ("script", "text", "status"),
    [
        ("echo one; sleep 60", "not tested: the workload was ended after 2 s", 5),
        ("echo one; exit 3", "not tested: the workload failed (exit status 3)", 5),
        ("echo one; kill -9 $$", "not tested: the workload failed (signal 9)", 5),
        ("head -c 1000000 /dev/urandom; echo", "states", 0),
        ("touch a; sync", "printed no line", 0),
        ("fallocate -l 215M a; dd if=/dev/urandom of=big bs=1M status=none; echo done", "states", 0),
    ],
    ids=["hangs", "fails", "dies", "prints-garbage", "says-nothing", "fills-the-disk"],
)
def test_any_workload_comes_to_a_clear_end_and_leaves_nothing(crash: Runs, script: str, text: str, status: int) -> None:
    # Only workloads that hang have to be killed.
    patience_s = 2 if "sleep" in script else PATIENCE_S
    few = ("--cuts", "5", "--states", "boundary", "--timeout", str(patience_s))
    done = crash.run(*DEVICE, *few, "--", "sh", "-c", script)
    assert done.returncode == status, done.stderr
    assert text in done.stderr + done.stdout
    nothing_left(crash.folder)


@pytest.mark.parametrize("words", [("--", "./own.sh"), ("--check", "own.sh", "--", "true")])
def test_a_program_beside_the_user_is_to_be_named_by_its_whole_path(crash: Runs, words: tuple[str, ...]) -> None:
    script = crash.folder / "own.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert_fails(crash.run(*DEVICE, *words), f"give the absolute path, {script}")
    script.unlink()
    nothing_left(crash.folder)


@pytest.mark.usefixtures("root")
def test_a_finding_that_cannot_be_minimised_is_told_as_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_given: object) -> None:
        raise EmmclabError("the guest did not start", kind="failed")

    monkeypatch.setattr("emmclab.crash.minimize.minimize", fail)
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
        (["--again", "c3f2"], "is not the name of a state"),
        (["--again", "c3f2:1:2"], "0 logs in"),
        (["--log", "no-such.log"], "no-such.log"),
        ([*DEVICE, "--", "/no/such/program"], "/no/such/program"),
        ([*DEVICE, "--workload", "filse"], "there is no workload `filse`"),
        ([*FILES, "--states", "device,omit2"], "unknown method of choosing states"),
        ([*FILES, "--tear", "half"], "is not a way to tear"),
        ([*FILES, "--recovery", "fsck"], "is not a way of recovery"),
        ([*FILES, "--check", "sqlte --strict"], "is neither a check nor a program"),
        ([*FILES, "--shard", "0/3"], "is not a shard"),
    ],
)
def test_wrong_arguments_are_refused_by_name_before_a_run(crash: Runs, arguments: list[str], named: str) -> None:
    done = crash.run(*arguments)
    assert_fails(done, named)
    # Only its execution shows that a program is missing.
    if "--" not in arguments:
        assert "running" not in done.stderr and not (crash.folder / "emmclab-results").exists()
    nothing_left(crash.folder)


def test_a_truncated_log_is_explored_up_to_its_end_and_a_damaged_one_refused(crash: Runs) -> None:
    log = crash.folder / "run.log"
    crash(*DEVICE, "--workload", "append-log", "--operations", "30", "--cuts", "2", "--save-log", str(log))
    content = log.read_bytes()
    log.write_bytes(content[:-1])
    result = crash("--log", str(log), "--check", "append-log", "--cuts", "20", status=5)
    assert result["log"]["truncated"] and "truncated" in result["doubts"][0]
    for check in (["--check", "append-log"], []):
        done = crash.run("--log", str(log), "--cuts", "5", *check)
        assert done.returncode == 5 and "truncated" in done.stdout.splitlines()[0], done.stdout
    # The log is truncated in its header, in its first block, and before the mount.
    for length in (40, 300, 2000):
        log.write_bytes(content[:length])
        done = crash.run("--log", str(log), "--check", "append-log", "--cuts", "5")
        assert_fails(done, f"{log}: ", "cut short")
    log.write_bytes(content[:5000] + bytes([content[5000] ^ 255]) + content[5001:])
    assert_fails(crash.run("--log", str(log)), "damaged after it was written", "truncate -s", "byte ")


@pytest.mark.slow
def test_an_exploration_that_is_interrupted_goes_on_where_it_was(crash: Runs) -> None:
    options = ("--workload", "files", "--operations", "400", "--cuts", "2", "--jobs", "1")
    crash(*DEVICE, *options, "--save-log", crash.log)
    arguments = ["--log", crash.log, "--check", "files", "--cuts", "12000", "--jobs", "1", "--json"]
    process = crash.begin(*arguments)
    begun = time.monotonic()
    # Findings are stored after 2 seconds, and all states take more than 6.
    shares = "emmclab-results/crash/*/share-*.json"
    while len(list(crash.folder.glob(shares))) == 1 and time.monotonic() - begun < PATIENCE_S:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, stderr
    assert f"continue with --log {crash.log} --check files" in stderr
    resumed = crash("--log", crash.log, "--check", "files", "--cuts", "12000", "--jobs", "1")
    fresh = crash("--log", crash.log, "--check", "files", "--cuts", "12000", "--jobs", "2", "--results", "other")
    for key in ("findings", "states", "cuts", "covered"):
        assert resumed[key] == fresh[key], key


def test_options_that_do_not_fit_a_log_are_refused(crash: Runs) -> None:
    crash(*DEVICE, "--workload", "append-log", "--operations", "5", "--cuts", "2", "--save-log", crash.log)
    run, facts = open_run(crash.log)
    with pytest.raises(Exception, match="the number of the power cut must be 0 to"):
        explore(run, Options(only=(facts["moments"], 0)))
