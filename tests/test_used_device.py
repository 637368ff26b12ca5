"""Devices of another capacity or age: daily writes, lifetimes, and rejected options."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import emmclab as api
from conftest import assert_fails, assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.errors import ConfigError
from emmclab.simulation.device import presets
from emmclab.simulation.result_text import without_slc
from emmclab.traces.workload import pattern

SMALL = ("--device", "small-1gb", "--set", "geometry.block_groups.0.blocks=128", "--wrap-addresses")


def _used(result: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the preconditioning of a run."""
    age, *rest = result["options"]["precondition"].removeprefix("used:").split(",")
    return {"age": age, **dict(part.split("=") for part in rest)}


def test_a_used_device_is_worn_and_its_result_says_how_it_was_used(trace: Path) -> None:
    new, used = (
        emmclab_json("simulate", trace, *SMALL, *more) for more in ((), ("--used", "18mo,daily=1GB,filled=60"))
    )
    assert _used(used) == {"age": "547.5d", "daily": "1GB", "filled": "60", "random": "12", "trim": "yes"}
    assert new["wear"]["erase_counts"]["mean"] == 0
    # Each block was erased as often as its share of the writes requires, and more often if data was moved.
    fills = 547.5 * 2**30 / used["configuration"]["capacity_bytes"]
    assert 0.8 * fills < used["wear"]["erase_counts"]["mean"] < 10 * fills


def test_the_daily_writes_can_be_hours_of_the_traces_or_of_a_fleet(trace: Path, tmp_path: Path) -> None:
    profile = api.read(trace).profile()
    (written_kb,) = (row["data_kb"] for row in profile["by_operation"] if row["op"] == "write")
    per_day = 1024 * written_kb / profile["duration_s"] * 86_400

    def daily_bytes(use: str) -> float:
        daily = _used(emmclab_json("simulate", trace, *SMALL, "--used", use))["daily"]
        return float(daily[:-2]) * {"GB": 2**30, "MB": 2**20}[daily[-2:]]

    assert daily_bytes("1d,daily=6h,random=30") == pytest.approx(per_day / 4, rel=1e-3)
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "one.txt").write_bytes(trace.read_bytes())
    table = tmp_path / "fleet.parquet"
    assert emmclab("fleet", folder, "-o", table).returncode == 0
    assert daily_bytes(f"1d,daily={table}") == pytest.approx(per_day, rel=1e-3)


def test_several_seeds_are_compared_on_used_devices(trace: Path) -> None:
    done = emmclab_ok("compare", trace, "--devices", "small-1gb", *SMALL[2:], "--used", "30d", "--seeds", "2")
    assert "2 seeds" in done.stdout


def test_python_takes_it_as_a_way_to_precondition(trace: Path) -> None:
    device = api.Device.preset("small-1gb").set({"geometry.block_groups.0.blocks": 32})
    result = device.simulate(api.read(trace), precondition="used:30d,trim=no", wrap_addresses=True)
    assert result["options.precondition"] == "used:30d,daily=2GB,filled=75,random=12,trim=no"


def test_a_trace_ages_a_device_that_was_preconditioned_before(trace: Path) -> None:
    def runs(precondition: str) -> dict[str, Any]:
        return emmclab_json("simulate", trace, *SMALL, "--set", "mapping.scheme=dftl", "--precondition", precondition)

    new, filled, aged = (runs(way) for way in ("none", "sequential:100", f"sequential:100 then {trace}"))
    share = [result["map"]["unwritten_request_pct"] for result in (new, filled, aged)]
    assert share[0] > 0 and share[1:] == [0, 0]
    assert aged["options"]["precondition"] == f"sequential:100 then {trace}"
    assert (
        sum(pages["bytes_read"] for pages in new["map"]["unwritten_pages"]) > 0 and not aged["map"]["unwritten_pages"]
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--precondition", "sequential:100 then no.csv"), "no.csv"),
        (("--used", "soon"), "soon"),
        (("--used", "1y,filled=120"), "filled=120"),
        (("--used", "1y,daily=lots"), "daily=lots"),
        (("--used", "1y", "--precondition", "steady"), "--precondition"),
        (("--used", "100y,daily=1TB", "--set", "geometry.block_groups.0.erase_limit=300"), "worn out"),
    ],
)
def test_a_use_that_is_impossible_is_refused_with_its_word(trace: Path, options: tuple[str, ...], named: str) -> None:
    assert_refused(emmclab("simulate", trace, *SMALL, *options), named)


