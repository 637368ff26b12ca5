"""Original traces of a paper take the place of the workloads made from its figures: each is identified, and
claims on them are tests."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from browsing import Visit
from conftest import Reproduced, assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.errors import ConfigError, EmmclabError
from emmclab.papers.claims import NOT, RESTATED, TESTED, judge_study, settled
from emmclab.papers.iiswc15.recorded_workload import identified, named
from emmclab.studies import Results
from emmclab.studies.results import in_place, stand_ins, without
from emmclab.traces.workload import Workload, workload_groups

GROUPS = workload_groups()
WORKLOADS = (*GROUPS["applications"], *GROUPS["combos"])
#: File names of the archive, by the names in the paper, where the spelling differs.
OTHERWISE = {"GoogleMaps": "GoogleMap", "FB/Msg": "FaceBookHandOuts", "Music/FB": "Music_FaceBook"}
#: Claims that do not depend on a trace, or that remain restated because a device was fitted to their sources.
STAY = {"iiswc-hps-util-4ps", "iiswc-split-20k"}


def _file(workload: str) -> str:
    """Return the name of a file as in the archive."""
    number = 106 + WORKLOADS.index(workload)
    return f"log{number}_{OTHERWISE.get(workload, workload.replace('/', ''))}.txt"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the archive: a trace of each workload, and a file that is not a trace."""
    folder = tmp_path_factory.mktemp("archive") / "WorkSpace_nexus5"
    (folder / "Trace_files").mkdir(parents=True)
    for name in WORKLOADS:
        Workload.preset(name).trace(1).write(folder / "Trace_files" / _file(name), format="biotracer")
    (folder / "readme.txt").write_text("Traces of BIOtracer\n")
    return folder


@pytest.fixture
def folder(archive: Path, tmp_path: Path) -> Path:
    """A folder with three of the traces, which tests may change."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("Movie", "Messaging", "GoogleMaps"):
        shutil.copy(archive / "Trace_files" / _file(name), folder)
    return folder


def _shorten(path: Path, end: int, copy: Path | None = None) -> None:
    """Write the lines of a file before the line `end` to another file, or to the file itself."""
    (copy or path).write_text("".join(path.read_text().splitlines(keepends=True)[:end]))


def _recording(folder: Path, workload: str) -> Any:
    """Return the file that is identified as a workload."""
    (recording,) = (stand_in for stand_in in identified(folder, {}).used if stand_in.workload == workload)
    return recording


@pytest.fixture(scope="module")
def recorded(reproduced: Reproduced, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of the command for the whole archive, with the folder of its results and page."""
    folder = tmp_path_factory.mktemp("recorded")
    results = reproduced.copied(folder)
    printed = emmclab_json(
        *("reproduce", "iiswc15", "--jobs", 2, "--results", results, "--html", folder / "page.html"),
        *("--traces", archive),
    )
    return {**printed, "folder": folder}


def test_every_file_is_found_by_its_requests_and_size_whatever_its_name_is(archive: Path) -> None:
    recordings = identified(archive, {})
    assert {used.workload: used.file for used in recordings.used} == {
        name: f"Trace_files/{_file(name)}" for name in WORKLOADS
    }
    assert all("Table III" in used.how for used in recordings.used)
    assert [file for file, _ in recordings.left_out] == ["readme.txt"]


def test_a_file_without_its_last_requests_is_within_the_tolerance_that_is_said(folder: Path) -> None:
    path = folder / _file("Movie")
    _shorten(path, -20)
    path.rename(folder / "unnamed.txt")
    movie = _recording(folder, "Movie")
    assert movie.file == "unnamed.txt"
    assert "4,761 requests" in movie.how and "within 1 %" in movie.how


def test_a_file_with_other_figures_is_what_its_name_says_and_the_difference_is_said(folder: Path) -> None:
    _shorten(folder / _file("GoogleMaps"), 6266)
    maps = _recording(folder, "GoogleMaps")
    assert "by its name" in maps.how and "6,266 requests" in maps.how and "12,603" in maps.how


@pytest.mark.parametrize(
    ("file", "workload"),
    [
        ("log121_Movie.txt", "Movie"),
        ("LOG260_FaceBookHandOuts.txt.gz", "FB/Msg"),
        ("log7_FaceBookAgain.txt", "Facebook"),
        ("log126_MusicFaceBook.txt", "Music/FB"),
        ("WebBrowsing_Music.txt", "Music/WB"),
        ("log7_Call.txt", ""),  # This is CallIn or CallOut.
        ("notes.txt", ""),
        ("log106_Messaging.txt.md5", ""),
    ],
)
def test_names_are_those_of_the_archive_and_nothing_is_guessed(file: str, workload: str) -> None:
    assert named(file) == workload


def test_the_surer_of_two_files_is_taken_and_the_other_is_named(folder: Path) -> None:
    complete = folder / _file("Messaging")
    shorter = folder / "log300_Messaging.txt"
    _shorten(complete, 1000, shorter)
    assert _recording(folder, "Messaging").file == complete.name
    ((file, why),) = identified(folder, {}).left_out
    assert file == shorter.name and "Messaging" in why and "1,000 requests" in why


