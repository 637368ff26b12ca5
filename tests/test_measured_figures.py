"""Figures of real devices: tables are read by their rules, and compared with the same job on a simulated device."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser

import emmclab as lab
from browsing import Visit
from conftest import ROOT, assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.calibration import measured_figures as measured
from emmclab.calibration.measured_figures import (
    METRICS,
    FigureComparison,
    FigureJob,
    FigureSummary,
    MeasuredFigure,
    compare_figures,
    measured_devices,
    read_figures,
    simulate_job,
)
from emmclab.errors import ConfigError, EmmclabError, FormatError
from emmclab.pages import measured_devices as page
from emmclab.simulation.device import presets

#: A device whose runs take little time, and the header and a line of a table for it.
SMALL = "small-1gb"
WIDE = "device,rw,bs_kb,jobs,depth,iops,clat_us_mean,clat_us_p99"
LINE = "card,randread,4,1,4,1000,90,200"
LONG = "op,pattern,bs_kb,jobs,depth,metric,value,unit"
#: Figures of devices that others published; tests that need them are skipped without them.
SHARED = Path("/work/shared/real")


def table(folder: Path, *lines: str) -> Path:
    path = folder / "figures.csv"
    path.write_text("\n".join([*lines, ""]))
    return path


def figures(folder: Path, *lines: str, **assume: str) -> list[MeasuredFigure]:
    return read_figures(table(folder, *lines), assume)


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"no folder of figures of real devices with {name}")
    return SHARED / name


def test_a_line_has_a_figure_for_each_column_of_a_metric(tmp_path: Path) -> None:
    rows = figures(tmp_path, "# by hand", WIDE, LINE, "", "card,write,0.5,4,16,,80,")
    job = FigureJob("randread", 4096, 1, 4)
    assert [(row.device, row.job, row.metric, row.value) for row in rows] == [
        ("card", job, "iops", 1000.0),
        ("card", job, "clat_us_mean", 90.0),
        ("card", job, "clat_us_p99", 200.0),
        ("card", FigureJob("write", 512, 4, 16), "clat_us_mean", 80.0),
    ]
    assert not any(row.refused or row.fitted or row.preset for row in rows)


@pytest.mark.parametrize(
    ("metric", "value", "unit", "name", "expected"),
    [
        ("iops", "10", "", "iops", 10.0),
        ("iops_avg", "10", "IOPS", "iops", 10.0),
        ("bw", "10", "MB/s", "mb_per_s", 10.0),
        ("bw", "10", "MiB/s", "mb_per_s", 10.48576),
        ("bw", "1000", "KiB/s", "mb_per_s", 1.024),
        ("BW", "2", "GB/s", "mb_per_s", 2000.0),
        ("clat_p99", "1.5", "ms", "clat_us_p99", 1500.0),
        ("clat_mean", "2000", "nsec", "clat_us_mean", 2.0),
        ("clat_us_p99_9", "7", "", "clat_us_p99_9", 7.0),
    ],
)
def test_a_unit_is_converted_to_that_of_its_metric(
    metric: str, value: str, unit: str, name: str, expected: float, tmp_path: Path
) -> None:
    (row,) = figures(tmp_path, LONG, f"read,random,4,1,1,{metric},{value},{unit}")
    assert (row.metric, row.value, row.refused) == (name, pytest.approx(expected), "")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("read,?,4,1,8,iops,1,", "does not state: pattern"),
        ("read,random,?,8?,,iops,1,", "does not state: request size, number of jobs, queue depth"),
        ("read,random small,4,1,1,iops,1,", "`read random small` is not one of the patterns"),
        ("write,sync,4,1,1,iops,1,", "`write sync` is not one of the patterns"),
        ("read,random,0.3,1,1,iops,1,", "not whole sectors"),
        ("read,random,4,64,65536,iops,1,", "65,536 unfinished requests"),
        ("read,random,4,1,1,bw,1,", "does not state the unit"),
        ("read,random,4,1,1,bw,1,us", "`us` is not a unit of bandwidth"),
        ("read,random,4,1,1,gain,58 to 67,%", "`gain` is not a metric of a benchmark"),
    ],
)
def test_a_figure_that_cannot_be_compared_is_kept_with_its_reason(line: str, reason: str, tmp_path: Path) -> None:
    (row,) = figures(tmp_path, LONG, line)
    assert reason in row.refused
    (comparison,) = compare_figures([replace(row, preset=SMALL)])
    assert (comparison.simulated, comparison.reason) == (None, row.refused)
    assert not comparison.is_test and json.dumps(comparison.to_dict(), allow_nan=False)


def test_same_repeats_the_line_above_and_a_question_mark_states_nothing(tmp_path: Path) -> None:
    head = "device,part,source,condition,rw,kb,numjobs,iodepth,iops,driver"
    lines = ["a,UFS,mail,why?,read,4,1,1,10,new", "a,same,see above,,read,4,1,same,20,new?", "a,?,same,,read,4,1,?,30,"]
    first, second, third = figures(tmp_path, head, *lines)
    assert (first.condition, second.condition) == ("why?, driver new", "")
    assert (second.part, second.source, second.job) == ("UFS", "mail", first.job)
    assert (third.part, third.source, third.job) == ("", "mail", None)


def test_the_other_columns_describe_the_device_and_its_state(tmp_path: Path) -> None:
    head = "card,rw,bs_kb,threads,queue_depth,iops,buffer,host,preset,fitted,reason,ticks,queue"
    (row,) = figures(tmp_path, head, "x,write,4,1,2,9,Used up,none,ufs31,yes,too few planes,17,off")
    assert row == MeasuredFigure(
        "x", "", "ufs31", True, FigureJob("write", 4096, 1, 2, "used up", "none"), "iops", 9.0, "queue off", "",
        known_reason="too few planes",
    )  # fmt: skip
    assert figures(tmp_path, "rw,iops", "read,5")[0].device == "figures", "the name of the table"


def test_assumed_values_fill_what_a_line_does_not_state(tmp_path: Path) -> None:
    lines = ("rw,bs_kb,jobs,iops", "read,4,2,10", "read,4,,10")
    assert [row.job for row in figures(tmp_path, *lines)] == [None, None]
    jobs = [row.job for row in figures(tmp_path, *lines, iodepth="8", jobs="1")]
    assert jobs == [FigureJob("read", 4096, 2, 8), FigureJob("read", 4096, 1, 8)]
    for assume, problem in (({"colour": "1"}, "colour"), ({"depth": "x"}, "depth `x`"), ({"host": "no"}, "`no`")):
        with pytest.raises(ConfigError, match=problem):
            figures(tmp_path, *lines, **assume)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("",), ("the file is empty",)),
        (("a,b", "1,2"), ("not the result of a benchmark",)),
        (("rw,b", "1,2"), ("line 1", "none with a metric", "columns are")),
        (("rw,bs_kb,kb,iops", "read,4,4,1"), ("line 1", "several columns mean `block_kb`")),
        ((WIDE, LINE, "card,randread"), ("line 3", "2 fields, but the header has 8")),
        ((WIDE, LINE, "card,randread,4,1,1,x,,"), ("line 3", "iops `x` is not a number above 0")),
        ((WIDE, "card,randread,4,1,1,0,,"), ("line 2", "iops `0` is not a number above 0")),
        ((WIDE, "card,randread,4,1,1,1e400,,"), ("line 2", "iops `1e400`")),
        ((WIDE, "card,randread,4,1.5,1,1,,"), ("line 2", "jobs `1.5` is not a whole number")),
        ((f"{WIDE},fitted", f"{LINE},maybe"), ("line 2", "fitted `maybe`")),
        ((f"{WIDE},buffer", f"{LINE},full"), ("line 2", "buffer `full`", "used up")),
        ((f"{WIDE},host", f"{LINE},mars"), ("line 2", "`mars`", "emmclab apps")),
        ((LONG, "read,random,4,1,1,iops,,"), ("line 2", "the figure has no value")),
        ((LONG, "read,random,4,1,1,,7,"), ("line 2", "has no metric")),
        ((WIDE, 'card,"randread'), ("line 2", "CSV")),
        ((WIDE, "card,randread,?,?,?,?,?,?"), ("no figures",)),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(lines: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    path = table(tmp_path, *lines)
    assert_refused(emmclab("devices", "--check", SMALL, "--figures", path), str(path), *words)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_bytes(b"rw,iops\nread,\xff\n")
    with pytest.raises(FormatError, match="byte 13"):
        read_figures(path)
    path.write_bytes(b"\xef\xbb\xbfrw,iops\r\nread,5\r\n")
    assert [row.value for row in read_figures(path)] == [5.0], "a byte order mark and line ends of Windows"


CELLS = st.sampled_from(
    ["", "?", "same", "read", "random", "iops", "4", "1e9", "-1", "MB/s", "used up", '"', "\x00", "é"]
)


@given(st.binary() | st.lists(st.lists(CELLS, min_size=3, max_size=8)))
def test_any_bytes_give_figures_or_an_error(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    if not isinstance(content, bytes):
        content = "\n".join([LONG, *(",".join(row) for row in content)]).encode()
    path.write_bytes(content)
    try:
        rows = read_figures(path)
    except EmmclabError as error:
        assert str(path) in str(error) and error.hint
    else:
        for row in rows:
            assert bool(row.refused) == (row.job is None or row.metric not in METRICS or row.value is None), row
            assert row.value is None or math.isfinite(row.value)


def by_hand(job: FigureJob, folder: Path, text: str) -> Any:
    """Run a job file on the small device, and return the figures of its job `measured`."""
    path = folder / "hand.fio"
    path.write_text(text)
    result = lab.Device.preset(SMALL).simulate(lab.read(path), precondition="sequential:50", fio_host=job.host)
    assert result.fio is not None
    (found,) = (found for found in result.fio.jobs if found.name == "measured")
    return found.read or found.write


@pytest.mark.parametrize(
    "job",
    [
        FigureJob("randread", 4096, 2, 4),
        FigureJob("write", 65536, 1, 8),
        FigureJob("randwrite", 4096, 1, 1, host="none"),
    ],
)
def test_a_figure_is_that_of_the_same_job_run_by_hand(job: FigureJob, tmp_path: Path) -> None:
    capacity = lab.Device.preset(SMALL).capacity_bytes
    size = capacity // 4 // job.jobs // job.block_bytes * job.block_bytes
    text = f"""[measured]
