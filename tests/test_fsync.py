"""`profile --fsync` divides waits for durability: on the terminal, as JSON, on the page, and from Python."""

import json
from pathlib import Path

import pytest

import emmclab as lab
from conftest import assert_refused, emmclab, emmclab_json
from emmclab.errors import UnsupportedError

JBD2, APP, OTHER = "jbd2/sda1-8-100", "sqlite3-1240", "kworker/u8:1-9"
PARTS = ("data", "commit", "flush", "queue", "unexplained")


def _request(task: str, times: tuple[int, int, int], rwbs: str, sector: int) -> list[tuple[int, str, str]]:
    """Return the events of a request that is queued, issued and completed at these times in us."""
    queued, issued, completed = times
    name = task.rpartition("-")[0]
    return [
        (queued, task, f"block_bio_queue: 8,0 {rwbs} {sector} + 8 [{name}]"),
        (issued, task, f"block_rq_issue: 8,0 {rwbs} 4096 () {sector} + 8 [{name}]"),
        (completed, "<idle>-0", f"block_rq_complete: 8,0 {rwbs} () {sector} + 8 [0]"),
    ]


def _wait(task: str, begin: int, end: int, system: str = "ext4") -> list[tuple[int, str, str]]:
    return [
        (begin, task, f"{system}_sync_file_enter: dev 8,1 ino 77 parent 12 datasync 1 "),
        (end, task, f"{system}_sync_file_exit: dev 8,1 ino 77 ret 0"),
    ]


def _text(path: Path, *events: list[tuple[int, str, str]], head: str = "# tracer: nop") -> Path:
    """Write the events as text of the kernel's tracer, in order of time."""
    rows = sorted((event for part in events for event in part), key=lambda row: row[0])
    lines = [f"{task:>22} [001] ..... 100.{time:06}: {event}" for time, task, event in rows]
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


#: A wait of 10 ms: 2 ms of data, of which 1 ms is queued behind other requests, 2 ms of the journal, 4 ms of flush
#: and commit block, and 1 ms before and after.
EVENTS = (
    _wait(APP, 10_000, 20_000),
    _request(APP, (11_000, 13_000, 14_000), "WS", 64),
    _request(OTHER, (10_500, 12_000, 13_000), "W", 512),
    _request(JBD2, (14_000, 14_000, 15_000), "WSM", 1024),
    _request(JBD2, (15_000, 15_000, 19_000), "WSMF", 1032),
    [
        (13_900, JBD2, "jbd2_start_commit: dev 8,1 transaction 5 sync 0"),
        (19_000, JBD2, "jbd2_end_commit: dev 8,1 transaction 5 sync 0 head 4"),
    ],
)


def _parts(row: dict[str, float]) -> list[float]:
    return [row[f"{part}_ms"] for part in PARTS]


def test_a_wait_is_divided_the_same_on_all_ways(tmp_path: Path) -> None:
    text, page = _text(tmp_path / "trace.txt", *EVENTS), tmp_path / "page.html"
    assert emmclab("convert", text, tmp_path / "trace.parquet").returncode == 0
    for trace in (text, tmp_path / "trace.parquet"):
        fsync = emmclab_json("profile", trace, "--fsync", "--html", page)[0]["fsync"]
        [row] = fsync["by_process"]
        assert (row["process"], row["file_system"], row["calls"], row["split"]) == ("sqlite3", "ext4", 1, 1)
        assert _parts(row) == pytest.approx([2, 1, 4, 1, 2])
        assert sum(_parts(row)) == pytest.approx(row["total_ms"]) == pytest.approx(10)
        assert [row["p50_ms"], row["p99_ms"], row["flush_pct"]] == pytest.approx([10, 10, 40])
        [wait] = fsync["longest"]
        assert [(request["process"], request["part"]) for request in wait["requests"]] == [
            ("kworker/u8:1", "other"),
            ("sqlite3", "data"),
            ("jbd2/sda1-8", "commit"),
            ("jbd2/sda1-8", "flush"),
        ]
        assert [request["queued_ms"] for request in wait["requests"]] == pytest.approx([1.5, 2, 0, 0])
        assert 'id="fsync_parts"' in page.read_text() and "not explained" in page.read_text()
    output = emmclab("profile", text, "--fsync").stdout
    assert "40 % of it for flushes" in output and "Findings" not in output
    from_python = lab.read(text).profile(fsync=True).fsync
    assert from_python is not None and from_python.to_dict() == fsync and "sqlite3" in from_python.headline
    assert lab.read(text).profile().fsync is None


def test_f2fs_waits_for_its_checkpoint_thread(tmp_path: Path) -> None:
    ckpt = "f2fs_ckpt-8:1-200"
    events = (
        _wait(APP, 10_000, 20_000, "f2fs"),
        _request(APP, (10_000, 10_000, 11_000), "WS", 64),
        _request(ckpt, (12_000, 12_000, 15_000), "WSM", 1024),
        _request(ckpt, (15_000, 15_000, 19_000), "FWFSM", 1032),
    )
    fsync = emmclab_json("profile", _text(tmp_path / "trace.txt", *events), "--fsync")[0]["fsync"]
    assert _parts(fsync["by_process"][0]) == pytest.approx([1, 3, 4, 0, 2])


