"""Answers of `emmclab query` are complete and exact on the terminal, as JSON or CSV, and in files."""

import csv
import io
import json
import shutil
import sys
from pathlib import Path

import duckdb
import pytest

from conftest import (
    COMMAND,
    assert_fails,
    assert_refused,
    csv_trace,
    emmclab,
    emmclab_json,
    emmclab_ok,
    environment,
    execute,
)
from emmclab._core import FLAG_NAMES
from emmclab.runtime.lists import split_names
from emmclab.studies import Serial, Study, run_study
from emmclab.studies.search import Objective, require_objectives

SQL = "select input, seed, requests, 63668 * 1000 as n, 1234567.5 as big from profiles order by all"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two studies."""
    folder = tmp_path_factory.mktemp("results")
    for name, inputs in (("one", ["Idle", "Movie"]), ("two", ["Music"])):
        study = Study.parse(f"name = {name!r}\ninputs = {inputs!r}\nseeds = [1, 2]", f"{name}.toml")
        run_study(study, folder / name, Serial())
    return folder


def test_the_forms_of_an_answer_hold_the_same(results: Path, tmp_path: Path) -> None:
    printed = {option: emmclab_ok("query", SQL, "--results", results, option).stdout for option in ("--json", "--csv")}
    rows = json.loads(printed["--json"])
    assert len(rows) == 6
    read = list(csv.DictReader(io.StringIO(printed["--csv"])))
    assert [{name: str(value) for name, value in row.items()} for row in rows] == read
    for ending in ("csv", "json", "parquet"):
        emmclab_ok("query", SQL, "--results", results, "-o", tmp_path / f"out.{ending}")
    assert (tmp_path / "out.csv").read_text() == printed["--csv"]
    assert (tmp_path / "out.json").read_text() == printed["--json"]
    with duckdb.connect() as database:
        result = database.execute(f"select * from '{tmp_path / 'out.parquet'}'").fetchall()
    assert result == [tuple(row.values()) for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.json", "out.parquet"]


PEAK_KB = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
LARGE = "select i, repeat('x', 2500) as text from range(100000) numbers(i)"


@pytest.mark.parametrize(
    "ending", ["csv", *(pytest.param(ending, marks=pytest.mark.slow) for ending in ("json", "parquet"))]
)
def test_a_large_answer_is_written_without_holding_it(results: Path, tmp_path: Path, ending: str) -> None:
    """The answer has 250 MB of text; in memory it would take more than twice as much."""
    command = [*COMMAND, "query", LARGE, "--results", str(results), "-o", str(tmp_path / f"out.{ending}")]
    # A child process inherits the peak memory of its parent, so that a small process starts it instead.
    between = [sys.executable, "-c", PEAK_KB, *command]
    assert int(execute(*between, env=environment()).stdout.split()[-1]) < 450 << 10


def test_a_question_that_fails_late_leaves_no_half_answer(results: Path, tmp_path: Path) -> None:
    late = "select if(i < 100000, i, error('too far')) as i from range(200000) numbers(i)"
    for ending in ("csv", "json", "parquet"):
        assert_refused(emmclab("query", late, "--results", results, "-o", tmp_path / f"out.{ending}"), "too far")
    assert_refused(emmclab("query", late, "--results", results, "--csv"))
    assert list(tmp_path.iterdir()) == []


def test_a_table_has_no_separators_within_numbers(results: Path) -> None:
    done = emmclab("query", SQL, "--results", results)
    assert "63668000" in done.stdout
    assert "1234568" in done.stdout or "1234567" in done.stdout
    assert "," not in done.stdout


def test_a_study_is_asked_alone(results: Path) -> None:
    sql = "select distinct input from profiles order by all"
    both = emmclab("query", sql, "--results", results, "--csv").stdout.split()
    alone = emmclab("query", sql, "--results", results, "--csv", "--study", "two").stdout.split()
    assert (both, alone) == (["input", "Idle", "Movie", "Music"], ["input", "Music"])
    assert_refused(emmclab("query", sql, "--results", results, "--study", "three"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["selec 1"], "LINE 1: selec 1"),
        (["select requestz from profiles"], "did you mean requests"),
        (["select * from profilez"], "did you mean profiles"),
        ([SQL, "--csv", "--json"], "one of the two"),
        ([SQL, "-o", "out.txt"], ".parquet"),
        ([SQL, "-o", "none/out.csv"], "none/out.csv"),
        ([SQL, "-o", "none/out.parquet"], "none"),
        (["select 1", "--only", "op=read"], "--trace"),
        (["describe nothing", "-o", "out.parquet"], "nothing"),
    ],
)
def test_a_bad_question_is_named_and_leaves_nothing(words: list[str], says: str, results: Path, tmp_path: Path) -> None:
    assert_fails(emmclab("query", *words, "--results", results, cwd=tmp_path), says)
    assert list(tmp_path.iterdir()) == []


def test_a_description_can_be_a_file(results: Path, tmp_path: Path) -> None:
    emmclab_ok("query", "describe profiles", "--results", results, "-o", tmp_path / "columns.csv")
    assert "requests,BIGINT" in (tmp_path / "columns.csv").read_text()


@pytest.fixture
def flagged(tmp_path: Path) -> Path:
    """A trace in which each request has one of the flags that readers do not interpret."""
    rows = [f"{at * 1_000_000},{at * 8},8,write,{1 << at}" for at in range(9)]
    return csv_trace(tmp_path / "flagged.csv", "arrival_ns,sector,sectors,op,flags", rows)


def test_flags_have_names_in_sql_those_that_the_columns_are_documented_with(flagged: Path) -> None:
    query = "select flag_names(flags) as names, has_flag(flags, 'fua') as fua from trace"
    rows = emmclab_json("query", "--trace", flagged, query)
    assert [(row["names"], row["fua"]) for row in rows] == [(name, name == "fua") for name in FLAG_NAMES[:9]]
    (column,) = [item for item in emmclab_json("explain", flagged)["columns"] if item["name"] == "flags"]
    documented = column["about"].partition(": ")[2].replace(" (suspected on reading)", "")
    assert documented.split(", ") == list(FLAG_NAMES)


def test_a_flag_that_does_not_exist_is_refused(flagged: Path) -> None:
    assert_refused(emmclab("query", "--trace", flagged, "select has_flag(flags, 'sink') from trace"), "`sink`", "fua")


def test_a_question_on_a_trace_takes_the_options_of_reading(flagged: Path) -> None:
    count = "select count(*) as n from trace"
    output = emmclab_json("query", "--trace", flagged, "--only", "from=2ms,to=5ms", count)
    assert output == [{"n": 3}]


def test_rows_of_a_run_keep_what_was_asked_for_and_say_what_requests_waited_for(tmp_path: Path, flagged: Path) -> None:
    rows = tmp_path / "run.parquet"
    emmclab_ok("simulate", flagged, "--device", "small-1gb", "--events", rows)
    query = "select flag_names(flags) as names from trace order by sector"
    output = [row["names"] for row in emmclab_json("query", "--trace", rows, query)]
    # Queue and transfer times in the recording differ from those of the simulated run.
    of_recording = ("packed", "no_wait", "no_wait_known")
    assert output == ["" if name in of_recording else name for name in FLAG_NAMES[:9]]
    waited = (
        "select count(*) as n from events where complete_ns - arrival_ns = wait_queue_ns + wait_bus_ns "
        "+ wait_controller_ns + wait_array_ns + wait_gc_ns + wait_wake_up_ns"
    )
    assert emmclab_json("query", "--trace", rows, waited) == [{"n": 9}]
    assert_fails(emmclab("query", "--trace", flagged, "select * from events"), "fsyncs")


def test_rows_of_a_run_are_in_order_of_arrival_under_layers_that_complete_in_another_order(tmp_path: Path) -> None:
    rows = tmp_path / "run.parquet"
    lines = [f"{1000 * n},{'w' if n % 4 else 'r'},{8192 + 1024 * (n % 97)},{8 if n % 3 else 512}" for n in range(600)]
    trace = csv_trace(tmp_path / "mixed.csv", "arrival_ns,op,sector,sectors", lines)
    options = ("--device", "zufs", "--layer", "lfs", "--mode", "open", "--events", rows)
    emmclab_json("simulate", trace, *options)
    query = (
        "select count(*) as requests, count(*) filter (complete_ns < before) as overtaking from "
        "(select complete_ns, lag(complete_ns) over (order by arrival_ns) as before from events)"
    )
    (result,) = emmclab_json("query", "--trace", rows, query)
    assert result["requests"] == 600 and result["overtaking"] > 0


def test_without_a_query_the_tables_are_listed_with_their_columns(trace: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.parquet"
    assert emmclab("simulate", trace, "--device", "nexus5", "--events", events).returncode == 0
    output = {row["table"]: row["columns"] for row in emmclab_json("query", "--trace", events)}
    assert sorted(output) == ["commits", "events", "fsyncs", "trace"]
    assert "wait_gc_ns" in output["events"] and "sectors" in output["trace"]


def test_names_of_files_and_folders_are_no_sql(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "o'one\\"
    shutil.copytree(results / "one", folder)
    table = (folder / "profiles.parquet").read_bytes()
    pwned = tmp_path / "pwned.csv"
    for name in (f"x as select 1;copy (select 1) to '{pwned.name}';--", "select", 'a"b'):
        (folder / f"{name}.parquet").write_bytes(table)
    done = emmclab_ok("query", "select distinct study from profiles", "--results", tmp_path, "--csv", cwd=tmp_path)
    assert list(csv.reader(io.StringIO(done.stdout))) == [["study"], ["o'one\\"]]
    assert not pwned.exists()


def test_cells_of_csv_are_no_formulas_and_numbers_stay_numbers(results: Path) -> None:
    texts = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "-1.5", "plain"]
    values = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
    sql = f'select unnest([{values}]) as "=text", -1.5 as number'
    done = emmclab_ok("query", sql, "--results", results, "--csv")
    head, *rows = csv.reader(io.StringIO(done.stdout))
    assert head == ["'=text", "number"]
    assert [text for text, _ in rows] == [*(f"'{text}" for text in texts[:4]), *texts[4:]]
    assert {number for _, number in rows} == {"-1.5"}


STUDY = """
name = "again"
inputs = ["Messaging", "Messaging"]
seeds = [3, 3]
[[grid]]
name = "g"
devices = ["small-1gb", "small-1gb"]
modes = ["open", "open"]
layers = ["pass-through", "pass-through"]
[grid.axes]
"gc.high_watermark" = [8, 8, 9]
"""


def test_a_device_a_trace_or_a_stack_named_twice_is_compared_once(trace: Path) -> None:
    runs = emmclab_json(*("compare", trace, trace, "--devices", "nexus5,ufs31,nexus5"), *("--layers", "none,none"))
    assert [(run["trace"], run["device"]) for run in runs] == [("chat", "nexus5"), ("chat", "ufs31")]


def test_a_trace_named_twice_is_profiled_once(trace: Path) -> None:
    other = f"{trace.parent}/./{trace.name}"
    assert [profile["name"] for profile in emmclab_json("profile", trace, other)] == ["chat"]


def test_a_trace_named_twice_in_what_runs_together_is_there_twice(trace: Path, tmp_path: Path) -> None:
    (once,) = emmclab_json("profile", trace)
    (both,) = emmclab_json("profile", trace, trace, "--combine")
    assert both["requests"] == 2 * once["requests"]
    out = tmp_path / "both.parquet"
    assert emmclab("convert", trace, trace, "-o", out, "--offset", "0s,10s").returncode == 0
    assert emmclab_json("profile", out)[0]["requests"] == both["requests"]
    run = emmclab_json("simulate", trace, trace, "--device", "nexus5")
    assert run["requests"]["total"] == both["requests"]


def test_an_application_a_device_or_a_network_named_twice_is_run_once() -> None:
    output = emmclab_json(
        *("apps", "compare", "email", "email", "--devices", "nexus5,nexus5", "--networks", "wifi,wifi")
    )
    assert "runs" not in output and output["app"]["program"] == "email"


def test_values_named_twice_in_a_study_make_one_cell() -> None:
    cells = [cell for cell in Study.parse(STUDY, "again.toml").cells() if cell.grid == "g"]
    assert [cell.settings for cell in cells] == ['{"gc.high_watermark": 8}', '{"gc.high_watermark": 9}']
    # Layers of a stack may be repeated.
    assert '"layers": ["pass-through", "pass-through"]' in cells[0].options


def test_an_objective_named_twice_is_taken_once() -> None:
    assert require_objectives(["waf", "waf"], []) == (Objective("waf"),)


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_a_list_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="there is no device to compare"):
        split_names(text, "device to compare", "--devices", "nexus5,ufs31")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("compare", "chat", "--devices", "nexus5,,ufs31"), "--devices: member 2 of 3"),
        (("compare", "chat", "--devices", "nexus5", "--layers", "none,"), "--layers: member 2 of 2"),
        (("apps", "compare", "facebook", "--devices", "nexus5,"), "--device: member 2 of 2"),
        (("apps", "compare", "facebook", "--networks", ",wifi"), "--network: member 1 of 2"),
        (("profile", "chat", "--percentiles", "50,"), "percentiles: member 2 of 2"),
        (("profile", "chat", "--percentiles", "50,,99"), "percentiles: member 2 of 3"),
        (("convert", "chat", "chat", "-o", "two.parquet", "--offset", "0s,"), "--offset: member 2 of 2"),
        (("fleet", ".", "--by", "model,"), "--by: member 2 of 2"),
    ],
)
def test_an_empty_member_of_a_list_is_refused_by_place(words: tuple[str, ...], place: str, tmp_path: Path) -> None:
    done = emmclab(*words, cwd=tmp_path)
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert done.stderr.startswith(f"error: {place} of the list `{words[-1]}` is empty\nhint: remove the extra comma")
