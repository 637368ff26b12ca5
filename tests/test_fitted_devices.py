"""Devices that no source measured together have no known order by cost of flushes and durable writes."""

import json
from pathlib import Path

import pytest

from conftest import emmclab, emmclab_ok
from emmclab.apps.closed_loop import order_note_of, run_application
from emmclab.calibration.fit_sources import Fitted, order_note, pair_note, runs_note
from emmclab.simulation.device import Device
from emmclab.simulation.provenance import Provenance
from emmclab.traces.reading import read

#: What `order_note` always contains: where to look, and that the order is not known.
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
def test_the_order_of_devices_is_known_where_a_source_measured_both(
    names: tuple[str, ...], is_known: bool, synced: Path
) -> None:
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
    # A host whose file systems send no barriers has no such writes.
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