rw={job.rw}
bs={job.block_bytes}
iodepth={job.depth}
numjobs={job.jobs}
group_reporting
ioengine=libaio
direct=1
filename=/dev/disk
size={size}
offset_increment={size}
io_size={size // job.jobs}
runtime=10
percentile_list=50:99:99.9
"""
    found = by_hand(job, tmp_path, text)
    figure = MeasuredFigure("card", "", SMALL, False, job, "", 100.0, "", "")
    rows = compare_figures([replace(figure, metric=metric) for metric in METRICS])
    percentiles = {row.percentile: row.clat_us for row in found.percentiles}
    expected = [
        found.iops,
        found.bytes / found.requests * found.iops / 1e6,
        found.slat.mean_us if job.host != "none" else None,
        found.clat.mean_us,
        *(percentiles[point] for point in (50, 99, 99.9)),
    ]
    assert [row.simulated for row in rows] == [value and pytest.approx(value) for value in expected]
    for row in rows:
        assert row.error_pct == (None if row.simulated is None else pytest.approx(row.simulated - 100))
        assert bool(row.reason) == (row.simulated is None)


def test_a_used_up_buffer_is_filled_before_the_job(tmp_path: Path) -> None:
    """The rate after the buffer is used up is that of a device without one."""
    device = lab.Device.preset("ufs31").with_capacity("16GB")
    job = FigureJob("write", 1 << 20, 1, 4)
    without = simulate_job(device.set({"slc.max_kb": "1"}), job, tmp_path)
    fresh, used = (simulate_job(device, each, tmp_path) for each in (job, job._replace(buffer="used up")))
    assert fresh is not None and used is not None and without is not None
    assert fresh.requests == used.requests and used.mb_per_s < 0.9 * fresh.mb_per_s
    assert used.mb_per_s == pytest.approx(without.mb_per_s, rel=0.05)


def test_what_a_device_refuses_is_a_reason_and_other_figures_are_compared(tmp_path: Path) -> None:
    lines = [LINE, "card,randread,1048576,1,1,5,,"]
    rows = compare_figures(figures(tmp_path, WIDE, *lines), lambda _: lab.Device.preset(SMALL))
    assert [row.simulated is None for row in rows] == [False, False, False, True]
    assert "larger than" in rows[3].reason
    (zoned,) = compare_figures(figures(tmp_path, WIDE, "z,randwrite,4,1,1,5,,"), lambda _: lab.Device.preset("zufs"))
    assert zoned.simulated is None and "zone" in zoned.reason


def test_the_number_of_threads_and_a_folder_of_images_change_no_figure(tmp_path: Path) -> None:
    rows = [replace(row, preset=SMALL) for row in figures(tmp_path, WIDE, LINE, "card,randwrite,16,1,2,5,,")]
    progress: list[tuple[int, int]] = []
    first = compare_figures(rows, progress=lambda *numbers: progress.append(numbers), threads_at_once=1)
    assert first == compare_figures(rows, images=tmp_path / "images", threads_at_once=3)
    assert progress == [(0, 2), (1, 2), (2, 2)], "the figures of a line share a run"


RATIOS = st.lists(st.tuples(st.floats(0.01, 100), st.booleans(), st.sampled_from(["iops", "clat_us_p99"])), max_size=30)


def made(ratio: float | None, *, fitted: bool = False, metric: str = "iops", device: str = "card") -> FigureComparison:
    job = FigureJob("randread" if metric == "iops" else "randwrite", 4096, 1, 16)
    figure = MeasuredFigure(device, "UFS", SMALL, fitted, job, metric, 200.0, "", "a mail", known_reason="no cache")
    return FigureComparison(figure, SMALL, None if ratio is None else 200 * ratio, "zoned" if ratio is None else "")


@given(RATIOS)
def test_a_summary_counts_only_figures_that_test_a_preset(rows: list[tuple[float, bool, str]]) -> None:
    comparisons = [made(ratio, fitted=fitted, metric=metric) for ratio, fitted, metric in rows]
    summary = FigureSummary.of([*comparisons, made(None), made(None, fitted=True)])
    tested = [(ratio, metric) for ratio, fitted, metric in rows if not fitted]
    errors = [abs(ratio - 1) * 100 for ratio, metric in tested if metric == "iops"]
    tails = [ratio for ratio, metric in tested if metric != "iops"]
    assert (summary.figures, summary.tails, summary.not_compared) == (len(tested), len(tails), 2)
    assert summary.fitted == len(rows) - len(tested)
    assert summary.tails_within_factor_2 == sum(abs(math.log2(ratio)) <= 1 + 1e-12 for ratio in tails)
    for within, share in ((summary.half_within_pct, 0.5), (summary.nine_of_ten_within_pct, 0.9)):
        if within is None:
            assert not errors
        else:
            # The smallest error up to which the share is reached.
            assert sum(error <= within + 1e-9 for error in errors) >= share * len(errors)
            assert sum(error < within - 1e-9 for error in errors) < share * len(errors)
    assert str(summary.figures) in str(summary) or not summary.figures


def test_the_sentence_of_a_summary_names_devices_figures_and_deviations() -> None:
    rows = [made(1.1), made(0.5, device="phone"), made(3.0, metric="clat_us_p99"), made(1.0, fitted=True), made(None)]
    slat = made(2.0, metric="slat_us_mean")
    assert str(FigureSummary.of([*rows, slat])) == (
        "2 devices, 4 measured figures to which no preset was fitted: half of the 2 rates and mean or median latencies "
        "within 10 %, nine of ten within 50 %; 0 of 1 percentiles from p99 on within a factor of two; half of the 1 "
        "submission latencies within 100 %, nine of ten within 100 %"
    )
    assert str(FigureSummary.of(rows[3:])) == "no figure tests a preset; 1 were fitted, 1 cannot be compared"


def test_a_device_is_checked_against_the_figures_of_a_table(tmp_path: Path) -> None:
    path = table(tmp_path, WIDE, LINE, "phone,randread,4,1,?,7,,")
    words = ("devices", "--check", SMALL, "--figures", path)
    found = emmclab_json(*words)
    expected = compare_figures([replace(row, preset=SMALL) for row in read_figures(path)])
    assert found["measured"] == [row.to_dict() for row in expected]
    assert found["fitted_to"] == [] and found["summary"]["figures"] == 3 and found["summary"]["not_compared"] == 1
    text = emmclab_ok(*words).stdout
    assert text.startswith(f"{SMALL} and real devices: {FigureSummary.of(expected)}\n")
    assert "the figures are of 2 devices" in text and "its source does not state: queue depth" in text
    for row in expected[:3]:
        assert f"{row.error_pct:+,.1f}" in text
    assumed = emmclab_json(*words, "--assume", "depth=4, jobs=1", "--fio-host", "none")
    assert assumed["summary"]["not_compared"] == 0
    assert {row["host"] for row in assumed["measured"]} == {"none"}


def test_the_included_figures_name_presets() -> None:
    assert {row.preset for row in measured_devices() if row.preset} <= {*presets()}
    assert emmclab_json("devices", "--check", "ridata-c2")["measured"] == []


@pytest.mark.slow
def test_a_device_is_checked_against_the_figures_that_name_it() -> None:
    name = min(row.preset for row in measured_devices() if row.preset)
    found = emmclab_json("devices", "--check", name)
    assert len(found["measured"]) == sum(row.preset == name for row in measured_devices())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--figures", "x.csv"), "--figures has no effect without --check"),
        (("--check", SMALL, "--assume", "depth=1"), "--assume has no effect without --figures"),
        (("--check", SMALL, "--figures", "gone.csv"), "gone.csv: file not found"),
        (("--check", SMALL), "was not fitted to published figures"),
        (("--check", SMALL, "--figures", "{table}", "--assume", "depth"), "`depth` is not KEY=VALUE"),
        (("--check", SMALL, "--figures", "{table}", "--assume", "depth=0"), "depth `0`"),
        (("--check", SMALL, "--figures", "{table}", "--fio-host", "mars"), "`mars`"),
    ],
)
def test_a_wrong_option_of_a_check_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = table(tmp_path, WIDE, LINE)
    done = emmclab("devices", *(word.format(table=path) for word in words), cwd=tmp_path)
    assert_refused(done, message)


@pytest.mark.parametrize(
    "option", [("--fresh",), ("--results", "r"), ("--trace", "chat"), ("--traces", "."), ("--lenient",)]
)
def test_options_of_studies_are_refused_for_devices(option: tuple[str, ...], tmp_path: Path) -> None:
    assert_refused(emmclab("reproduce", "devices", *option, cwd=tmp_path), option[0])


@pytest.mark.slow
def test_the_included_devices_are_compared_on_a_page_and_in_the_readme(tmp_path: Path) -> None:
    words = ("reproduce", "devices", "--html", tmp_path / "page.html", "--figures", tmp_path / "figures", "--json")
    found = emmclab_json(*words)
    assert len(found["figures"]) == len(measured_devices())
    sentence = str(FigureSummary(**found["summary"]))
    assert sentence in (tmp_path / "page.html").read_text()
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 4
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert sentence in readme, "README states other figures: run scripts/measured_devices.py"


def test_the_page_says_how_far_the_devices_are_and_where(browser: Browser, tmp_path: Path) -> None:
    rows = [made(1.1), made(0.25, device="phone"), made(1.5, metric="clat_us_p99"), made(1.0, fitted=True), made(None)]
    page.write_page(rows, tmp_path / "page.html", {})
    visit = Visit(browser, tmp_path / "page.html")
    assert str(FigureSummary.of(rows)) in visit.page.inner_text("h1, .answer")
    assert visit.draw_all() == 4
    worst = visit.page.locator("#worst tbody tr").all_inner_texts()
    assert [("phone" in text, "no cache" in text) for text in worst] == [(True, True), (False, True), (False, True)]
    visit.page.evaluate("document.querySelectorAll('#all details').forEach(fold => { fold.open = true; })")
    assert visit.page.inner_text("#all table").count("restated") == 1
    assert "zoned" in visit.page.inner_text("#not-compared")
    page.write_page(rows, tmp_path / "again.html", {})
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "page.html").read_bytes()


def test_tables_that_others_published_are_read_as_they_are() -> None:
    pixel = read_figures(shared("pixel4-fio.csv"))
    assert len(pixel) == 48 * 6 and not any(row.refused for row in pixel)
    assert pixel[0].job == FigureJob("randread", 4096, 1, 1) and pixel[0].value == 3265.0
    rows = read_figures(shared("measured.csv"))
    assert len(rows) == len(shared("measured.csv").read_text().splitlines()) - 1
    (hsq,) = (row for row in rows if row.value == pytest.approx(27.04 * 1.048576))
    assert hsq.job == FigureJob("randread", 4096, 20, 20) and hsq.source.startswith("linux-mmc cover")
    assert {row.job for row in rows if row.device == "Pixel 6"} == {None}


def test_cards_without_a_depth_are_compared_if_it_is_assumed() -> None:
    cards = shared("sd-cards.csv")
    found = emmclab_json("devices", "--check", "sdcard", "--figures", cards, "--assume", "jobs=1,depth=1")
    assert found["summary"]["devices"] == 4 and found["summary"]["not_compared"] == 0
    assert {row["condition"] for row in found["measured"]} == {"command_queue on", "command_queue off"}
    assert all(row.refused for row in read_figures(cards))
    assert measured.METRICS.keys() >= {row["metric"] for row in found["measured"]}
