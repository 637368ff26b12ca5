"""Simulating commands show flushes and synchronous writes on the first screen; unknown figures are a dash."""

from pathlib import Path

import pytest

from conftest import emmclab, emmclab_json
from emmclab.apps.closed_loop import durability_line, run_application
from emmclab.simulation.device import Device
from emmclab.simulation.result import DURABILITY
from emmclab.simulation.result_fields import result_field
from emmclab.traces.reading import read

ROWS = 40
#: Bits of the column `flags`: sync and FUA.
FUA = 0b11


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of writes, every fourth with FUA, and a flush after every tenth."""
    rows = ["arrival_ns,sector,sectors,op,flags"]
    for at in range(ROWS):
        rows.append(f"{at * 5_000_000},{at * 8},8,write,{FUA if at % 4 == 0 else 0}")
        if at % 10 == 9:
            rows.append(f"{at * 5_000_000 + 1_000_000},0,0,flush,0")
    path = tmp_path_factory.mktemp("synced") / "synced.csv"
    path.write_text("\n".join([*rows, ""]))
    return path


def _row(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_a_run_shows_its_flushes_and_the_latency_of_synchronous_writes(synced: Path) -> None:
    command = ("simulate", synced, "--device", "emmc51-cache", "--layer", "pass-through")
    result, text = emmclab_json(*command), emmclab(*command).stdout
    durable = result["durable"]
    assert durable["requests"] == ROWS // 4 + ROWS // 10
    assert _row(text, "Flushes and discards") == [str(ROWS // 10)]
    assert _row(text, "Flushes and synchronous writes") == [str(durable["requests"])]
    means = [line.split() for line in text.splitlines() if " of flushes and synchronous" in line]
    assert [words[-2:] for words in means] == [[f"{durable[name]:.3f}", "ms"] for name in ("mean_ms", "p99_ms")]


def test_figures_that_a_run_does_not_measure_are_a_dash(synced: Path) -> None:
    run = Device.preset("iiswc15-4ps").simulate(read(synced))
    shown = {result_field(path).label: run.shown(path) for path in DURABILITY}
    assert shown["Flushes and discards"] == ROWS // 10
    assert shown["Cache flushes with data"] is None, "the device has no cache"
    text = emmclab("simulate", synced, "--device", "iiswc15-4ps").stdout
    assert _row(text, "Cache flushes with data") == ["–"]
    for path in DURABILITY:
        label = result_field(path).label
        if path.startswith("durable.") and "durable" not in run:
            assert shown[label] is None and _row(text, label)[0] == "–"


@pytest.mark.parametrize(("mode", "said"), [("open", True), ("back_to_back", False)])
def test_the_total_time_of_an_open_loop_is_said_to_be_that_of_the_trace(synced: Path, mode: str, said: bool) -> None:
    done = emmclab("compare", synced, "--devices", "emmc51-cache,ufs31", "--mode", mode)
    assert ("In open loop the time is that of the trace" in " ".join(done.stdout.split())) is said, done.stderr


def test_a_comparison_shows_total_time_throughput_and_flushes(synced: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("compare", synced, "--devices", "emmc51-cache,iiswc15-4ps", "--mode", "back_to_back")
    results = emmclab_json(*command, "--html", page)
    text = emmclab(*command).stdout
    table = text[text.index("Total time") :].splitlines()
    for result in results:
        (line,) = [line for line in table if line.startswith(result["device"])]
        words = line.split()
        assert words[1] == f"{result['run']['simulated_s']:,.3f}"
        assert words[3] == f"{result['run']['throughput_mb_per_s']:,.3f}"
        assert words[4] == str(ROWS // 10)
    for label in ("Flushes and discards", "p99 of flushes and synchronous writes", "Throughput"):
        assert label in page.read_text()


def test_an_application_shows_its_syncs_and_what_each_took() -> None:
    result = run_application("email", "nexus5")
    waited = sum(thread["states"]["fsync"] for thread in result["app"]["threads"])
    assert result.sync_mean_ms == pytest.approx(waited / result["app"]["file_syncs"] / 1e6)
    said = durability_line(result)
    assert f"{result['app']['file_syncs']:,} syncs of files, mean {result.sync_mean_ms:,.3f} ms" in said
    text = emmclab("apps", "run", "email").stdout
    assert f"durability: {said}" in text


def test_a_comparison_of_one_device_calls_it_neither_fastest_nor_slowest(synced: Path) -> None:
    first = emmclab("compare", synced, "--devices", "nexus5").stdout.splitlines()[0]
    assert first.startswith("nexus5: mean response ") and "fast" not in first
