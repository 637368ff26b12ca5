"""Every command works, with text and with JSON output."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.core import TyperGroup

import emmclab as package
from conftest import PATIENCE_S, ROOT, assert_refused, emmclab, emmclab_json, emmclab_ok, environment
from emmclab.cli import application
from emmclab.cli.command import walk_commands
from emmclab.traces.profile_fields import LEDGER_MEANINGS
from repository import complain

SIZE_AND_TIMING = [
    "data_size_kb",
    "requests",
    "max_size_kb",
    "mean_size_kb",
    "mean_read_kb",
    "mean_write_kb",
    "write_requests_pct",
    "written_bytes_pct",
    "duration_s",
    "arrival_rate_per_s",
    "access_rate_kb_per_s",
    "no_wait_pct",
    "mean_service_ms",
    "mean_response_ms",
    "spatial_locality_pct",
    "temporal_locality_pct",
]


def test_no_part_of_a_help_is_taken_for_markup() -> None:
    helps = [
        parameter.help
        for _, command in walk_commands(application())
        for parameter in command.params
        if getattr(parameter, "help", None)
    ]
    assert len(helps) > 100
    assert [text for text in helps if Text.from_markup(text).plain != text] == []


def test_explain_names_format_clock_ledger_and_columns(trace: Path) -> None:
    explained = emmclab_json("explain", trace)
    assert explained["header"]["format"] == "biotracer"
    assert explained["ledger"]["kept"] == 400
    assert {column["name"] for column in explained["columns"]} >= {"arrival_ns", "sector", "op"}
    text = emmclab("explain", trace).stdout
    assert "1 January 1970" in text
    assert "when the device had finished it" in text


def test_explain_tells_the_format_of_the_file_from_the_one_it_was_first_read_from(trace: Path, tmp_path: Path) -> None:
    converted = tmp_path / "chat.parquet"
    assert emmclab("convert", trace, converted, "--format", "biotracer").returncode == 0
    explained = emmclab_json("explain", converted)
    assert (explained["file_format"], explained["recognised_by"]) == ("parquet", "its content")
    assert (explained["format"], explained["format_recognised_by"]) == ("biotracer", "--format")
    assert explained["header"]["source"] == "chat.txt"
    text = emmclab("explain", converted).stdout
    assert "parquet, recognised by its content" in text
    assert "recognised by --format" in text
    original = emmclab_json("explain", trace)
    assert (original["file_format"], original["format_recognised_by"]) == ("biotracer", "its content")


def test_a_profile_names_the_bytes_it_was_made_of(trace: Path, other_trace: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(trace.read_bytes()).hexdigest()[:16]
    page = tmp_path / "page.html"
    (profile,) = emmclab_json("profile", trace, "--html", page)
    assert list(profile)[:2] == ["name", "trace_digest"]
    assert profile["trace_digest"] == digest
    assert emmclab_json("explain", trace)["digest"] == digest
    assert digest in page.read_text()
    (combined,) = emmclab_json("profile", trace, other_trace, "--combine")
    both = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in (trace, other_trace))
    assert combined["trace_digest"] == hashlib.sha256(both.encode()).hexdigest()[:16]


def emmclab_rows(path: Path) -> list[dict[str, Any]]:
    return package.read(path).rows(10**6)


def test_convert_keeps_every_request(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "chat.parquet"
    done = emmclab_json("convert", trace, target)
    assert done["ledger"]["kept"] == 400
    converted = emmclab_json("profile", target)[0]
    first = emmclab_json("profile", trace)[0]
    for differs in ("trace_digest", "provenance"):
        assert converted.pop(differs) != first.pop(differs)
    assert converted == first


def test_convert_merges_traces_from_their_start_times(trace: Path, other_trace: Path, tmp_path: Path) -> None:
    arrivals = [[row["arrival_ns"] for row in emmclab_rows(path)] for path in (trace, other_trace)]
    for offset, seconds in ((None, 0), ("0s,10s", 10), ("0,1.5m", 90)):
        out = tmp_path / "both.parquet"
        more = [] if offset is None else ["--offset", offset]
        emmclab_ok("convert", trace, other_trace, "-o", out, *more)
        expected = sorted(
            arrival - times[0] + begin
            for times, begin in zip(arrivals, (0, seconds * 10**9), strict=True)
            for arrival in times
        )
        assert [row["arrival_ns"] for row in emmclab_rows(out)] == expected


def test_convert_refuses_words_that_mix_inputs_and_output(trace: Path, other_trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    before = other_trace.read_bytes()
    for words, field in (
        ((trace, other_trace, out), "-o OUT"),
        ((trace,), "out.parquet"),
        ((trace, "-o", out, "--offset", "1s"), "several traces"),
        ((trace, other_trace, "-o", out, "--offset", "1s"), "1 start times for 2 traces"),
        ((trace, other_trace, "-o", out, "--offset", "0s,soon"), "`soon` is not a duration"),
        ((trace, other_trace, "-o", other_trace), "is also the input"),
    ):
        assert_refused(emmclab("convert", *words), field)
    assert not out.exists() and other_trace.read_bytes() == before


def test_profile_json_is_a_list_with_the_name_first(trace: Path, other_trace: Path) -> None:
    profiles = emmclab_json("profile", trace, other_trace)
    assert [profile["name"] for profile in profiles] == ["chat", "camera"]
    for profile in profiles:
        assert next(iter(profile)) == "name"
        assert [field for field in profile if field in SIZE_AND_TIMING] == SIZE_AND_TIMING
        assert len(profile["findings"]) == 11


def test_profiles_side_by_side(trace: Path, other_trace: Path) -> None:
    done = emmclab_ok("profile", trace, other_trace, "--compare")
    for row in ("chat", "camera"):
        assert any(line.strip().startswith(row) for line in done.stdout.split("Table IV")[1].splitlines())
    assert "Findings" in done.stdout


def test_two_files_of_the_same_name_get_two_names(trace: Path, tmp_path: Path) -> None:
    other = shutil.copy(trace, tmp_path / trace.name)
    assert [profile["name"] for profile in emmclab_json("profile", trace, other)] == ["chat", "chat (2)"]


def test_figures_are_written_with_their_data(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    emmclab_ok("profile", trace, "--figures", folder)
    assert "<svg" in (folder / "size_distribution.svg").read_text()
    rows = (folder / "size_distribution.csv").read_text().splitlines()
    assert rows[0].startswith("trace,op,bin,low_kb,high_kb")
    assert {path.stem for path in folder.glob("*.svg")} == {path.stem for path in folder.glob("*.csv")}


def test_published_tables_name_their_contradictions() -> None:
    tables = emmclab_json("papers", "tables")
    assert len(tables["rows"]) == 25
    copied = {entry["name"] for entry in tables["inconsistencies"] if entry["check"] == "another row"}
    assert copied == {"Music/WB", "Radio/WB", "Music/FB", "Radio/FB", "Music/Msg", "Radio/Msg", "FB/Msg"}


def test_the_included_traces_are_profiled_as_any_others(tmp_path: Path) -> None:
    done = emmclab_ok("profile", "--demo", "--html", "report.html", "--json", cwd=tmp_path)
    assert [profile["name"] for profile in json.loads(done.stdout)] == [path.stem for path in package.bundled()]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_a_profile_needs_traces_or_the_included_ones_and_not_both(trace: Path) -> None:
    for words, field in (((), "no trace is given"), ((trace, "--demo"), "--demo")):
        assert_refused(emmclab("profile", *words), field)


def test_a_trace_is_compared_with_traces_workloads_and_parts(trace: Path, other_trace: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "1.txt").write_bytes(other_trace.read_bytes())
    for other, name in ((other_trace, "camera"), ("Messaging", "Messaging"), (parts, "parts")):
        comparison = emmclab_json("profile", trace, "--against", other)
        assert (comparison["first"], comparison["second"]) == ("chat", name)
        assert {row["field"] for row in comparison["fields"]} == {*SIZE_AND_TIMING}
    assert emmclab("profile", trace, other_trace, "--against", trace).returncode == 2


@pytest.mark.parametrize("arguments", [["profile"], ["head"], ["explain"]])
def test_two_runs_give_the_same_bytes(trace: Path, arguments: list[str]) -> None:
    assert emmclab(*arguments, trace).stdout == emmclab(*arguments, trace).stdout
    assert emmclab(*arguments, trace, "--json").stdout == emmclab(*arguments, trace, "--json").stdout


def test_two_conversions_and_two_reports_give_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    for run in ("a", "b"):
        assert emmclab("convert", trace, tmp_path / f"{run}.parquet").returncode == 0
        assert emmclab("profile", trace, "--html", tmp_path / f"{run}.html").returncode == 0
    for ending in ("parquet", "html"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


@pytest.mark.parametrize("columns", [30, 80])
def test_a_narrow_terminal_cuts_no_figure_and_no_name(trace: Path, columns: int) -> None:
    for arguments in (["profile", trace], ["head", trace], ["compare", trace], ["devices"], ["explain", trace]):
        done = emmclab_ok(*arguments, env={"COLUMNS": str(columns)})
        assert "…" not in done.stdout, arguments


def test_explain_lists_what_settings_allow_and_what_counts_mean(trace: Path) -> None:
    done = emmclab("explain", "small-1gb")
    assert "greedy, " in done.stdout and "true, false" in done.stdout
    rows = {row["key"]: row["allowed"] for row in emmclab_json("explain", "small-1gb")}
    assert "windowed_greedy" in rows["gc.policy"] and "interleave" in rows["timing.parallelism"]
    counted = emmclab("explain", trace, env={"COLUMNS": "200"}).stdout
    for field in package.read(trace).ledger:
        assert LEDGER_MEANINGS[field] in counted, field
        assert LEDGER_MEANINGS[field] != package._core.ledger_labels()[field], field


def test_commands_print_what_is_kept() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "command_outputs.py"), "check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, check=False)
    assert done.stderr == "", done.stderr
    if done.returncode != 0:
        pytest.fail(done.stdout, pytrace=False)


def test_bad_input_gives_an_error_with_a_hint_and_never_a_traceback() -> None:
    faults = []
    for path in sorted((ROOT / "tests" / "messages").glob("*.txt")):
        for case in re.split(r"^\$ ", path.read_text(), flags=re.MULTILINE):
            if "bug in emmclab" in case or "Traceback" in case:
                faults.append(case)
            if "! error: " in case and "! hint: " not in case:
                faults.append(case)
    complain(faults, "give each error a hint that says what to do")


def test_help_fits_the_terminal() -> None:
    faults = []
    for words, command in walk_commands(application()):
        option = "--help" if isinstance(command, TyperGroup) else "--help-all"
        lines = emmclab(*words.split(), option, env={"COLUMNS": "80"}).stdout.splitlines()
        faults += [f"{words}: {line}" for line in lines if len(line) > 80 or "…" in line]
    complain(faults, "shorten the metavar or the word that does not fit")