def test_parts_of_a_recording_with_lost_events_are_dashes(tmp_path: Path) -> None:
    trace = _text(tmp_path / "trace.txt", *EVENTS, head="# tracer: nop\nCPU:1 [LOST 7 EVENTS]")
    fsync = emmclab_json("profile", trace, "--fsync")[0]["fsync"]
    [row] = fsync["by_process"]
    assert _parts(row) == [None] * 5 and row["split"] == 0 and row["max_ms"] == pytest.approx(10)
    assert fsync["unknown"] == [{"cause": "lost", "calls": 1}]
    output = emmclab("profile", trace, "--fsync").stdout
    assert "–" in output and "--buffer-kb" in output
    left_out = emmclab("profile", _text(tmp_path / "b.txt", *EVENTS), "--fsync", "--only", "process=sqlite3").stdout
    assert "--only" in left_out


def test_a_journal_whose_thread_or_times_are_unknown_is_named(tmp_path: Path) -> None:
    trace = _text(tmp_path / "a.txt", *EVENTS[:-1])
    fsync = emmclab_json("profile", trace, "--fsync")[0]["fsync"]
    assert fsync["journals_without_times"] == ["8,1"] and _parts(fsync["by_process"][0])[1] == 1
    # The text contains the number of the device, not its name, so that two journals cannot be distinguished.
    second = _request("jbd2/sdb1-8-101", (15_000, 15_000, 16_000), "WSM", 2048)
    fsync = emmclab_json("profile", _text(tmp_path / "b.txt", *EVENTS[:-1], second), "--fsync")[0]["fsync"]
    assert fsync["journals_without_thread"] == ["8,1"] and _parts(fsync["by_process"][0])[1:3] == [0, 0]
    assert "jbd2_start_commit" in emmclab("profile", tmp_path / "b.txt", "--fsync").stdout


def test_requests_without_their_queueing_are_named(tmp_path: Path) -> None:
    issued = [row for row in EVENTS[3] if "block_bio_queue" not in row[2]]
    trace = _text(tmp_path / "trace.txt", *EVENTS[:3], issued, *EVENTS[4:])
    fsync = emmclab_json("profile", trace, "--fsync")[0]["fsync"]
    assert (fsync["unqueued"], fsync["split"]) == (1, 1)
    assert "block_bio_queue" in emmclab("profile", trace, "--fsync").stdout


def test_a_wait_without_an_end_is_listed(tmp_path: Path) -> None:
    trace = _text(tmp_path / "trace.txt", *EVENTS, _wait("dd-7", 30_000, 40_000)[:1])
    fsync = emmclab_json("profile", trace, "--fsync")[0]["fsync"]
    assert [(wait["process"], wait["start_s"]) for wait in fsync["unfinished"]] == [("dd", pytest.approx(0.0195))]
    assert fsync["calls"] == 1 and "had not ended" in emmclab("profile", trace, "--fsync").stdout


def test_a_trace_without_waits_is_refused_with_the_command_that_records_them(tmp_path: Path) -> None:
    trace = tmp_path / "small.csv"
    trace.write_text("arrival_ns,complete_ns,op,sector,sectors\n0,5,write,8,8\n")
    assert_refused(emmclab("profile", trace, "--fsync"), "emmclab record")
    with pytest.raises(UnsupportedError):
        lab.read(trace).profile(fsync=True)
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "part-0.csv").write_text("arrival_ns,op,sector,sectors\n0,write,8,8\n")
    assert_refused(emmclab("profile", parts, "--fsync"), "--jobs")
    for other in (("--compare",), ("--against", "Messaging")):
        assert emmclab("profile", trace, "--fsync", *other).returncode == 2


def test_waits_and_commits_are_tables_of_query(tmp_path: Path) -> None:
    trace = _text(tmp_path / "trace.txt", *EVENTS)
    query = "select process, pid, device, time_ns from fsyncs"
    assert emmclab_json("query", "--trace", trace, query) == [
        {"process": "sqlite3", "pid": 1240, "device": "8,1", "time_ns": 10_000_000}
    ]
    query = "select device, start_ns, time_ns from commits"
    assert emmclab_json("query", "--trace", trace, query) == [
        {"device": "8,1", "start_ns": 100_013_900_000, "time_ns": 5_100_000}
    ]


def test_processes_have_the_requested_percentiles(tmp_path: Path) -> None:
    trace = _text(tmp_path / "trace.txt", *EVENTS)
    profile = emmclab_json("profile", trace, "--percentiles", "25,99.9")[0]
    row = next(share for share in profile["figures"]["process_share"] if share["process"] == "jbd2/sda1-8")
    assert [share["percentile"] for share in row["percentiles"]] == [25, 99.9]
    assert [share["response_ms"] for share in row["percentiles"]] == pytest.approx([1, 4], rel=1 / 32)
    assert "p99.9" in emmclab("profile", trace, "--percentiles", "25,99.9").stdout


def test_waits_that_are_only_counted_are_not_divided() -> None:
    syncs = [{"process": "dd", "file_system": "ext4", "time_ns": 7, "calls": 1, "errors": 0, "longest_ns": 7}]
    trace = lab.read(lab.bundled()[0])
    trace.header["activity"] = json.dumps({"syncs": syncs})
    with pytest.raises(UnsupportedError, match="only the totals"):
        trace.profile(fsync=True)
