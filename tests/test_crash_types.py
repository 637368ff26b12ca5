"""The types of crash logs and of findings match the JSON output."""

from pathlib import Path

import msgspec
import pytest

from conftest import emmclab
from emmclab.crash.json_types import CrashSummary


@pytest.mark.usefixtures("root")
def test_a_summary_has_the_typed_fields_and_no_other(tmp_path: Path) -> None:
    lying = ("--device", "emmc51-cache", "--set", "cache.lies=flush")
    words = ("--workload", "sqlite-wal-full", "--operations", 5, "--cuts", 5, "--states", "device", "--json")
    done = emmclab("crash", *lying, *words, cwd=tmp_path)
    found = msgspec.json.decode(done.stdout, type=CrashSummary)
    assert msgspec.json.decode(msgspec.json.encode(found)) == msgspec.json.decode(done.stdout)
    assert found["findings"] and "minimal" in found["findings"][0]
