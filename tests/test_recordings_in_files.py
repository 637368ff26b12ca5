"""blktrace writes a file for each processor; read together, separately or combined, the recording is one."""

from __future__ import annotations

from typing import Any

from conftest import ROOT, emmclab, emmclab_json
from emmclab.traces.profile import Profile
from emmclab.traces.profile_notes import notes
from emmclab.traces.reading import read

FIXTURES = ROOT / "crates/trace/tests/fixtures"
FILES = [FIXTURES / "little.blktrace.0.gz", FIXTURES / "little.blktrace.1.gz"]


def kept(*arguments: object) -> list[Any]:
    return [profile["ledger"]["kept"] for profile in emmclab_json("profile", *arguments)]


def test_files_of_a_recording_count_once() -> None:
    (alone,) = kept(FILES[0])
    assert alone > 0
    assert kept(*FILES) == [alone]
    assert kept(*FILES, "--combine") == [alone]
    assert kept(*FILES, FIXTURES / "big.blktrace.1.gz") == [alone, *kept(FIXTURES / "big.blktrace.0.gz")]


def test_one_trace_that_is_no_recording_in_files_is_not_combined() -> None:
    done = emmclab("profile", FIXTURES / "blkparse.txt.gz", "--combine")
    assert done.returncode != 0
    assert "one trace to combine" in done.stderr


def test_the_note_of_a_trace_stands_among_those_of_its_profile() -> None:
    profile = read(FILES[0]).profile()
    told = {**profile.to_dict(), "header": {**profile["header"], "note": "processor 1 is missing"}}
    assert ("Recording", "processor 1 is missing") in notes(Profile(told))
