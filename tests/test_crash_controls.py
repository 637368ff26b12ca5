"""Verdicts on power cuts: checks judge contents and have controls; verdicts are reused only if nothing changed."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import assert_fails, assert_refused, emmclab, make_btrfs, need
from crash_runs import DEVICE, Runs, dm_log
from emmclab.core_types import CrashLogFacts
from emmclab.crash.checks import CheckFiles, CheckLog, CheckSqlite, check_for
from emmclab.crash.explore import Control, Controls, Exploration, Options, explore, open_run, require_recoverable
from emmclab.crash.judging import fault_of, lines_of, require
from emmclab.crash.kernel_log import complaints_about
from emmclab.crash.mounting import NotMountedError, mounted
from emmclab.crash.promises import CutTally, Finding, ReadFiles
from emmclab.crash.recording import MOUNTED, Workload, scaled_down
from emmclab.crash.stored_log import Session, StoredLog, open_log
from emmclab.crash.summary import KEPT, NOT_CHECKED, NOT_TESTED, verdict
from emmclab.crash.verdict_inputs import contents_of, digest, grounds
from emmclab.crash.workloads import Thinking, record, sqlite_setting
from emmclab.errors import ConfigError, EmmclabError
from emmclab.simulation.device import Device

#: The checks of emmclab, each with lines that it understands.
SUM = "0" * 64
UNDERSTOOD = {
    "files": ["makes a/b 3 " + SUM, "safe a/b 3 " + SUM, "turns a/b gone", "safe a/b gone"],
    "append-log": ["safe log 1", "safe log 20"],
    "sqlite": ["safe test.db 0", "safe test.db 7"],
    "sqlite-wal": ["safe test.db 0"],
    "programs": [
        *("mount ext4 rw,relatime", "begin 0 a", "does create f", "did", "does msync f", "failed EINVAL"),
        *("end 0", "begin 1 b"),
    ],
}
#: Output of programs that are not written for a check, some with lines like those of a check.
FOREIGN = [
    *("safe log done", "makes a big file", "begin 0 x", "does nonsense", "did", "failed", "end 0", "mount"),
    *("safe", "safe ", "safe log", "safe log -1", "safe log 1 2", "safe log \u0661", "committed 5", "mounted"),
    *("safe test.db " + "9" * 5000, "safe ../../etc/passwd gone", "safe /etc/passwd gone", "safe .. gone", "mounted"),
    *("makes a 3", "makes a x " + SUM, "grows a gone gone", "", " ", "\0", "\ud800", "x" * 4096),
    *("mount ext4 rw", "begin 0 a", "does write f 0", "does create ../f", "begin -1 a", "end"),
]


class Printed:
    """A run that printed these lines."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def acknowledgements(self) -> list[str]:
        return self._lines


@pytest.mark.parametrize("check", UNDERSTOOD)
def test_a_check_reads_its_own_lines_and_no_foreign_output_ends_it(check: str) -> None:
    plain_lines = lines_of(Printed(UNDERSTOOD[check]), check)  # type: ignore[arg-type]
    assert plain_lines.lines == UNDERSTOOD[check] and plain_lines.foreign == ""
    others = [line for name, lines in UNDERSTOOD.items() if name[:6] != check[:6] for line in lines]
    mixed = [line for extra in [*UNDERSTOOD[check], ""] for line in (*FOREIGN, *others, extra)]
    mixed_lines = lines_of(Printed(mixed), check)  # type: ignore[arg-type]
    assert mixed_lines.foreign == FOREIGN[0] or check == "append-log"
    assert len(mixed_lines.understood) == len(mixed) + 1
    for count in range(len(mixed) + 1):
        lines = mixed_lines.lines[: mixed_lines.understood[count]]
        judge = check_for(check)
        result = ReadFiles(dict.fromkeys(judge.file_names(lines)), None)
        judge(result, lines)


WORDS = sorted({word for lines in [*UNDERSTOOD.values(), FOREIGN] for line in lines for word in line.split()})