def test_among_many_files_a_trace_that_is_left_out_is_named_before_what_is_none(folder: Path, trace: Path) -> None:
    for number in range(200):
        (folder / f"driver{number}.c").write_text("int x;\n")
    shutil.copy(trace, folder / "mine.txt")
    left_out = identified(folder, {}).left_out
    assert left_out[0][0] == "mine.txt"
    assert len(left_out) < 30
    assert left_out[-1][1] == f"{201 - len(left_out) + 1} more files"


def test_of_two_files_that_are_a_workload_by_name_the_nearest_is_taken(folder: Path) -> None:
    path = folder / _file("GoogleMaps")
    _shorten(path, 500, folder / "log201_GoogleMap.txt")
    _shorten(path, 6266)
    recordings = identified(folder, {})
    assert path.name in [stand_in.file for stand_in in recordings.used]
    assert [file for file, _ in recordings.left_out] == ["log201_GoogleMap.txt"]


def test_two_files_that_are_one_workload_are_refused(folder: Path) -> None:
    shutil.copy(folder / _file("Movie"), folder / "again.txt")
    with pytest.raises(ConfigError, match=r"again\.txt and .*Movie") as error:
        identified(folder, {})
    assert error.value.hint


def test_a_damaged_trace_that_is_named_as_a_workload_is_refused(folder: Path) -> None:
    path = folder / _file("Movie")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:9], "nonsense\n", *lines[9:]]))
    with pytest.raises(EmmclabError, match=f"{path.name}:10"):
        identified(folder, {})
    assert len(identified(folder, {"lenient": True}).used) == 3


def test_a_trace_that_is_none_of_the_paper_is_left_out_and_named(folder: Path, trace: Path) -> None:
    shutil.copy(trace, folder / "mine.txt")
    ((file, why),) = identified(folder, {}).left_out
    assert file == "mine.txt" and "400 requests" in why


@pytest.mark.parametrize("command", [["reproduce", "iiswc15"], ["claims", "--paper", "iiswc15"]])
def test_a_folder_without_a_trace_of_the_paper_is_refused(command: list[str], trace: Path, tmp_path: Path) -> None:
    for folder, problem in ((tmp_path / "none", "folder not found"), (trace.parent, "no trace of the paper")):
        assert_refused(emmclab(*command, "--traces", folder, "--results", tmp_path / "results"), problem, "Trace_files")
    assert not list(tmp_path.iterdir())


def test_claims_on_recorded_traces_alone_are_tests_by_the_same_rules(recorded: dict[str, Any]) -> None:
    """The traces are generated, so that only the verdicts differ, but not the measured values."""
    claims = {claim["id"]: claim for claim in recorded["claims"]}
    assert {name for name, claim in claims.items() if claim["verdict"] == RESTATED} == STAY
    for name, claim in claims.items():
        evidence = claim["evidence"]
        if not evidence["recorded"]:
            continue
        assert evidence["made"] == [], name
        assert evidence["on_made"]["measured"] == claim["measured"], name
        if name not in STAY:
            assert claim["verdict"] in TESTED, name
            assert "Judged on recorded traces alone" in claim["reason"], name
    assert claims["iiswc-c1"]["evidence"]["on_made"]["verdict"] == RESTATED
    assert claims["iiswc-size-decides"]["verdict"] == NOT


def test_the_page_shows_what_each_file_is_and_both_columns(recorded: dict[str, Any], browser: Browser) -> None:
    visit = Visit(browser, recorded["folder"] / "page.html", width=390)
    rows = visit.page.locator("#recorded tbody tr")
    assert rows.count() == len(WORKLOADS)
    assert "Table III" in rows.first.inner_text()
    assert "readme.txt" in (visit.page.locator("#recorded").text_content() or "")
    tables = visit.page.locator("#tables").inner_text()
    assert "Messaging, recorded" in tables and "Messaging, synthetic" in tables
    cells = visit.page.locator("#iiswc-c1 td").all_inner_texts()
    assert RESTATED in cells[2] and "15 of 18" in cells[1] and "15 of 18" in cells[2]
    assert "Accuracy of synthesis: Movie" in visit.page.locator("#beyond").inner_text()
    visit.draw_all()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.words == []


