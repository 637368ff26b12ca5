"""A device after use in a phone: where its daily writes come from, and which options are rejected."""

import re
from pathlib import Path
from typing import Any

import pytest

import emmclab as api
from conftest import assert_fails, assert_refused, emmclab, emmclab_json, emmclab_ok

SMALL = ("--device", "small-1gb", "--set", "geometry.block_groups.0.blocks=128", "--wrap-addresses")


def _used(result: dict[str, Any]) -> dict[str, str]:
    """Return the parts of the precondition that a run used."""
    age, *rest = result["options"]["precondition"].removeprefix("used:").split(",")
    return {"age": age, **dict(part.split("=") for part in rest)}


def test_a_used_device_is_worn_and_its_result_says_how_it_was_used(trace: Path) -> None:
    new, used = (
        emmclab_json("simulate", trace, *SMALL, *more) for more in ((), ("--used", "18mo,daily=1GB,filled=60"))
    )
    assert _used(used) == {"age": "547.5d", "daily": "1GB", "filled": "60", "random": "12", "trim": "yes"}
    assert new["wear"]["erase_counts"]["mean"] == 0
    # Each block has been erased as often as its share of the writes requires, and more if data was moved.
    fills = 547.5 * 2**30 / used["configuration"]["capacity_bytes"]
    assert 0.8 * fills < used["wear"]["erase_counts"]["mean"] < 10 * fills


def test_the_daily_writes_can_be_hours_of_the_traces_or_of_a_fleet(trace: Path, tmp_path: Path) -> None:
    profile = api.read(trace).profile()
    (written_kb,) = (row["data_kb"] for row in profile["by_operation"] if row["op"] == "write")
    per_day = 1024 * written_kb / profile["duration_s"] * 86_400
    found = _used(emmclab_json("simulate", trace, *SMALL, "--used", "1d,daily=6h,random=30"))
    assert float(found["daily"].removesuffix("GB").removesuffix("MB")) > 0
    unit = 2**30 if found["daily"].endswith("GB") else 2**20
    assert float(found["daily"][:-2]) * unit == pytest.approx(per_day / 4, rel=1e-3)
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "one.txt").write_bytes(trace.read_bytes())
    table = tmp_path / "fleet.parquet"
    assert emmclab("fleet", folder, "-o", table).returncode == 0
    found = _used(emmclab_json("simulate", trace, *SMALL, "--used", f"1d,daily={table}"))
    unit = 2**30 if found["daily"].endswith("GB") else 2**20
    assert float(found["daily"][:-2]) * unit == pytest.approx(per_day, rel=1e-3)


def test_several_seeds_are_compared_on_used_devices(trace: Path) -> None:
    done = emmclab_ok("compare", trace, "--devices", "small-1gb", *SMALL[2:], "--used", "30d", "--seeds", "2")
    assert "2 seeds" in done.stdout


def test_python_takes_it_as_a_way_to_precondition(trace: Path) -> None:
    device = api.Device.preset("small-1gb").set({"geometry.block_groups.0.blocks": 32})
    result = device.simulate(api.read(trace), precondition="used:30d,trim=no", wrap_addresses=True)
    assert result["options.precondition"] == "used:30d,daily=2GB,filled=75,random=12,trim=no"


@pytest.mark.parametrize(
    ("options", "named"),
    [
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
    one = tmp_path / "one.csv"
    one.write_text("arrival_s,op,sector,sectors\n1.0,W,0,8\n")
    assert_fails(emmclab("simulate", one, *SMALL, "--used", "1y,daily=4h"), "daily=4h")
    assert_fails(emmclab("serve", "small-1gb", "--used", "1y,daily=4h", "--nbd", "auto", "--", "true"), "daily=4h")