@given(
    st.sampled_from(sorted(UNDERSTOOD)),
    st.lists(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=6).map(" ".join), max_size=12),
)
def test_no_mixture_of_words_ends_a_check(check: str, lines: list[str]) -> None:
    understood = lines_of(Printed(lines), check)  # type: ignore[arg-type]
    judge = check_for(check)
    judge(ReadFiles(dict.fromkeys(judge.file_names(understood.lines)), None), understood.lines)


def test_a_step_of_a_program_is_understood_only_where_it_may_follow() -> None:
    lines = ["begin 0 a", "mount ext4 rw", "did", "begin 0 a", "end 0", "does create f", "begin 1 b", "end 1"]
    understood = lines_of(Printed(lines), "programs")  # type: ignore[arg-type]
    assert understood.lines == ["mount ext4 rw", "begin 0 a", "end 0", "begin 1 b", "end 1"]


def test_marks_of_emmclab_in_a_log_of_dm_log_writes_are_no_foreign_lines() -> None:
    understood = lines_of(Printed([MOUNTED, "safe log 1"]), "append-log")  # type: ignore[arg-type]
    assert (understood.printed, understood.foreign, understood.understood) == (1, "", [0, 0, 1])


def _exploration(**changed: Any) -> Exploration:
    passed = Control(held=True)
    fields: dict[str, Any] = {"lines": 2, "understood": 2, "foreign": "", "whole": passed, "before": passed}
    return Exploration(states=1, controls=Controls(**fields | changed))


@pytest.mark.parametrize(
    ("exploration", "status", "doubt"),
    [
        (_exploration(), 0, ""),
        (_exploration(understood=None), 0, ""),
        (_exploration(), 3, "exit status 3"),
        (_exploration(), None, "was ended after 7 s (--timeout)"),
        (_exploration(lines=0, understood=0), 0, "acknowledged nothing"),
        (_exploration(understood=1, foreign="hello"), 0, "only 1 of 2 lines"),
        (_exploration(whole=Control(held=False, detail="f is lost")), 0, "everything written: f is lost"),
        (_exploration(whole=Control(None, "layer")), 0, "layer"),
        (_exploration(before=Control(held=False)), 0, "passes on the disk from before"),
        (_exploration(before=Control(None, "no disk")), 0, "no disk"),
        (Exploration(states=1), 0, "no control"),
    ],
)
def test_no_verdict_is_green_if_the_check_could_not_have_failed(
    tmp_path: Path, exploration: Exploration, status: int | None, doubt: str
) -> None:
    run_facts = {"status": status, "workload": {"timeout_s": 7.0}}
    log = StoredLog(tmp_path, tmp_path, None, "", CrashLogFacts({"truncated": False}), run_facts)  # type: ignore[arg-type]
    text = verdict(log, Options(check="files"), exploration)
    assert text.word == (NOT_TESTED if doubt else KEPT)
    assert doubt in text.text
    unchecked = replace(exploration, controls=None)
    assert verdict(log, Options(), unchecked).word == (NOT_CHECKED if status == 0 else NOT_TESTED)


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredLog]:
    """Record a workload that writes three notes, each acknowledged when it is durable."""
    folder = tmp_path_factory.mktemp("notes")
    need("mkfs.ext4")
    script = "for n in 1 2 3; do echo $n > note$n; sync note$n .; echo note$n; done"
    yield Session(folder).record(
        scaled_down(Device.preset("emmc51-cache")),
        Workload(command=("sh", "-c", script)),
        layers=(),
        layer_settings={},
        file_system="ext4",
        mkfs_options=(),
        mount_options=None,
        on_message=lambda _line: None,
    )
    shutil.rmtree(folder)


