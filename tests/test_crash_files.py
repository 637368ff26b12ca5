"""Power cuts by a model of a file system: recordings of system calls, folders in memory, faults, and real devices."""

import errno
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, assert_refused, emmclab, executable, missing
from crash_runs import DEVICE, Runs
from emmclab.crash import Options, RecordedFolder, explore_files
from emmclab.crash.file_states import MODELS, FileRun
from pages import File, parts

GUIDE = ROOT / "docs/guides/crash-ci.md"
PYTHON = [sys.executable, "-I", "-S"]


@pytest.fixture
def files(tmp_path: Path) -> Runs:
    """`emmclab crash` in a folder with the programs of the guide, as any user."""
    if shutil.which("strace") is None:
        missing("strace", "apt-get install strace")
    for part in parts(GUIDE):
        if isinstance(part, File):
            executable(tmp_path / part.name, part.text)
    return Runs(tmp_path)


def writer(folder: Path, *careless: str) -> list[str]:
    check = f"sh {folder / 'check.sh'}"
    return ["--check", check, "--", *PYTHON, str(folder / "writer.py"), *careless]


@pytest.mark.parametrize("careless", ["", "no-sync", "no-folder"])
@pytest.mark.parametrize("model", MODELS)
def test_a_model_finds_the_sync_that_a_writer_forgets(files: Runs, model: str, careless: str) -> None:
    result = files("--model", model, "--cuts", "60", *writer(files.folder, *careless.split()))
    level = "device" if model == "lying-device" else "application"
    assert {finding["level"] for finding in result["findings"]} == ({level} if careless or level == "device" else set())
    assert result["controls"]["before"]["held"] and result["controls"]["whole"]["held"]


@pytest.mark.parametrize(
    ("workload", "verdict"),
    [("sqlite-wal", "kept"), ("sqlite-delete", "documented"), ("sqlite-wal-off", "broken"), ("files", "kept")],
)
def test_a_model_and_a_real_file_system_give_the_same_verdict(
    files: Runs, root: None, workload: str, verdict: str
) -> None:
    del root
    words = ["--workload", workload, "--operations", "10"]
    real = files(*DEVICE, *words, "--cuts", "150")
    assert real["verdict"] == verdict
    for model in ("ext4", "posix"):
        assert files("--model", model, *words)["verdict"] == verdict, model


@pytest.mark.slow
@pytest.mark.parametrize("careless", ["", "no-sync", "no-folder"])
def test_a_model_and_a_real_file_system_judge_a_writer_alike(files: Runs, root: None, careless: str) -> None:
    del root
    words = writer(files.folder, *careless.split())
    real = files(*DEVICE, "--cuts", "100", "--states", "device,boundary", *words)
    assert real["verdict"] == files("--model", "ext4", *words)["verdict"] == ("broken" if careless else "kept")


def test_a_finding_is_shown_again_with_its_files_and_in_reports(files: Runs) -> None:
    reports = ["--junit", "out.xml", "--sarif", "out.sarif", "--html", "out.html"]
    result = files("--model", "ext4", *reports, *writer(files.folder, "no-folder"), status=4)
    finding = result["findings"][-1]
    assert "<failure" in (files.folder / "out.xml").read_text() and "</html>" in (files.folder / "out.html").read_text()
    assert json.loads((files.folder / "out.sarif").read_text())["runs"][0]["results"][0]["level"] == "error"
    again = files("--again", finding["again"], status=4)
    assert [found["detail"] for found in again["findings"]] == [finding["detail"]]
    done = files.run("--again", finding["again"], "--save-image", "state")
    assert done.returncode == 4, done.stderr
    assert (files.folder / "state/config").read_text().startswith("version ")
    log = result["log"]["path"]
    other = files("--log", log, "--model", "posix", *writer(files.folder)[:2], status=4)
    assert other["states"] > result["states"]
    same = files("--log", log, "--model", "ext4", *writer(files.folder)[:2], status=4)
    assert [same[name] for name in ("states", "covered")] == [result[name] for name in ("states", "covered")]
    assert_refused(files.run("--log", log, "--check", "files"), "file operations", "--model")


CARELESS = """
import os
log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.fsync(log)
for number in range(1, 6):
    try:
        os.write(log, b"%09d\\n" % number * 10)
        os.fsync(log)
    except OSError:
        os.fsync(log)
    print(f"row {number}", flush=True)
"""
COUNT = """
told=$(wc -l < "$EMMCLAB_ACKNOWLEDGED")
[ "$told" = 0 ] && exit 0
there=$(grep -c '^0' log)
[ "$there" -ge $((told * 10)) ] || { echo "rows are lost"; exit 1; }
"""


