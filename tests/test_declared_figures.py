"""Name, unit and number of digits of each figure of a result are declared once, for every table."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

import emmclab as lab
from conftest import emmclab, emmclab_json, emmclab_ok
from emmclab.advice.advise import FIGURES, ORDERS
from emmclab.advice.journal_modes import MODE_FIGURES
from emmclab.advice.lifetime import LIFETIME
from emmclab.cli import show_live, show_runs
from emmclab.comparison.one_at_a_time import MAIN
from emmclab.comparison.recorded_vs_simulated import COMPARED_FIGURES
from emmclab.comparison.seed_statistics import SPREAD_FIGURES
from emmclab.core_types import LiveStatus
from emmclab.pages import run_figures, simulation
from emmclab.simulation import result_tables, result_text
from emmclab.simulation.result import _SECOND, _WAITS, at, second_figures, ufs_figures
from emmclab.simulation.result_fields import ResultField, layer_field, result_field, result_fields, shown_fields
from emmclab.studies.summary import METRICS

#: Tables of figures, on the terminal and on pages.
TABLES = {
    "a run": result_tables.FIGURES,
    "a comparison under layers": show_runs._OF_LAYERS,
    "a comparison": show_runs._OF_SPACE,
    "time and durability": show_runs._TIME_AND_DURABILITY,
    "recorded beside simulated": tuple(row.field for row in COMPARED_FIGURES),
    "events on the page": simulation._EVENTS,
    "tiles of the page": simulation._MAIN,
    "advice": tuple(FIGURES.values()),
    "modes of the journal": MODE_FIGURES,
    "one change at a time": MAIN,
    "parts of the mean response": shown_fields(_WAITS),
    "lifetime": (LIFETIME,),
    "figures over seeds": SPREAD_FIGURES,
    "charts of runs": (run_figures._MEAN, run_figures._SPACE, run_figures._WAF),
    "the answer of a run": (result_text._MEAN, result_text._P99),
    "the second device": shown_fields(tuple(_SECOND.values())),
    "the live view": show_live.FIGURES,
}


@pytest.fixture(scope="module")
def recording() -> Path:
    """A trace with flushes and synchronous writes."""
    return next(path for path in lab.bundled() if path.stem == "messages-rollback")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_takes_label_unit_and_digits_from_the_declaration(name: str) -> None:
    declared = {field.path: field for field in result_fields()}
    assert [field.path for field in TABLES[name] if field is not declared[field.path] or not field.label] == []


def test_a_declared_figure_has_a_label_of_its_own_and_a_direction_that_is_one() -> None:
    shown = [field for field in result_fields() if field.label]
    labels = [field.label for field in shown]
    assert [label for label in labels if labels.count(label) > 1] == []
    assert {field.better for field in result_fields()} == {"", "lower", "higher"}
    assert [field.path for field in result_fields() if not field.label and (field.short or field.better)] == []


def test_settings_are_ranked_in_the_declared_direction() -> None:
    for metric in METRICS:
        (field,) = [field for field in result_fields() if (field.path,) == metric.paths]
        assert (metric.label, metric.unit, metric.digits) == (field.label, field.unit, field.digits)
        assert metric.highest_is_best is (field.better == "higher")
    assert [by for by, field in FIGURES.items() if field.better != "lower" or ORDERS[by] != field.name] == []


def _said(fields: Sequence[ResultField], result: lab.Result) -> Iterator[tuple[str, str]]:
    for field in fields:
        yield field.label, field.text(result.shown(field.path))


def test_terminal_and_page_show_a_figure_in_the_same_words_and_digits(recording: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("simulate", recording, "--device", "ufs31")
    result = lab.Result(emmclab_json(*command, "--html", page))
    lines = [re.split(r"  +", line.strip()) for line in emmclab(*command).stdout.splitlines()]
    html = page.read_text(encoding="utf-8")
    for label, text in _said(TABLES["a run"], result):
        assert [label, text] in [cells[:2] for cells in lines], label
    for label, text in _said(simulation._COLUMNS, result):
        assert f'<th scope="col">{label}' in html and f">{text}</td>" in html, label
    for field, value in ufs_figures(result["ufs"]):
        assert [field.label, field.text(value)] in [cells[:2] for cells in lines], field.path
        assert f'<th scope="row">{field.label}</th><td>{field.text(value)}</td>' in html, field.path


def test_a_comparison_and_advice_have_the_digits_of_a_run(recording: Path) -> None:
    command = ("compare", recording, "--devices", "emmc51-cache,ufs31")
    text = emmclab(*command).stdout
    for result in map(lab.Result, emmclab_json(*command)):
        lines = text[text.index("mean response, change") :].splitlines()
        cells = [line.split() for line in lines if line.startswith(result["device"])]
        for path in ("response.mean_response_ms", "response.p99_ms"):
            assert result_field(path).text(at(result, path)) in cells[0], path
        for _, shown in _said(TABLES["a comparison"], result):
            assert shown in cells[0]
        for _, shown in _said(TABLES["time and durability"], result):
            assert shown in cells[1]


def test_layers_and_the_second_device_have_the_words_and_digits_of_a_run(recording: Path, tmp_path: Path) -> None:
    # Its result has a group of counts of the host; a table once failed on it.
    second = tmp_path / "second.toml"
    second.write_text(lab.Device.preset("nexus5").set({"host.packed_writes": 8}).to_toml())
    above = ("--layer", "pair", "--set", "pair.routing=striping", "--device2", second)
    command = ("simulate", recording, "--device", "emmc51-cache", *above)
    result = lab.Result(emmclab_json(*command))
    lines = [re.split(r"  +", line.strip()) for line in emmclab(*command).stdout.splitlines()]
    assert "host" in result["second_device"]
    (layer,) = result["layers"]
    counts = [(layer_field(name), value) for name, value in layer.items() if name not in ("name", "left_out")]
    for field, value in (*second_figures(result["second_device"]), *counts):
        assert [field.label, field.text(value)] in [cells[:2] for cells in lines], field.path
    declared = {field.unit: field.display_unit for field in result_fields() if field.label}
    assert all(field.display_unit == declared[field.unit] for field, _ in counts)


def test_the_live_view_has_the_words_and_digits_of_a_run() -> None:
    status = {"response_p50_us": 1234.5, "response_p99_us": None, "waf": 1.2345, "erases": 1234}
    status |= dict.fromkeys(("interval_requests", "interval_bytes", "volatile_bytes", "free_blocks"), 0)
    status |= dict.fromkeys(("requests", "bytes_read", "bytes_written", "failed", "cuts", "open"), 0)
    status |= {"powered": True, "clock": "free", "simulated_s": 0.0, "refused": [], "image_error": None}
    live = SimpleNamespace(device=lab.Device.preset("nexus5"), paths=["/dev/loop1"])
    console = Console(width=120)
    with console.capture() as said:
        console.print(show_live.live_view(live, cast("LiveStatus", status), 1.0))
    over, heads, _, row, *_ = said.get().splitlines()[1:]
    assert over.split() == ["p50", "p99"] and heads.count("ms") == 2
    assert all(field.short in f"{over} {heads}" for field in show_live.FIGURES)
    values = (1.2345, None, 1.2345, 1234)
    assert [field.text(value) for field, value in zip(show_live.FIGURES, values, strict=True)] == [
        row.split()[place] for place in (2, 3, 7, 9)
    ]


def test_the_figures_of_durability_are_fields_that_are_explained_and_compared(recording: Path, tmp_path: Path) -> None:
    assert "durable.p99_ms" in emmclab("explain", "durable.").stdout
    result = tmp_path / "two.json"
    done = emmclab("compare", recording, "--devices", "ufs31,ufs40", "--json")
    result.write_text(done.stdout)
    different = emmclab_json("explain", f"{result}#1", f"{result}#2")["figures"]
    assert {"durable.mean_ms", "durable.p99_ms"} <= {one["path"] for one in different}
    done = emmclab_ok("explain", f"{result}#1", f"{result}#2", "--one-at-a-time", cwd=tmp_path)
    heads = done.stdout[done.stdout.index("From A to B") :]
    assert all(word in heads for word in ("Mean response", "p99 response", "synchronous"))