LINES = '[ -s "$EMMCLAB_ACKNOWLEDGED" ] || exit 0; '
REAL = 'while read n; do [ -s "$n" ] || { echo "$n is lost"; exit 1; }; done < "$EMMCLAB_ACKNOWLEDGED"'


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("check", "passes_before"),
    [(REAL, False), ("true", True), (f"{LINES} ls", True), (f"{LINES} test -e note3", False)],
)
def test_a_check_passes_on_the_whole_disk_and_fails_on_none(notes: StoredLog, check: str, passes_before: bool) -> None:
    controls = notes.controls(Options(check=check, recovery="mount"))
    assert controls is not None and controls.lines == 3 and controls.understood is None
    assert controls.whole.held and controls.before.held is not passes_before
    assert bool(controls.doubts()) is passes_before


@pytest.mark.usefixtures("root")
def test_a_loss_that_the_manual_permits_is_no_finding_unless_everything_may_be_lost(notes: StoredLog) -> None:
    # This check requires all notes as soon as one is acknowledged.
    names = {"note1": "the first", "note2": "the second", "note3": "the last"}
    check = LINES + "; ".join(f"[ -s {file} ] || {{ echo {name} is lost; exit 1; }}" for file, name in names.items())
    strict = Options(check=check, recovery="mount")
    run, _ = open_run(str(notes.log))
    assert {finding.detail for finding in explore(run, strict).findings()} == {"the second is lost", "the last is lost"}
    only_last = replace(strict, documented="the last is lost=the manual, section 3")
    controls = notes.controls(only_last)
    assert controls is not None and not controls.doubts()
    explored = explore(run, only_last)
    assert [finding.detail for finding in explored.findings()] == ["the second is lost"]
    assert [lost.documented for lost in explored.findings(documented=True)] == ["the manual, section 3"]
    controls = notes.controls(replace(strict, documented=["is lost"]))
    assert controls is not None and "permits that everything is lost" in controls.doubts()[0]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("check", "says", "hint"),
    [
        (f"{LINES} false", "without a power cut: exit status 1", "correct the check"),
        (f"{LINES} exit 77", "without a power cut: exit status 77", "correct the check"),
        ("test -e note1", "with nothing acknowledged", "EMMCLAB_ACKNOWLEDGED"),
        ("./no-such-check.sh", "cannot run", "absolute path"),
        ("cd /; exec /etc/passwd", "cannot run", "executable"),
        ("kill -9 $$", "was killed by SIGKILL", "|| exit 1"),
        ("sh -c 'kill -SEGV $$'; exit $?", "was killed by SIGSEGV", "|| exit 1"),
        ("append-log", "understands none of the 3 lines", "safe log N"),
        ("files", "understands none of the 3 lines", "SHA256"),
        ("sqlite", "understands none of the 3 lines", "safe test.db N"),
        ("programs", "understands none of the 3 lines", "mount TYPE"),
    ],
)
def test_an_unfit_check_is_refused_with_a_cure(notes: StoredLog, check: str, says: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        notes.controls(Options(check=check, recovery="mount"))
    assert says in str(refused.value) and hint in str(refused.value.hint)


def test_a_program_that_cannot_be_executed_is_refused_before_the_workload_runs(tmp_path: Path) -> None:
    need("mkfs.ext4")
    script = tmp_path / "check.sh"
    with pytest.raises(ConfigError, match="can be executed") as refused:
        require(str(script), "mount")
    assert refused.value.hint == "check the path"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match="can be executed") as refused:
        require(f"{script} --strict", "mount")
    assert refused.value.hint == f"make it executable: chmod +x {script}"


