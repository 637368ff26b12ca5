"""Compares two explorations: cuts that lose data, and whether the difference may be chance."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path

import pytest

from conftest import emmclab
from emmclab.crash.broken_promise import CutTally
from emmclab.crash.explore import Exploration
from emmclab.crash.paired_comparison import DifferenceFields, difference, fisher

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a served device")


def by_definition(losing: tuple[int, int], cuts: tuple[int, int]) -> float:
    """Sum the hypergeometric probabilities of all tables that are at most as likely."""
    first, second = cuts
    lost = sum(losing)
    tables = {
        one: math.comb(first, one) * math.comb(second, lost - one)
        for one in range(lost + 1)
        if one <= first and lost - one <= second
    }
    own = tables[losing[0]]
    return sum(weight for weight in tables.values() if weight <= own) / math.comb(first + second, lost)


def test_fishers_test_agrees_with_its_definition_for_all_small_tables() -> None:
    for first, second in itertools.product(range(1, 8), range(1, 8)):
        for one, other in itertools.product(range(first + 1), range(second + 1)):
            found = fisher((one, other), (first, second))
            assert found == pytest.approx(by_definition((one, other), (first, second)))


def exploration(cuts: int, losing: int) -> Exploration:
    """Make an exploration in which `losing` of `cuts` cuts lose data, and one has a documented loss."""
    found = Exploration(covered={"cuts": cuts})
    found.verdicts = {cut: CutTally(cut, 3, int(cut < losing), int(cut == losing)) for cut in range(cuts)}
    return found


def test_a_difference_names_the_least_number_of_cuts_that_shows_it() -> None:
    differs = difference([exploration(40, 0)], [exploration(20, 10), exploration(20, 10)])
    assert (differs.cuts, differs.losing) == ((40, 40), (0, 20))
    assert differs.p < 0.01
    assert differs.enough is not None
    shares = (0, round(differs.enough / 2))
    assert fisher(shares, (differs.enough, differs.enough)) < 0.01


def test_equal_shares_need_no_number_of_cuts() -> None:
    differs = difference([exploration(10, 2)], [exploration(20, 4)])
    assert (differs.p, differs.enough) == (1.0, None)


@root
def test_a_lying_device_is_told_from_an_honest_one_under_the_same_workload(tmp_path: Path) -> None:
    words = ("crash", "--device", "emmc51-cache", "--workload", "files", "--operations", 20, "--cuts", 40)
    done = emmclab(*words, "--results", tmp_path, "--against", "--set cache.lies=flush", "--json")
    assert done.returncode == 4, done.stderr
    found = json.loads(done.stdout)
    assert found["against"]["losing"][0] == 0 < found["against"]["losing"][1]
    assert found["against"]["p"] < 0.01
    assert set(found["against"]) == set(DifferenceFields.__annotations__)
    assert [one["log"]["lies"] for one in found["runs"]] == ["none", "flush"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--html a.html", "is not an option of a run"),
        (" ", "no option differs"),
        ("--set 'a", "cannot be read"),
    ],
)
def test_options_that_make_no_other_run_are_refused(words: str, problem: str) -> None:
    done = emmclab("crash", "--device", "emmc51-cache", "--workload", "files", "--against", words)
    assert done.returncode == 2
    assert problem in done.stderr
