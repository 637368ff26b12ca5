"""Devices fitted to measurements: what their sources leave unknown, and `emmclab calibrate`."""

import json
from pathlib import Path

import pytest

import emmclab as api
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.apps.closed_loop import order_note_of, run_application
from emmclab.calibration.fit_sources import Fitted, order_note, pair_note, runs_note
from emmclab.simulation.device import Device, Provenance
from emmclab.traces.reading import read

#: Texts that `order_note` always contains: a command, and that the order is not known.
SAID = ("no source measured", "flushes and durable writes", "emmclab devices --check NAME")
#: Bits of the column `flags`: sync and FUA.
FUA = 0b11


def _trace(path: Path, flags: int) -> Path:
    rows = [f"{at * 5_000_000},{at * 8},8,write,{flags}" for at in range(40)]
    path.write_text("\n".join(["arrival_ns,sector,sectors,op,flags", *rows, ""]))
    return path


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of writes with FUA."""
    return _trace(tmp_path_factory.mktemp("fitted") / "synced.csv", FUA)


@pytest.mark.parametrize(
    ("names", "is_known"),
    [
        (("ufs31", "ufs40"), False),
        (("emmc51-cache", "ufs31"), False),
        (("emmc51-tlc", "ufs31"), False),
        (("emmc51-cache", "emmc50-cache"), True),  # Both devices have a source in common.
        (("ufs31", "pixel6a"), True),
        (("iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps"), True),  # None of them has its own cost of durability.
    ],
)
def test_devices_have_an_order_where_a_source_has_both(names: tuple[str, ...], is_known: bool, synced: Path) -> None:
    devices = [Device.preset(name) for name in names]
    note = order_note({device.name: Fitted.device(device) for device in devices})
    assert (note == "") is is_known
    assert runs_note([device.simulate(read(synced)) for device in devices]) == note
    if not is_known:
        sources = [source for device in devices for source in Fitted.device(device).sources]
        assert [part for part in (*SAID, *names, *sources) if part not in note] == []


def test_a_workload_without_durable_writes_has_no_such_order(tmp_path: Path) -> None:
    plain = read(_trace(tmp_path / "plain.csv", 0))
    assert runs_note([Device.preset(name).simulate(plain) for name in ("ufs31", "ufs40")]) == ""


@pytest.mark.parametrize(
    ("names", "apart_ns", "is_known"),
    [
        (("emmc51-cache", "ufs22"), 10_000_000, False),
        (("ufs22", "ufs31"), 10_000_000, False),  # Their common source measured a full queue.
        (("emmc51-cache", "ufs22"), 1_000, True),  # The reads wait for each other.
        (("galaxys2", "microsd-class10"), 10_000_000, True),  # One source measured single reads of both.
        (("iiswc15-4ps", "iiswc15-8ps"), 10_000_000, True),
    ],
)
def test_single_reads_have_an_order_where_a_source_has_those_of_both(
    names: tuple[str, ...], apart_ns: int, is_known: bool, tmp_path: Path
) -> None:
    path = tmp_path / "reads.csv"
    rows = [f"{at * apart_ns},{at * 80},8,read" for at in range(40)]
    path.write_text("\n".join(["arrival_ns,sector,sectors,op", *rows, ""]))
    done = emmclab("compare", path, "--devices", ",".join(names), "--precondition", "sequential:1")
    notes = [line for line in done.stdout.splitlines() if "no source measured single reads of both" in line]
    assert (notes == []) is is_known, done.stdout
    assert all("their order in single reads" in note for note in notes)


def test_a_device_with_other_settings_has_the_sources_of_its_preset(synced: Path) -> None:
    slower = Device.preset("ufs31").set({"name": "slower", "interface.fua_us": 900.0})
    assert pair_note(Device.preset("ufs31"), slower) == ""
    assert runs_note([device.simulate(read(synced)) for device in (Device.preset("ufs31"), slower)]) == ""


def test_a_comparison_says_so_as_text_as_json_and_on_its_page(synced: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("compare", synced, "--devices", "ufs31,ufs40")
    for more in ((), ("--seeds", 2)):
        if more:
            command = (*command, "--precondition", "random:1")
        (note,) = [line for line in emmclab(*command, *more).stdout.splitlines() if line.startswith("note: ")]
        assert [part for part in SAID if part not in note] == []
    done = emmclab(*command, "--json", "--html", page)
    assert len(json.loads(done.stdout)) == 2 and note in done.stderr.splitlines()
    assert note.removeprefix("note: ") in page.read_text()


def test_two_devices_and_two_results_beside_each_other_say_so(synced: Path, tmp_path: Path) -> None:
    assert SAID[0] in emmclab("explain", "ufs31", "ufs40").stdout
    assert SAID[0] not in emmclab("explain", "ufs31", "pixel6a").stdout
    done = emmclab("explain", "ufs31", "ufs40", "--json")
    assert SAID[0] in done.stderr and json.loads(done.stdout)["differences"]
    result = tmp_path / "two.json"
    result.write_text(emmclab("compare", synced, "--devices", "ufs31,ufs40", "--json").stdout)
    assert SAID[0] in emmclab("explain", f"{result}#1", f"{result}#2").stdout


def test_applications_on_several_devices_say_so_as_text_and_on_their_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("apps", "compare", "facebook", "--host", "phone-2020", "--precondition", "none")
    done = emmclab(*command, "--devices", "ufs31,ufs40", "--html", page)
    (note,) = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert note.removeprefix("note: ") in page.read_text()
    # A host whose file systems send no barriers has no durable writes.
    devices = [Device.preset(name) for name in ("ufs31", "ufs40")]
    runs = [run_application("facebook", device, host="nexusone", precondition="none") for device in devices]
    assert order_note_of(runs, Provenance(devices).to_dict()) == ""


def test_the_page_of_a_study_over_devices_says_so(synced: Path, tmp_path: Path) -> None:
    lines = ['name = "two"', f'inputs = ["{synced}"]', "[[grid]]", 'name = "g"', 'devices = ["ufs31", "ufs40"]']
    (tmp_path / "two.toml").write_text("\n".join([*lines, ""]))
    assert emmclab("run", "two.toml", cwd=tmp_path).returncode == 0
    emmclab_ok("report", "two.toml", cwd=tmp_path)
    (page,) = tmp_path.rglob("*.html")
    assert [part for part in (*SAID, "ufs_fua_times", "samsung22_ufs40") if part not in page.read_text()] == []


def _fio(path: Path, read_us: float = 100.0, write_us: float = 400.0) -> Path:
    """Write results of fio for a device that needs a fixed time plus 10 us per KB."""
    jobs = []
    for kb in (4, 8, 16, 32, 64, 128):
        for side, base in (("read", read_us), ("write", write_us)):
            ns = 1000 * (base + 10 * kb)
            latency = {"mean": ns, "percentile": {"50.000000": ns}}
            done = {"total_ios": 500, "io_bytes": 500 * kb * 1024, "clat_ns": latency}
            jobs.append({"jobname": f"{side}-{kb}k", "job options": {"bs": f"{kb}k"}, side: done})
    path.write_text(json.dumps({"fio version": "fio-3.33", "jobs": jobs}))
    return path


def test_a_preset_from_fio_runs_and_answers_as_measured(trace: Path, tmp_path: Path) -> None:
    source, preset = _fio(tmp_path / "fio.json"), tmp_path / "card.toml"
    calibrated = emmclab_json("calibrate", source, "-o", preset, "--capacity-gb", "4")
    assert preset.read_text() == calibrated["toml"] and 'name = "card"' in calibrated["toml"]
    assert calibrated["held_out_median_error_pct"] < 5
    assert emmclab_json("simulate", trace, "--device", preset)["requests"]["total"] == 400
    done = emmclab("calibrate", source, "--name", "card", "--capacity-gb", "4")
    assert (done.returncode, done.stdout) == (0, calibrated["toml"])
    assert api.calibrate(source, name="card", capacity_gb=4)["toml"] == calibrated["toml"]


def test_words_go_to_stderr_and_the_preset_to_its_file(trace: Path, tmp_path: Path) -> None:
    preset = tmp_path / "phone.toml"
    done = emmclab("calibrate", trace, "-o", preset)
    assert (done.returncode, done.stdout) == (0, "")
    assert "held-out half" in done.stderr and preset.read_text().startswith("# Written by")
    assert emmclab("explain", preset).returncode == 0


def test_the_curves_of_a_probe_are_no_service_times_and_refused_with_a_cure(tmp_path: Path) -> None:
    path, out = tmp_path / "probe.json", tmp_path / "out.toml"
    assert emmclab("probe", "small-1gb", "--span-mb", "64", "-o", path).returncode == 0
    problem = f"{path}: the result of a probe has mean bandwidths"
    assert_refused(emmclab("calibrate", path, "-o", out), problem, "emmclab record", "fio --iodepth=1")
    assert not out.exists()
    with pytest.raises(api.UnsupportedError, match="the result of a probe"):
        api.calibrate(path)
