"""A list of alternatives has each value once: repeating a device, a trace or a seed adds no run."""

from pathlib import Path

import pytest

from conftest import emmclab, emmclab_json
from emmclab.runtime.lists import split_names
from emmclab.studies import Study
from emmclab.studies.search import Objective, require_objectives

STUDY = """
name = "again"
inputs = ["Messaging", "Messaging"]
seeds = [3, 3]
[[grid]]
name = "g"
devices = ["small-1gb", "small-1gb"]
modes = ["open", "open"]
layers = ["pass-through", "pass-through"]
[grid.axes]
"gc.high_watermark" = [8, 8, 9]
"""


def test_a_device_a_trace_or_a_stack_named_twice_is_compared_once(trace: Path) -> None:
    runs = emmclab_json(*("compare", trace, trace, "--devices", "nexus5,ufs31,nexus5"), *("--layers", "none,none"))
    assert [(run["trace"], run["device"]) for run in runs] == [("chat", "nexus5"), ("chat", "ufs31")]


def test_a_trace_named_twice_is_profiled_once(trace: Path) -> None:
    other = f"{trace.parent}/./{trace.name}"
    assert [profile["name"] for profile in emmclab_json("profile", trace, other)] == ["chat"]


def test_a_trace_named_twice_in_what_runs_together_is_there_twice(trace: Path, tmp_path: Path) -> None:
    (once,) = emmclab_json("profile", trace)
    (both,) = emmclab_json("profile", trace, trace, "--combine")
    assert both["requests"] == 2 * once["requests"]
    out = tmp_path / "both.parquet"
    assert emmclab("convert", trace, trace, "-o", out, "--offset", "0s,10s").returncode == 0
    assert emmclab_json("profile", out)[0]["requests"] == both["requests"]
    run = emmclab_json("simulate", trace, trace, "--device", "nexus5")
    assert run["requests"]["total"] == both["requests"]


def test_an_application_a_device_or_a_network_named_twice_is_run_once() -> None:
    found = emmclab_json(
        *("apps", "compare", "email", "email", "--devices", "nexus5,nexus5", "--networks", "wifi,wifi")
    )
    assert "runs" not in found and found["app"]["program"] == "email"


def test_values_named_twice_in_a_study_make_one_cell() -> None:
    cells = [cell for cell in Study.parse(STUDY, "again.toml").cells() if cell.grid == "g"]
    assert [cell.settings for cell in cells] == ['{"gc.high_watermark": 8}', '{"gc.high_watermark": 9}']
    # Layers of a stack may be repeated.
    assert '"layers": ["pass-through", "pass-through"]' in cells[0].options


def test_an_objective_named_twice_is_taken_once() -> None:
    assert require_objectives(["waf", "waf"], []) == (Objective("waf"),)


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_a_list_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="there is no device to compare"):
        split_names(text, "device to compare", "--devices", "nexus5,ufs31")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("compare", "chat", "--devices", "nexus5,,ufs31"), "--devices"),
        (("compare", "chat", "--devices", "nexus5", "--layers", "none,"), "--layers"),
        (("apps", "compare", "facebook", "--devices", "nexus5,"), "--device"),
        (("apps", "compare", "facebook", "--networks", ",wifi"), "--network"),
        (("profile", "chat", "--percentiles", "50,"), "percentiles"),
        (("convert", "chat", "chat", "-o", "two.parquet", "--offset", "0s,"), "--offset"),
        (("fleet", ".", "--by", "model,"), "--by"),
    ],
)
def test_an_empty_member_of_a_list_is_refused_with_its_place(
    words: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    done = emmclab(*words, cwd=tmp_path)
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert done.stderr.startswith(f"error: {option}: member ") and " of the list `" in done.stderr
    assert "is empty\nhint: take out the comma" in done.stderr
