"""`--capacity` scales a preset by its number of blocks, and each output shows the resulting device."""

from pathlib import Path

import pytest

import emmclab as package
from conftest import assert_fails, emmclab, emmclab_json, emmclab_ok


@pytest.mark.parametrize("command", ["simulate", "compare", "advise"])
def test_a_preset_is_scaled_to_a_capacity_and_says_so(command: str, trace: Path) -> None:
    device = ["--devices", "iiswc15-hps"] if command == "compare" else ["--device", "iiswc15-hps"]
    done = emmclab_ok(command, trace, *device, "--capacity", "128GB")
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
    assert_fails(emmclab("simulate", trace, "--device", "nexus5", f"--capacity={wrong}"))
    with pytest.raises(package.ConfigError):
        package.Device.preset("nexus5", capacity=wrong)


@pytest.mark.parametrize("capacity", ["256MB", "2GB", "16GB", "512GB"])
def test_a_zoned_device_of_any_capacity_runs_the_first_command(capacity: str, trace: Path) -> None:
    words = ("simulate", trace, "--device", "zufs", "--capacity", capacity, "--layer", "lfs", "--wrap-addresses")
    done = emmclab_ok(*words)
    assert f"zufs-{capacity} under lfs" in done.stdout
