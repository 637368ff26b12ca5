"""Compares two explorations: cuts that lose data, and whether the difference may be chance."""

import json
import os
from pathlib import Path

import pytest

from conftest import assert_refused, emmclab
from emmclab.crash.explore import Exploration
from emmclab.crash.promises import CutTally
from emmclab.crash.summary import difference
from emmclab.runtime.statistics import fisher_exact

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a served device")


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
    assert fisher_exact(shares, (differs.enough, differs.enough)) < 0.01


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
    assert set(found["against"]) == {"cuts", "losing", "p", "enough", "alpha"}
    assert [one["log"]["lies"] for one in found["runs"]] == ["none", "flush"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [("--html a.html", "is not an option of a run"), (" ", "no option differs"), ("--set 'a", "cannot be read")],
)
def test_options_that_make_no_other_run_are_refused(words: str, problem: str) -> None:
    assert_refused(emmclab("crash", "--device", "emmc51-cache", "--workload", "files", "--against", words), problem)
