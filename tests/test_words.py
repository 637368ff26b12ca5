"""Units that fit, tables that fit, messages in plain words, options that are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import emmclab as package
from conftest import ROOT, emmclab, emmclab_json
from emmclab.fields import LEDGER_MEANINGS, TABLES
from emmclab.quantity import duration, size
from test_house_rules import complain, place, tracked

#: Phrases that were replaced, in pieces so that this file does not hold them.
GONE = [
    "of them in " + "their figures",
    "reproduced in " + "direction",
    "before it the " + "device held",
    "large buffer gains little" + " (",
    "blocks that fit, " + "per block needed",
    "is no KEY" + "=VALUE",
    "no trace format that " + "is known here",
    "the folder of an output " + "has to exist",
    "give a value of " + "type",
    "must lie " + "in",
    "Where the page " + "goes",
    "Replay the trace " + "so often",
    "words to " + "stderr",
]


def test_replaced_phrases_are_gone() -> None:
    faults = [
        f"{place(path)}: {phrase}"
        for path in tracked(".py", ".rs", ".md", ".j2", ".toml", ".js", ".ipynb")
        if path != Path(__file__)
        for phrase in GONE
        if phrase in path.read_text(errors="replace")
    ]
    complain(faults, "say it in plain words")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 0.65 s, of which a third is busy."""
    path = tmp_path_factory.mktemp("short") / "short.csv"
    rows = [f"{at * 1_000_000},{at * 1_000_000 + 350_000},{at * 8},8,write" for at in range(650)]
    path.write_text("\n".join(["arrival_ns,complete_ns,sector,sectors,op", *rows, ""]))
    return path


def test_a_trace_below_a_second_has_a_duration_and_idle_time(short: Path) -> None:
    done = emmclab("profile", short)
    assert done.returncode == 0, done.stderr
    (row,) = re.findall(r"^short +(\S+) +[\d.,]+ +[\d.,]+ +100\.00 ", done.stdout, re.MULTILINE)
    assert row == "0.649"
    assert re.search(r"Idle time: 4\d\d ms \(6\d\.\d %\)", done.stdout)
    assert not re.search(r"\b0 s \(", done.stdout)


def test_durations_and_sizes_are_in_the_unit_that_fits() -> None:
    assert [duration(value) for value in (0.0000123, 0.5, 61.0, 7200.0)] == [
        "12.3 us",
        "500 ms",
        "61 s",
        "2 h",
    ]
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
        done = emmclab("profile", *chosen, env={"COLUMNS": str(columns)})
        assert done.returncode == 0
        tables = done.stdout.partition("Table III")[2].partition(f"\n{chosen[0].stem}\nBy operation")[0]
        assert max(len(line.rstrip()) for line in tables.splitlines()) <= columns
        profiles = emmclab_json("profile", *chosen)
        for _, fields in TABLES:
            for field in fields:
                for profile in profiles:
                    assert field.text(profile[field.name]) in tables, (field.name, profile["name"])


def test_the_folder_of_traces_has_to_be_there(tmp_path: Path) -> None:
    done = emmclab(
        *("reproduce", "iiswc15", "--results", tmp_path / "results"), env={"EMMCLAB_TRACES": "/nope/never"}
    )
    assert done.returncode == 2
    assert "/nope/never: folder not found" in done.stderr and "EMMCLAB_TRACES" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_near_setting_is_named_by_its_whole_key(trace: Path) -> None:
    done = emmclab("simulate", trace, "--device", "small-1gb", "--set", "gc.polcy=fifo")
    assert done.returncode == 2
    assert "did you mean `gc.policy`?" in done.stderr


def test_explain_lists_what_settings_allow_and_what_counts_mean(trace: Path) -> None:
    done = emmclab("explain", "small-1gb")
    assert "greedy, " in done.stdout and "true, false" in done.stdout
    rows = {row["key"]: row["allowed"] for row in emmclab_json("explain", "small-1gb")}
    assert "windowed_greedy" in rows["gc.policy"] and "interleave" in rows["timing.parallelism"]
    counted = emmclab("explain", trace, env={"COLUMNS": "200"}).stdout
    for field in package.read(trace).ledger:
        assert LEDGER_MEANINGS[field] in counted, field
        assert LEDGER_MEANINGS[field] != package._core.ledger_labels()[field], field


