"""Rewritten loads agree with a direct calculation of what changed software would write."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import assert_fails, emmclab, emmclab_json
from emmclab.advice.lifetime_load import load_of_trace
from emmclab.advice.software_changes import CommitMerger, RamFolder, Write, requests, rewritten, unchanged
from emmclab.advice.wear_rate import WearSimulator
from emmclab.core_types import RecordedActivity
from emmclab.simulation.device import Device

SECOND = 1_000_000_000
#: First sector of the journal of the made recordings, and its sectors.
JOURNAL, JOURNAL_SECTORS = 1 << 20, 1 << 16
PROCESS, OTHER = "logger", "camera"
#: A device with an erase limit and pages of 16 KB, which has no write buffer.
GROUP = "geometry.block_groups.0"
SETTINGS = ("--set", f"{GROUP}.erase_limit=3000", "--set", f"{GROUP}.page_kb=16")


def request(arrival_s: float, sector: int, sectors: int, op: str = "write", **more: Any) -> Any:
    """Return a request of a recording."""
    row = {"arrival_ns": round(arrival_s * SECOND), "sector": sector, "sectors": sectors, "op": op, "flags": []}
    return {**row, "process": None, **more}


def commits(times: Iterable[float], seed: int = 1) -> tuple[list[Any], list[set[int]]]:
    """Return a recording with a commit at each time, and the homes of its logged blocks.

    Each commit is followed by a block of data and a block of metadata in place.
    """
    draws = random.Random(seed)
    rows: list[Any] = []
    homes, sector = [], JOURNAL
    for number, time in enumerate(times):
        logged = draws.sample(range(0, 400, 8), draws.randint(1, 5))
        roles = ["descriptor", *["logged"] * len(logged)]
        sizes = {"role_sectors": [8] * len(roles), "home_sector": [None, *logged]}
        rows.append(request(time, sector, 8 * len(roles), role=roles, **sizes))
        sector += 8 * len(roles)
        end = {"role": ["commit"], "role_sectors": [8], "home_sector": [None], "flags": ["fua", "preflush"]}
        rows.append(request(time + 0.001, sector, 8, **end))
        sector += 8
        for place, role in ((5000 + 8 * number, "data"), (logged[0], "inode_table")):
            rows.append(request(time + 0.002, place, 8, role=[role], role_sectors=[8], home_sector=[None]))
        homes.append(set(logged))
    return rows, homes


def in_journal(writes: Iterable[Write]) -> int:
    """Return the blocks that are written to the journal."""
    return sum(write.sectors // 8 for write in writes if write.sector >= JOURNAL)


@pytest.mark.parametrize("interval", [30, 60, 600])
def test_commits_that_nothing_waits_for_are_merged_until_the_interval_has_passed(interval: int) -> None:
    # A forced commit at 1 s, then one at every usual interval.
    rows, homes = commits([1, *range(10, 1210, 5)])
    merger = CommitMerger(interval, RecordedActivity({"waits": []}))
    written = list(merger.rewrite(rows))
    size = interval // 5
    groups = [homes[:1], *(homes[start : start + size] for start in range(1, len(homes), size))]
    assert (merger.commits, merger.merged) == (241, 241 - len(groups))
    assert in_journal(written) == sum(2 + len(set.union(*group)) for group in groups)
    # The block in place after the commit that ends a delay is written at once.
    places, ends = [row["sector"] for row in rows[3::4]], [1, *range(1 + size, 242, size)]
    delayed = [places[start : end - 1] for start, end in zip([0, *ends], [*ends, 242], strict=True)]
    in_place = [write for write in written if write.sector < 400]
    assert len(in_place) == sum(map(len, map(set, delayed))) + len(ends)
    assert len([write for write in written if 5000 <= write.sector < JOURNAL]) == 241
    assert [write.arrival_ns for write in written] == sorted(write.arrival_ns for write in written)
    # A longer interval never writes more, and a single transaction is written as it was recorded.
    alone = CommitMerger(interval, RecordedActivity({"waits": []})).rewrite(rows[:4])
    assert [write[1:3] for write in alone] == [(row["sector"], row["sectors"]) for row in rows[:4]]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_commit_that_something_waits_for_is_written_at_its_time(is_recorded: bool) -> None:
    times = [1.0, 10.0, 15.0, 17.0, 30.0, 40.0]
    rows, homes = commits(times)
    # Without recorded waits the first commit and that at 17 s, 2 s after the one before, are waited for.
    waits = (
        [
            {
                "process": "p",
                "pid": 1,
                "file_system": "ext4",
                "device": "d",
                "start_ns": [round(29.9 * SECOND)],
                "time_ns": [SECOND],
            }
        ]
        if is_recorded
        else []
    )
    written = list(CommitMerger(600, RecordedActivity({"waits": waits})).rewrite(rows))
    ends = [write.arrival_ns / SECOND for write in written if write.flags]
    assert ends == pytest.approx([30.001, 40.002] if is_recorded else [1.001, 17.001, 40.002])
    groups = [homes[:5], homes[5:]] if is_recorded else [homes[:1], homes[1:4], homes[4:]]
    assert in_journal(written) == sum(2 + len(set.union(*group)) for group in groups)


def test_a_journal_that_was_found_by_its_addresses_saves_descriptors_and_commit_blocks_only() -> None:
    rows, homes = commits([1, *range(10, 310, 5)])
    plain = [{key: value for key, value in row.items() if "role" not in key and key != "home_sector"} for row in rows]
    found = [{"first_sector": JOURNAL, "size_kb": JOURNAL_SECTORS / 2}]
    merger = CommitMerger(30, RecordedActivity({"waits": []}), found)
    written = list(merger.rewrite(plain))
    assert (merger.commits, merger.merged) == (61, 50)
    assert in_journal(written) == sum(map(len, homes)) + 2 * 61 - 2 * 50
    assert sum(write.sector < JOURNAL for write in written) == 2 * 61


def test_what_a_process_writes_is_written_once_in_an_interval_if_it_stays_in_ram() -> None:
    draws = random.Random(2)
    rows = [
        request(
            time,
            8 * draws.randrange(64),
            8 * draws.randint(1, 4),
            draws.choice(["write"] * 8 + ["discard", "read"]),
            process=draws.choice([PROCESS, PROCESS, OTHER]),
        )
        for time in sorted(draws.uniform(0, 10_000) for _ in range(3000))
    ]
    ram = RamFolder(PROCESS, 3600)
    written = [write for write in ram.rewrite(rows) if write.op == "write"]
    start, pages, blocks, held = rows[0]["arrival_ns"], 0, 0, [set[int]() for _ in range(3)]
    for row in rows:
        spans = range(row["sector"] // 8, (row["sector"] + row["sectors"]) // 8)
        interval = held[(row["arrival_ns"] - start) // (3600 * SECOND)]
        if row["op"] == "write" and row["process"] == PROCESS:
            interval.update(spans)
        elif row["op"] != "read":
            interval.difference_update(spans)
            blocks += len(spans) if row["op"] == "write" else 0
    pages = sum(map(len, held))
    assert sum(write.sectors // 8 for write in written) == pages + blocks
    assert max(map(len, held)) <= ram.most_held <= 68


def test_a_recording_that_is_rewritten_without_a_change_wears_as_before(tmp_path: Path) -> None:
    mail = lab.read(next(path for path in lab.bundled(annotated=True) if path.stem == "mail"))
    load = load_of_trace(mail, 1e9)
    again = rewritten(load, map(unchanged, requests(mail)), tmp_path / "again.csv")
    assert (again.pass_bytes, again.daily_bytes) == (load.pass_bytes, pytest.approx(load.daily_bytes))
    simulator = WearSimulator(Device.preset("emmc51-cache", capacity="1GB"), {"precondition": "sequential:50"})
    before, after = (simulator.measure(one, 40) for one in (load, again))
    assert (after.waf, after.kinds) == (pytest.approx(before.waf), before.kinds)


def recording(path: Path) -> Path:
    """Write a recording of two hours: a process that writes small blocks again and again, and one with large files."""
    rows = [f"{time},{8 * (time % 50)},8,W,{PROCESS}" for time in range(7200)]
    rows += [
        f"{time + 0.5},{100_000 + 1024 * number},1024,W,{OTHER}" for number, time in enumerate(range(0, 7200, 128))
    ]
    path.write_text(
        "arrival_s,sector,sectors,op,process\n" + "\n".join(sorted(rows, key=lambda row: float(row.split(",")[0])))
    )
    return path


def test_the_writers_of_a_recording_are_named_with_their_part_of_the_wear(tmp_path: Path) -> None:
    device = ("--device", "small-1gb", "--seeds", "1", *SETTINGS)
    life = emmclab_json("lifetime", recording(tmp_path / "two.csv"), *device, "--changes")
    writers = {one["name"]: one for one in life["writers"]}
    assert list(writers) == [OTHER, PROCESS] or list(writers) == [PROCESS, OTHER]
    large, small = writers[OTHER], writers[PROCESS]
    assert (small["bytes_pct"], large["bytes_pct"]) == pytest.approx((50, 50), abs=1)
    assert (small["small_pct"], large["small_pct"], large["sequential_pct"]) == (100, 0, pytest.approx(100, abs=2))
    assert small["daily_bytes"] == pytest.approx(7200 * 4096 * 12, rel=0.01)
    # A page of 4 blocks is programmed for each small write, so that they wear four times as much as the same bytes.
    page_kb = 16
    expected = 100 * page_kb / 4 / (page_kb / 4 + 1)
    assert (small["wear_pct"], large["wear_pct"]) == pytest.approx((expected, 100 - expected), abs=5)
    ram = next(one for one in life["changes"] if one["name"] == "log2ram, an hour")
    assert ram["years"] > 3 * life["years"]["value"] and "200 KB of RAM" in ram["price"]
    reasons = {one["name"]: one["price"] for one in life["changes"] if one["years"] is None}
    assert (
        "less than the interval" in reasons["log2ram, a day"] and "no roles of blocks" in reasons["commit every 30 s"]
    )


def test_a_daily_amount_does_not_know_what_software_could_change() -> None:
    life = emmclab_json(
        "lifetime", "--daily", "1GB", "--device", "nexus5", "--capacity", "1GB", "--seeds", "1", "--changes"
    )
    unknown = {one["name"] for one in life["changes"] if one["years"] is None and one["price"].startswith("not known")}
    assert unknown == {"commit interval", "write-ahead log", "noatime", "log2ram"} and life["writers"] == []
    done = emmclab("lifetime", "--daily", "1GB", "--device", "nexus5", "--capacity", "1GB", "--seeds", "1", "--changes")
    assert "Who writes is not known" in done.stdout


#: A data logger: a record and an fsync each second for ten minutes, and a database with a transaction each second.
PROGRAM = """
name = "notes"
about = "A logger and a database"
source = "Made for a test."
user_waits_for = "user"