def test_a_disk_that_is_damaged_before_the_workload_is_an_error_at_once(notes: StoredLog, tmp_path: Path) -> None:
    dm, base = tmp_path / "dm.log", tmp_path / "base.img"
    run, _ = open_run(str(notes.log))
    run.write_dm(str(dm))
    with base.open("wb") as file:
        file.truncate(scaled_down(Device.preset("emmc51-cache")).capacity_bytes)
    # The log contains mkfs and the mark after it, so that the empty base image is no damage.
    log = Session(tmp_path / "results").take(dm, base)
    assert log.controls(Options(check=None, recovery="process")) is None
    only_notes = f'grep ^note "$EMMCLAB_ACKNOWLEDGED" | {REAL.partition(" <")[0]}'
    controls = log.controls(Options(check=only_notes, recovery="mount"))
    assert controls is not None and controls.lines == 3 and not controls.doubts()
    image = ext4_with(tmp_path, "whole", {})
    damaged = bytearray(image.read_bytes())
    damaged[4096 + 0x1E] ^= 0xFF
    image.write_bytes(damaged)
    marks = tmp_path / "marks.log"
    dm_log(marks, "safe log 1")
    with pytest.raises(ConfigError, match="damaged before the workload begins"):
        Session(tmp_path / "other").take(marks, image).controls(Options(check="append-log"))


def test_the_fault_that_ends_e2fsck_is_named() -> None:
    messages = "d: recovering journal\n\nd: ********** WARNING: Filesystem still has errors **********\n\n"
    assert fault_of(f"{messages}e2fsck: Superblock checksum is wrong\n") == "e2fsck: Superblock checksum is wrong"