@pytest.mark.parametrize("fault", ["eio", "enospc", "short"])
def test_faults_find_a_program_that_goes_on_after_an_error(files: Runs, fault: str) -> None:
    check = executable(files.folder / "count.sh", COUNT)
    program = executable(files.folder / "careless.py", CARELESS)
    words = ["--check", f"sh {check}", "--", *PYTHON, str(program)]
    assert files("--model", "ext4", *words)["verdict"] == "kept"
    result = files("--model", "ext4", "--faults", f"{fault}:20", *words, status=4)
    first, *others = result["recordings"]
    assert first["verdict"] == "kept" and "fault" not in first["run"]
    broken = [row["run"]["fault"] for row in others if row["verdict"] == "broken"]
    assert broken and all(row["run"]["fault"] for row in others)
    if fault == "eio":
        assert any("fsync" in name for name in broken), "a second fsync does not write what the first one lost"
    honest = ["--workload", "sqlite-wal", "--operations", "5", "--faults", f"{fault}:4"]
    assert files("--model", "ext4", *honest)["verdict"] == "kept"


@pytest.mark.parametrize(
    ("program", "doubt"),
    [
        ("import mmap; m = mmap.mmap(f.fileno(), 0); m[:4] = b'page'; m.flush()", "f is written by a shared mapping"),
        ("", None),
    ],
)
def test_what_strace_does_not_see_is_not_tested(files: Runs, program: str, doubt: str | None) -> None:
    begin = "import os; f = open('f', 'w+b'); f.write(b'x' * 4096); f.flush()"
    text = f"{begin}\n{program}\nos.fsync(f.fileno()); print('ok')"
    (files.folder / "map.py").write_text(text)
    words = [
        "--check",
        '[ ! -s "$EMMCLAB_ACKNOWLEDGED" ] || grep -q . f',
        "--",
        sys.executable,
        str(files.folder / "map.py"),
    ]
    result = files("--model", "ext4", *words, status=5 if doubt else 0)
    assert doubt is None or doubt in result["doubts"][0]


def test_calls_of_children_on_many_paths_are_recorded(files: Runs) -> None:
    script = """
    mkdir a a/b; echo one > a/b/f; cp a/b/f a/g; mv a/g a/h; ln a/h a/i; ln -s h a/j; (cd a && echo two >> b/f)
    echo three | tee a/k >/dev/null; truncate -s 2 a/k; rm a/i; mv a c; chmod 600 c/h; sync; echo done
    """
    check = """[ -s "$EMMCLAB_ACKNOWLEDGED" ] || exit 0
    [ "$(find . | sort | tr '\\n' ' ')" = ". ./c ./c/b ./c/b/f ./c/h ./c/j ./c/k " ] || { find .; exit 1; }
    [ "$(cat c/b/f c/j c/k)" = "one
two
one
th" ] && [ "$(stat -c %a c/h)" = 600 ] || { cat c/*; exit 1; }
    """
    result = files("--model", "posix", "--check", check, "--", "sh", "-c", script, status=0)
    assert result["states"] > 30


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "ntfs", "--workload", "files"], "ntfs"),
        (["--model", "ext4", "--workload", "files", "--tear", "inside"], "inside"),
        (["--model", "ext4", "--workload", "files", "--faults", "fire"], "fire"),
        (["--model", "ext4", "--workload", "files", *DEVICE], "--device"),
        (["--faults", "eio", "--workload", "files", *DEVICE], "--model"),
        (["--model", "ext4", "--check", "files", "--", "no-such-program"], "no-such-program"),
    ],
)
def test_impossible_options_of_a_model_are_refused(files: Runs, words: list[str], told: str) -> None:
    assert_refused(emmclab("crash", *words, cwd=files.folder), told)


# Engines in this process.

Engine = dict[str, Any]


def log_engine(folder: RecordedFolder, *, syncs: bool = True, names: bool = True, rows: int = 6) -> None:
    """Append rows with checksums to a log, and move it to another name at the end."""
    log = folder.open("log", create=True)
    if names:
        folder.sync()
    for number in range(rows):
        row = number.to_bytes(4) * 100
        if log.write(row + zlib.crc32(row).to_bytes(4)) < 404:
            raise OSError(errno.ENOSPC, "short")
        if syncs:
            log.sync(data_only=True)
        folder.acknowledge(f"row {number}")


def rows_of(files: Mapping[str, bytes], lines: Sequence[str]) -> str | None:
    data, count = files.get("log", b""), 0
    while len(row := data[404 * count : 404 * count + 404]) == 404 and zlib.crc32(row[:400]).to_bytes(4) == row[400:]:
        count += 1
    return f"{len(lines) - count} rows are lost" if count < len(lines) else None


@pytest.mark.parametrize(
    ("engine", "broken"),
    [({}, ["lying-device"]), ({"names": False}, ["posix", "lying-device"]), ({"syncs": False}, [*MODELS])],
)
def test_an_engine_in_memory_is_broken_by_the_models_that_do_not_keep_it(engine: Engine, broken: list[str]) -> None:
    outcomes = {model: explore_files(lambda folder: log_engine(folder, **engine), rows_of, model) for model in MODELS}
    assert [model for model, outcome in outcomes.items() if outcome.verdict == "broken"] == broken
    assert {outcome.verdict for outcome in outcomes.values()} <= {"broken", "kept"}


