"""Applications as real processes on served devices, and application models learned from recordings."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import PATIENCE_S, assert_refused, begin, emmclab, emmclab_json, emmclab_ok, need, wait_until
from emmclab.apps.closed_loop import LearnedTime, application_text, applications, learn_application

#: A program that runs quickly on a real clock.
_PROGRAM = """
name = "notes"
about = "Saves notes"
source = "a test"
user_waits_for = "ui"

[[file]]
name = "pictures"
partition = "sdcard"
count = 3
size = "64KB"

[[file]]
name = "log"
partition = "data"

[[file]]
name = "older"
partition = "data"

[[database]]
name = "notes.db"
partition = "data"
size = "64KB"
journal_mode = "wal"

[[thread]]
name = "ui"
steps = [
    { start = { thread = "saver" } },
    { create = { file = "log" } },
    { repeat = { times = 5, steps = [
        { cpu = { ms = 2 } },
        { read = { file = "pictures", size = "16KB", count = 2, pick = "next" } },
        { network = { size = "10KB" } },
        { append = { file = "log", size = "4KB", count = 3 } },
        { fsync = { file = "log" } },
        { signal = { name = "saved" } },
    ] } },
    { join = { thread = "saver" } },
    { rename = { file = "log", to = "older" } },
    { sync = {} },
]

[[thread]]
name = "saver"
at_begin = false
steps = [
    { repeat = { times = 5, steps = [
        { wait = { name = "saved" } },
        { transaction = { database = "notes.db", pages = 2, new_pages = 1 } },
    ] } },
]
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "notes.toml"
    path.write_text(_PROGRAM)
    return path


@pytest.mark.usefixtures("root")
def test_a_live_run_asks_the_device_for_what_the_model_says(program: Path) -> None:
    live_run = emmclab_json("apps", "live", program, "--device", "nexus5", "--capacity", "4GB")
    live, model = live_run["live"], live_run["model"]
    assert live["app"]["requests"] is None and live["app"]["file_operations"] == model["app"]["file_operations"]
    assert live["app"]["file_syncs"] == model["app"]["file_syncs"]
    assert live["app"]["network_bytes"] == model["app"]["network_bytes"]
    for result in (live, model):
        assert sum(result["app"]["states"].values()) == result["app"]["runtime_ns"]
    # Times are not compared. The kernel may write a few blocks less, and a slow machine writes back more often.
    ratios = {row["name"]: row["ratio"] for row in live_run["agreement"]}
    assert ratios["writes"] < 1.25 and ratios["written"] < 1.25 and ratios.keys() >= {"runtime", "reads", "read"}
    assert live["preparation"]["bytes_written"] > 12 << 20 and model.get("preparation") is None


def _printed(name: object, page: Path, *more: str) -> str:
    """Run a program live and write its page; return the output on the terminal."""
    done = emmclab_ok("apps", "live", name, "--clock", "x0.01", "--html", page, *more)
    assert "Model / live" in done.stdout and "syncs of files" in done.stdout and "not counted: " in done.stdout
    assert "Time that the user waited for" in done.stdout and page.stat().st_size > 10_000
    return done.stdout


@pytest.mark.usefixtures("root")
def test_a_live_run_is_shown_on_the_terminal_and_as_a_page(program: Path, tmp_path: Path) -> None:
    small = ("--device", "nexus5", "--capacity", "4GB")
    text = _printed(program, tmp_path / "notes.html", *small)
    assert "notes on nexus5" in text
    layered = _printed(program, tmp_path / "advil.html", *small, "--layer", "advil")
    assert "notes on nexus5 under advil" in layered.replace("nexus5-4GB", "nexus5")


_QUICK = "maps"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "name",
    [pytest.param(row["name"], marks=() if row["name"] == _QUICK else pytest.mark.slow) for row in applications()],
)
def test_reads_and_writes_of_the_model_are_within_a_tenth_of_a_live_run(name: str) -> None:
    for _ in range(2):
        rows = emmclab_json("apps", "live", name, "--device", "transcend-c2")["agreement"]
        ratios = {row["name"]: row["ratio"] for row in rows if row["ratio"] is not None}
        requests = [ratios[figure] for figure in ("reads", "read", "writes", "written") if figure in ratios]
        if all(0.9 < ratio < 1.1 for ratio in requests):
            return
    # Timers commit and write back more often if the program takes longer than on a phone.
    if ratios["runtime"] < 0.88:
        pytest.skip("this machine is too busy for a run in real time")
    raise AssertionError(ratios)