class Files:
    """Files in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def read(self, path: str) -> bytes | None:
        return self._files.get(path)


def test_files_may_be_what_they_were_or_what_was_begun_and_nothing_else() -> None:
    import hashlib

    def described(data: bytes) -> str:
        return f"{len(data)} {hashlib.sha256(data).hexdigest()}"

    check = CheckFiles()
    makes = [f"makes a {described(b'12345')}"]
    for data in (None, b"", b"12", b"99", b"12345"):
        assert check(Files({} if data is None else {"/a": data}), makes) is None
    safe = [*makes, f"safe a {described(b'12345')}"]
    for data in (None, b"", b"1234", b"12346"):
        assert check(Files({} if data is None else {"/a": data}), safe) is not None
    assert check(Files({"/a": b"12345"}), safe) is None
    grows = [*safe, f"grows a {described(b'1234567')}"]
    assert check(Files({"/a": b"123456"}), grows) is None
    assert check(Files({"/a": b"023456"}), grows) is not None
    turns = [*safe, f"turns a {described(b'xyz')}"]
    assert check(Files({"/a": b"xyz"}), turns) is None and check(Files({"/a": b"xy"}), turns) is not None
    removed = [*safe, "turns a gone"]
    assert check(Files({}), removed) is None
    assert check(Files({"/a": b"12345"}), [*removed, "safe a gone"]) is not None


def test_a_log_has_every_record_that_was_safe_and_may_have_more() -> None:
    check, lines = CheckLog(), ["safe log 1", "safe log 2"]
    assert check.file_names(lines) == ["/log"]
    assert check(Files({"/log": record(1) + record(2) + b"torn"}), lines) is None
    for data in (record(1), record(1) + record(3), record(1) + b"\0" * 256):
        assert check(Files({"/log": data}), lines) is not None


def test_a_database_that_is_damaged_or_lacks_a_row_is_told_from_a_documented_loss(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "d"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, data BLOB)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(n, bytes(500)) for n in range(1, 30)])
    database.commit()
    database.close()
    content = path.read_bytes()

    def lost(name: str, safe: int, data: bytes | None, *, garbles: bool = False) -> Any:
        check = CheckSqlite(*(sqlite_setting(name) or (None, None)), garbles=garbles)
        files = {} if data is None else {"/test.db": data}
        return check(Files(files), [f"safe test.db {n}" for n in range(safe + 1)])

    assert lost("sqlite-delete", 29, content) is None
    first = lost("sqlite-delete", 30, content)
    assert first.promise == "commit" and first.documented
    assert lost("sqlite-delete", 31, content).documented is None
    assert lost("sqlite-delete-extra", 30, content).documented is None
    assert lost("sqlite-wal-normal", 40, content).documented
    # The journal is truncated, but not synced afterwards.
    assert "atomiccommit" in lost("sqlite-truncate-normal", 30, content).documented
    assert lost("sqlite-truncate-normal", 31, content).documented is None
    for name in ("sqlite-truncate-full", "sqlite-persist-normal", "sqlite-persist-full", "sqlite-wal-full"):
        assert lost(name, 30, content).documented is None, name
    assert lost("sqlite-wal", 1, None).promise == "commit"
    assert "psow" in lost("sqlite-wal", 30, content, garbles=True).documented
    assert lost("sqlite-wal", 31, content, garbles=True).documented is None
    assert lost("sqlite-truncate", 30, content, garbles=True).documented is None
    damaged = lost("sqlite-wal-normal", 1, content[:4096] + b"\xff" * 4096 + content[8192:])
    assert damaged.promise == "integrity"
    assert lost("sqlite-delete", 1, b"no database at all" * 300).promise == "integrity"


def test_failures_of_a_command_are_of_one_kind_if_their_texts_differ_only_in_numbers() -> None:
    result = Exploration(finished=True)
    damage = "inflate: data stream error"
    texts = ("row 7 is lost", "row 12 is lost", f"fsck: 3fa9c: {damage}", f"fsck: 00aab: {damage}")
    for index, text in enumerate(texts):
        result.add(Finding("check", "application", index, 0, index, text, "random", 0, 0))
    for index, text in enumerate(("f1: gone", "f2: gone")):
        result.add(Finding("fsync", "filesystem", index, 0, index, text, "random", 0, 0))
    kinds = [(finding.detail, finding.count) for finding in result.findings()]
    assert kinds == [("f1: gone", 2), (texts[0], 2), (texts[2], 2)]


def test_what_shares_found_is_one_whatever_their_order() -> None:
    def exploration(index: int) -> Exploration:
        verdicts = {index // 2: CutTally(at_ns=index // 2, states=2, broken=1)}
        part = Exploration(states=2, finished=True, verdicts=verdicts)
        part.add(Finding("flush", "device", index // 2, index, index, f"state {index}", "random", 0, 0))
        return part

    def merged(order: list[int]) -> Exploration:
        unsharded = Exploration(finished=True)
        for index in order:
            unsharded.merge(exploration(index))
        return unsharded

    first, other = merged([3, 0, 1, 2]), merged([0, 1, 2, 3])
    assert first == other and first.findings()[0].index == 0 and first.findings()[0].count == 4


def inputs_digest(check: str | None, recovery: str = "mount", identity: str = "log") -> str:
    return digest(grounds(check, recovery, identity=identity))


def test_a_hole_is_the_same_as_zeros_and_any_other_byte_is_not(tmp_path: Path) -> None:
    first, other = tmp_path / "one", tmp_path / "other"
    for path in (first, other):
        with path.open("wb") as file:
            file.truncate(5 << 20)
            file.seek(3 << 20)
            file.write(b"data")
    written = first.read_bytes()
    for content in (written, written[:-1] + b"x", written[:-1]):
        other.write_bytes(content)
        assert (contents_of(first) == contents_of(other)) == (content == written)


def test_the_grounds_are_log_and_base_check_recovery_and_tools() -> None:
    first = inputs_digest("./check.sh")
    assert inputs_digest("./check.sh") == first
    assert inputs_digest("./check.sh", identity="other") != first
    assert inputs_digest("./check.sh -v") != first
    assert inputs_digest("./check.sh", "e2fsck") != first
    assert inputs_digest("files", "process") != inputs_digest("files", "e2fsck") != inputs_digest("files", "mount")


def test_of_the_kernel_what_complains_about_the_device_is_quoted() -> None:
    records = [
        "6,1,1,-;XFS (loop1): Mounting V5 Filesystem\n SUBSYSTEM=block",
        "4,2,2,-;XFS (loop10): Filesystem has duplicate UUID",
        "3,3,3,-;EXT4-fs error (device loop1): ext4_fill_super: bad block",
        "4,4,4,-;JBD2: other",
    ]
    assert complaints_about("loop1", records) == "EXT4-fs error (device device): ext4_fill_super: bad block"
    assert complaints_about("loop2", records) == ""


def image_of(folder: Path, kind: str) -> Path:
    """Write the image of a disk with an empty file system."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(320 << 20)
    if kind == "btrfs":
        make_btrfs(image)
    else:
        need(f"mkfs.{kind}")
        subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    return image


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("kind", ["xfs", "btrfs", "ext4"])
def test_states_of_one_disk_are_mounted_side_by_side(tmp_path: Path, kind: str) -> None:
    image = image_of(tmp_path, kind)
    failed: list[BaseException] = []

    def judge(number: int) -> None:
        copy, folder = tmp_path / f"{number}.img", tmp_path / f"mount{number}"
        folder.mkdir()
        try:
            subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
            for _ in range(3):
                with mounted(copy, folder, 120):
                    (folder / "name").write_text(str(number))
                with mounted(copy, folder, 120):
                    assert (folder / "name").read_text() == str(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.usefixtures("root")
def test_a_mount_that_fails_gives_the_reason_of_the_kernel(tmp_path: Path) -> None:
    image = image_of(tmp_path, "ext4")
    with image.open("r+b") as file:
        file.seek(1024 + 0x3FC)
        file.write(b"\0\1\2\3")
    folder = tmp_path / "mount"
    folder.mkdir()
    with pytest.raises(NotMountedError) as refused, mounted(image, folder, 120):
        pass
    message = str(refused.value)
    assert "dmesg" not in message and "/dev/loop" not in message and str(tmp_path) not in message
    if os.access("/dev/kmsg", os.R_OK):
        assert "EXT4-fs" in message and "checksum" in message.lower(), message


def test_a_workload_with_think_times_pauses_and_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "0.5"], start_new_session=True)
    with Thinking(process.pid, tmp_path, seed=3) as thinking:
        assert process.wait(timeout=60) == 0
    assert thinking.pauses > 0
    assert Workload("files").thinks == 0
    with Thinking(process.pid, tmp_path, seed=0) as never:
        pass
    assert never.pauses == 0


