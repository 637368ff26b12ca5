"""Messages state what is unknown in their first lines."""

from __future__ import annotations

from pathlib import Path

import emmclab
from conftest import emmclab as run

_WAL = next(str(path) for path in emmclab.bundled() if Path(path).stem == "messages-wal")


def test_a_headline_says_that_the_order_of_the_real_devices_is_not_known() -> None:
    said = run("compare", _WAL, "--devices", "emmc51-cache,nexus5").stdout.splitlines()[0]
    assert "is the fastest in the simulation; the order of the real devices is not known: " in said


def test_the_first_rows_of_a_trace_show_nanoseconds_that_tell_requests_apart(tmp_path: Path) -> None:
    lines = ["arrival_ns,op,sector,sectors", *(f"{time},read,0,8" for time in (0, 31, 62))]
    (tmp_path / "fast.csv").write_text("\n".join(lines))
    said = run("head", tmp_path / "fast.csv").stdout
    assert "0.000000031" in said and "0.000000062" in said


def test_an_empty_table_of_fsyncs_says_that_the_recording_has_totals_only() -> None:
    done = run("query", "--trace", _WAL, "--csv", "select count(*) as rows from fsyncs")
    assert done.stdout == "rows\n0\n"
    assert "note: the table `fsyncs` is empty" in done.stderr and "447 calls" in done.stderr


def test_a_result_without_changes_says_that_its_settings_are_those_of_the_preset(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(run("simulate", _WAL, "--device", "nexus5", "--json").stdout)
    said = " ".join(run("explain", tmp_path / "one.json").stdout.split())
    assert "as in the preset (`emmclab explain nexus5`)" in said