[[file]]
name = "log"
partition = "data"
size = "1MB"

[[database]]
name = "notes.db"
partition = "data"
size = "1MB"
journal_mode = "delete"

[[thread]]
name = "user"
steps = [{ repeat = { times = 700, steps = [
    { overwrite = { file = "log", size = "4KB" } },
    { transaction = { database = "notes.db", pages = 2 } },
    { think = { ms = 1000 } },
] } }]
"""


def test_an_application_is_a_load_whose_software_changes_run_on_the_host_model(tmp_path: Path) -> None:
    program = tmp_path / "notes.toml"
    program.write_text(PROGRAM)
    device = ("--device", "emmc51-cache", "--capacity", "4GB", "--seeds", "1")
    life = emmclab_json("lifetime", "--app", program, *device, "--changes")
    years = {one["name"]: (one["years"] or 0) / life["years"]["value"] for one in life["changes"]}
    writers = {one["name"]: one for one in life["writers"]}
    assert {"log", "notes.db", "notes.db (journal)", "journal of the file system"} <= set(writers)
    assert sum(one["daily_bytes"] for one in writers.values()) == pytest.approx(life["daily_bytes"], rel=0.01)
    # Each of 700 transactions of about a second writes its two pages and the first page of the file in place.
    a_day = 86_400 / 700 * 700
    assert writers["notes.db"]["daily_bytes"] == pytest.approx(a_day * 3 * 4096, rel=0.15)
    # A log of 4 KB that is written back every 30 s has less to write; a journal that is not deleted writes no folders.
    assert years["write-ahead log"] > 1.3 and years["write-ahead log, synchronous normal"] > years["write-ahead log"]
    # All commits but few are awaited by the transactions.
    assert years["commit every 600 s"] == pytest.approx(1, abs=0.1)
    reasons = {one["name"]: one["price"] for one in life["changes"] if one["years"] is None}
    assert "less than the interval" in reasons["log2ram, an hour"] and "noatime" in reasons["noatime"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--app", "nothing"), "nothing"),
        (("--app", "rlbench", "--pattern", "random"), "--app and --pattern exclude each other"),
        (("--host", "phone-2020", "--daily", "1GB"), "--host has no effect without --app"),
        (("--registers", "trace.csv@2026-01-01", "--changes"), "--registers and --changes exclude each other"),
        (("trace.csv", "--app", "rlbench"), "--app has no effect with a source"),
    ],
)
def test_an_application_that_cannot_be_a_load_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    recording(tmp_path / "trace.csv")
    assert_fails(emmclab("lifetime", *arguments, cwd=tmp_path), named)
