"""A study names a best setting only where the seeds tell it from others; charts show intervals over seeds."""

from __future__ import annotations

from typing import Any

import pytest

from emmclab.pages.plots.swept import over_values
from emmclab.pages.study import figures, headline
from emmclab.studies import Results
from emmclab.studies.intervals import positive_interval
from emmclab.studies.summary import summaries


def _run(policy: str, seed: int, mean_ms: float) -> dict[str, Any]:
    return {
        "grid": "policies",
        "input": "chat",
        "device": "small-1gb",
        "seed": seed,
        "settings": {"gc.policy": policy},
        "options": {},
        "run": {"stopped": None, "mode": "open"},
        "response": {"mean_response_ms": mean_ms, "p99_ms": 2 * mean_ms},
        "write_amplification": {"waf": 1.0},
        "requests": {"no_wait_pct": 50.0},
    }


def _results(**means: list[float]) -> Results:
    runs = [
        _run(policy, seed, mean)
        for policy, found in means.items()
        for seed, mean in enumerate(found, start=1)
    ]
    return Results({"name": "noise", "cells": len(runs)}, {}, runs, "")


def test_a_best_setting_within_the_noise_is_no_headline() -> None:
    results = _results(fifo=[0.37, 1.35, 0.8], d_choices=[2.34, 0.54, 0.6])
    (summary,) = summaries(results)
    assert not summary.ranked[0].is_told_apart
    said = headline(results, [summary])
    assert "3 seeds do not tell the settings apart by mean response" in said and "lowest" not in said


def test_a_difference_that_every_seed_has_is_a_headline_with_its_best_setting() -> None:
    results = _results(fifo=[1.0, 1.3, 0.9], d_choices=[2.02, 2.6, 1.79])
    (summary,) = summaries(results)
    ranked = summary.ranked[0]
    assert ranked.is_told_apart and ranked.interval is not None
    assert ranked.interval.low < 100 < ranked.interval.high
    said = headline(results, [summary])
    assert said.startswith("gc.policy = fifo has the lowest mean response")


def test_settings_that_are_not_told_from_the_best_are_named_beside_it() -> None:
    results = _results(fifo=[1.0, 1.3, 0.9], greedy=[1.01, 1.29, 0.92], d_choices=[2.02, 2.6, 1.79])
    (summary,) = summaries(results)
    assert summary.ranked[0].alike == ((("gc.policy", "greedy"),),)
    assert "gc.policy = fifo (not told apart from gc.policy = greedy) has" in headline(results, [summary])


def test_a_single_seed_says_that_its_spread_is_not_known() -> None:
    results = _results(fifo=[1.0], d_choices=[2.0])
    (summary,) = summaries(results)
    assert summary.ranked[0].interval is None
    assert "one seed, so that the spread is not known" in headline(results, [summary])


def test_vertical_bars_are_confidence_intervals_over_the_seeds() -> None:
    values = [1.0, 1.3, 0.9]
    figure, rows = figures(_results(fifo=values, d_choices=[2.02, 2.6, 1.79]))[0]
    interval = positive_interval(values)
    assert interval is not None and "95 % confidence interval" in figure.about
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx(interval)
    assert rows[0]["low"] < min(values) < max(values) < rows[0]["high"]


@pytest.mark.parametrize(("settings", "joined"), [(["fifo", "greedy"], False), (["5", "7.5"], True)])
@pytest.mark.parametrize("factor", [2, 1000])
def test_words_are_not_joined_by_lines_and_numbers_are(
    settings: list[str], joined: bool, factor: float
) -> None:
    rows = [
        {"trace": "chat", "setting": one, "others": "", "value": value, "low": value, "high": value}
        for one, value in zip(settings, (1.0, factor), strict=True)
    ]
    marks = [layer["mark"]["type"] for layer in over_values(rows, "key", "ms").to_dict()["layer"]]
    assert ("line" in marks) == joined
    assert ("bar" in marks) == (not joined and factor < 30)
    assert "rule" in marks
