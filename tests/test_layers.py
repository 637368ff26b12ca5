"""Layers on the command line and in Python, comparisons of stacks, benchmarks, and the claims of the Advil paper."""

import re
from pathlib import Path

import pytest

import annotated
import emmclab as lab
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.errors import ConfigError
from emmclab.papers.advil12.advil12_page import drawings
from emmclab.papers.claims import judge_study, rules
from emmclab.papers.pages import assemble_page
from emmclab.papers.registry import papers
from emmclab.simulation.device import Device
from emmclab.simulation.layers import layers
from emmclab.studies import Results, Serial, Study, run_study
from emmclab.studies.bundled import bundled_text
from emmclab.traces.workload import Workload, benchmark, benchmarks


def test_the_command_line_parts_settings_of_layers_and_of_the_device(tmp_path: Path) -> None:
    trace = tmp_path / "random.parquet"
    benchmark("RandomWrite", requests=6000).write(trace)
    result = emmclab_json(
        *("simulate", trace, "--device", "small-1gb", "--wrap-addresses", "--mode", "back_to_back"),
        *("--layer", "pass-through", "--layer", "advil", "--set", "advil.reserved=16MiB"),
        *("--set", "advil.hot=rewritten", "--set", "timing.parallelism=none"),
    )
    assert [layer["name"] for layer in result["layers"]] == ["pass-through", "advil"]
    assert result["configuration"]["parallelism"] == "none"
    assert result["options"]["layer_settings"] == {"advil.reserved": "16MiB", "advil.hot": "rewritten"}
    done = emmclab_ok(
        *("simulate", trace, "--device", "small-1gb", "--wrap-addresses"),
        *("--layer", "advil", "--set", "advil.reserved=16MB"),
    )
    assert "Layer: advil" in done.stdout


def test_a_setting_of_no_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no layer of this run has the setting"):
        Device.preset("small-1gb").simulate(
            benchmark("SequentialWrite", requests=1), layers=["ressd"], layer_settings={"advil.hot": "none"}
        )


def test_layers_are_listed_with_their_settings() -> None:
    layers_listed = emmclab_json("layers")
    assert layers_listed == layers()
    settings = {layer["name"]: {setting["name"]: setting for setting in layer["settings"]} for layer in layers_listed}
    assert settings["advil"]["reserved"]["default"] == "256MB"
    assert settings["advil"]["reserved_at"]["default"] is None
    assert "by default at the end" in settings["advil"]["reserved_at"]["about"]
    assert settings["advil"]["hot"]["unit"] == "none, paper, rewritten"
    assert settings["ressd"].items() <= settings["advil"].items()
    assert settings["pass-through"] == {}
    assert "derived" in emmclab("layers").stdout


def test_benchmarks_are_inputs_of_studies() -> None:
    study = Study.named("advil12")
    assert {*study.inputs} - {"WebBench"} == {*benchmarks()} - {"Browsing"}
    count = sum(len(grid.inputs or study.inputs) for grid in study.grids)
    assert len(study.cells()) == len(study.inputs) + count


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def small(folder: Path) -> Results:
    """The results of the study on a small device, with a small reserved area and short workloads."""
    text = bundled_text("advil12")
    # A model replaces WebBench, which is a recording and cannot be shortened. Programs are unchanged.
    model = Workload.preset("WebBrowsing").to_toml().replace('name = "WebBrowsing"', 'name = "WebBench"')
    (folder / "WebBench.toml").write_text(model)
    text, programs = re.split(r"(?=\[\[grid\]\]\nname = \"programs-bare)", text)
    for old, new in (
        ('"WebBench"', f'"{folder / "WebBench.toml"}"'),
        ('"galaxys2"', '"small-1gb"'),
        ('"microsd-class10"', '"small-1gb"'),
        ('"12GB"', '"900MB"'),
        ("[[grid]]", "[[grid]]\nrequests = 9000"),
        ('"sequential:100"', '"none"'),
        ('{ "ressd', '{ "ressd.reserved" = "8MB", "ressd'),
        ('{ "advil', '{ "advil.reserved" = "8MB", "advil'),
    ):
        assert old in text, old
        text, programs = text.replace(old, new), programs.replace(old, new.partition("\nrequests")[0])
    text += programs
    (folder / "advil12.toml").write_text(text)
    return run_study(Study.parse(text, "advil12.toml"), folder / "advil12", Serial())


def test_every_claim_is_judged_and_the_page_holds_every_figure(small: Results) -> None:
    claims = judge_study(small)
    assert [claim.id for claim in claims] == [rule.id for rule in rules(papers()["advil12"])]
    assert all(claim.measured != "–" for claim in claims)
    drawn = drawings(small)
    page = assemble_page(small, claims, drawn)
    for drawing in drawn:
        assert drawing.rows, drawing.name
        assert f'id="{drawing.name}"' in page
    for claim in claims:
        assert f'id="{claim.id}"' in page


