"""A fleet has one complete table and page, however they are computed; only new files are profiled."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import emmclab as package
from conftest import PATIENCE_S, assert_fails, assert_refused, biotracer, cases, emmclab, emmclab_json, emmclab_ok
from emmclab.fleet import Table, profile_fleet
from emmclab.fleet.summary import ComparisonFields, SummaryFields
from emmclab.fleet.table import FIGURES, bins, row_of
from emmclab.fleet.table_state import Profiled, State, state_of
from emmclab.pages.fleet import effects
from emmclab.pages.theme import VERDICT_COLOURS
from emmclab.runtime.executors import Crash
from emmclab.studies import Pool, Serial
from emmclab.traces.recording_files import recordings
from fleets import PLACES, blocked_run, profiled, recorded, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve recordings and two other files."""
    folder = write(tmp_path / "recordings", recorded(12))
    (folder / "notes.md").write_text("# Phones of the lab\n")
    (folder / "empty.txt").write_text("")
    return folder


def rows(table: Path) -> list[dict[str, Any]]:
    """Return all rows of a table."""
    with duckdb.connect() as database:
        result = database.execute(f"select * from '{table}' order by path")
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def test_a_row_holds_every_number_of_the_profile_of_its_recording(folder: Path, tmp_path: Path) -> None:
    done = emmclab_ok("fleet", folder, "-o", "fleet.parquet", cwd=tmp_path, status=1)
    assert "error: 2 of 14 files could not be read; the first, empty.txt: the file is empty" in done.stderr
    rows_by_path = {row["path"]: row for row in rows(tmp_path / "fleet.parquet")}
    assert len(rows_by_path) == 14
    for path, row in rows_by_path.items():
        if row["refused"] is not None:
            continue
        profile = package.profile(folder / path)
        by_op = {item["op"]: item for item in profile["by_operation"]}
        elsewhere = {"write_data_kb": by_op.get("write", {"data_kb": None})["data_kb"], "fsyncs": None}
        assert {name: row[name] for name in elsewhere} == elsewhere
        for field in (item for item in FIGURES if item.name not in elsewhere):
            value = profile["by_operation"][-1]["response_ms"]["p99"] if "p99" in field.name else profile[field.name]
            assert row[field.name] == value, field.name
        assert row["queue_busy_pct"] == profile["queue"]["busy_pct"]
        assert row["write_response_p99_ms"] == next(
            item["response_ms"]["p99"] for item in profile["by_operation"] if item["op"] == "write"
        )
        assert row["characteristic_1_measured"] == profile.findings[0].measured
        assert row["ledger_kept"] == profile["ledger"]["kept"]
        assert row["digest"] == profile["trace_digest"]
        assert row["bytes"] == (folder / path).stat().st_size
        counts = row["histogram_size_write"]
        assert sum(counts) == sum(
            item["requests"] for item in profile.figure("size_distribution") if item["op"] == "write"
        )
    assert rows_by_path["notes.md"]["refused"].startswith("unrecognised trace format")
    assert rows_by_path["model=Pixel%206a/build=B1/0000.txt"]["model"] == "Pixel 6a"


def test_the_file_describes_the_bins_of_its_histograms(folder: Path, tmp_path: Path) -> None:
    emmclab("fleet", folder, "-o", "fleet.parquet", cwd=tmp_path)
    table = Table(tmp_path / "fleet.parquet")
    assert table.description["bins"] == bins()
    for column, bins_of_column in table.description["bins"].items():
        assert bins_of_column["upper_edges"] == sorted(set(bins_of_column["upper_edges"]))
        assert table.columns[column] == "BIGINT[]"
        lengths = {len(row[column]) for row in rows(table.path) if row[column] is not None}
        assert lengths == {len(bins_of_column["upper_edges"]) + 1}
    added = table.histograms(["model"])["histogram_size_write"]
    assert added.keys() == {("N5",), ("Pixel 6a",)}
    full = table.histograms([])["histogram_size_write"][()]
    assert full == [sum(pair) for pair in zip(*added.values(), strict=True)]