@pytest.mark.usefixtures("root")
def test_nothing_of_a_live_run_stays_here(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = begin("apps", "live", program, "--device", "kingston-c4", stderr=subprocess.STDOUT)
    wait_until(lambda: _mounts(tmp_path), process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert not _mounts(tmp_path)
    assert str(tmp_path) not in subprocess.check_output(["losetup", "-a"], text=True)


def _mounts(folder: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if f"{folder}/" in line]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--host", "n900"], "there is no host `n900`"),
        (["--network", "lte"], "has no network `lte`"),
        (["--networks", "wifi,usb"], "`live` runs one application on one device with one network"),
        (["--device", "nexus6"], "nexus6"),
        (["--clock", "fast"], "fast"),
    ],
)
def test_a_live_run_that_cannot_be_is_refused(words: list[str], problem: str, program: Path) -> None:
    arguments = words if "--device" in words else [*words, "--device", "nexus5"]
    assert_refused(emmclab("apps", "live", program, *arguments), problem)


@pytest.mark.usefixtures("root")
def test_a_live_run_on_a_file_system_that_the_kernel_lacks_is_refused(program: Path, tmp_path: Path) -> None:
    host = tmp_path / "lfs.toml"
    preset = Path(__file__).parents[1] / "presets/hosts/phone-2020-ext4.toml"
    host.write_text(preset.read_text().replace('"ext4"', '"lfs"'))
    done = emmclab("apps", "live", program, "--device", "nexus5", "--host", host)
    assert_refused(done, "has lfs, which this kernel does not mount")


@pytest.fixture(scope="module")
def strace() -> str:
    need("strace")
    return str(shutil.which("strace"))


