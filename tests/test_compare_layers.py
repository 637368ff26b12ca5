"""Stacks of layers compared in one table: `emmclab compare --layers`, and the same from Python."""

from pathlib import Path

import pytest

import annotated
import emmclab as lab
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok

STACKS = ("none", "journal:legacy", "pass-through+pass-through", "journal:aware")


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of commits of ext4, with block notes."""
    return annotated.write(tmp_path_factory.mktemp("traces") / "commits.parquet", annotated.rows(60))


def test_every_trace_runs_on_every_device_under_every_stack(noted: Path, trace: Path, tmp_path: Path) -> None:
    page, over_time = tmp_path / "page.html", tmp_path / "time.csv"
    devices = ("emmc51-cache", "small-1gb")
    arguments = ("compare", noted, trace, "--devices", ",".join(devices), "--layers", "none,pass-through")
    results = emmclab_json(*arguments, "--wrap-addresses", "--html", page, "--over-time", over_time)
    assert [(one["trace"], one["device"], one["options"]["layers"]) for one in results] == [
        (name, device, layers)
        for name in ("commits", "chat")
        for device in devices
        for layers in ([], ["pass-through"])
    ]
    assert [result["space"]["gain_ratio"] for result in results[::4]] == [0, 0]
    for made in (page.read_text(), over_time.read_text()):
        assert "small-1gb under pass-through" in made


def test_a_run_is_named_by_device_and_stack_and_the_first_is_the_baseline(noted: Path) -> None:
    shown = emmclab_ok("compare", noted, "--devices", "emmc51-cache", "--layers", ",".join(STACKS))
    rows = [line for line in shown.stdout.splitlines() if line.startswith("emmc51-cache")]
    names = [line.partition("  ")[0] for line in rows if "mean response" not in line]
    # One table has response times and work, and another one total time and durability.
    assert names == 2 * ["emmc51-cache" + ("" if name == "none" else f" under {name}") for name in STACKS]
    assert "change against the first run" in shown.stdout
    assert "+0.0" in rows[-len(STACKS)]


def test_layers_change_what_reaches_the_device_and_none_is_a_run_without_any(noted: Path) -> None:
    arguments = ("--device", "emmc51-cache", "--mode", "back_to_back")
    plain = emmclab_json("simulate", noted, *arguments)
    found = emmclab_json(
        "compare", noted, "--devices", "emmc51-cache", "--mode", "back_to_back", "--layers", ",".join(STACKS)
    )
    none, legacy, passed, aware = (result["flash"] | result["cache"] | result["run"] for result in found)
    assert none == plain["flash"] | plain["cache"] | plain["run"]
    assert legacy["page_programs"] == passed["page_programs"] == none["page_programs"]
    assert aware["flushes"] == legacy["flushes"], (
        "the trace has no superblock of the journal, where the layer's log would begin"
    )
    [files] = [path for path in lab.bundled(annotated=True) if path.stem == "create-files"]
    layers = ("--layers", "journal:legacy,journal:aware")
    found = emmclab_json("compare", files, "--devices", "emmc51-cache", "--mode", "back_to_back", *layers)
    legacy, aware = (result["flash"] | result["cache"] | result["run"] for result in found)
    assert aware["simulated_s"] < legacy["simulated_s"] and aware["flushes"] < legacy["flushes"]
    assert aware["page_programs"]["total"] < legacy["page_programs"]["total"]


def test_a_setting_reaches_the_stacks_that_have_its_layer(noted: Path) -> None:
    found = emmclab_json(
        *("compare", noted, "--devices", "small-1gb", "--wrap-addresses"),
        *("--layers", "none,journal:packed,pass-through+advil", "--set", "journal.log=8MB"),
        *("--set", "advil.reserved=16MB", "--set", "timing.parallelism=none"),
    )
    assert [result["options"].get("layer_settings", {}) for result in found] == [
        {},
        {"journal.log": "8MB"},
        {"advil.reserved": "16MB"},
    ]
    assert {result["configuration"]["parallelism"] for result in found} == {"none"}


def test_python_compares_stacks_as_the_command_does(noted: Path) -> None:
    devices = [lab.Device.preset("emmc51-cache")]
    settings = {"journal.log": "8MB"}
    found = lab.compare([lab.read(noted)], devices, layers=["none", "journal:delta"], layer_settings=settings)
    assert [result.run_name for result in found] == ["emmc51-cache", "emmc51-cache under journal:delta"]
    told = emmclab_json(
        *("compare", noted, "--devices", "emmc51-cache", "--layers", "none,journal:delta"),
        *("--set", "journal.log=8MB"),
    )
    assert [result["response"] for result in found] == [result["response"] for result in told]
    with pytest.raises(lab.ConfigError, match="no layer of this run has"):
        lab.compare([lab.read(noted)], devices, layer_settings=settings)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("none,journal+", "`journal+` is not a stack of layers"),
        ("none+journal:delta", "`none+journal:delta` is not a stack of layers"),
        (",", "there is no stack of layers to compare"),
        ("none,aspirin", "there is no layer `aspirin`"),
        ("none,journal:best", "unknown variant `best`"),
        ("pass-through+journal:delta", "layer `journal` has to be the first one"),
        ("none,advil:fast", "the layer `advil` has no modes"),
    ],
)
def test_stacks_that_cannot_be_are_refused_with_a_hint(noted: Path, layers: str, words: str) -> None:
    assert_refused(emmclab("compare", noted, "--devices", "emmc51-cache", "--layers", layers), words)
