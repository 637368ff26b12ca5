"""Cost of journaling and of waits for durability; no loss of data when the journal is changed or damaged."""

import hashlib
import json
import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import annotated
import emmclab as lab
from conftest import ROOT, assert_fails, assert_refused, csv_trace, emmclab, emmclab_json, emmclab_ok, make_btrfs, need
from emmclab.errors import UnsupportedError
from emmclab.studies.query import query_one_trace

GUIDE = ROOT / "docs/guides/journal.md"


@pytest.fixture(scope="module")
def requests() -> list[dict[str, Any]]:
    return annotated.rows()


@pytest.fixture(scope="module")
def noted(requests: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with block notes."""
    return annotated.write(tmp_path_factory.mktemp("noted") / "noted.parquet", requests)


def _notes(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one dictionary for each note."""
    names = ("role", "role_sectors", "home_sector", "changed_sectors", "transaction")
    lists = [[row[name] for name in names] for row in requests if row["role"]]
    return [dict(zip(names, note, strict=True)) for columns in lists for note in zip(*columns, strict=True)]


@pytest.mark.parametrize("library", ["arrow", "polars", "pandas"])
def test_tables_of_other_libraries_keep_the_notes(noted: Path, library: str) -> None:
    original = lab.read(noted)
    table = getattr(original, f"to_{library}")()
    copied = getattr(lab.Trace, f"from_{library}")(table, "again")
    assert copied.rows(2_000) == original.rows(2_000)
    assert copied.header["block_notes"] == original.header["block_notes"] == "ext4"


def test_a_format_without_notes_says_what_it_loses(noted: Path, tmp_path: Path) -> None:
    done = emmclab_ok("convert", noted, tmp_path / "t.csv")
    assert "role" in done.stderr and "home_sector" in done.stderr
    assert lab.read(tmp_path / "t.csv").header["block_notes"] is None


def test_the_profile_has_the_same_section_where_there_are_notes(noted: Path) -> None:
    profile = lab.profile(noted)
    assert profile.journal is not None
    journal = lab.read(noted).journal()
    assert profile.journal.to_dict() == {name: journal[name] for name in profile["journal"]}
    assert profile.journal.headline in " ".join(emmclab("profile", noted).stdout.split())
    [short] = [path for path in lab.bundled() if path.stem == "media-stream"]
    assert lab.profile(short)["journal"] is None and lab.profile(short).journal is None, "seven commits are too few"


def test_the_first_line_is_the_answer(noted: Path) -> None:
    done = emmclab("journal", noted)
    first = done.stdout.splitlines()[0]
    assert re.match(r"[\d.]+ % of the bytes written go to the journal, in 300 commits of [\d.]+ blocks", first)
    assert "flushes and FUA take" in first
    assert "by byte (known with the contents only)" in done.stdout


def test_without_notes_it_says_that_roles_are_not_known() -> None:
    recording = next(path for path in lab.bundled() if path.name == "browser-cache.parquet")
    done = emmclab_ok("journal", recording)
    assert done.stdout.startswith("Roles are not known: the journal's thread wrote ")
    journal = lab.read(recording).journal()
    commits = sum(row["commits"] for row in json.loads(journal["header"]["activity"])["journals"])
    assert journal["commits"]["commits"] == commits
    assert journal["by_role"] == [] and journal["logged"] is None


def test_the_page_has_the_answer_and_the_tables(noted: Path, tmp_path: Path) -> None:
    page = tmp_path / "journal.html"
    assert emmclab("journal", noted, "--html", page).returncode == 0
    text = page.read_text()
    journal = lab.read(noted).journal()
    assert journal.headline in text
    for table in journal.tables():
        assert f"<h3>{table.title}</h3>" in text
    journal.write_html(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_the_questions_of_the_guide_are_answered(noted: Path, requests: list[dict[str, Any]]) -> None:
    first, second = re.findall(r"```sql\n(.+?)```", GUIDE.read_text(), re.DOTALL)
    done = emmclab_ok("query", first, "--trace", noted, "--json")
    report = lab.read(noted).journal()
    assert {row["role"]: row["kb"] for row in json.loads(done.stdout)} == {
        row["role"]: row["kb"] for row in report["by_role"]
    }
    with query_one_trace(lab.read(noted), second) as answer:
        rows = list(answer.rows)
    assert answer.names == ["home_sector", "copies", "mean_changed", "transactions"]
    copies = Counter(note["home_sector"] for note in _notes(requests) if note["role"] == "logged")
    assert [(row[0], row[1]) for row in rows] == sorted(copies.items(), key=lambda pair: (-pair[1], pair[0]))[:10]


def test_a_question_on_a_trace_reads_that_trace_only(noted: Path) -> None:
    for sql in (f"select * from '{noted}'", "select * from trcae", "select nonsense from trace"):
        assert_fails(emmclab("query", sql, "--trace", noted))
    assert emmclab("query", "select 1", "--trace", noted, "--study", "one").returncode == 2
    count = emmclab("query", "select count(*) as n from trace", "--trace", lab.bundled()[0], "--csv")
    assert int(count.stdout.split()[1]) == lab.read(lab.bundled()[0]).ledger["kept"]


def test_a_bundled_trace_is_read_by_its_name(tmp_path: Path) -> None:
    [path] = [path for path in lab.bundled(annotated=True) if path.stem == "chat"]
    assert emmclab_json("journal", "chat")["trace_digest"] == emmclab_json("journal", path)["trace_digest"]
    (tmp_path / "chat").write_text("arrival_ns,op,sector,sectors\n0,write,0,8\n")
    done = emmclab("profile", "chat", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)[0]["requests"] == 1, "a file goes first"


def test_a_trace_that_names_no_format_is_shown_without_one() -> None:
    [path] = [path for path in lab.bundled(annotated=True) if path.stem == "chat"]
    output = " ".join(emmclab("explain", path).stdout.split())
    assert "first read from chat on ext4 of Linux 6.18.44 (mke2fs 1.47.0) clock" in output
    assert re.search(r"^chat  chat on ext4 of .* \(mke2fs 1\.47\.0\)$", emmclab("profile", path).stdout, re.M)


NOTED = [path for path in lab.bundled(annotated=True) if not path.stem.endswith("-nvram")]


@pytest.mark.parametrize("path", NOTED, ids=lambda path: path.stem)
def test_a_journal_is_found_by_addresses_where_the_notes_say_so_and_nowhere_else(path: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden.csv"
    emmclab_ok("convert", path, "-o", hidden)
    found, noted = emmclab_json("journal", hidden), emmclab_json("journal", path)
    if path.stem.endswith("-no-journal"):
        assert found["found"] == [] and found["journal_pct"] is None
        return
    [journal] = found["found"]
    assert (journal["file_system"], journal["kind"], found["known_by"]) == ("ext4", "journal", "addresses")
    roles = {row["role"]: row for row in noted["by_role"]}
    # The superblock of the journal, and commits at the ends of the recording, do not follow the pointer.
    assert noted["journal_pct"] - 1 < found["journal_pct"] <= noted["journal_pct"]
    assert journal["commits"] == pytest.approx(roles["commit"]["requests"], abs=2)


@pytest.mark.parametrize("name", ["cod_exec", "pubg_precond", "telegram_exec"])
def test_checkpoints_of_a_phone_are_found_at_the_same_address_in_every_recording(
    name: str, shared_traces: Path
) -> None:
    found = lab.read(shared_traces / "pixel6a" / f"{name}.csv.gz").journal()["found"]
    assert [(row["file_system"], row["first_sector"]) for row in found] == [("f2fs", 18_325_296)]


def test_the_journal_of_a_phone_is_found_by_addresses_alone(shared_traces: Path) -> None:
    journal = lab.read(shared_traces / "nexus5" / "log106_Messaging.txt").journal()
    [found] = journal["found"]
    assert (round(journal["journal_pct"], 1), found["commits"], found["writes"]) == (58.1, 1_066, 2_154)
    assert round(100 * found["writes"] / journal["writes"], 1) == 38.8
    assert journal.headline.startswith("By their addresses, 58.1 % of the bytes written follow the write pointer")


def test_reads_of_a_thread_that_only_discards_are_said_to_be_discards(tmp_path: Path) -> None:
    rows = ["1000,0,8,write,chat", *(f"{at},{at * 8},2048,read,f2fs_discard-25" for at in range(2000, 2004))]
    path = csv_trace(tmp_path / "phone.csv", "arrival_ns,sector,sectors,op,process", rows)
    (thread,) = emmclab_json("journal", path)["kernel_threads"]
    assert (thread["reads"], thread["read_kb"], thread["written_kb"]) == (4, 4096, 0)
    assert "f2fs_discard-25: this thread sends discards only" in " ".join(emmclab("journal", path).stdout.split())


def test_checkpoints_of_f2fs_are_known_by_the_name_of_their_thread(tmp_path: Path) -> None:
    rows = []
    for at in range(100):
        process = "f2fs_ckpt-254:4" if at % 4 == 0 else "f2fs_gc-254:4" if at % 10 == 1 else "chat"
        rows.append(f"{at * 1_000_000},{at * 8},8,write,{process}")
    path = csv_trace(tmp_path / "phone.csv", "arrival_ns,sector,sectors,op,process", rows)
    journal = emmclab_json("journal", path)
    threads = {thread["thread"]: thread for thread in journal["kernel_threads"]}
    assert threads["f2fs_ckpt-254:4"]["requests"] == 25
    assert threads["f2fs_ckpt-254:4"]["written_pct"] == 25
    assert threads["f2fs_gc-254:4"]["role"] == "cleaning of segments"
    output = emmclab("journal", path).stdout
    assert "f2fs has checkpoints, not a journal: their threads issued 25 of 100 requests" in output
    page = tmp_path / "page.html"
    assert emmclab("journal", path, "--html", page).returncode == 0
    assert "f2fs_ckpt-254:4" in page.read_text()


#: A journal of 4 MB, which wraps around within a test, and which mkfs initialises instead of the kernel.
_MKFS = ["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4", "-N", "4096"]
_TOOLS = "PATH=$PATH:/usr/sbin:/sbin; "


class _Files:
    """Files that were written and synced, with their expected content."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._random = folder, random.Random(1)
        self._digests: dict[str, str] = {}

    def write(self, count: int) -> None:
        """Write and sync files, and sometimes rename or remove them, each in a separate commit."""
        for number in range(count):
            name = f"f{len(self._digests)}-{number}"
            data = self._random.randbytes(self._random.randrange(1, 20_000))
            path = self._folder / name
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if number % 5 == 0:
                path = path.rename(path.with_name(name + "-renamed"))
            self._digests[path.name] = hashlib.sha256(data).hexdigest()
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def check(self) -> None:
        """Check that every file has its expected content."""
        paths = {path.name: path for path in self._folder.iterdir() if path.is_file()}
        assert set(self._digests) <= set(paths), sorted(set(self._digests) - set(paths))
        for name, digest in self._digests.items():
            assert hashlib.sha256(paths[name].read_bytes()).hexdigest() == digest, name


def _served(mode: str, **more: Any) -> lab.LiveDevice:
    return lab.serve(
        lab.Device.named("emmc51-cache").with_capacity("256MB"),
        clock="free",
        layers=["journal"],
        layer_settings={"journal.mode": mode, "journal.log": "8MB"},
        **more,
    )


def _shell(disk: lab.LiveDevice, command: str) -> None:
    # It runs as a child of the test, so that pytest shows its output after a failure.
    done = subprocess.run(
        ["sh", "-c", _TOOLS + command], env=os.environ | {"DISK": disk.path}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


#: Changes of an unmounted file system and its journal, as shell commands.
_CHANGES = {
    # The superblock of the journal and the next blocks are garbage; e2fsck creates a new journal and returns 1.
    "damaged": "seek=$(debugfs -R 'bmap <8> 0' $DISK | tail -n 1) && "
    "dd if=/dev/urandom of=$DISK bs=4096 seek=$seek count=64 conv=fsync,notrunc status=none && "
    "{ e2fsck -fy $DISK || test $? = 1; }",
    "removed": "tune2fs -O ^has_journal $DISK && e2fsck -fn $DISK",
    # The new journal has another size and place.
    "made anew": "tune2fs -O ^has_journal $DISK && tune2fs -J size=8 $DISK && e2fsck -fn $DISK",
    # The tags of a journal are checked with the UUID of its file system.
    "other identity": "e2fsck -fy $DISK && yes | tune2fs -f -U random $DISK && e2fsck -fn $DISK",
    # Shrinking moves blocks.
    "resized": "e2fsck -fy $DISK && resize2fs $DISK 60M && e2fsck -fy $DISK && resize2fs $DISK",
}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mode", ["ordered_fua", "delta", "aware"])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_journal_can_change_in_between(mode: str, change: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "tune2fs", "debugfs", "e2fsck")
    mount = tmp_path / "mnt"
    with _served(mode, mkfs="ext4", mkfs_options=_MKFS, mount=mount) as disk:
        files = _Files(mount)
        files.write(60)
        disk.unmount()
        _shell(disk, _CHANGES[change])
        disk.mount(mount)
        files.check()
        files.write(60)
        files.check()
        disk.unmount()
        _shell(disk, "e2fsck -fn $DISK")
        disk.mount(mount)
        files.check()
        assert disk.stats().failed == 0


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mode", ["ordered_fua", "delta", "aware"])
def test_a_file_system_may_grow_while_it_is_written_to(mode: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "resize2fs", "e2fsck")
    mount = tmp_path / "mnt"
    with _served(mode) as disk:
        _shell(disk, f"mkfs.ext4 -q {' '.join(_MKFS)} $DISK 48M")
        disk.mount(mount)
        files = _Files(mount)
        for size in ("96M", "180M", ""):
            files.write(40)
            command = f"{_TOOLS} resize2fs {disk.path} {size}"
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
            if "Permission denied" in done.stderr:
                pytest.skip("the kernel refuses to resize what is mounted here (CAP_SYS_RESOURCE)")
            assert done.returncode == 0, done.stderr
        files.write(40)
        assert os.statvfs(mount).f_blocks * 4096 > 180 << 20
        files.check()
        disk.unmount()
        _shell(disk, "e2fsck -fn $DISK")
        disk.mount(mount)
        files.check()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mode", ["delta", "aware"])
def test_another_file_system_in_its_place_finds_nothing_of_the_one_before(mode: str, tmp_path: Path) -> None:
    need("mkfs.ext4", "e2fsck")
    mount = tmp_path / "mnt"
    with _served(mode, mkfs="ext4", mkfs_options=_MKFS, mount=mount) as disk:
        _Files(mount).write(30)
        disk.unmount()
        make_btrfs(disk.path)
        disk.mount(mount)
        foreign = _Files(mount)
        foreign.write(30)
        foreign.check()
        disk.unmount()
        _shell(disk, f"mkfs.ext4 -F -q {' '.join(_MKFS)} $DISK && e2fsck -fn $DISK")
        disk.mount(mount)
        assert [path.name for path in mount.iterdir()] == ["lost+found"]
        files = _Files(mount)
        files.write(60)
        files.check()
        disk.unmount()
        _shell(disk, "e2fsck -fn $DISK")


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
