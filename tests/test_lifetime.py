"""No lifetime is longer than what the blocks endure, regardless of the kind of device."""

import tomllib
from pathlib import Path

import pytest

import emmclab
from conftest import emmclab as run
from conftest import emmclab_ok
from emmclab.errors import ConfigError
from emmclab.simulation.device import presets
from emmclab.simulation.result_text import without_slc
from emmclab.traces.generated import pattern

#: Small devices, which wear out within a few seconds.
_CAPACITY = "1GB"


def _sized(name: str) -> emmclab.Device:
    try:
        return emmclab.Device.preset(name).with_capacity(_CAPACITY)
    except ConfigError:
        return emmclab.Device.preset(name)


def _stands(device: emmclab.Device) -> float:
    """Return the bytes that all blocks with an erase limit can be filled with until they reach it."""
    settings = tomllib.loads(device.to_toml())
    geometry, slc = settings["geometry"], settings["slc"]
    planes = 1
    for part in ("channels", "chips_per_channel", "dies_per_chip", "planes_per_die"):
        planes *= geometry[part]
    stands = 0.0
    for number, group in enumerate(geometry["block_groups"]):
        block = 1024.0 * group["page_kb"] * group["pages_per_block"]
        own = slc["blocks"] if slc["mode"] != "off" and slc["group"] == number else 0
        stands += block * (group["blocks"] - own) * group["erase_limit"] + block * own * slc["erase_limit"]
    return planes * stands


def _used(device: emmclab.Device) -> emmclab.Result:
    writes = pattern(30_000, reads_pct=0, size=16 * 1024, span=512 * 2**20)
    return device.simulate(writes, precondition="steady:1", mode="back_to_back", wrap_addresses=True)


def _of_wearing_presets() -> list[str]:
    devices = {name: tomllib.loads(emmclab.Device.preset(name).to_toml()) for name in presets()}
    return [
        name
        for name, settings in devices.items()
        if any(group["erase_limit"] for group in settings["geometry"]["block_groups"])
        # Its zones must be written in order, which the trace does not do.
        and name != "zufs"
        # Its blocks span all planes: 1 GB has too few of them for collection.
        and name != "systor24-clustered"
    ]


def test_a_comparison_has_wear_where_it_is_known_and_keeps_it_with_its_range_over_seeds(tmp_path: Path) -> None:
    made = ("--reads", "0", "--span", "900m", "--requests", "20000", "-o", tmp_path / "w.parquet")
    assert run("synth", *made).returncode == 0
    words = ("compare", tmp_path / "w.parquet", "--devices", "small-1gb,emmc51-cache", "--capacity", "1GB")
    full = ("--precondition", "random:20", "--mode", "back_to_back")
    for seeds in ((), ("--seeds", "2")):
        done = emmclab_ok(*words, *full, *seeds)
        heading = next(line for line in done.stdout.splitlines() if "WAF" in line)
        assert heading.split()[-4:] == ["WAF", "Erases", "Life", "Wear"]
    work = done.stdout.partition("Work and wear")[2].partition("Total time")[0]
    small, emmc = (line.split() for line in work.splitlines() if line.startswith(("small", "emmc")))
    assert small[-2:] == ["–", "–"] and float(emmc[-2]) > 0 and " to " in work


@pytest.mark.slow
@pytest.mark.parametrize("name", _of_wearing_presets())
def test_the_lifetime_of_a_preset_is_below_what_its_blocks_stand(name: str) -> None:
    device = _sized(name)
    result = _used(device)
    assert without_slc(result) == "", "every preset says how often its SLC blocks can be erased"
    life = result["wear.lifetime"]
    assert life is not None
    most = _stands(device) / result["write_amplification.waf"]
    assert life["first_block_host_bytes"] <= life["even_host_bytes"] <= most


def test_a_lifetime_without_that_of_the_slc_blocks_says_so() -> None:
    device = emmclab.Device.preset("emmc51-cache").with_capacity(_CAPACITY)
    known, unknown = _used(device), _used(device.set({"slc.erase_limit": 0}))
    assert without_slc(known) == ""
    assert "slc.erase_limit is not set" in without_slc(unknown)
    # An erase limit for more blocks never lengthens a lifetime.
    assert known["wear.lifetime.even_host_bytes"] <= unknown["wear.lifetime.even_host_bytes"]
