"""A check that could not have failed gives no verdict, and one that cannot run is an error of its own."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import need
from crash_runs import dm_log
from emmclab.crash.checks import check_for
from emmclab.crash.controls import Control, Controls
from emmclab.crash.explore import Exploration, Options, open_run
from emmclab.crash.judging import fault_of, lines_of, require
from emmclab.crash.promises import ReadFiles
from emmclab.crash.recording import MOUNTED, Workload, scaled_down
from emmclab.crash.stored_log import Session, StoredLog
from emmclab.crash.summary import KEPT, NOT_CHECKED, NOT_TESTED, verdict
from emmclab.errors import ConfigError
from emmclab.simulation.device import Device

#: Checks that come with emmclab, with lines that each understands.
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
#: Output of programs that know nothing of a check, or nearly.
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
    own = lines_of(Printed(UNDERSTOOD[check]), check)  # type: ignore[arg-type]
    assert own.lines == UNDERSTOOD[check] and own.foreign == ""
    others = [line for name, lines in UNDERSTOOD.items() if name[:6] != check[:6] for line in lines]
    mixed = [line for one in [*UNDERSTOOD[check], ""] for line in (*FOREIGN, *others, one)]
    told = lines_of(Printed(mixed), check)  # type: ignore[arg-type]
    assert told.foreign == FOREIGN[0] or check == "append-log"
    assert len(told.understood) == len(mixed) + 1
    for count in range(len(mixed) + 1):
        lines = told.lines[: told.understood[count]]
        judge = check_for(check)
        found = ReadFiles(dict.fromkeys(judge.file_names(lines)), None)
        judge(found, lines)


WORDS = sorted({word for lines in [*UNDERSTOOD.values(), FOREIGN] for line in lines for word in line.split()})


@given(
    st.sampled_from(sorted(UNDERSTOOD)),
    st.lists(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=6).map(" ".join), max_size=12),
)
def test_no_mixture_of_words_ends_a_check(check: str, lines: list[str]) -> None:
    told = lines_of(Printed(lines), check)  # type: ignore[arg-type]
    judge = check_for(check)
    judge(ReadFiles(dict.fromkeys(judge.file_names(told.lines)), None), told.lines)


def test_a_step_of_a_program_is_understood_only_where_it_may_follow() -> None:
    lines = ["begin 0 a", "mount ext4 rw", "did", "begin 0 a", "end 0", "does create f", "begin 1 b", "end 1"]
    told = lines_of(Printed(lines), "programs")  # type: ignore[arg-type]
    assert told.lines == ["mount ext4 rw", "begin 0 a", "end 0", "begin 1 b", "end 1"]


def test_marks_of_emmclab_in_a_log_of_dm_log_writes_are_no_foreign_lines() -> None:
    told = lines_of(Printed([MOUNTED, "safe log 1"]), "append-log")  # type: ignore[arg-type]
    assert (told.printed, told.foreign, told.understood) == (1, "", [0, 0, 1])


def _found(**changed: Any) -> Exploration:
    held = Control(held=True)
    given: dict[str, Any] = {"lines": 2, "understood": 2, "foreign": "", "whole": held, "before": held}
    return Exploration(states=1, controls=Controls(**given | changed))


@pytest.mark.parametrize(
    ("found", "status", "doubt"),
    [
        (_found(), 0, ""),
        (_found(understood=None), 0, ""),
        (_found(), 3, "exit status 3"),
        (_found(), None, "was ended after 7 s (--timeout)"),
        (_found(lines=0, understood=0), 0, "acknowledged nothing"),
        (_found(understood=1, foreign="hello"), 0, "only 1 of 2 lines"),
        (_found(whole=Control(held=False, detail="f is lost")), 0, "everything written: f is lost"),
        (_found(whole=Control(None, "layer")), 0, "layer"),
        (_found(before=Control(held=False)), 0, "passes on the disk from before"),
        (_found(before=Control(None, "no disk")), 0, "no disk"),
        (Exploration(states=1), 0, "no control"),
    ],
)
def test_no_verdict_is_green_if_the_check_could_not_have_failed(
    tmp_path: Path, found: Exploration, status: int | None, doubt: str
) -> None:
    made = {"status": status, "workload": {"timeout_s": 7.0}}
    kept = StoredLog(tmp_path, tmp_path, None, "", {"truncated": False}, made)  # type: ignore[typeddict-item,arg-type]
    said = verdict(kept, Options(check="files"), found)
    assert said.word == (NOT_TESTED if doubt else KEPT)
    assert doubt in said.text
    unchecked = replace(found, controls=None)
    assert verdict(kept, Options(), unchecked).word == (NOT_CHECKED if status == 0 else NOT_TESTED)


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
def test_a_check_has_to_pass_on_the_whole_disk_and_to_fail_without_the_data(
    notes: StoredLog, check: str, passes_before: bool
) -> None:
    controls = notes.controls(Options(check=check, recovery="mount"))
    assert controls is not None and controls.lines == 3 and controls.understood is None
    assert controls.whole.held and controls.before.held is not passes_before
    assert bool(controls.doubts()) is passes_before


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("check", "says", "hint"),
    [
        (f"{LINES} false", "without a power cut: exit status 1", "correct the check"),
        (f"{LINES} exit 77", "without a power cut: exit status 77", "correct the check"),
        ("test -e note1", "with nothing acknowledged", "EMMCLAB_ACKNOWLEDGED"),
        ("./no-such-check.sh", "cannot run", "whole path"),
        ("cd /; exec /etc/passwd", "cannot run", "executable"),
        ("kill -9 $$", "was killed by SIGKILL", "|| exit 1"),
        ("sh -c 'kill -SEGV $$'; exit $?", "was killed by SIGSEGV", "|| exit 1"),
        ("append-log", "understands none of the 3 lines", "safe log N"),
        ("files", "understands none of the 3 lines", "SHA256"),
        ("sqlite", "understands none of the 3 lines", "safe test.db N"),
        ("programs", "understands none of the 3 lines", "mount TYPE"),
    ],
)
def test_a_check_that_cannot_judge_the_workload_is_an_error_with_a_cure(
    notes: StoredLog, check: str, says: str, hint: str
) -> None:
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
    # The log contains mkfs and the mark after it: what is in its way is the damage.
    kept = Session(tmp_path / "results").take(dm, base)
    assert kept.controls(Options(check=None, recovery="process")) is None
    only_notes = f'grep ^note "$EMMCLAB_ACKNOWLEDGED" | {REAL.partition(" <")[0]}'
    controls = kept.controls(Options(check=only_notes, recovery="mount"))
    assert controls is not None and controls.lines == 3 and not controls.doubts()
    image = tmp_path / "whole.img"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", str(image)], check=True, capture_output=True)
    damaged = bytearray(image.read_bytes())
    damaged[4096 + 0x1E] ^= 0xFF
    image.write_bytes(damaged)
    marks = tmp_path / "marks.log"
    dm_log(marks, "safe log 1")
    with pytest.raises(ConfigError, match="damaged before the workload begins"):
        Session(tmp_path / "other").take(marks, image).controls(Options(check="append-log"))


def test_the_fault_that_ends_e2fsck_is_named() -> None:
    said = "d: recovering journal\n\nd: ********** WARNING: Filesystem still has errors **********\n\n"
    assert fault_of(f"{said}e2fsck: Superblock checksum is wrong\n") == "e2fsck: Superblock checksum is wrong"
