"""Layers on the command line and in Python; the benchmarks; the claims of the Advil paper."""

import re
from pathlib import Path

import pytest

from conftest import emmclab, emmclab_json, emmclab_ok
from emmclab.errors import ConfigError
from emmclab.papers.advil12.advil12_page import drawings, render
from emmclab.papers.claims import judge_study, rules
from emmclab.papers.registry import papers
from emmclab.simulation.device import Device
from emmclab.simulation.layers import layers
from emmclab.studies import Results, Serial, Study, run_study
from emmclab.studies.bundled import bundled_text
from emmclab.traces.workload import Workload, benchmark, benchmarks


def test_the_command_line_parts_settings_of_layers_and_of_the_device(tmp_path: Path) -> None:
    trace = tmp_path / "random.parquet"
    benchmark("RandomWrite", requests=6000).write(trace)
    found = emmclab_json(
        *("simulate", trace, "--device", "small-1gb", "--wrap-addresses", "--mode", "back_to_back"),
        *("--layer", "pass-through", "--layer", "advil", "--set", "advil.reserved=16MiB"),
        *("--set", "advil.hot=rewritten", "--set", "timing.parallelism=none"),
    )
    assert [layer["name"] for layer in found["layers"]] == ["pass-through", "advil"]
    assert found["configuration"]["parallelism"] == "none"
    assert found["options"]["layer_settings"] == {"advil.reserved": "16MiB", "advil.hot": "rewritten"}
    shown = emmclab_ok(
        *("simulate", trace, "--device", "small-1gb", "--wrap-addresses"),
        *("--layer", "advil", "--set", "advil.reserved=16MB"),
    )
    assert "Layer: advil" in shown.stdout


def test_a_setting_of_no_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no layer of this run has the setting"):
        Device.preset("small-1gb").simulate(
            benchmark("SequentialWrite", requests=1), layers=["ressd"], layer_settings={"advil.hot": "none"}
        )


def test_layers_are_listed_with_their_settings() -> None:
    found = emmclab_json("layers")
    assert found == layers()
    settings = {layer["name"]: {one["name"]: one for one in layer["settings"]} for layer in found}
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
    own = sum(len(grid.inputs or study.inputs) for grid in study.grids)
    assert len(study.cells()) == len(study.inputs) + own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def small(folder: Path) -> Results:
    """The results of the study on a small device, with a small reserved area and short workloads."""
    text = bundled_text("advil12")
    # WebBench is a recording, which cannot be shortened, so that a model replaces it. Programs are unchanged.
    model = Workload.preset("WebBrowsing").to_toml().replace('name = "WebBrowsing"', 'name = "WebBench"')
    (folder / "WebBench.toml").write_text(model)
    text, programs = re.split(r"(?=\[\[grid\]\]\nname = \"programs-bare)", text)
    for old, new in (
        ('"WebBench"', f'"{folder / "WebBench.toml"}"'),
        ('"galaxys2"', '"small-1gb"'),
        ('"microsd-class10"', '"small-1gb"'),
        ('"12GB"', '"900MB"'),
        ("wrap_addresses = true", "wrap_addresses = true\nrequests = 9000"),
        ('"sequential:100"', '"none"'),
        ("[grid.layer_settings]\n", '[grid.layer_settings]\n"advil.reserved" = "8MB"\n'),
        ('"advil.reserved" = "8MB"\n"ressd', '"ressd.reserved" = "8MB"\n"ressd'),
    ):
        assert old in text, old
        text, programs = text.replace(old, new), programs.replace(old, new.partition("\nrequests")[0])
    text += programs
    (folder / "advil12.toml").write_text(text)
    return run_study(Study.parse(text, "advil12.toml"), folder / "advil12", Serial())


def test_every_claim_is_judged_and_the_page_holds_every_figure(small: Results) -> None:
    judged = judge_study(small)
    assert [claim.id for claim in judged] == [rule.id for rule in rules(papers()["advil12"])]
    assert all(claim.measured != "–" for claim in judged)
    drawn = drawings(small)
    page = render(small, judged, drawn)
    for drawing in drawn:
        assert drawing.rows, drawing.name
        assert f'id="{drawing.name}"' in page
    for claim in judged:
        assert f'id="{claim.id}"' in page


@pytest.mark.slow
def test_report_draws_the_same_page_of_a_finished_study(folder: Path, small: Results) -> None:
    page = folder / "page.html"
    emmclab_ok("report", folder / "advil12.toml", "--results", folder, "--html", page)
    assert page.read_text() == render(small, judge_study(small), drawings(small))
