"""The page of a study shows the best setting that the seeds distinguish on its first screen, and every run below."""

import csv
import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browsing import Visit
from conftest import assert_fails, assert_refused, csv_trace, emmclab, emmclab_json, emmclab_ok
from emmclab.advice.advise import Advice, Advised
from emmclab.advice.device_state import GIVEN, State
from emmclab.advice.journal_modes import JournalAdvice
from emmclab.comparison.seed_statistics import comparison_headlines
from emmclab.pages.search import headline as search_headline
from emmclab.pages.study import figures, headline, over_values
from emmclab.runtime.statistics import positive_interval
from emmclab.simulation.result import Result
from emmclab.studies import Results, Study
from emmclab.studies.grid import Space
from emmclab.studies.search import Objective, SearchResult, Trial
from emmclab.studies.stored_types import Run
from emmclab.studies.summary import METRICS, Ranked, average, effects_of, summaries
from emmclab.studies.verdicts import rankings

STUDY = """
name = "sweep"
about = "Pages and parallelism"
inputs = ["Messaging", "Movie", "{trace}"]
seeds = [1, 2]

[[grid]]
name = "pages"
devices = ["iiswc15-4ps", "iiswc15-hps"]
wrap_addresses = true
[grid.axes]
"timing.parallelism" = ["none", "both"]
"""
#: A full device without garbage collection, and a filled share that the device cannot have.
SHORT_LIVED = """
[[grid]]
name = "life"
inputs = ["Messaging"]
devices = ["small-1gb"]
wrap_addresses = true
precondition = "sequential:100"
[grid.set]
"geometry.block_groups.0.blocks" = 32
[grid.axes]
"gc.policy" = ["none", "greedy"]

[[grid]]
name = "beyond"
inputs = ["{trace}"]
devices = ["small-1gb"]
"""