@pytest.mark.slow
def test_report_draws_the_same_page_of_a_finished_study(folder: Path, small: Results) -> None:
    page = folder / "page.html"
    emmclab_ok("report", folder / "advil12.toml", "--results", folder, "--html", page)
    assert page.read_text() == assemble_page(small, judge_study(small), drawings(small))


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
    assert [(run["trace"], run["device"], run["options"]["layers"]) for run in results] == [
        (name, device, layers)
        for name in ("commits", "chat")
        for device in devices
        for layers in ([], ["pass-through"])
    ]
    assert [result["space"]["gain_ratio"] for result in results[::4]] == [0, 0]
    for text in (page.read_text(), over_time.read_text()):
        assert "small-1gb under pass-through" in text


def test_a_run_is_named_by_device_and_stack_and_the_first_is_the_baseline(noted: Path) -> None:
    done = emmclab_ok("compare", noted, "--devices", "emmc51-cache", "--layers", ",".join(STACKS))
    rows = [line for line in done.stdout.splitlines() if line.startswith("emmc51-cache")]
    names = [line.partition("  ")[0] for line in rows if "mean response" not in line]
    # One table shows response times and work, another one total time and durability.
    assert names == 2 * ["emmc51-cache" + ("" if name == "none" else f" under {name}") for name in STACKS]
    assert "change against the first run" in done.stdout
    assert "+0.0" in rows[-len(STACKS)]


def test_layers_change_what_reaches_the_device_and_none_is_a_run_without_any(noted: Path) -> None:
    arguments = ("--device", "emmc51-cache", "--mode", "back_to_back")
    plain = emmclab_json("simulate", noted, *arguments)
    compared = emmclab_json(
        "compare", noted, "--devices", "emmc51-cache", "--mode", "back_to_back", "--layers", ",".join(STACKS)
    )
    none, legacy, passed, aware = (result["flash"] | result["cache"] | result["run"] for result in compared)
    assert none == plain["flash"] | plain["cache"] | plain["run"]
    assert legacy["page_programs"] == passed["page_programs"] == none["page_programs"]
    assert aware["flushes"] == legacy["flushes"], (
        "the trace has no superblock of the journal, where the layer's log would begin"
    )
    [files] = [path for path in lab.bundled(annotated=True) if path.stem == "create-files"]
    layers = ("--layers", "journal:legacy,journal:aware")
    compared = emmclab_json("compare", files, "--devices", "emmc51-cache", "--mode", "back_to_back", *layers)
    legacy, aware = (result["flash"] | result["cache"] | result["run"] for result in compared)
    assert aware["simulated_s"] < legacy["simulated_s"] and aware["flushes"] < legacy["flushes"]
    assert aware["page_programs"]["total"] < legacy["page_programs"]["total"]


def test_a_setting_reaches_the_stacks_that_have_its_layer(noted: Path) -> None:
    compared = emmclab_json(
        *("compare", noted, "--devices", "small-1gb", "--wrap-addresses"),
        *("--layers", "none,journal:packed,pass-through+advil", "--set", "journal.log=8MB"),
        *("--set", "advil.reserved=16MB", "--set", "timing.parallelism=none"),
    )
    assert [result["options"].get("layer_settings", {}) for result in compared] == [
        {},
        {"journal.log": "8MB"},
        {"advil.reserved": "16MB"},
    ]
    assert {result["configuration"]["parallelism"] for result in compared} == {"none"}


def test_python_compares_stacks_as_the_command_does(noted: Path) -> None:
    devices = [lab.Device.preset("emmc51-cache")]
    settings = {"journal.log": "8MB"}
    compared = lab.compare([lab.read(noted)], devices, layers=["none", "journal:delta"], layer_settings=settings)
    assert [result.run_name for result in compared] == ["emmc51-cache", "emmc51-cache under journal:delta"]
    printed = emmclab_json(
        *("compare", noted, "--devices", "emmc51-cache", "--layers", "none,journal:delta"),
        *("--set", "journal.log=8MB"),
    )
    assert [result["response"] for result in compared] == [result["response"] for result in printed]
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
        ("pass-through+journal:delta", "layer `journal` must be the first layer"),
        ("none,advil:fast", "the layer `advil` has no modes"),
    ],
)
def test_stacks_that_cannot_be_are_refused_with_a_hint(noted: Path, layers: str, words: str) -> None:
    assert_refused(emmclab("compare", noted, "--devices", "emmc51-cache", "--layers", layers), words)
