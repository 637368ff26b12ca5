"""Figures have a suitable unit and are in tables on the terminal."""

import re
from pathlib import Path

import pytest

import emmclab as package
from conftest import emmclab_json, emmclab_ok
from emmclab.runtime.number_format import duration, size
from emmclab.traces.profile_fields import TABLES


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 0.65 s; the device is busy for a third of it."""
    path = tmp_path_factory.mktemp("short") / "short.csv"
    rows = [f"{at * 1_000_000},{at * 1_000_000 + 350_000},{at * 8},8,write" for at in range(650)]
    path.write_text("\n".join(["arrival_ns,complete_ns,sector,sectors,op", *rows, ""]))
    return path


def test_a_trace_below_a_second_has_a_duration_and_idle_time(short: Path) -> None:
    done = emmclab_ok("profile", short)
    (row,) = re.findall(r"^short +(\S+) +[\d.,]+ +[\d.,]+ +100\.00 ", done.stdout, re.MULTILINE)
    assert row == "0.649"
    assert re.search(r"Idle time: 4\d\d ms \(6\d\.\d %\)", done.stdout)
    assert not re.search(r"\b0 s \(", done.stdout)


def test_durations_and_sizes_are_in_the_unit_that_fits() -> None:
    assert [duration(value) for value in (0.0000123, 0.5, 61.0, 7200.0)] == ["12.3 us", "500 ms", "61 s", "2 h"]
    assert size(63_668 * 1024) == "62.2 MB"


def test_bins_are_in_the_unit_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "slow.csv"
    rows = [f"{at * 300_000_000_000},{at % 3 * 8},8,write" for at in range(60)]
    path.write_text("\n".join(["arrival_ns,sector,sectors,op", *rows, ""]))
    figures = package.profile(path)["figures"]
    bins = [row["bin"] for rows in figures.values() for row in rows if "bin" in row]
    assert any("min" in one for one in bins)
    assert [one for one in bins if re.search(r"\d{4,}|\.\d{3,}\d", one)] == []


@pytest.mark.parametrize("columns", [80, 100])
def test_tables_of_a_profile_fit_the_terminal(columns: int) -> None:
    paths = package.bundled()
    for chosen in (paths[:1], paths):
        done = emmclab_ok("profile", *chosen, env={"COLUMNS": str(columns)})
        tables = done.stdout.partition("Table III")[2].partition(f"\n{chosen[0].stem}\nBy operation")[0]
        assert max(len(line.rstrip()) for line in tables.splitlines()) <= columns
        profiles = emmclab_json("profile", *chosen)
        for _, fields in TABLES:
            for field in fields:
                for profile in profiles:
                    assert field.text(profile[field.name]) in tables, (field.name, profile["name"])


def test_flags_that_a_format_cannot_record_are_not_zero(trace: Path) -> None:
    flags = {row["flag"]: row for row in package.profile(trace).figure("flags")}
    assert flags["packed"]["pct"] == 0
    assert flags["sync"]["pct"] is None and flags["flush"]["requests"] is None
    recorded = {row["flag"]: row for row in package.profile(package.bundled()[3]).figure("flags")}
    # The recorder of Linux sees no packed commands.
    assert [name for name, row in recorded.items() if row["pct"] is None] == ["packed"]