@pytest.fixture(scope="module")
def folder(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished study, its page and its figures."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "sweep.toml").write_text(STUDY.format(trace=trace))
    emmclab_ok("run", "sweep.toml", "--jobs", 2, cwd=folder)
    emmclab_ok("report", "sweep.toml", "--figures", "figures", cwd=folder)
    return folder


def test_the_report_of_a_study_as_json_has_the_answer_and_the_rankings_of_its_page(folder: Path) -> None:
    done = emmclab_ok("report", "sweep.toml", "--json", cwd=folder)
    report = json.loads(done.stdout)
    assert report["missing"] == report["failed"] == 0
    page = " ".join((folder / "sweep.html").read_text().split())
    assert report["answer"].replace("\u00a0", " ") in page.replace("\u00a0", " ").replace("&nbsp;", " ")
    (summary,) = summaries(Results.load(folder / "emmclab-results" / "sweep"))
    assert len(report["rankings"]) == len(summary.ranked)
    for ranking, ranked in zip(report["rankings"], summary.ranked, strict=True):
        assert ranking["best"] == dict(ranked.best) and ranking["worst"] == dict(ranked.worst)
        assert ranking["best_value"] == ranked.best_value.mean
        assert ranking["is_told_apart"] == ranked.is_distinguishable


def test_the_headline_names_the_best_and_the_worst_setting_as_the_results_have_them(folder: Path) -> None:
    results = Results.load(folder / "emmclab-results" / "sweep")
    (summary,) = summaries(results)
    assert summary.swept == {"device": ["iiswc15-4ps", "iiswc15-hps"], "timing.parallelism": ["none", "both"]}
    means: dict[tuple[str, str], dict[int, list[float]]] = {}
    for run in results.runs:
        place = means.setdefault((run["device"], run["settings"]["timing.parallelism"]), {})
        place.setdefault(run["seed"], []).append(run["response"]["mean_response_ms"])
    by_hand = {
        setting: sum(average(values) for values in seeds.values()) / len(seeds) for setting, seeds in means.items()
    }
    first = summary.ranked[0]
    assert first.best_value.mean == pytest.approx(min(by_hand.values()))
    assert first.worst_value.mean == pytest.approx(max(by_hand.values()))
    best = min(by_hand, key=lambda setting: by_hand[setting])
    assert {value for _, value in first.best} <= set(best)
    page = (folder / "sweep.html").read_text()
    title = page[page.index('id="answer-title"') :].partition("</h1>")[0]
    assert METRICS[0].text(first.best_value.mean) in title
    assert ("has the lowest mean response" in title) == first.is_distinguishable
    assert ("do not tell the settings apart" in title) == (not first.is_distinguishable)


def test_the_page_says_in_which_loop_traces_were_replayed(folder: Path) -> None:
    (page,) = folder.glob("*.html")
    assert "simulations of 3 inputs, closed loop, seeds 1, 2." in page.read_text()


def test_a_recorded_trace_has_one_row_and_one_profile_whatever_the_seeds(folder: Path) -> None:
    results = Results.load(folder / "emmclab-results" / "sweep")
    assert list(results.profiles) == ["Messaging", "Messaging (seed 2)", "Movie", "Movie (seed 2)", "chat"]
    assert sum(run["input"] == "chat" for run in results.runs) == 2 * 2 * 2


def reported(folder: Path, name: str, text: str, *options: object) -> tuple[Results, str]:
    """Run a study of this name with these lines, and return its results and its page."""
    (folder / f"{name}.toml").write_text(f'name = "{name}"\n{text}')
    emmclab_ok("run", f"{name}.toml", *options, "--jobs", 1, cwd=folder)
    emmclab_ok("report", f"{name}.toml", cwd=folder)
    return Results.load(folder / "emmclab-results" / name), (folder / f"{name}.html").read_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_chart_names_each_setting_in_the_colour_of_its_bars(browser: Browser, tmp_path: Path, width: int) -> None:
    text = (
        'inputs = ["Movie"]\n[[grid]]\nname = "all"\ndevices = ["small-1gb"]\n'
        'wrap_addresses = true\nprecondition = "steady:1"\n[grid.axes]\n'
        '"gc.policy" = ["greedy", "fifo", "cost_benefit", "d_choices"]\n'
        '"capacity.over_provisioning_pct" = [12, 20]\n'
    )
    reported(tmp_path, "pair", text)
    visit = Visit(browser, tmp_path / "pair.html", width=width)
    visit.draw_all()
    legends = visit.page.locator(".chart .role-legend").evaluate_all("all => all.map(one => one.textContent)")
    assert any("capacity.over_provisioning_pct = 20" in text for text in legends)
    assert not [text for text in legends if "…" in text]
    symbols = "all => all.map(one => one.getAttribute('fill')).filter(fill => fill && fill != 'transparent')"
    of_legend = visit.page.locator(".chart .role-legend-symbol path").evaluate_all(symbols)
    of_bars = visit.page.locator(".chart .mark-rect.role-mark path").evaluate_all(symbols)
    assert set(of_legend) <= set(of_bars) and of_bars
    named = visit.page.locator(".chart .role-axis-label").evaluate_all("all => all.map(one => one.textContent)")
    words = ("greedy", "fifo", "cost_benefit", "d_choices")
    assert any(all(word in text for word in words) for text in named)
    visit.page.close()


def test_figures_are_files_as_svg_pdf_and_data(folder: Path) -> None:
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert "pages-timing_parallelism-mean_response" in names
    for name in names:
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<svg")
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    with (folder / "figures" / "pages-device-mean_response.csv").open() as file:
        rows = list(csv.DictReader(file))
    results = Results.load(folder / "emmclab-results" / "sweep")
    runs = [
        run["response"]["mean_response_ms"]
        for run in results.runs
        if (run["input"], run["device"], run["settings"]["timing.parallelism"]) == ("Movie", "iiswc15-hps", "both")
    ]
    (row,) = [
        row
        for row in rows
        if (row["trace"], row["setting"], row["others"]) == ("Movie", "iiswc15-hps", "timing.parallelism = both")
    ]
    assert float(row["value"]) == pytest.approx(sum(runs) / 2)
    interval = positive_interval(runs)
    assert interval is not None
    assert (float(row["low"]), float(row["high"])) == pytest.approx(interval)


def test_the_figures_of_a_profile_are_files_as_pdf_too(trace: Path, tmp_path: Path) -> None:
    assert emmclab("profile", trace, "--figures", tmp_path / "figures").returncode == 0
    assert (tmp_path / "figures" / "size_distribution.pdf").read_bytes().startswith(b"%PDF")


def test_cells_that_fail_or_end_early_are_shown_and_left_out_of_the_figures(trace: Path, tmp_path: Path) -> None:
    text = 'name = "faults"\ninputs = ["Messaging"]\n' + SHORT_LIVED.format(trace=trace)
    (tmp_path / "faults.toml").write_text(text)
    done = emmclab("run", "faults.toml", "--jobs", 1, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "failed; the first, chat on small-1gb: " in done.stderr and "after the last sector" in done.stderr
    assert "ended early" in done.stdout
    results = Results.load(tmp_path / "emmclab-results" / "faults")
    assert [cell["grid"] for cell in results.failures] == ["beyond"]
    stopped = [run["run"]["stopped"] for run in results.runs]
    assert [reason is None for reason in stopped] == [False, True]
    life, beyond = summaries(results)
    assert [bool(point.figures) for point in life.points] == [False, True]
    assert beyond.points[0].failed
    assert emmclab("report", "faults.toml", cwd=tmp_path).returncode == 0
    page = (tmp_path / "faults.html").read_text()
    assert '<span class="badge no">ended early</span>' in page
    assert "after the last sector" in page
    rerun = emmclab("run", "faults.toml", "--jobs", 1, cwd=tmp_path)
    assert (rerun.returncode, rerun.stdout) == (1, done.stdout), "a failure is kept as a result is"
    (row,) = json.loads(
        emmclab("query", "select input, message from failures", "--study", "faults", "--json", cwd=tmp_path).stdout
    )
    assert row["input"] == "chat"


def test_results_of_another_version_of_the_study_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "sweep.toml"
    other.write_text((folder / "sweep.toml").read_text().replace("seeds = [1, 2]", "seeds = [1]"))
    results = folder / "emmclab-results"
    for command in (("report", other), ("query", "select 1", "--study", other)):
        done = emmclab(*command, "--results", results, cwd=tmp_path)
        assert_refused(done, "another version", "hint: run the study again")


def test_recorded_inputs_are_read_with_the_options_given(trace: Path, tmp_path: Path) -> None:
    """The options of `emmclab.read` are on the command line or under [reading], and the results contain them."""
    text = trace.read_text().splitlines(keepends=True)
    (tmp_path / "bad.txt").write_text("".join(text[:200]) + "nonsense\n" + "".join(text[200:]))
    plain = 'name = "reads"\ninputs = ["bad.txt"]\n'
    for name, end in (("plain", ""), ("lenient", "[reading]\nlenient = true\n")):
        (tmp_path / f"{name}.toml").write_text(plain + end)
    assert_fails(emmclab("run", "plain.toml", "--jobs", 1, cwd=tmp_path), "bad.txt:201")
    for words in (("run", "plain.toml", "--lenient"), ("run", "lenient.toml")):
        assert emmclab(*words, "--jobs", 1, cwd=tmp_path).returncode == 0
        results = Results.load(tmp_path / "emmclab-results" / "reads")
        assert results.profiles["bad"]["ledger"]["skipped"] == 1
        assert results.about["reading"] == {"lenient": True}
    assert_fails(emmclab("report", "lenient.toml", "--mend-clock", cwd=tmp_path), "read with other options")
    (tmp_path / "wrong.toml").write_text(plain + "[reading]\nlenint = true\n")
    assert_fails(emmclab("run", "wrong.toml", cwd=tmp_path), "did you mean `lenient`")
    emmclab_ok("profile", "bad.txt", "--against", "Messaging", "--lenient", cwd=tmp_path)
    assert emmclab("profile", "bad.txt", "--against", "Messaging", cwd=tmp_path).returncode == 2


def test_settings_of_a_study_are_columns_of_runs(folder: Path) -> None:
    rows = emmclab_json(
        *("query", "select timing_parallelism, count(*) n from runs group by all order by all"),
        *("--results", folder / "emmclab-results", "--study", "sweep"),
    )
    assert rows == [{"timing_parallelism": "both", "n": 12}, {"timing_parallelism": "none", "n": 12}]


@pytest.mark.slow
def test_a_study_without_grids_is_the_profile_of_each_input_once(trace: Path, tmp_path: Path) -> None:
    results, page = reported(tmp_path, "plain", f'inputs = ["Movie", "{trace}"]\nseeds = [1, 2]\n')
    assert [profile.name for profile in results.inputs_once()] == ["Movie", "chat"]
    assert "Table III" in page
    assert "(seed 2)" not in page


def test_chosen_percentiles_are_columns_of_the_results_and_of_the_page(tmp_path: Path) -> None:
    text = (
        'inputs = ["Movie"]\npercentiles = [99.99]\n'
        '[[grid]]\nname = "pages"\ndevices = ["iiswc15-4ps", "iiswc15-hps"]\nwrap_addresses = true\n'
    )
    results, page = reported(tmp_path, "tail", text, "--percentiles", "99,42")
    assert results.about["percentiles"] == [42, 99, 99.99]
    expected = {
        (run["device"], row["op"], row["percentile"]): row["response_ms"]
        for run in results.runs
        for row in run["percentiles"]
    }
    sql = "select device, response_p99_99_ms as p, response_read_p42_ms as r from runs order by device"
    rows = json.loads(emmclab("query", sql, "--json", cwd=tmp_path).stdout)
    assert [(row["device"], row["p"], row["r"]) for row in rows] == [
        (device, expected[device, "all", 99.99], expected[device, "read", 42])
        for device in ("iiswc15-4ps", "iiswc15-hps")
    ]
    # Inputs whose traces have times have these columns, too; those of generated traces are None.
    assert results.profiles["Movie"]["by_operation"][-1]["percentiles"][-1]["percentile"] == 99.99

    table = page[page.index('id="results"') :].partition("</thead>")[0]
    assert "p99.99 response" in table and "p42 response" in table
    # The usual 99th percentile appears once.
    assert table.count("p99 response") == 1
    (summary,) = summaries(results)
    for point in summary.points:
        device = dict(point.setting)["device"]
        assert point.figures["p99_99_response"].mean == expected[device, "all", 99.99]


def test_a_percentile_that_is_none_is_refused_with_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('name = "bad"\ninputs = ["Movie"]\npercentiles = [101]\n')
    assert_refused(emmclab("run", "bad.toml", cwd=tmp_path), "bad.toml: `percentiles`: `101` is not a percentile")


def test_a_study_of_overloaded_runs_says_so_and_ranks_nothing_by_response_times(tmp_path: Path) -> None:
    rows = [f"{at * 10_000},write,{at * 37 % 4096 * 8},8" for at in range(3_000)]
    csv_trace(tmp_path / "burst.csv", "arrival_ns,op,sector,sectors", rows)
    (tmp_path / "heavy.toml").write_text(
        'name = "heavy"\ninputs = ["burst.csv"]\n[[grid]]\nname = "all"\ndevices = ["small-1gb"]\n'
        'modes = ["open"]\n[grid.axes]\n"gc.policy" = ["greedy", "fifo"]\n'
    )
    run = emmclab("run", "heavy.toml", cwd=tmp_path)
    assert run.returncode == 0 and "2 of 2 simulations were overloaded" in run.stderr
    assert "burst on small-1gb (all)" in run.stderr
    rerun = json.loads(emmclab("run", "heavy.toml", "--json", cwd=tmp_path).stdout)
    assert [row["input"] for row in rerun["overloaded"]] == ["burst", "burst"]
    done = emmclab("report", "heavy.toml", "--json", cwd=tmp_path)
    assert done.returncode == 0 and "2 of 2 simulations were overloaded" in done.stderr
    output = json.loads(done.stdout)
    assert [(row["setting"], row["runs"]) for row in output["overloaded"]] == [
        ({"gc.policy": "greedy"}, 1),
        ({"gc.policy": "fifo"}, 1),
    ]
    assert not {row["metric"] for row in output["rankings"]} & {"mean_response", "p99_response"}
    assert "2 of 2 simulations were overloaded" in (tmp_path / "heavy.html").read_text()


def _run(policy: str, seed: int, mean_ms: float, **settings: object) -> Run:
    fields = {
        "grid": "policies",
        "input": "chat",
        "device": "small-1gb",
        "seed": seed,
        "settings": {"gc.policy": policy, **settings},
        "options": {},
        "run": {"stopped": None, "mode": "open", "load": {"overloaded": False}},
        "response": {"mean_response_ms": mean_ms, "p99_ms": 2 * mean_ms},
        "write_amplification": {"waf": 1.0},
        "requests": {"no_wait_pct": 50.0},
    }
    return Run(fields)


def _results(**means: list[float]) -> Results:
    runs = [_run(policy, seed, mean) for policy, values in means.items() for seed, mean in enumerate(values, start=1)]
    return Results({"name": "noise", "cells": len(runs)}, {}, runs, "")


def _judged(results: Results) -> tuple[Ranked, str]:
    """Return the ranking by mean response, and the headline of the study."""
    (summary,) = summaries(results)
    return summary.ranked[0], headline(results, [summary])


def test_a_best_setting_within_the_noise_is_no_headline() -> None:
    ranked, text = _judged(_results(fifo=[0.37, 1.35, 0.8], d_choices=[2.34, 0.54, 0.6]))
    assert not ranked.is_distinguishable
    assert "3 seeds do not tell the settings apart by mean response" in text and "lowest" not in text


def test_a_difference_that_every_seed_has_is_a_headline_with_its_best_setting() -> None:
    ranked, text = _judged(_results(fifo=[1.0, 1.3, 0.9], d_choices=[2.02, 2.6, 1.79]))
    assert ranked.is_distinguishable and ranked.interval is not None
    assert ranked.interval.low < 100 < ranked.interval.high
    assert text.startswith("gc.policy = fifo has the lowest mean response")


def test_settings_that_are_not_told_from_the_best_are_named_beside_it() -> None:
    ranked, text = _judged(_results(fifo=[1.0, 1.3, 0.9], greedy=[1.01, 1.29, 0.92], d_choices=[2.02, 2.6, 1.79]))
    assert ranked.indistinguishable == ((("gc.policy", "greedy"),),)
    assert "gc.policy = fifo (not told apart from gc.policy = greedy) has" in text


def test_a_single_seed_names_the_rule_of_close_values_and_what_tests_their_order() -> None:
    ranked, text = _judged(_results(fifo=[1.0], d_choices=[2.0], greedy=[1.04]))
    assert ranked.interval is None
    assert text.startswith("gc.policy = fifo (not told apart from gc.policy = greedy) has the lowest")
    assert "within 5 %" in text and "`seeds = [" in text
    _, text = _judged(_results(fifo=[1.0], greedy=[1.04]))
    assert text.startswith("One seed does not tell the settings apart") and "`seeds = [" in text


def test_the_effect_of_a_key_is_paired_over_the_other_keys_and_the_seeds() -> None:
    times = {
        ("greedy", 12): [30.3, 37.0, 33.1],
        ("fifo", 12): [36.2, 31.0, 35.4],
        ("d_choices", 12): [33.0, 36.1, 30.9],
        ("greedy", 20): [18.4, 22.5, 20.2],
        ("fifo", 20): [22.0, 19.1, 21.3],
        ("d_choices", 20): [20.4, 18.7, 22.4],
    }
    runs = [_run(policy, seed, mean, op=op) for (policy, op), means in times.items() for seed, mean in enumerate(means)]
    results = Results({"name": "noise", "cells": len(runs)}, {}, runs, "")
    ranked, text = _judged(results)
    policy, op = ranked.effects
    assert (op.key, op.best, op.worst, op.pairs, op.agreeing, op.is_told) == ("op", 20, 12, 9, 9, True)
    assert op.interval is not None and 40 < op.interval.low < op.interval.high < 90
    assert (policy.key, policy.pairs, policy.is_told) == ("gc.policy", 6, False)
    assert ranked.strongest == op and ranked.within is not None and not ranked.within.is_distinguishable
    assert text.startswith("op = 20 has the lowest mean response") and "all 9 pairs" in text
    assert "the other settings are not told apart" in text
    (ranking, *_) = rankings(results)
    assert [effect["pairs"] for effect in ranking["effects"]] == [6, 9]


def test_a_key_without_effect_is_not_told_apart_and_signs_of_many_pairs_decide_without_seeds() -> None:
    mixed = {("chat", (("op", op),)): {1: 1.0 + 0.1 * (op == 20), 2: 1.1, 3: 1.2} for op in (12, 20)}
    (effect,) = effects_of(mixed)
    assert (effect.pairs, effect.agreeing, effect.is_told) == (3, 1, False)
    for inputs, is_told in ((5, False), (6, True)):
        figures = {(str(name), (("op", op),)): {1: name + op / 1000} for name in range(inputs) for op in (12, 20)}
        (effect,) = effects_of(figures)
        assert (effect.best, effect.agreeing, effect.interval, effect.is_told) == (12, inputs, None, is_told)


def test_a_comparison_of_devices_names_the_fastest_only_where_it_is_told_apart(trace: Path) -> None:
    words = ("compare", trace, "--wrap-addresses")
    devices = ("--devices", "nexus5,small-1gb,sdcard")
    plain = emmclab(*words, *devices).stdout
    assert "one seed was run" in plain and "within 5 %" in plain and "--seeds" in plain
    done = emmclab_ok(*words, "--precondition", "random:50", "--devices", "small-1gb,small-1gb", "--seeds", "3")
    assert "fastest" not in done.stdout
    exact = emmclab("compare", trace, "--wrap-addresses", "--devices", "small-1gb,sdcard").stdout
    assert "is the fastest" in exact and "one seed" not in exact
    for more in (("--html", "page.html"), ("--over-time", "time.csv")):
        assert_refused(emmclab(*words, *devices, "--seeds", "2", *more), more[0])


def test_several_seeds_decide_by_an_interval_in_a_comparison() -> None:
    assert _compared(a=[0.37, 1.35, 0.8], b=[2.34, 0.54, 0.6]).startswith("3 seeds do not tell a, b apart")
    text = _compared(a=[1.0, 1.1], b=[2.0, 2.2001])
    assert text.startswith("a is the fastest") and "one seed" not in text


def test_figures_that_a_headline_compares_have_the_digits_that_show_their_difference() -> None:
    assert "mean response 0.0661 ms, b 0.0721 ms (1.09 times)" in _compared(a=[0.0661], b=[0.0721])


def _compared(**means: list[float]) -> str:
    """Return the headline of a comparison of devices, each with the mean response for each seed."""
    runs = [_result(device, seed, mean) for device, values in means.items() for seed, mean in enumerate(values, 1)]
    (text,) = comparison_headlines(runs)
    return text


def _result(device: str, seed: int, mean_ms: float) -> Result:
    return Result(
        {
            "trace": "chat",
            "device": device,
            "options": {"seed": seed, "precondition": "steady:1"},
            "run": {"stopped": None, "load": {"overloaded": False}},
            "requests": {"read": 0, "write": 1},
            "response": {"mean_response_ms": mean_ms},
            "recorded": {"response": {"all": {"recorded_ms": None}}},
        }
    )


def test_advice_names_no_best_option_within_the_noise() -> None:
    def advised(base: list[float], **options: list[float]) -> str:
        by_seed = {name: dict(enumerate(values, 1)) for name, values in options.items()}
        rows = [_advice(name, values) for name, values in by_seed.items()]
        base_by_seed = dict(enumerate(base, 1))
        journal = JournalAdvice(reason="-")
        state = State("steady:1", GIVEN, base[0], None, None)
        first = _result("d", 1, base[0])
        return Advised(first, None, rows, {}, "mean", journal, base_by_seed, state).headline

    text = advised([1.0], buffer=[0.98], cache=[0.99])
    assert text.startswith("No option improves the mean response by more than chance") and "--seeds" in text
    text = advised([2.0], buffer=[1.0], cache=[1.03])
    assert text.startswith("buffer: -50.0 %") and "not told apart: cache" in text and "within 5 %" in text
    text = advised([2.0, 2.2, 1.9], buffer=[1.0, 1.1, 0.95], cache=[1.1, 1.2, 1.05])
    assert text.startswith("buffer: -50") and "not told" not in text and "one seed" not in text
    text = advised([1.0, 2.0, 3.0], buffer=[2.0, 1.0, 2.9])
    assert text.startswith("No option improves") and "one seed" not in text
    text = advised([0.2661, 0.2701, 0.2681], cache=[0.2659, 0.2699, 0.2679])
    assert text.startswith("No option inside the device improves the mean response by 1 % or more")
    assert text.endswith("the largest change is cache: -0.07 % mean response (0.2681 ms -> 0.2679 ms)")


def _advice(name: str, by_seed: dict[int, float]) -> Advice:
    mean = sum(by_seed.values()) / len(by_seed)
    return Advice(name, "", {}, mean, 0.0, mean, 0.0, 1.0, None, None, 0.0, 0, True, "", by_seed)


def test_a_search_counts_the_trials_that_are_not_told_from_the_front() -> None:
    def search_result(*means: list[float]) -> SearchResult:
        trials = [
            Trial(
                "grid",
                number,
                {"gc.high_watermark": number},
                {"waf": sum(values) / len(values)},
                {"waf": dict(enumerate(values, 1))},
                is_feasible=True,
            )
            for number, values in enumerate(means)
        ]
        study = Study("s", "", ("x",), ())
        return SearchResult(study, (Objective("waf"),), Space("g", (), ()), trials, 3, 1, 3)

    text = search_headline(search_result([1.0], [1.03], [2.0]))
    assert "1 other trial is not told apart from it" in text and "`seeds = [" in text
    text = search_headline(search_result([1.0, 1.2, 0.9], [1.1, 1.31, 1.0], [0.5, 2.0, 3.0]))
    assert "1 other trial is not told apart from it" in text and "one seed" not in text


def test_vertical_bars_are_confidence_intervals_over_the_seeds() -> None:
    values = [1.0, 1.3, 0.9]
    figure, rows = figures(_results(fifo=values, d_choices=[2.02, 2.6, 1.79]))[0]
    interval = positive_interval(values)
    assert interval is not None and "95 % confidence interval" in figure.about
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx(interval)
    assert rows[0]["low"] < min(values) < max(values) < rows[0]["high"]


@pytest.mark.parametrize(("settings", "joined"), [(["fifo", "greedy"], False), (["5", "7.5"], True)])
@pytest.mark.parametrize("factor", [2, 1000])
def test_words_are_not_joined_by_lines_and_numbers_are(settings: list[str], joined: bool, factor: float) -> None:
    rows = [
        {"trace": "chat", "setting": setting, "others": "", "value": value, "low": value, "high": value}
        for setting, value in zip(settings, (1.0, factor), strict=True)
    ]
    marks = [layer["mark"]["type"] for layer in over_values(rows, "key", "ms").to_dict()["layer"]]
    assert ("line" in marks) == joined
    assert ("bar" in marks) == (not joined and factor < 30)
    assert "rule" in marks