def _traced(strace: str, log: Path, *command: str) -> list[str]:
    """Run a command under strace, and return the lines of the log."""
    traced = [strace, "-f", "-ttt", "-T", "-y", "-o", str(log), *command]
    done = subprocess.run(traced, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("this machine does not let a process be traced")
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines(keepends=True)


def test_a_program_learned_from_strace_does_what_was_recorded(strace: str, tmp_path: Path) -> None:
    work, script = tmp_path / "work", tmp_path / "work.py"
    work.mkdir()
    script.write_text(
        "import os, sqlite3, sys\n"
        "os.chdir(sys.argv[1])\n"
        "base = sqlite3.connect('a.db')\n"
        "base.execute('create table t(x)')\n"
        "for n in range(20):\n"
        "    base.execute('insert into t values (?)', ('x' * 500,))\n"
        "    base.commit()\n"
        "base.close()\n"
        "with open('big', 'wb') as file:\n"
        "    for n in range(64):\n"
        "        file.write(b'y' * 65536)\n"
        "    file.flush()\n"
        "    os.fsync(file.fileno())\n"
        "os.rename('big', 'bigger')\n"
    )
    log, file = tmp_path / "app.strace", tmp_path / "app.toml"
    lines = _traced(strace, log, shutil.which("python3") or "python3", str(script), str(work))
    learn = emmclab_ok("apps", "learn", log, "-o", file, "--partition", "sdcard=/usr", "--partition", f"data={work}")
    assert "MB written" in learn.stdout and "work on a core" in learn.stdout
    learned = tomllib.loads(file.read_text())
    of = {Path(entry["name"]).name: entry for entry in learned["file"] if entry["partition"] == "data"}
    assert {"a.db", "a.db-journal", "big", "bigger"} <= set(of)
    assert of["a.db"]["class"] == "database" and of["a.db-journal"]["class"] == "database_journal"
    # The number of syncs equals that of the recording, and every byte was written.
    syncs = [line for line in lines if re.search(r" (fsync|fdatasync)\(", line)]
    written = sum(
        int(match.group(1))
        for line in lines
        if str(work) in line and (match := re.search(r" p?write(?:64|v)?\(.*\) += (\d+) <", line))
    )
    run = emmclab_json("apps", "run", file, "--device", "nexus5", "--host", "phone-2020")
    assert run["app"]["file_syncs"] == len(syncs)
    result = learn_application(log, partitions={"data": str(work)})
    assert result.known["written_bytes"] == written > 4 << 20


@pytest.mark.slow
def test_a_program_that_a_shell_starts_takes_as_long_as_without_the_shell(strace: str, tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(
        "import os, sqlite3, sys\n"
        "base = sqlite3.connect(os.path.join(sys.argv[1], 'a.db'))\n"
        "base.execute('create table t(x)')\n"
        "for n in range(40):\n"
        "    base.execute('insert into t values (?)', ('x' * 500,))\n"
        "    base.commit()\n"
    )
    # It must not be a wrapper such as that of pyenv, because the recording of one process would lack its children.
    python = os.path.realpath(sys.executable)
    shell = tmp_path / "app.sh"
    shell.write_text(f'#!/bin/sh\n{python} {script} "$1"\necho saved\n')
    lines = _traced(strace, tmp_path / "shell.strace", "sh", str(shell), str(tmp_path))
    first = lines[0].split()[0]
    child = next(line.split()[0] for line in lines if "a.db" in line and line.split()[0] != first)
    # The recording without the shell consists of the lines of the child, from the start of its program.
    own_lines = [line for line in lines if line.split()[0] == child]
    begin = next(at for at, line in enumerate(own_lines) if "execve(" in line)
    (tmp_path / "alone.strace").write_text("".join(own_lines[begin:]))
    times = {}
    for name in ("shell", "alone"):
        emmclab_ok("apps", "learn", tmp_path / f"{name}.strace", "-o", tmp_path / f"{name}.toml")
        for device in ("emmc51-cache", "kingston-c4"):
            runs = [
                emmclab_json("apps", "run", tmp_path / f"{name}.toml", "--device", device, "--seed", str(seed))["app"]
                for seed in range(1, 5)
            ]
            times[name, device] = sum(run["runtime_ns"] for run in runs) / len(runs)
            assert all(run["file_syncs"] > 100 for run in runs)
    for device in ("emmc51-cache", "kingston-c4"):
        assert times["shell", device] == pytest.approx(times["alone", device], rel=0.05), times
    assert times["shell", "kingston-c4"] > 5 * times["shell", "emmc51-cache"], times


def test_each_program_of_a_loop_in_a_shell_is_learned(strace: str, tmp_path: Path) -> None:
    need("dd")
    loop = 'for n in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of="$1/f$n" bs=4k count=4 conv=fsync; done'
    _traced(strace, tmp_path / "loop.strace", "sh", "-c", loop, "sh", str(tmp_path))
    emmclab_ok("apps", "learn", tmp_path / "loop.strace", "-o", tmp_path / "loop.toml")
    fast, slow = (
        emmclab_json("apps", "run", tmp_path / "loop.toml", "--device", device)["app"]
        for device in ("emmc51-cache", "kingston-c4")
    )
    assert fast["file_syncs"] == slow["file_syncs"] == 8
    assert slow["runtime_ns"] > fast["runtime_ns"]


def test_a_shell_that_sleeps_or_leaves_its_children_is_not_learned_in_silence(strace: str, tmp_path: Path) -> None:
    need("dd")
    write = f"dd if=/dev/zero of={tmp_path / 'x'} bs=4k count=200 oflag=sync"
    log, file = tmp_path / "a.strace", tmp_path / "a.toml"
    _traced(strace, log, "sh", "-c", f"sleep 1; {write}; sleep 1")
    assert_refused(emmclab("apps", "learn", log, "-o", file), "s asleep (wait4 for thread", "without its sleeps")
    assert not file.exists()
    done = emmclab_ok("apps", "learn", log, "-o", file, "--keep-pauses")
    asleep = re.search(r"waits, (\d+\.\d+) s asleep", done.stdout)
    assert asleep, done.stdout
    learned = emmclab_json("apps", "learn", log, "-o", file, "--keep-pauses")
    # Each `sleep` may fall asleep before the shell waits for it. The output is rounded to milliseconds.
    assert 1.9 < float(asleep[1]) < learned["known"]["asleep_ns"] / 1e9 + 0.001, done.stdout
    assert learned["known"]["asleep_ns"] >= 2_000_000_000 and set(learned["user"]) == {*LearnedTime.__annotations__}
    # The model contains the time for which writes wait for the device, and synchronous writes.
    run = emmclab_json("apps", "run", file, "--device", "nexus5")["app"]
    assert run["file_syncs"] == 200
    _traced(strace, log, "sh", "-c", f"{write} & exit 0")
    assert_refused(emmclab("apps", "learn", log, "-o", tmp_path / "b.toml"), "--user-waits-for")


def test_what_is_no_recording_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "text").write_text("hello\n" * 200)
    (tmp_path / "times").write_text('read(3, "", 5) = 0\n')
    for name in ("empty", "text", "times", "missing"):
        assert_refused(emmclab("apps", "learn", tmp_path / name, "-o", tmp_path / "out.toml"))
        assert not (tmp_path / "out.toml").exists()
    for words in ([], ["-o", "x.toml", "--partition", "data"]):
        assert_refused(emmclab("apps", "learn", tmp_path / "text", *words, cwd=tmp_path))


def test_a_learned_program_has_its_sources_and_assumptions(tmp_path: Path) -> None:
    log = tmp_path / "small.strace"
    log.write_text(
        '7 1.000000 openat(AT_FDCWD, "/data/a", O_RDWR) = 3 <0.000010>\n'
        '7 1.000100 pread64(3, "x"..., 4096, 8192) = 4096 <0.000800>\n'
        "7 1.002000 futex(0x1, FUTEX_WAIT, 0, NULL) = 0 <0.250000>\n"
    )
    assert_refused(emmclab("apps", "learn", log, "-o", "-"), "futex 0.250 s")
    done = emmclab_ok("apps", "learn", log, "-o", "-", "--keep-pauses")
    source = tomllib.loads(done.stdout)["source"]
    assert "0.250 s in calls that wait" in source and "Left to the model" in source
    queried = emmclab_json("apps", "learn", log, "-o", tmp_path / "a.toml", "--keep-pauses")
    assert queried["known"]["pause_ns"] == 250_000_000 and queried["format"] == "strace"
    assert_refused(emmclab("apps", "learn", log, "-o", "-", "--user-waits-for", "8"))
    assert "user_waits_for" in application_text("email")