def test_the_hint_of_a_worn_out_device_names_a_use_that_it_stands(trace: Path) -> None:
    limit = ("--set", "geometry.block_groups.0.erase_limit=300")
    done = emmclab("simulate", trace, *SMALL, *limit, "--used", "3y")
    assert done.returncode == 2 and "worn out" in done.stderr
    (proposed,) = re.findall(r"used:(\S+)", done.stderr)
    assert emmclab("simulate", trace, *SMALL, *limit, "--used", proposed).returncode == 0


def test_a_scaled_device_is_worn_out_by_unscaled_daily_writes_and_the_error_says_so(trace: Path) -> None:
    scaled = ("simulate", trace, "--device", "nexus5", "--capacity", "1GB", "--wrap-addresses")
    assert_refused(
        emmclab(*scaled, "--used", "1y"),
        "worn out",
        "are not scaled with the capacity, and are 2.00 times that of this device",
    )
    assert emmclab(*scaled, "--used", "1y,daily=128MB").returncode == 0


def test_hours_need_a_trace_with_a_duration(tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text("arrival_s,op,sector,sectors\n1.0,W,0,8\n")
    assert_fails(emmclab("simulate", file, *SMALL, "--used", "1y,daily=4h"), "daily=4h")
    assert_fails(emmclab("serve", "small-1gb", "--used", "1y,daily=4h", "--nbd", "auto", "--", "true"), "daily=4h")


#: Small devices, which wear out within a few seconds.
_CAPACITY = "1GB"


def _sized(name: str) -> api.Device:
    try:
        return api.Device.preset(name).with_capacity(_CAPACITY)
    except ConfigError:
        return api.Device.preset(name)


def _stands(device: api.Device) -> float:
    """Return the bytes that can be written to all blocks with an erase limit until they reach it."""
    settings = tomllib.loads(device.to_toml())
    geometry, slc = settings["geometry"], settings["slc"]
    planes = 1
    for part in ("channels", "chips_per_channel", "dies_per_chip", "planes_per_die"):
        planes *= geometry[part]
    stands = 0.0
    for number, group in enumerate(geometry["block_groups"]):
        block = 1024.0 * group["page_kb"] * group["pages_per_block"]
        blocks = slc["blocks"] if slc["mode"] != "off" and slc["group"] == number else 0
        stands += block * (group["blocks"] - blocks) * group["erase_limit"] + block * blocks * slc["erase_limit"]
    return planes * stands


def _used_run(device: api.Device) -> api.Result:
    writes = pattern(30_000, reads_pct=0, size=16 * 1024, span=512 * 2**20)
    return device.simulate(writes, precondition="steady:1", mode="back_to_back", wrap_addresses=True)


def _of_wearing_presets() -> list[str]:
    devices = {name: tomllib.loads(api.Device.preset(name).to_toml()) for name in presets()}
    return [
        name
        for name, settings in devices.items()
        if any(group["erase_limit"] for group in settings["geometry"]["block_groups"])
        # Its zones must be written sequentially, unlike in the trace.
        and name != "zufs"
        # Its blocks span all planes: 1 GB has too few of them for collection.
        and name != "systor24-clustered"
    ]


def test_a_comparison_has_wear_where_it_is_known_and_keeps_it_with_its_range_over_seeds(tmp_path: Path) -> None:
    options = ("--reads", "0", "--span", "900m", "--requests", "20000", "-o", tmp_path / "w.parquet")
    assert emmclab("synth", *options).returncode == 0
    words = ("compare", tmp_path / "w.parquet", "--devices", "small-1gb,emmc51-cache", "--capacity", "1GB")
    full = ("--precondition", "random:20", "--mode", "back_to_back")
    for seeds in ((), ("--seeds", "2")):
        done = emmclab_ok(*words, *full, *seeds)
        heading = next(line for line in done.stdout.splitlines() if "WAF" in line)
        assert heading.split()[-4:] == ["WAF", "Erases", "Life", "Wear"]
    work = done.stdout.partition(heading)[2].partition("Total time")[0]
    small, emmc = (line.split() for line in work.splitlines() if line.startswith(("small", "emmc")))
    assert small[-2:] == ["–", "–"] and float(emmc[-2]) > 0 and " to " in work


@pytest.mark.slow
@pytest.mark.parametrize("name", _of_wearing_presets())
def test_the_lifetime_of_a_preset_is_below_what_its_blocks_stand(name: str) -> None:
    device = _sized(name)
    result = _used_run(device)
    assert without_slc(result) == "", "every preset says how often its SLC blocks can be erased"
    life = result["wear.lifetime"]
    assert life is not None
    most = _stands(device) / result["write_amplification.waf"]
    assert life["first_block_host_bytes"] <= life["even_host_bytes"] <= most


def test_a_lifetime_without_that_of_the_slc_blocks_says_so() -> None:
    device = api.Device.preset("emmc51-cache").with_capacity(_CAPACITY)
    with_limit, unknown = _used_run(device), _used_run(device.set({"slc.erase_limit": 0}))
    assert without_slc(with_limit) == ""
    assert "slc.erase_limit is not set" in without_slc(unknown)
    # An erase limit for more blocks never lengthens a lifetime.
    assert with_limit["wear.lifetime.even_host_bytes"] <= unknown["wear.lifetime.even_host_bytes"]


@pytest.mark.parametrize("command", ["simulate", "compare", "advise"])
def test_a_preset_is_scaled_to_a_capacity_and_says_so(command: str, trace: Path) -> None:
    device = ["--devices", "iiswc15-hps"] if command == "compare" else ["--device", "iiswc15-hps"]
    done = emmclab_ok(command, trace, *device, "--capacity", "128GB")
    assert "iiswc15-hps-128GB" in done.stdout


def test_the_capacity_is_in_the_result_the_settings_and_the_list(trace: Path) -> None:
    scaled = api.Device.preset("iiswc15-hps", capacity="128GB")
    result = scaled.simulate(api.read(trace))
    assert result["configuration"]["capacity_bytes"] == scaled.capacity_bytes == 128 << 30
    rows = {row["key"]: row for row in emmclab_json("explain", "iiswc15-hps", "--capacity", "128GB")}
    key = "geometry.block_groups.0.blocks"
    plain = {row["key"]: row for row in api.Device.preset("iiswc15-hps").explain()}
    assert rows[key]["origin"] == "--capacity 128GB"
    assert int(rows[key]["value"]) == 4 * int(plain[key]["value"])
    changed = {name for name in rows if rows[name]["value"] != plain[name]["value"]}
    assert all(name == "name" or name.endswith(".blocks") for name in changed)
    listed = {row["name"]: row for row in emmclab_json("devices", "--capacity", "128GB")}
    assert listed["iiswc15-hps-128GB"]["capacity_gb"] == 128


@pytest.mark.parametrize("wrong", ["0", "abc", "-5GB", "1KB", "999999999TB"])
def test_an_impossible_capacity_is_refused(wrong: str, trace: Path) -> None:
    assert_fails(emmclab("simulate", trace, "--device", "nexus5", f"--capacity={wrong}"))
    with pytest.raises(api.ConfigError):
        api.Device.preset("nexus5", capacity=wrong)


@pytest.mark.parametrize("capacity", ["256MB", "2GB", "16GB", "512GB"])
def test_a_zoned_device_of_any_capacity_runs_the_first_command(capacity: str, trace: Path) -> None:
    words = ("simulate", trace, "--device", "zufs", "--capacity", capacity, "--layer", "lfs", "--wrap-addresses")
    done = emmclab_ok(*words)
    assert f"zufs-{capacity} under lfs" in done.stdout
