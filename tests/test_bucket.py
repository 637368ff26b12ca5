"""Results and fleets in a bucket of an S3 server are equal to those in a folder, also if the server fails."""

import json
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, Server, assert_refused, begin, biotracer, emmclab, emmclab_ok, need_library, wait_until
from emmclab.errors import ConfigError, InputError
from emmclab.fleet import Table, profile_fleet
from emmclab.fleet.run import InBucket, source_of
from emmclab.fleet.table_state import Copy
from emmclab.runtime import bucket as buckets
from emmclab.runtime.bucket import Bucket
from emmclab.runtime.files import stale_folders
from emmclab.runtime.local_copies import scratch
from emmclab.runtime.result_storage import place_of
from emmclab.studies import Serial
from fleets import blocked_run, profiled, recorded, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server")]

STUDY = """
name = "small"
inputs = ["Movie"]
seeds = [1, 2, 3]
[[grid]]
name = "all"
devices = ["iiswc15-4ps", "iiswc15-hps"]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def quick_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew the lock of a run often, and wait for it without a time limit."""
    monkeypatch.setattr(buckets, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(buckets, "LEASE_S", PATIENCE_S)


def test_a_bucket_holds_what_a_folder_holds(study: Path, tmp_path: Path) -> None:
    """A run without shards and runs in shards collect the same bytes."""
    files = {}
    for name, results, shards in (
        ("folder", tmp_path / "folder", [()]),
        ("bucket", "s3://sweeps/whole", [()]),
        ("shards", "s3://sweeps/shards", [("--shard", "2/2"), ("--shard", "1/2")]),
    ):
        for shard in shards:
            emmclab_ok("run", study, "--jobs", 1, "--results", results, *shard)
        output = tmp_path / f"{name}.parquet"
        emmclab_ok("collect", study, results, "-o", output)
        files[name] = output.read_bytes()
    assert files["folder"] == files["bucket"] == files["shards"]
    place = place_of("s3://sweeps/whole", "small")
    assert place.names("cells") == ["cells/all.parquet"]
    assert place.names("running") == []
    folder = place_of(tmp_path / "folder", "small")
    for name in ("runs.parquet", "profiles.parquet", "index.json"):
        assert place.read(name) == folder.read(name)
    # Stored results are reused.
    done = emmclab_ok("run", study, "--jobs", 1, "--results", "s3://sweeps/shards", "--json")
    assert '"cells": 9' in done.stdout


@pytest.mark.usefixtures("quick_signs")
def test_a_living_run_keeps_others_out_and_a_killed_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Bucket("s3://sweeps/locked"), Bucket("s3://sweeps/locked")
    with first.lock(""):
        for shard in ("", "1-of-2"):
            with pytest.raises(ConfigError, match="another run is writing") as refused, second.lock(shard):
                pass
            assert "--shard" in str(refused.value.hint)
    with first.lock("1-of-2"), second.lock("2-of-2"), pytest.raises(ConfigError), second.lock("1-of-2"):
        pass
    first.write("running/all", b"{}")
    monkeypatch.setattr(buckets, "LEASE_S", 1.5)
    started = time.monotonic()
    with second.lock(""):
        assert time.monotonic() - started >= buckets.LEASE_S
    assert second.names("running") == []


@pytest.mark.usefixtures("quick_signs")
def test_a_run_whose_lock_was_taken_says_so() -> None:
    bucket, lost = Bucket("s3://sweeps/lost"), threading.Event()
    renew = bucket.renew

    def watched(at: str, sign: Any) -> Any:
        result = renew(at, sign)
        if result is None:
            lost.set()
        return result

    bucket.renew = watched  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="missed its heartbeats"), bucket.lock(""):
        bucket.write("running/all", b"another")
        assert lost.wait(PATIENCE_S)


def test_a_bucket_that_is_not_there_is_named(study: Path) -> None:
    done = emmclab("run", study, "--jobs", 1, "--results", "s3://no-such-bucket/x")
    assert_refused(done, "error: s3://no-such-bucket/x/small", code=1)
    assert_refused(emmclab("run", study, "--results", "nonsense://x"), "s3://BUCKET/PREFIX")