def test_the_page_names_its_command_and_is_rewritten(recorded: dict[str, Any], archive: Path, tmp_path: Path) -> None:
    page = recorded["folder"] / "page.html"
    assert f"emmclab reproduce iiswc15 --traces {archive}" in page.read_text()
    emmclab_ok("report", "iiswc15", "--results", recorded["folder"] / "results", "--html", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_one_trace_settles_what_it_alone_decides_and_a_mixture_is_said(recorded: dict[str, Any]) -> None:
    """Only Movie is recorded: its figure is a test, and claims on all applications stay restated."""
    all_results = Results.load(recorded["folder"] / "results" / "iiswc15")
    recordings = all_results.about["recordings"]
    movie = [recording for recording in recordings["used"] if recording["workload"] == "Movie"]
    others = {name for name, workload in stand_ins(all_results).items() if workload != "Movie"}
    mixture = Results(
        {**all_results.about, "recordings": {**recordings, "used": movie}},
        {name: profile for name, profile in all_results.profiles.items() if name not in others},
        [run for run in all_results.runs if run["input"] not in others],
        "",
    )
    claims = {claim.id: claim for claim in judge_study(mixture)}
    assert claims["iiswc-fig6"].verdict in TESTED
    assert claims["iiswc-c1"].verdict == RESTATED
    assert "1 of 18 traces are recorded (Movie)" in claims["iiswc-c1"].reason
    assert claims["iiswc-hps-mrt-mean"].verdict in TESTED
    assert "recorded traces alone settle 1;" in settled(claims.values())
    assert "differ from those on synthetic traces alone: iiswc-fig6." in settled(claims.values())


def test_a_workload_stays_where_its_recording_has_no_run(recorded: dict[str, Any]) -> None:
    all_results = Results.load(recorded["folder"] / "results" / "iiswc15")
    runs = [run for run in all_results.runs if run["grid"] != "phone" or run["input"] not in stand_ins(all_results)]
    placed = in_place(Results(all_results.about, all_results.profiles, runs, ""))
    kinds = {(run["grid"], run.recorded_as is not None) for run in placed.runs}
    assert ("phone", False) in kinds and ("phone", True) not in kinds
    assert ("hybrid", True) in kinds and ("hybrid", False) not in kinds
    assert list(placed.profiles) == list(without(all_results).profiles) == list(WORKLOADS)


def test_the_recorded_trace_replaces_its_workload(reproduced: Reproduced, shared_traces: Path, tmp_path: Path) -> None:
    results = reproduced.copied(tmp_path)
    done = emmclab_ok(
        *("reproduce", "iiswc15", "--results", results, "--html", tmp_path / "page.html", "--json"),
        *("--traces", shared_traces / "nexus5"),
    )
    assert "Messaging: log106_Messaging.txt, 5,702 requests, 63,668 KB: as in Table III" in done.stderr
    claims = {claim["id"]: claim for claim in json.loads(done.stdout)["claims"]}
    assert claims["iiswc-hps-mrt-mean"]["evidence"]["recorded"] == ["Messaging"]
    assert "1 of 18 traces are recorded (Messaging)" in claims["iiswc-hps-mrt-mean"]["reason"]
    assert claims["iiswc-c1"]["verdict"] == RESTATED
    text = (tmp_path / "page.html").read_text()
    assert "Messaging, recorded" in text
    assert "Accuracy of synthesis: Messaging" in text
    assert "26 workloads" in text


@pytest.fixture(scope="module")
def messaging(shared_traces: Path) -> Path:
    return shared_traces / "nexus5" / "log106_Messaging.txt"


def test_messaging_in_words_stands_above_the_published_row(messaging: Path) -> None:
    lines = emmclab("profile", messaging).stdout.splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("log106_Messaging ")]
    size, timing = rows[1], rows[2]
    assert lines[size].split()[1:] == ["63,668", "5,702", "128", "11.17", "23.25", "10.83", "97.30", "94.38"]
    assert lines[size + 1].split() == ["published", "63,668", "5,702", "128", "11", "23", "10.5", "97.3", "94.38"]
    assert lines[timing].split()[4:] == ["86.39", "1.68", "1.88", "28.87", "50.81"]
    assert lines[timing + 1].split()[4:] == ["86", "1.68", "1.88", "28.85", "50.82"]


def test_eight_phone_traces_on_one_page(shared_traces: Path, tmp_path: Path) -> None:
    traces = sorted((shared_traces / "pixel6a").glob("*.csv.gz"))
    assert len(traces) == 8
    page = tmp_path / "pixel.html"
    emmclab_ok("profile", *traces, "--compare", "--html", page)
    text = page.read_text()
    assert all(path.name.removesuffix(".csv.gz") in text for path in traces)
    assert len(text) < 3_000_000


@pytest.mark.slow
def test_advice_for_messaging_is_for_the_state_that_the_phone_was_recorded_in(messaging: Path) -> None:
    advice = emmclab_json("advise", messaging, "--device", "nexus5")
    state = advice["state"]
    assert state["chosen"] == "recorded" and state["meets"]
    # A device after a year of use is far slower than the recorded one.
    errors = {candidate["precondition"]: candidate["error_pct"] for candidate in state["tried"]}
    assert abs(errors[state["precondition"]]) < 5 < 10 < errors["used:1y"]


def test_a_device_that_was_fitted_to_a_trace_says_so_beside_their_agreement(messaging: Path) -> None:
    output = emmclab("simulate", messaging, "--device", "nexus5").stdout
    assert "nexus5 was fitted to this trace" in output
    assert "2 of 154 reads reach it" in output
    assert "fitted to this trace" not in emmclab("simulate", messaging, "--device", "sdcard").stdout
