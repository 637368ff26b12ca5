"""A study reports a best setting only if the seeds distinguish it; charts show intervals over the seeds."""

from pathlib import Path

import pytest

from conftest import assert_refused, emmclab, emmclab_ok
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
from emmclab.studies.summary import Ranked, effects_of, summaries
from emmclab.studies.verdicts import rankings


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
