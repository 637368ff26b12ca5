"""Presets that are fitted to figures of benchmarks by simulation."""

import math
from dataclasses import replace

import pytest

from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.calibration.figure_fit import _written, fit_figures
from emmclab.calibration.measured_figures import METRICS, FigureJob, MeasuredFigure, simulate_job
from emmclab.errors import ConfigError
from emmclab.simulation.device import Device

#: Jobs of both directions with small and large requests, at two depths.
JOBS = [
    FigureJob(rw, kb << 10, 1, depth, host="none")
    for rw in ("randread", "randwrite")
    for kb in (4, 64)
    for depth in (1, 8)
]
TRUE = {"controller.read_overhead_us": "70", "controller.write_overhead_us": "150", "timing.bus_ns_per_byte": "9"}


def _figures(device: Device, folder: str, jobs=JOBS, metrics=("iops",)) -> list[MeasuredFigure]:
    """Return the figures of a simulated device as if somebody had measured them."""
    rows = []
    for job in jobs:
        found = simulate_job(device, job, folder)
        assert found is not None
        for metric in metrics:
            value = METRICS[metric].of(found)
            rows.append(MeasuredFigure("board", "eMMC", "", False, job, metric, value, "", "a test"))
    return rows


@pytest.fixture
def base() -> Device:
    return Device.preset("small-1gb")


#: Jobs with requests of three sizes at up to four depths.
MORE_JOBS = [
    *JOBS,
    *(job._replace(block_bytes=job.block_bytes * by, depth=job.depth * 2) for job in JOBS for by in (1, 4)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "true", "most"),
    [
        ("small-1gb", {**TRUE, "timing.bus_ns_per_byte": "30", "geometry.block_groups.0.read_us": "40"}, 3_000),
        ("emmc51-tlc", {"timing.bus_ns_per_byte": "8", "controller.read_overhead_us": "5"}, 2_000),
        ("sandisk-extreme-a2", {"controller.host_us_per_kb": "40", "controller.write_overhead_us": "20"}, 2_000),
    ],
)
def test_a_made_device_is_found_from_a_distant_base_within_a_number_of_simulations(base, true, most, tmp_path):
    base, simulated = Device.preset(base), []
    figures = _figures(base.set(true), tmp_path, MORE_JOBS)
    fit = fit_figures(figures, base, name="board", progress=lambda number, _: simulated.append(number))
    assert fit.held_out.half_within_pct < 2 and fit.held_out.nine_of_ten_within_pct < 10
    determined = {row.setting: row for row in fit.settings if row.is_determined}
    assert {*determined} & {*true}
    for setting, row in determined.items():
        value = float(true.get(setting, row.base))
        assert (row.low or 0) <= value <= (row.high or math.inf), row
    assert simulated[-1] <= most


def test_the_search_leaves_an_optimum_at_which_another_setting_explains_the_figures(tmp_path):
    """With a fast bus and slow pages, neither of them alone can change towards a slow bus and fast pages."""
    true = Device.preset("small-1gb").set({"timing.bus_ns_per_byte": "20", "geometry.block_groups.0.read_us": "40"})
    base = true.set({"timing.bus_ns_per_byte": "2.5", "geometry.block_groups.0.read_us": "320"})
    jobs = [job for job in MORE_JOBS if job.rw == "randread"]
    fit = fit_figures(_figures(true, tmp_path, jobs), base, name="board")
    found = {row.setting: row.value for row in fit.settings}
    assert found["timing.bus_ns_per_byte"] == pytest.approx(20, rel=0.1)
    assert found["geometry.block_groups.0.read_us"] == pytest.approx(40, rel=0.1)


def test_a_setting_that_the_figures_do_not_determine_keeps_the_value_of_the_base(base, tmp_path):
    reads = [job for job in JOBS if job.rw == "randread"]
    fit = fit_figures(_figures(base.set(TRUE), tmp_path, reads), base, name="board")
    writes = next(row for row in fit.settings if row.setting == "controller.write_overhead_us")
    assert not writes.is_determined and writes.value == writes.base
    assert "do not determine" in fit.toml
    fitted = Device.from_toml(fit.toml)
    assert fitted.name == "board"
    values = {row.key: row.value for row in fitted.explain()}
    changed = {row.key for row in base.explain() if values.get(row.key) != row.value}
    determined = {row.setting for row in fit.settings if row.is_determined}
    assert changed - {"name", "about", "fitted_to"} <= determined, "every other setting is that of the base"


def test_the_base_of_a_setting_is_its_value_there_even_if_that_is_0(base, tmp_path):
    without = base.set({"controller.write_overhead_us": "0"})
    reads = [job for job in JOBS if job.rw == "randread"]
    fit = fit_figures(_figures(without, tmp_path, reads), without, name="board")
    writes = next(row for row in fit.settings if row.setting == "controller.write_overhead_us")
    assert (writes.base, writes.value) == (0, 0)


