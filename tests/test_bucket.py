"""Results in a bucket of a real S3 server: locks that expire soon after their runs, and a failing server."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, Server, assert_refused, begin, emmclab, emmclab_ok, need_library, wait_until
from emmclab.errors import ConfigError, InputError, UnsupportedError
from emmclab.runtime import bucket as buckets
from emmclab.runtime.bucket import Bucket
from emmclab.runtime.result_storage import place_of

pytestmark = pytest.mark.slow

STUDY = """
name = "small"
inputs = ["Movie"]
seeds = [1, 2, 3]
[[grid]]
name = "all"
devices = ["iiswc15-4ps", "iiswc15-hps"]
"""
CELLS = 3 * (1 + 2)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def quick_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send signs of a living run often, and wait for them as long as it takes."""
    monkeypatch.setattr(buckets, "SIGN_S", 0.2)
    monkeypatch.setattr(buckets, "LEASE_S", PATIENCE_S)


@pytest.mark.usefixtures("server")
def test_a_bucket_holds_what_a_folder_holds(study: Path, tmp_path: Path) -> None:
    """A whole run, and shards: all collect the same bytes."""
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
    # Stored results are not computed again.
    done = emmclab("run", study, "--jobs", 1, "--results", "s3://sweeps/shards", "--json")
    assert done.returncode == 0 and '"cells": 9' in done.stdout


@pytest.mark.usefixtures("server", "quick_signs")
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


@pytest.mark.usefixtures("server", "quick_signs")
def test_a_run_whose_lock_was_taken_says_so() -> None:
    bucket, seen = Bucket("s3://sweeps/lost"), threading.Event()
    renew = bucket.renew

    def watched(at: str, sign: Any) -> Any:
        found = renew(at, sign)
        if found is None:
            seen.set()
        return found

    bucket.renew = watched  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="missed its heartbeats"), bucket.lock(""):
        bucket.write("running/all", b"another")
        assert seen.wait(PATIENCE_S)


@pytest.mark.usefixtures("server")
def test_a_bucket_that_is_not_there_is_named(study: Path) -> None:
    done = emmclab("run", study, "--jobs", 1, "--results", "s3://no-such-bucket/x")
    assert done.returncode == 1
    assert "error: s3://no-such-bucket/x/small" in done.stderr and "hint: " in done.stderr
    assert_refused(emmclab("run", study, "--results", "nonsense://x"), "s3://BUCKET/PREFIX")


def test_buckets_of_google_and_azure_are_known_by_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read or written there; the error names what is missing."""
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


def test_a_missing_library_is_named_with_the_line_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UnsupportedError) as refused:
        place_of("s3://sweeps/x", "small")
    assert "pip install 'emmclab[bucket]'" in str(refused.value.hint)


def test_a_bucket_that_goes_ends_the_run_and_the_next_one_goes_on(server: Server, tmp_path: Path) -> None:
    study = tmp_path / "long.toml"
    study.write_text(STUDY.replace("[1, 2, 3]", str(list(range(1, 2000)))))
    run = begin("run", study, "--jobs", "1", "--results", "s3://sweeps/gone")
    place = place_of("s3://sweeps/gone", "small")
    wait_until(lambda: place.names("cells") or run.poll() is not None)
    server.stop()
    _, said = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1, said
    assert "error: s3://sweeps/gone/small" in said and "the same command runs the rest" in said
    assert "Traceback" not in said


@pytest.mark.usefixtures("server")
def test_a_file_that_is_not_in_a_bucket_is_an_input_error() -> None:
    with pytest.raises(InputError, match="file not found"):
        Bucket("s3://sweeps/empty").read("index.json")