def test_any_number_of_workers_and_of_runs_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    tables = []
    for jobs in ("1", "2", "3"):
        emmclab("fleet", folder, "-o", f"{jobs}.parquet", "--jobs", jobs, cwd=tmp_path)
        tables.append((tmp_path / f"{jobs}.parquet").read_bytes())
    assert tables[0] == tables[1] == tables[2]
    late = folder / PLACES[1] / "late.txt"
    for step, text in enumerate((biotracer(90), "no trace", None)):
        if text is None:
            late.unlink()
        else:
            late.write_text(text)
        emmclab("fleet", folder, "-o", "1.parquet", cwd=tmp_path)
        emmclab("fleet", folder, "-o", f"new-{step}.parquet", cwd=tmp_path)
        assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / f"new-{step}.parquet").read_bytes()
    assert (tmp_path / "1.parquet").read_bytes() == tables[0]


def kept_rows(state: Path) -> int:
    """Return the number of rows in the state next to a table, without an unfinished line of a killed process."""
    return sum('"row": {' in line for line in state.read_text().splitlines(True) if line.endswith("\n"))


def test_only_what_is_new_or_changed_is_profiled(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "fleet.parquet"
    assert profiled(folder, "-o", table) == 14
    assert profiled(folder, "-o", table) == 0
    first = folder / PLACES[0] / "0000.txt"
    os.utime(first, ns=(1, 1))
    assert profiled(folder, "-o", table) == 0, "the time of change is another, the bytes are the same"
    first.write_text(biotracer(41))
    write(folder, recorded(2, first=100))
    assert profiled(folder, "-o", table) == 3
    (tmp_path / ".fleet.parquet.state").unlink()
    assert profiled(folder, "-o", table) == 0, "digests tell what is unchanged"
    assert profiled(folder, "-o", table) == 0
    assert profiled(folder, "-o", table, "--only", "op=write") == 16, "other options, other rows"


def test_a_killed_run_keeps_what_it_had_and_the_next_one_goes_on(tmp_path: Path) -> None:
    folder = write(tmp_path / "recordings", recorded(20))
    table = tmp_path / "fleet.parquet"
    state = tmp_path / ".fleet.parquet.state"
    process = blocked_run(folder, "-o", table, "--jobs", "1")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert not table.exists()
    assert kept_rows(state) == 7
    with state.open("a") as file:
        file.write('{"recording": ["torn')
    assert profiled(folder, "-o", table) == 13
    emmclab("fleet", folder, "-o", tmp_path / "whole.parquet")
    assert table.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert kept_rows(state) == 0


def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "recordings", recorded(20))
    process = blocked_run(folder, "-o", tmp_path / "fleet.parquet", "--jobs", "2")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, stderr
    stored = kept_rows(tmp_path / ".fleet.parquet.state")
    assert 7 <= stored < 20
    assert f"interrupted; {stored} recordings of {folder} are stored; the same command continues" in stderr
    assert not (tmp_path / "fleet.parquet").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".emmclab-")] == []


