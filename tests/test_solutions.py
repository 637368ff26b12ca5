"""Pilot solutions compared with the plain device: the solutions that run, their risks, and rejected requests."""

from pathlib import Path
from typing import Any

import pytest

from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.apps.closed_loop import run_application
from emmclab.apps.solutions import SOLUTIONS, compare_solutions, find_solutions, loses, risk_of, risks
from emmclab.errors import ConfigError
from emmclab.simulation.layers import layers

#: An application that saves a note and a thumbnail twenty times, each with a sync.
SMALL = """
name = "small"
about = "Saves notes and thumbnails"
source = "made for a test"
user_waits_for = "ui"

[[file]]
name = "thumbnails"
class = "cache"
partition = "data"
count = 20

[[database]]
name = "notes.db"
partition = "data"
size = "100KB"

[[thread]]
name = "ui"
steps = [
    { repeat = { times = 20, steps = [
        { transaction = { database = "notes.db", pages = 2 } },
        { create = { file = "thumbnails" } },
        { append = { file = "thumbnails", size = "4KB" } },
        { fsync = { file = "thumbnails" } },
    ] } },
]
"""
#: A new, small card with slow random writes.
RUN: dict[str, Any] = {"device": "small-1gb", "precondition": "none"}
NEW = ("--device", "small-1gb", "--precondition", "none")


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def test_syncs_of_other_classes_return_at_once_and_cost_nothing(small: str) -> None:
    options = {**RUN, "host": "phone-2020"}
    all_synced = run_application(small, **options)
    some = run_application(small, **options, sync=["database", "database_journal"])
    none = run_application(small, **options, sync=["none"])
    assert all_synced.runtime_s > some.runtime_s > none.runtime_s
    points = [run["app"]["requests"]["sync_points"] for run in (all_synced, some, none)]
    assert points[0] > points[1] > points[2]
    assert not any(part["state"] == "fsync" and part["class"] == "cache" for part in some["app"]["spent"]), (
        "thumbnails are not waited for"
    )
    second = run_application(small, **options, sync=["database", "database_journal", "cache", "other"])
    assert second["app"] == all_synced["app"], "all classes are what there is without the option"


def test_a_file_system_is_chosen_for_one_partition_or_for_all(small: str) -> None:
    plain = run_application(small, **RUN)
    run = run_application(small, **RUN, filesystems=["data=lfs"])
    both = run_application(small, **RUN, filesystems=["lfs"])
    assert plain["app"]["requests"] != run["app"]["requests"]
    # Only the partition `data` is used.
    assert run["app"]["requests"] == both["app"]["requests"]
    assert run.run_name.endswith("with data=lfs")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"filesystems": ["data=zfs"]}, "unknown file system"),
        ({"filesystems": ["misc=lfs"]}, "refers to a partition that is not mounted"),
        ({"sync": ["databases"]}, "unknown class of files"),
        ({"sync": ["metadata"]}, "unknown class of files"),
    ],
)
def test_what_no_host_has_is_refused(small: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        run_application(small, **RUN, **options)
    assert caught.value.hint


def test_every_solution_runs_beside_the_plain_device(small: str, tmp_path: Path) -> None:
    page = tmp_path / "solutions.html"
    solutions = emmclab_json("apps", "solutions", small, *NEW, "--html", str(page))
    assert [run["solution"] for run in solutions["runs"]] == [solution.name for solution in SOLUTIONS]
    plain, buffered = solutions["runs"][:2]
    assert plain["gain"] == 1 and plain["page_programs"] == plain["plain_page_programs"] > 0
    assert buffered["solution"] == "nvm-buffer" and buffered["gain"] > 1
    text = page.read_text(encoding="utf-8")
    assert all(solution.name in text and risk_of(risks(), solution.name)[:40] in text for solution in SOLUTIONS)
    output = emmclab("apps", "solutions", small, *NEW, "--solution", "no-sync").stdout
    assert "no-sync" in output and "raid0" not in output


def test_solutions_choose_their_own_layers(small: str) -> None:
    assert_refused(emmclab("apps", "solutions", small, *NEW, "--layer", "advil"), "no such option: --layer")
    with pytest.raises(ConfigError, match="there is no solution `raid1`"):
        find_solutions(["raid1"])


def test_layers_of_solutions_exist_and_a_comparison_needs_the_plain_device(small: str) -> None:
    names = {layer["name"] for layer in layers()}
    assert all(set(solution.layers) <= names for solution in SOLUTIONS)
    with pytest.raises(ConfigError, match="no run of the solution"):
        compare_solutions([(SOLUTIONS[1], run_application(small, **RUN))])


def test_the_risk_is_what_was_measured_for_every_solution() -> None:
    measured = risks()
    assert set(measured["solutions"]) == {solution.name for solution in SOLUTIONS}
    for rows in measured["solutions"].values():
        assert all(row["cuts"] > 0 and row["states"] >= row["lost_states"] for row in rows)
    for name in ("plain", "nvm-buffer", "raid0", "lfs", "advil"):
        assert risk_of(measured, name).startswith("nothing that was acknowledged is lost"), name
    # The control solution loses data without a sync.
    assert risk_of(measured, "no-sync").startswith("acknowledged syncs are lost")
    assert [loses(measured, name) for name in ("plain", "no-sync", "lfs")] == [False, True, False]
    del measured["solutions"]["lfs"]
    assert (risk_of(measured, "lfs"), loses(measured, "lfs")) == ("not explored", None)


def test_a_loss_says_how_much_and_whether_what_is_left_is_sound() -> None:
    row = {"workload": "w", "cuts": 2, "states": 10, "lost_states": 3, "documented_states": 0}
    lost = {"solutions": {"x": [{**row, "promises": ["fsync"], "first": "f is gone"}]}}
    assert "lost in 3 of 10 states of 2 cuts tried; remaining data is consistent" in risk_of(lost, "x")
    broken = {"solutions": {"x": [{**row, "promises": ["fsync", "integrity"], "first": "f"}]}}
    assert "may be inconsistent (integrity)" in risk_of(broken, "x")


def test_over_several_devices_the_answer_begins_with_all_and_what_is_not_possible_is_named(tmp_path: Path) -> None:
    page = tmp_path / "solutions.html"
    # The partitions of the internal flash of 2010 are too small for a log of segments.
    several = ("apps", "solutions", "email", "--devices", "nexusone,kingston-c4", "--solution", "lfs")
    done = emmclab_ok(*several, "--solution", "no-sync", "--html", str(page))
    assert done.stdout.startswith("Over all applications, devices and networks")
    assert "lfs for email on nexusone over wifi is not possible" in done.stdout
    assert "lfs for email on nexusone over wifi: " in page.read_text()
    assert_refused(
        emmclab("apps", "solutions", "email", "--device", "nexusone", "--solution", "lfs"),
        "too small for a log-structured file system",
    )
