"""Workloads of a phone of 2022, and the study of them on eMMC and UFS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, biotracer, emmclab, emmclab_json
from emmclab.errors import ConfigError
from emmclab.simulation.device import Device
from emmclab.studies import Study
from emmclab.studies.cell import Cell
from emmclab.traces.workload import Workload, workload_groups

_SMALL = """
name = "small"
inputs = ["TelegramInstall"]
[[grid]]
name = "all"
devices = ["ufs22", "ufs31"]
capacity = "{}"
wrap_addresses = true
requests = 300
"""


def test_the_models_are_what_fit_makes_of_the_public_traces(shared_traces: Path) -> None:
    script = ROOT / "scripts" / "phone_workloads.py"
    done = subprocess.run(
        [sys.executable, script, shared_traces / "pixel6a", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_workload_of_a_phone_names_its_trace_and_what_was_taken_out_of_it() -> None:
    groups = workload_groups()
    for name in groups["phones"]:
        assert "suspected re-issues dropped" in Workload.preset(name).to_toml()
    for name in groups["phones-recorded"]:
        assert "Pixel 6a): as recorded" in Workload.preset(name).to_toml()
    assert {row["group"] for row in emmclab_json("synth")} == {*groups, "benchmarks"}


def test_a_grid_scales_its_devices_to_a_capacity(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(_SMALL.format("32GB"))
    done = emmclab("run", file, "--results", tmp_path / "results", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    study = Study.named(str(file))
    cells = [cell for cell in study.cells() if cell.device]
    assert [cell.device_name for cell in cells] == ["ufs22-32GB", "ufs31-32GB"]
    result = _outcome(cells[0])
    assert 32 <= result["configuration"]["capacity_bytes"] / 2**30 < 33
    assert result["options"]["capacity"] == "32GB"


def test_a_capacity_that_is_none_names_the_grid() -> None:
    with pytest.raises(ConfigError, match=r"grid `all`"):
        Study.parse(_SMALL.format("many"), "small.toml").cells()


def _outcome(cell: Cell) -> dict[str, object]:
    found = cell.outcome()
    assert "result" in found, found
    return found["result"]


def test_the_study_has_every_device_with_the_capacity_of_the_phone() -> None:
    cells = [cell for cell in Study.named("phones").cells() if cell.device]
    assert len(cells) == 364
    # The wear is that of the small device of the study `implications`.
    assert {cell.device_name.rpartition("-")[2] for cell in cells if cell.grid != "wear"} == {"128GB"}


def test_a_recorded_trace_runs_on_every_new_device_and_is_read_as_those_of_the_models_were(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "mine.txt"
    trace.write_text(biotracer(40))
    study = Study.named("phones").with_inputs([str(trace)])
    mine = [cell for cell in study.cells() if cell.input.name == "mine"]
    assert [cell.grid for cell in mine] == ["profile", *["new"] * 6, "zoned"]
    assert study.reading == {"mend_clock": True, "drop_reissued": True}


def test_a_used_ufs_begins_with_an_empty_write_booster() -> None:
    device = Device.preset("ufs31", capacity="32GB")
    run = device.simulate(
        Workload.preset("TelegramInstall").trace(), precondition="sequential:60", wrap_addresses=True
    )
    booster = run["ufs"]["write_booster"]
    assert booster["bytes_past_it"] == 0
    # Data that preconditioning left in it would be moved in the first pause.
    assert run["write_amplification"]["gc"] < 0.1