def test_a_row_written_at_the_interrupt_counts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "fleet.parquet"
    counts: list[int] = []
    append = State._append

    def interrupted(state: State, profiled: Profiled) -> None:
        before = state.added
        append(state, profiled)
        if before == 4:
            state.added = before
            raise KeyboardInterrupt

    monkeypatch.setattr(State, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile_fleet(folder, table, Serial(), progress=lambda done, *_: counts.append(done))
    assert counts[-1] == kept_rows(state_of(table)) == 5


def test_a_second_run_on_the_same_table_is_refused(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "fleet.parquet"
    process = blocked_run(folder, "-o", table, "--jobs", "1")
    message = f"error: {table}: another process is working on this table"
    assert_refused(emmclab("fleet", folder, "-o", table), message)
    assert not table.exists()
    process.kill()
    process.communicate()
    emmclab_ok("fleet", folder, "-o", table, status=1)


def test_a_file_that_is_no_table_is_not_overwritten(folder: Path, trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.parquet"
    package.convert(trace, mine)
    before = mine.read_bytes()
    for words in ((folder, "-o", mine), (mine,), (folder, "--against", mine, "-o", tmp_path / "other.parquet")):
        assert_refused(emmclab("fleet", *words), f"error: {mine}: this is not a fleet table of emmclab")
    assert mine.read_bytes() == before


def test_impossible_folders_and_keys_are_refused_before_the_work(folder: Path, tmp_path: Path) -> None:
    for words, message in (
        ((tmp_path / "gone",), "folder not found"),
        ((folder, "--files", "*.none"), "the folder contains no recording"),
        ((folder, "--by", "color"), "recordings have no key `color`"),
        ((folder, "--against", folder), "the tables of both fleets would have this path"),
        ((folder, "--against", folder, "--by", "model"), "--by and --against exclude each other"),
        ((folder, "--time-unit", "week"), "week"),
        ((folder, "-o", "fleet.csv"), "the extension of the file does not determine a supported format"),
        ((folder, "-o", "gone/fleet.parquet"), "folder not found"),
    ):
        assert_refused(emmclab("fleet", *words, cwd=tmp_path), message)
    shutil.copytree(folder, tmp_path / "twice")
    write(tmp_path / "twice", {"Model=x/a.txt": biotracer(40).encode()})
    done = emmclab("fleet", tmp_path / "twice", cwd=tmp_path)
    assert done.returncode == 2
    assert "the key `model` is spelt `Model` in" in done.stderr or "the key `Model` is spelt `model` in" in done.stderr
    write(tmp_path / "named", {"requests=5/a.txt": biotracer(40).encode()})
    done = emmclab("fleet", "named", cwd=tmp_path)
    assert_refused(done, "the key `requests` of a folder is also the name of a column")


def test_a_folder_without_one_readable_file_is_bad_input(tmp_path: Path) -> None:
    write(tmp_path / "bad", {"a.txt": b"nothing\n"})
    assert_fails(emmclab("fleet", "bad", "--html", "bad.html", cwd=tmp_path), "1 of 1 files could not be read")
    assert "none with a read or write" in (tmp_path / "bad.html").read_text()


def test_groups_are_side_by_side_and_a_table_is_summed_up_by_itself(folder: Path, tmp_path: Path) -> None:
    output = emmclab_json("fleet", folder, "-o", "fleet.parquet", "--by", "model,build", cwd=tmp_path, status=1)
    summary = {name: output[name] for name in SummaryFields.__annotations__}
    assert msgspec.convert(summary, SummaryFields) == summary
    groups = {group["group"]: group for group in output["groups"]}
    assert groups.keys() == {"all recordings", "N5, B1", "N5, B2", "Pixel 6a, B1", "Pixel 6a, B2"}
    assert sum(group["recordings"] for name, group in groups.items() if "," in name) == 12
    by_hand = sorted(row["requests"] for row in rows(tmp_path / "fleet.parquet") if row["requests"])
    assert groups["all recordings"]["figures"]["requests"]["p50"] == (by_hand[5] + by_hand[6]) / 2
    assert [item["path"] for item in output["refused"]] == ["empty.txt", "notes.md"]
    shutil.rmtree(folder)
    rerun = emmclab_json("fleet", "fleet.parquet", "--by", "model,build", cwd=tmp_path)
    assert rerun["groups"] == output["groups"]
    text = emmclab("fleet", "fleet.parquet", "--by", "build", cwd=tmp_path).stdout
    assert "B1" in text and "Median" in text and "Refused" in text


def test_processors_of_a_blktrace_recording_are_one_recording(tmp_path: Path) -> None:
    for number in (0, 1, 10):
        (tmp_path / f"disk.blktrace.{number}").write_bytes(b"x" * (number + 1))
    (result,) = recordings(tmp_path)
    assert (result.path, result.bytes) == ("disk.blktrace.0", 1 + 2 + 11)


def test_what_is_no_file_is_no_recording_and_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "gone.txt")
    (result,) = recordings(tmp_path)
    assert result.path == "link.txt"
    assert row_of(tmp_path / "link.txt", "link.txt", {})["refused"] == "file not found"


def test_a_name_that_is_no_utf8_has_its_row(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "odd") + b"/K\xfcche.txt")).write_text(biotracer(40))
    table, counts = profile_fleet(tmp_path / "odd", tmp_path / "odd.parquet", Serial())
    assert counts.refused == 0
    assert table.recordings(["path", "requests"]) == [("K\N{REPLACEMENT CHARACTER}che.txt", 40)]
    assert profile_fleet(tmp_path / "odd", tmp_path / "odd.parquet", Serial())[1].profiled == 0