@pytest.mark.parametrize("copies", [1, 4, 20])
def test_the_regions_of_all_copies_of_a_job_are_written_before_a_candidate(copies):
    device = Device.preset("hbg4a2")
    job = FigureJob("randread", 4096, copies, 4)
    percent = int(_written(job, device, 64 << 20).partition(":")[2])
    size = next(line for line in job.text(device.capacity_bytes, 64 << 20).splitlines() if line.startswith("size="))
    assert percent / 100 * device.capacity_bytes >= copies * int(size.partition("=")[2])


def test_the_same_figures_give_the_same_preset(base, tmp_path):
    figures = _figures(base.set(TRUE), tmp_path, JOBS[:4])
    assert fit_figures(figures, base, name="b").toml == fit_figures(figures[::-1], base, name="b").toml


def test_costs_of_the_host_are_fitted_to_submission_latencies(base, tmp_path):
    text = (
        'name = "h"\nabout = "a"\nsource = "s"\ncores = 4\nera = "linux-6"\nlowest_clock_pct = 20\n'
        'direct_io = { submit_us = 5.0, page_us = 0.0, complete_us = 5.0 }\n[[partition]]\nname = "data"\n'
        'filesystem = "ext4"\n[[network]]\nname = "wifi"\nrate_mbit_s = 8.0\nround_trip_ms = 1.0\n'
    )
    host, true = tmp_path / "host.toml", tmp_path / "true.toml"
    host.write_text(text)
    true.write_text(text.replace("submit_us = 5.0", "submit_us = 20.0"))
    jobs = [job._replace(host=str(true)) for job in JOBS if job.rw == "randread"]
    figures = _figures(base, tmp_path, jobs, ("iops", "slat_us_mean"))
    fit = fit_figures(figures, base, name="board", host=str(host))
    found = {row.setting: row.value for row in fit.settings}
    assert found["direct_io.submit_us"] == pytest.approx(20, rel=0.15)
    assert f"submit_us = {found['direct_io.submit_us']:.4g}" in fit.host_toml


def test_figures_of_several_devices_and_figures_without_a_job_are_refused(base):
    figure = MeasuredFigure("a", "", "", False, JOBS[0], "iops", 1.0, "", "")
    with pytest.raises(ConfigError, match="2 devices: a, b"):
        fit_figures([figure, replace(figure, device="b")], base, name="x")
    with pytest.raises(ConfigError, match="does not state: queue depth"):
        fit_figures([replace(figure, job=None, refused="its source does not state: queue depth")], base, name="x")


TABLE = """device,rw,bs_kb,jobs,depth,iops,slat_us_mean
board,randread,4,1,1,4000,20
board,randread,64,1,4,1500,30
card,randread,4,1,1,900,
"""


def test_calibrate_fits_a_base_to_the_figures_of_one_device_in_a_table(tmp_path):
    table, preset = tmp_path / "figures.csv", tmp_path / "board.toml"
    table.write_text(TABLE)
    fit = ("calibrate", table, "--base", "small-1gb", "--fio-host", "none", "-o", preset)
    assert_refused(emmclab(*fit), "figures are of 2 devices: board, card", "--only device=NAME")
    assert_refused(emmclab(*fit, "--only", "device=phone"), "selects no figure", "board, card")
    assert_refused(emmclab("calibrate", table, "-o", preset), "has figures of a benchmark", "--base ufs22")
    assert_refused(emmclab(*fit, "--seed", "2"), "`--seed` has no effect")
    assert not preset.exists()
    done = emmclab_ok(*fit, "--only", "device=board")
    assert "controller.read_overhead_us" in done.stderr and "not determined" in done.stderr
    shown = emmclab_json("devices", "--check", preset, "--figures", table, "--json")
    assert len(shown["measured"]) == 5
    described = emmclab_json(*fit[:-2], "--only", "device=board", "--json")
    assert described["toml"].replace('"calibrated"', '"board"') == preset.read_text()


def test_calibrate_refuses_results_that_state_no_job_and_a_host_without_costs(tmp_path):
    table = tmp_path / "figures.csv"
    table.write_text("rw,bs_kb,iops\nrandread,4,900\n")
    fit = ("calibrate", table, "--base", "small-1gb")
    assert_refused(emmclab(*fit), "no figure can be fitted", "number of jobs", "--assume")
    host = tmp_path / "host.toml"
    assumed = (*fit, "--assume", "jobs=1,depth=1", "--fio-host", "none", "--host-output", host)
    assert_refused(emmclab(*assumed), "no costs of a host", "--fio-host")
    assert not host.exists()