def test_a_wrong_amount_of_preconditioning_is_answered_for_its_kind(trace: Path) -> None:
    for what, hint in (("steady:abc", "steady:4"), ("random:x", "random:90")):
        done = emmclab("simulate", trace, "--device", "nexus5", "--precondition", what)
        assert done.returncode == 2
        assert f"`{hint}`" in done.stderr


def test_ranges_are_written_for_people(trace: Path) -> None:
    done = emmclab("simulate", trace, "--device", "nexus5", "--set", "geometry.channels=-1")
    assert done.returncode == 2
    assert "must be 0 to 4,294,967,295" in done.stderr


def test_a_missing_file_or_folder_is_called_so(trace: Path, tmp_path: Path) -> None:
    assert "nothing.txt: file not found" in emmclab("profile", tmp_path / "nothing.txt").stderr
    assert "folder not found" in emmclab("convert", trace, tmp_path / "gone" / "x.csv").stderr
    assert "unrecognised trace format" in emmclab("profile", ROOT / "LICENSE").stderr


def test_a_relative_mount_point_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from emmclab.cli.machine import _mount_point

    monkeypatch.chdir("/")
    assert _mount_point("proc") == _mount_point("./proc/") == _mount_point("/proc/") == "/proc"
    assert _mount_point("sda") == "sda"
    assert _mount_point("usr/no-mount-point") == "usr/no-mount-point"


@pytest.mark.parametrize("command", ["simulate", "compare", "advise"])
def test_a_preset_is_scaled_to_a_capacity_and_says_so(command: str, trace: Path) -> None:
    device = ["--devices", "iiswc15-hps"] if command == "compare" else ["--device", "iiswc15-hps"]
    done = emmclab(command, trace, *device, "--capacity", "128GB")
    assert done.returncode == 0, done.stderr
    assert "iiswc15-hps-128GB" in done.stdout


def test_the_capacity_is_in_the_result_the_settings_and_the_list(trace: Path) -> None:
    scaled = package.Device.preset("iiswc15-hps", capacity="128GB")
    result = scaled.simulate(package.read(trace))
    assert result["configuration"]["capacity_bytes"] == scaled.capacity_bytes == 128 << 30
    rows = {row["key"]: row for row in emmclab_json("explain", "iiswc15-hps", "--capacity", "128GB")}
    key = "geometry.block_groups.0.blocks"
    plain = {row["key"]: row for row in package.Device.preset("iiswc15-hps").explain()}
    assert rows[key]["origin"] == "--capacity 128GB"
    assert int(rows[key]["value"]) == 4 * int(plain[key]["value"])
    changed = {name for name in rows if rows[name]["value"] != plain[name]["value"]}
    assert all(name == "name" or name.endswith(".blocks") for name in changed)
    listed = {row["name"]: row for row in emmclab_json("devices", "--capacity", "128GB")}
    assert listed["iiswc15-hps-128GB"]["capacity_gb"] == 128


@pytest.mark.parametrize("wrong", ["0", "abc", "-5GB", "1KB", "999999999TB"])
def test_an_impossible_capacity_is_refused(wrong: str, trace: Path) -> None:
    done = emmclab("simulate", trace, "--device", "nexus5", f"--capacity={wrong}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "hint:" in done.stderr
    with pytest.raises(package.ConfigError):
        package.Device.preset("nexus5", capacity=wrong)


def test_flags_that_a_format_cannot_record_are_not_zero(trace: Path) -> None:
    flags = {row["flag"]: row for row in package.profile(trace).figure("flags")}
    assert flags["packed"]["pct"] == 0
    assert flags["sync"]["pct"] is None and flags["flush"]["requests"] is None
    recorded = {row["flag"]: row for row in package.profile(package.bundled()[3]).figure("flags")}
    assert all(row["pct"] is not None for row in recorded.values())