def ext4_with(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    content_folder, image = folder / f"{name}.files", folder / f"{name}.img"
    content_folder.mkdir()
    for path, data in files.items():
        (content_folder / path).write_bytes(data)
    with image.open("wb") as file:
        file.truncate(16 << 20)
    make = ["mkfs.ext4", "-q", "-b", "4096", "-d", str(content_folder), str(image)]
    subprocess.run(make, check=True, capture_output=True)
    return image


def test_one_log_on_another_base_image_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    need("mkfs.ext4")
    log = tmp_path / "marks.log"
    dm_log(log, "safe log 1")
    base = ext4_with(tmp_path, "whole", {"log": record(1)})
    damaged = ext4_with(tmp_path, "damaged", {"log": record(2)})
    session, options = Session(tmp_path / "results"), Options(states="boundary", check="append-log")
    stored_log = session.take(log, base)
    first = stored_log.explore(options, 1, lambda _state: None)
    assert first.states > 0 and first.findings() == [] and first.reused == 0
    other = session.take(log, damaged)
    exploration = other.explore(options, 1, lambda _state: None)
    assert other.short != stored_log.short and exploration.reused == 0
    assert [finding.promise for finding in exploration.findings()] == ["fdatasync"]
    # A state is reproduced on the image of its exploration.
    finding = exploration.findings()[0]
    found_state, _ = session.find_state(other.name_of(options, finding.cut, finding.state))
    assert found_state.base == str(damaged)
    # With equal inputs, findings are reused, unless this is switched off.
    assert session.take(log, base).explore(options, 1, lambda _state: None).reused == first.states
    assert stored_log.explore(options, 1, lambda _state: None, reuse=False).reused == 0
    # Other content under the same name is another base image.
    base.write_bytes(damaged.read_bytes())
    assert session.take(log, base).explore(options, 1, lambda _state: None).findings()
    with pytest.raises(EmmclabError, match=r"its base image .*whole.img, is not the crash log"):
        session.find_state(stored_log.name_of(options, 0, 0))


def test_a_disk_without_ext4_is_refused_unless_the_kernel_recovers_it(tmp_path: Path) -> None:
    log, base = tmp_path / "marks.log", tmp_path / "disk.img"
    dm_log(log, "a line")
    with base.open("wb") as file:
        file.write(b"XFSB")
        file.truncate(16 << 20)
    run, _ = open_log(log, str(base))
    for recovery in ("process", "e2fsck"):
        with pytest.raises(ConfigError, match="supports only ext4") as refused:
            require_recoverable(run, Options(recovery=recovery))
        assert refused.value.hint is not None and "--recovery mount" in refused.value.hint
    require_recoverable(run, Options(recovery="mount"))


def test_an_ext4_whose_journal_has_no_magic_number_is_an_ext4(tmp_path: Path) -> None:
    need("mkfs.ext4")
    log = tmp_path / "marks.log"
    dm_log(log, "a line")
    base = ext4_with(tmp_path, "disk", {"file": b"data"})
    image = bytearray(base.read_bytes())
    # The magic number of a journal block and the type of a superblock of version 2 (JBD2).
    image[image.index(bytes.fromhex("c03b399800000004"))] ^= 0xFF
    base.write_bytes(image)
    run, _ = open_log(log, str(base))
    for recovery in ("process", "e2fsck"):
        require_recoverable(run, Options(recovery=recovery))


def test_what_changes_while_states_are_judged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("mkfs.ext4")
    dm_log(tmp_path / "marks.log", "safe log 1")
    log = Session(tmp_path / "results").take(tmp_path / "marks.log", ext4_with(tmp_path, "disk", {"log": record(1)}))
    versions = iter("12")
    monkeypatch.setattr("emmclab.crash.verdict_inputs.build", lambda: next(versions))
    with pytest.raises(EmmclabError, match="these changed while it ran: build"):
        log.explore(Options(states="boundary", check="append-log"), 1, lambda _state: None)


@pytest.mark.usefixtures("root")
def test_recordings_are_explored_together_and_each_pauses_on_its_own(tmp_path: Path) -> None:
    """A file that is truncated and rewritten is lost if the kernel writes back in between."""
    script = tmp_path / "in-place.sh"
    script.write_text('for n in 1 2 3; do : > a; sleep 0.05; echo "$n" > b; mv b a; sync a .; echo "safe $n"; done\n')
    words = ("--device", "emmc51-cache", "--cuts", "3", "--states", "device", "--jobs", "1", "--repeat", "2")
    done = emmclab("crash", *words, "--json", "--", "sh", str(script), cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    result = json.loads(done.stdout)
    first, second = result["recordings"]
    assert first["run"]["pauses"] == 0 < second["run"]["pauses"]
    assert first["log"]["identity"] != second["log"]["identity"]
    assert result["states"] == first["states"] + second["states"]
    assert_refused(emmclab("crash", "--log", first["log"]["path"], "--repeat", "2", cwd=tmp_path), "a single run")


def test_an_impossible_recovery_is_refused_early(crash: Runs) -> None:
    done = crash.run(*DEVICE, "--fs", "xfs", "--workload", "files")
    assert_fails(done, "supports only ext4")
    assert "--recovery mount" in done.stderr.partition("hint:")[2] and "running" not in done.stderr


def test_fast_commits_are_replayed_in_process_as_by_the_kernel(crash: Runs) -> None:
    fast = ("--operations", "5", "--mkfs-option=-O", "--mkfs-option=fast_commit")
    few = ("--workload", "files", "--cuts", "4", "--states", "device")
    in_process = crash(*DEVICE, *fast, *few)
    kernel = crash("--log", in_process["log"]["path"], "--recovery", "mount", *few)
    assert kernel["verdict"] == in_process["verdict"]
    assert (kernel["states"], len(kernel["findings"])) == (in_process["states"], len(in_process["findings"]))