def test_a_check_that_cannot_fail_is_not_tested_and_one_that_always_fails_is_refused() -> None:
    assert explore_files(log_engine, lambda _files, _lines: None).verdict == "not tested"
    with pytest.raises(ValueError, match="without a power cut: no"):
        explore_files(log_engine, lambda _files, _lines: "no")


@pytest.mark.parametrize("fault", ["eio", "enospc", "short"])
def test_a_fault_in_memory_ends_a_careful_engine_and_finds_a_careless_one(fault: str) -> None:
    def careless(folder: RecordedFolder) -> None:
        log = folder.open("log", create=True)
        folder.sync()
        for number in range(4):
            row = number.to_bytes(4) * 100
            try:
                log.write(row + zlib.crc32(row).to_bytes(4))
                log.sync()
            except OSError:
                log.sync()
            folder.acknowledge(f"row {number}")

    def careful(folder: RecordedFolder) -> None:
        try:
            log_engine(folder)
        except OSError as error:
            if error.errno == errno.ENOSPC and fault == "short":
                return
            raise

    assert explore_files(careful, rows_of, faults=[fault]).verdict == "kept"
    outcome = explore_files(careless, rows_of, faults=[fault])
    assert outcome.verdict == "broken" and all(name.startswith(fault) for name in outcome.faults)


def test_flipped_bits_are_counted_and_are_no_finding(files: Runs) -> None:
    outcome = explore_files(log_engine, rows_of, options=Options(flips=50))
    assert (outcome.verdict, outcome.unnoticed) == ("kept", 0)
    outcome = explore_files(
        log_engine, lambda found, lines: None if found or not lines else "gone", options=Options(flips=50)
    )
    assert outcome.unnoticed == 50
    result = files("--model", "ext4", "--flips", "30", *writer(files.folder))
    (found,) = result["documented"]
    assert result["verdict"] == "documented" and found["promise"] == "flip" and 0 < found["states"] < 30
    again = files("--again", found["again"])
    assert [one["detail"] for one in again["documented"]] == [found["detail"]]


def model_states(run: FileRun, model: str, options: Options) -> set[tuple[tuple[str, bytes], ...]]:
    from emmclab.crash.file_states import FileExplorer

    core = Options(
        cuts=options.cuts, states=options.states, model=model, tear=options.tear, only=(len(run.events), None)
    )
    explorer, states = FileExplorer(run, core.core()), set()
    while explorer.next_state() is not None:
        states.add(tuple(sorted(explorer.files().items())))
    return states


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # A prefix of: the name `a`; its size with zeros or with data; both names are one step.
        ("ext4", {(), (("a", b""),), (("a", b"\0"),), (("a", b"x"),), (("b", b""),), (("b", b"\0"),), (("b", b"x"),)}),
        ("ext4-ordered", {(), (("a", b""),), (("a", b"x"),), (("b", b""),), (("b", b"x"),)}),
        (
            "posix",
            {
                (),
                *(
                    pair
                    for data in (b"", b"\0", b"x")
                    for pair in ((("a", data),), (("b", data),), (("a", data), ("b", data)))
                ),
            },
        ),
    ],
)
def test_the_states_of_a_new_file_that_is_renamed_are_those_of_the_model(
    model: str, expected: set[tuple[tuple[str, bytes], ...]]
) -> None:
    folder = RecordedFolder()
    folder.open("a", create=True).write(b"x")
    folder.rename("a", "b")
    assert model_states(folder.run(), model, Options(states="boundary,omit1,only1,pairs:99,random:400")) == expected


def test_a_torn_write_has_old_or_new_sectors() -> None:
    folder = RecordedFolder()
    file = folder.open("a", create=True)
    file.write(b"o" * 1024)
    file.sync()
    file.write(b"n" * 1024, 0)
    whole = {b"o" * 1024, b"n" * 1024}
    torn = whole | {b"o" * 512 + b"n" * 512, b"n" * 512 + b"o" * 512}
    for tear, expected in (("none", whole), ("sector", torn)):
        states = model_states(folder.run(), "ext4", Options(tear=tear))
        assert {dict(state)["a"] for state in states} == expected


def test_the_states_depend_on_the_seed_alone() -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        rows: list[str] = []
        explore_files(log_engine, lambda files, lines, rows=rows: rows.append(repr((files, [*lines]))), "posix")  # type: ignore[misc]
        seen.append(rows)
    assert seen[0] == seen[1] and len(seen[0]) > 20


def test_nothing_is_left_when_a_recording_is_killed(files: Runs) -> None:
    process = files.begin("--model", "ext4", "--check", "true", "--", "sh", "-c", "echo a > a; sleep 60")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.terminate()
    process.wait(30)
    files.run("--model", "ext4", "--workload", "append-log", "--operations", "2")
    left = [path for path in (files.folder / "temporary").iterdir() if not path.name.startswith("pymp-")]
    assert left == []