def test_buckets_of_google_and_azure_are_known_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test accesses no network; the error states what is missing."""
    need_library("obstore")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ConfigError, match="az://container/x") as refused:
        Bucket("az://container/x")
    assert "AZURE_STORAGE_ACCOUNT_NAME" in str(refused.value.hint)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "mine")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bm9uZQ==")
    assert str(Bucket("az://container/x")) == "az://container/x"
    assert str(Bucket("gs://bucket/x")) == "gs://bucket/x"
    (tmp_path / "account.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    with pytest.raises(ConfigError, match="gs://bucket/x") as refused:
        Bucket("gs://bucket/x")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(refused.value.hint)


def test_a_bucket_that_goes_ends_the_run_and_the_next_one_goes_on(server: Server, tmp_path: Path) -> None:
    study = tmp_path / "long.toml"
    study.write_text(STUDY.replace("[1, 2, 3]", str(list(range(1, 2000)))))
    run = begin("run", study, "--jobs", "1", "--results", "s3://sweeps/gone")
    place = place_of("s3://sweeps/gone", "small")
    wait_until(lambda: place.names("cells") or run.poll() is not None)
    server.stop()
    _, stderr = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1, stderr
    assert "error: s3://sweeps/gone/small" in stderr and "the same command then continues the run" in stderr
    assert "Traceback" not in stderr


def test_a_file_that_is_not_in_a_bucket_is_an_input_error() -> None:
    with pytest.raises(InputError, match="file not found"):
        Bucket("s3://sweeps/empty").read("index.json")


FLEET = "s3://sweeps/phones"


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a separate temporary folder, so that the test can list the remaining files."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def put(files: dict[str, bytes], below: str = FLEET) -> None:
    bucket = Bucket(below)
    for name, content in files.items():
        bucket.write(name, content)


def test_a_fleet_in_a_bucket_has_the_table_of_its_folder_for_any_number_of_workers(tmp_path: Path) -> None:
    files = recorded(12) | {"notes.md": b"# Phones", "empty.txt": b"", ".hidden.txt": b"x", ".cache/a.txt": b"x"}
    folder = write(tmp_path / "phones", files)
    put(files | {"model=N5": b""})
    emmclab_ok("fleet", folder, "-o", "folder.parquet", cwd=tmp_path, status=1)
    for jobs in (1, 3):
        done = emmclab_ok("fleet", FLEET, "-o", f"{jobs}.parquet", "--jobs", jobs, cwd=tmp_path, status=1)
        assert (tmp_path / f"{jobs}.parquet").read_bytes() == (tmp_path / "folder.parquet").read_bytes()
    assert "2 of 14 files could not be read; the first, empty.txt: the file is empty" in done.stderr
    assert stale_folders(scratch()) == []


def test_only_new_or_changed_files_are_copied_and_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "fleet.parquet"
    copied: list[str] = []
    copy = Bucket.copy

    def noted(self: Bucket, name: str, path: Path) -> None:
        copied.append(name)
        copy(self, name, path)

    monkeypatch.setattr(Bucket, "copy", noted)

    def run() -> tuple[int, list[str]]:
        copied.clear()
        _, counts = profile_fleet(FLEET, table, Serial())
        return counts.profiled, sorted(copied)

    files = recorded(6)
    put(files)
    assert run() == (6, sorted(files))
    assert run() == (0, [])
    first, second, third = sorted(files)[:3]
    put({first: biotracer(33).encode(), second: files[second]} | (more := recorded(1, first=50)))
    Bucket(FLEET).remove(third)
    assert run() == (2, sorted([first, *more])), "the same bytes have the same ETag"
    (tmp_path / ".fleet.parquet.state").unlink()
    assert run()[0] == 0, "unchanged recordings are detected by their digests"
    assert len(copied) == 6
    profile_fleet(FLEET, tmp_path / "new.parquet", Serial())
    assert table.read_bytes() == (tmp_path / "new.parquet").read_bytes()


def test_a_table_in_a_bucket_is_that_of_a_folder_and_is_brought_up_to_date_by_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = recorded(8)
    folder = write(tmp_path / "phones", files)
    put(files)
    table = f"{FLEET}/all.fleet.parquet"
    assert profiled(FLEET, "-o", table) == 8
    emmclab("fleet", folder, "-o", tmp_path / "fleet.parquet")
    assert Bucket(FLEET).read("all.fleet.parquet") == (tmp_path / "fleet.parquet").read_bytes()
    # Another machine has no local copy and no state.
    other = str(tmp_path_factory.mktemp("o"))
    monkeypatch.setenv("TMPDIR", other)
    assert profiled(FLEET, "-o", table) == 0
    put(recorded(1, first=70))
    assert profiled(FLEET, "-o", table) == 1
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    assert profiled(FLEET, "-o", table) == 0
    done = emmclab_ok("fleet", table, "--by", "model", "--html", tmp_path / "page.html", "--json")
    output = json.loads(done.stdout)
    assert output["tables"] == [{"table": table, "run": None}]
    assert output["groups"][0]["recordings"] == 9
    assert "all.fleet.parquet" in (tmp_path / "page.html").read_text()


def test_a_fleet_here_and_one_in_a_bucket_are_compared(tmp_path: Path) -> None:
    folder = write(tmp_path / "before", recorded(8))
    put(recorded(8, first=30))
    words = ("--against", FLEET, "--json")
    output = json.loads(emmclab_ok("fleet", folder, *words, cwd=tmp_path).stdout)
    assert [row["table"] for row in output["tables"]] == ["before.fleet.parquet", "phones.fleet.parquet"]
    assert output["after"]["name"] == FLEET
    rerun = emmclab_ok("fleet", tmp_path / "before.fleet.parquet", *words, cwd=tmp_path)
    assert json.loads(rerun.stdout)["differences"] == output["differences"]


def test_a_table_that_another_process_wrote_meanwhile_is_not_overwritten() -> None:
    put(recorded(3))
    table = "s3://sweeps/tables/all.parquet"
    profile_fleet(FLEET, table, Serial())
    before = Bucket("s3://sweeps/tables").read("all.parquet")

    def meanwhile(*_now: int) -> None:
        Bucket("s3://sweeps/tables").write("all.parquet", before + b" ")

    put(recorded(1, first=20))
    with pytest.raises(ConfigError, match="another process has written this fleet table during the run"):
        profile_fleet(FLEET, table, Serial(), progress=meanwhile)
    assert Bucket("s3://sweeps/tables").read("all.parquet") == before + b" "
    Bucket("s3://sweeps/tables").write("all.parquet", before)
    written, counts = profile_fleet(FLEET, table, Serial())
    assert counts.profiled == 0, "rows of the refused run are stored"
    assert len(written.recordings(["path"])) == 4
    with Copy(table).locked():
        assert_refused(emmclab("fleet", FLEET, "-o", table), f"{table}: another process is working")


def test_what_is_not_in_a_bucket_is_named(tmp_path: Path) -> None:
    for words, status, message in (
        (("s3://sweeps/none",), 2, "s3://sweeps/none: the folder contains no recording"),
        (("s3://gone/none",), 1, "s3://gone/none"),
        (("nonsense://x/y",), 2, "s3://BUCKET/PREFIX"),
    ):
        assert_refused(emmclab("fleet", *words, cwd=tmp_path), message, code=status)
    put({"mine.parquet": b"PAR1 none PAR1"})
    assert_refused(
        emmclab("fleet", f"{FLEET}/mine.parquet", cwd=tmp_path),
        f"error: {FLEET}/mine.parquet: this is not a fleet table of emmclab",
    )
    with pytest.raises(InputError, match=r"gone\.parquet: file not found"):
        Copy(f"{FLEET}/gone.parquet").fetch()


def test_a_recording_gone_since_it_was_listed_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(recorded(3))
    original = InBucket.recordings
    monkeypatch.setattr(
        InBucket,
        "recordings",
        lambda self, files: [*original(self, files), original(self, files)[0]._replace(path="z.txt")],
    )
    table, counts = profile_fleet(FLEET, tmp_path / "t.parquet", Serial())
    assert (counts.recordings, counts.refused) == (4, 1)
    assert table.refused() == [("z.txt", "file not found")]


def test_processors_of_a_blktrace_recording_are_copied_together() -> None:
    put({f"run/disk.blktrace.{number}": b"x" * (number + 1) for number in (0, 1, 10)})
    put({"run/other.blktrace.0": b"y"})
    source = source_of(FLEET)
    first, second = source.recordings("*")
    assert (first.path, first.bytes, first.version.count(",")) == ("run/disk.blktrace.0", 14, 2)
    calls = []
    for _, place in source.local_files([first, second]):
        assert isinstance(place, Path)
        calls.append(sorted(path.name for path in place.parent.iterdir()))
    assert calls == [["disk.blktrace.0", "disk.blktrace.1", "disk.blktrace.10"], ["other.blktrace.0"]]
    assert stale_folders(scratch()) == []


def test_a_fleet_goes_on_after_a_lost_bucket(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(recorded(6))
    stopped = False

    def stop(*_now: int) -> None:
        nonlocal stopped
        if not stopped:
            server.process.send_signal(signal.SIGSTOP)
            server.process.kill()
            stopped = True

    from emmclab.fleet import run

    monkeypatch.setattr(run, "_BATCH_FILES", 2)
    with pytest.raises(InputError, match="s3://sweeps/phones"):
        profile_fleet(FLEET, tmp_path / "t.parquet", Serial(), progress=stop)
    stored = (tmp_path / ".t.parquet.state").read_text().count('"row": {')
    assert stored == 2
    assert not (tmp_path / "t.parquet").exists()


def test_ctrl_c_leaves_no_copy_behind(tmp_path: Path) -> None:
    put(recorded(30))
    run = blocked_run(FLEET, "-o", tmp_path / "t.parquet", "--jobs", "2")
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, stderr
    assert f"recordings of {FLEET} are stored; the same command continues" in stderr
    rerun: Any = profiled(FLEET, "-o", tmp_path / "t.parquet")
    assert 0 < rerun <= 23
    assert len(Table(tmp_path / "t.parquet").recordings(["path"])) == 30
    assert stale_folders(scratch()) == []