class Stop(Exception):  # noqa: N818 - not an error
    """An interruption."""


@settings(max_examples=cases(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 5), st.integers(30, 34)),
            st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("touch"), st.integers(0, 5), st.integers(1, 10**9)),
            st.tuples(st.just("break"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("stop"), st.just(0), st.just(0)),
            st.tuples(st.just("forget"), st.just(0), st.just(0)),
            st.tuples(st.just("tear"), st.just(0), st.integers(0, 100)),
            st.tuples(st.just("run"), st.just(0), st.just(0)),
        ),
        max_size=12,
    )
)
def test_a_table_is_that_of_a_run_from_nothing_whatever_came_before(
    steps: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("model")
    folder, table = place / "recordings", place / "fleet.parquet"
    state = place / ".fleet.parquet.state"
    folder.mkdir()
    (folder / "always.txt").write_text(biotracer(30))

    def stop(done: int, _total: int, _before: int) -> None:
        if done:
            raise Stop

    for step, which, value in [*steps, ("run", 0, 0)]:
        path = folder / f"{which}.txt"
        if step == "write":
            path.write_text(biotracer(value))
        elif step == "remove":
            path.unlink(missing_ok=True)
        elif step == "touch" and path.exists():
            os.utime(path, ns=(value, value))
        elif step == "break":
            path.write_text("no trace\n")
        elif step == "forget":
            state.unlink(missing_ok=True)
        elif step == "tear" and state.exists():
            os.truncate(state, state.stat().st_size * value // 100)
        elif step in ("run", "stop"):
            try:
                profile_fleet(folder, table, Serial(), progress=stop if step == "stop" else None)
            except Stop:
                continue
    profile_fleet(folder, place / "new.parquet", Serial())
    assert table.read_bytes() == (place / "new.parquet").read_bytes()


def test_work_is_done_by_any_executor(folder: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int, int]] = []
    profile_fleet(folder, tmp_path / "a.parquet", Pool(2), progress=lambda *now: calls.append(now))
    assert calls[-1] == (14, 14, 0)


class Crashing(Serial):
    """A worker that crashes on a certain recording."""

    def run(self, work: Any, next_task: Any, files: Any = ()) -> Any:
        """Run all tasks except those with this recording."""
        del files
        while (task := next_task(None)) is not None:
            crashes = any(row.recording.path.endswith("0003.txt") for row in task)
            yield task, Crash("its process was ended by SIGSEGV") if crashes else work(task)


def test_a_recording_that_crashes_its_process_is_refused_and_the_others_are_profiled(tmp_path: Path) -> None:
    folder = write(tmp_path / "recordings", recorded(6))
    table, counts = profile_fleet(folder, tmp_path / "t.parquet", Crashing())
    assert (counts.recordings, counts.refused) == (6, 1)
    ((path, reason),) = table.refused()
    assert path.endswith("0003.txt") and reason == "reading it crashed: its process was ended by SIGSEGV"
    assert sum(row["refused"] is None and row["requests"] > 0 for row in rows(tmp_path / "t.parquet")) == 5


def test_a_recording_that_is_replaced_by_one_of_the_same_size_and_time_is_profiled(tmp_path: Path) -> None:
    table, other = tmp_path / "fleet.parquet", tmp_path / "b.csv"
    folder = write(tmp_path / "recordings", {"a.csv": b"arrival_ns,op,sector,sectors\n1,R,8,8\n2,W,16,8\n"})
    recording = folder / "a.csv"
    other.write_text("arrival_ns,op,sector,sectors\n1,R,8,8\n2,R,16,8\n")
    assert profiled(folder, "-o", table) == 1
    assert profiled(folder, "-o", table) == 0
    before = recording.stat()
    # The modification time is preserved, as by `cp -p` and rsync.
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(recording)
    assert (recording.stat().st_size, recording.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert profiled(folder, "-o", table) == 1


def test_a_table_without_units_has_a_row_with_the_reason_and_the_others_are_profiled(tmp_path: Path) -> None:
    requests = b",op,sector,sectors\n1,R,0,8\n2000,W,8,8\n"
    files = {"phone.txt": biotracer(40).encode(), "bare.csv": b"arrival" + requests}
    folder = write(tmp_path / "mixed", files | {"stated.csv": b"arrival_us" + requests})
    emmclab_ok("fleet", folder, "-o", "fleet.parquet", cwd=tmp_path, status=1)
    refused = {row["path"]: row["refused"] for row in rows(tmp_path / "fleet.parquet")}
    assert {path for path, why in refused.items() if why} == {"bare.csv"}
    assert "has no unit in its name; give --time-unit" in refused["bare.csv"]
    # The unit applies only to the file that needs it.
    emmclab_ok("fleet", folder, "-o", "fleet.parquet", "--time-unit", "us", cwd=tmp_path)
    by_path = {row["path"]: row for row in rows(tmp_path / "fleet.parquet")}
    assert by_path["bare.csv"]["duration_s"] == by_path["stated.csv"]["duration_s"]
    # An unknown unit is an error of the command.
    assert_refused(
        emmclab("fleet", folder, "-o", "fleet.parquet", "--time-unit", "fortnight", cwd=tmp_path), "fortnight"
    )


def slower(text: str, factor: float) -> str:
    """Return the trace with the times from issue to completion multiplied by `factor`."""
    lines = []
    for line in text.splitlines():
        *rest, issue, complete = line.split("\t\t")
        late = float(issue.partition(".")[2]) / 1e9, float(complete.partition(".")[2]) / 1e9
        taken_s = (late[1] - late[0]) % 1 * factor
        seconds, _, fraction = issue.partition(".")
        end_us = int(seconds) * 10**6 + int(fraction[:6]) + round(taken_s * 1e6)
        lines.append("\t\t".join([*rest, issue, f"{end_us // 10**6}.{end_us % 10**6:06d}000"]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of a fleet in groups (`one`), of two different fleets (`two`), and of two small fleets (`few`)."""
    place = tmp_path_factory.mktemp("pages")
    write(place / "before", recorded(24))
    (place / "before/notes.md").write_text("Phones\n")
    far = place / "before/model=N5/build=B1/far.txt"
    far.write_text(slower(biotracer(80), 40))
    for path in sorted((place / "before").rglob("*.txt")):
        target = place / "after" / path.relative_to(place / "before")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(slower(path.read_text(), 1.6))
    for name in ("few-before", "few-after"):
        write(place / name, recorded(3))
    for words in (
        ("before", "--by", "model,build", "--html", "one.html"),
        ("before", "--against", "after", "--html", "two.html"),
        ("few-before", "--against", "few-after", "--html", "few.html"),
    ):
        emmclab_ok("fleet", *words, cwd=place, status=0 if "few-before" in words else 1)
    return place


@pytest.mark.slow
def test_a_slower_fleet_is_told_from_a_faster_one_and_what_is_the_same_is_not(pages: Path) -> None:
    output = emmclab_json("fleet", "before", "--against", "after", cwd=pages, status=1)
    comparison = {name: output[name] for name in ComparisonFields.__annotations__}
    assert msgspec.convert(comparison, ComparisonFields) == comparison
    verdicts = {item["figure"]: item["verdict"] for item in output["differences"]}
    assert verdicts["mean_response_ms"] == verdicts["mean_service_ms"] == "higher"
    for same in ("mean_read_kb", "mean_write_kb", "write_requests_pct", "spatial_locality_pct"):
        assert verdicts[same] == "no difference shown"
    row = next(item for item in output["differences"] if item["figure"] == "mean_response_ms")
    assert row["corrected_p"] >= row["p"] > 0 and row["delta"] > 0
    assert output["tests"] == 14
    assert verdicts["requests"] == verdicts["write_data_kb"] == "no difference shown"
    assert verdicts["fsyncs"] == "not recorded"
    assert output["headline"].startswith("after has a higher mean response than before: ")
    page = (pages / "two.html").read_text()
    assert output["headline"] in page or output["headline"] in " ".join(page.replace("\u00a0", " ").split())


@pytest.mark.slow
def test_too_few_recordings_are_said_with_p_and_the_number_that_is_needed(pages: Path) -> None:
    output = emmclab_json("fleet", "few-before", "--against", "few-after", cwd=pages)
    tested = [row for row in output["differences"] if row["verdict"] != "not recorded"]
    few = [row for row in tested if row["verdict"] == "too few recordings"]
    assert all(0 < row["p"] <= 1 and row["corrected_p"] is None for row in tested)
    assert few and {row["needed"] for row in few} == {6}
    # If all recordings have the same value, no number of recordings would show a difference.
    equal = [row for row in tested if row not in few]
    assert {(row["verdict"], row["p"], row["needed"]) for row in equal} <= {("no difference shown", 1.0, None)}
    assert output["headline"].startswith("Too few recordings to tell few-before from few-after: 3 and 3")
    assert "fewer than 6 of each" in output["headline"]
    tiles = (pages / "few.html").read_text().partition("</dl>")[0]
    assert "none is shown to differ" in tiles and "Cliff" not in tiles
    stdout = emmclab("fleet", "few-before", "--against", "few-after", cwd=pages).stdout
    heads = [line for line in stdout.splitlines() if line.startswith("Figure")]
    assert "Verdict" in heads[0] and heads[-1].split()[-1] == "Needed"
    first = next(line for line in stdout.splitlines() if line.startswith("Mean response"))
    assert "too few recordings " in first, "a verdict is one line in 80 columns"


@pytest.mark.slow
def test_what_is_not_told_apart_is_grey_and_never_the_colour_of_a_verdict() -> None:
    rows = [{"trace": "b", "figure": "Requests", "delta": 0.1, "verdict": "no difference shown"}]
    scale = effects(rows).to_dict()["encoding"]["color"]["scale"]
    assert scale["range"] == [VERDICT_COLOURS["no difference shown"]]
    for name in ("no difference shown", "too few recordings"):
        parts = [int(VERDICT_COLOURS[name][place : place + 2], 16) for place in (1, 3, 5)]
        assert max(parts) - min(parts) < 30, "grey"


@pytest.mark.slow
def test_fsyncs_of_a_recording_are_among_the_compared_figures() -> None:
    path = Path(package.bundled()[2])
    calls = sum(row["calls"] for row in json.loads(package.read(path).header["activity"] or "{}")["syncs"])
    assert row_of(path, path.name, {})["fsyncs"] == calls > 0


@pytest.mark.slow
def test_the_recording_that_stands_apart_and_the_file_that_was_refused_are_named(pages: Path) -> None:
    output = emmclab_json("fleet", "before", cwd=pages, status=1)
    assert "model=N5/build=B1/far.txt" in {
        row["path"] for row in output["outliers"] if row["figure"] == "mean_service_ms"
    }
    page = (pages / "one.html").read_text()
    assert "notes.md" in page and "could not be read and is not included" in page


@pytest.mark.slow
def test_the_same_table_gives_the_same_page(pages: Path, tmp_path: Path) -> None:
    shutil.copy(pages / "before.fleet.parquet", tmp_path / "before.fleet.parquet")
    emmclab_ok("fleet", "before.fleet.parquet", "--by", "model,build", "--html", "again.html", cwd=tmp_path)
    assert (tmp_path / "again.html").read_bytes() == (pages / "one.html").read_bytes()


@pytest.mark.slow
def test_fleets_that_were_read_differently_are_compared_with_a_caution(pages: Path, tmp_path: Path) -> None:
    emmclab_ok("fleet", "before", "-o", tmp_path / "writes.parquet", "--only", "op=write", cwd=pages, status=1)
    words = ("before.fleet.parquet", "--against", tmp_path / "writes.parquet")
    output = emmclab_json("fleet", *words, "--html", tmp_path / "page.html", cwd=pages)
    assert output["cautions"] == ["The two fleets were read with different options."]
    assert output["cautions"][0] in (tmp_path / "page.html").read_text()
    verdicts = {row["figure"]: row["verdict"] for row in output["differences"]}
    assert verdicts["mean_read_kb"] == "not recorded"
    assert output["tests"] == 13
