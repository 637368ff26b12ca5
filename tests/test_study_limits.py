"""Impossible studies are rejected before any work, with the number or name at fault."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from conftest import assert_fails, assert_refused, emmclab
from emmclab.cli.simulation_options import configured
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.files import MOST_SETTINGS_BYTES, read_text
from emmclab.runtime.local_copies import file_digest
from emmclab.simulation.device import Device
from emmclab.simulation.layers import stack
from emmclab.studies import Study
from emmclab.studies.definition import MOST_CELLS
from emmclab.studies.search_space import Range, Space
from emmclab.traces.workload import Workload

GRID = """
name = "mine"
inputs = ["Idle"]
[[grid]]
name = "pages"
devices = ["iiswc15-4ps"]
"""


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Study.parse(text, "mine.toml").cells()
    assert "mine.toml" in str(caught.value)
    return caught.value


def test_cells_are_counted_before_they_are_made() -> None:
    values = list(range(1, 1001))
    axes = "\n".join(f'"{key}" = {values}' for key in ("gc.a", "gc.b", "gc.c"))
    error = refused(f"{GRID}[grid.axes]\n{axes}\n")
    assert f"{10**9 + 1:,} cells, more than {MOST_CELLS:,}" in str(error)
    assert f"`pages` alone has {10**9:,}" in str(error.hint)


def test_profiles_of_every_seed_are_counted_too() -> None:
    error = refused(f'name = "mine"\ninputs = ["Idle", "Movie"]\nseeds = {list(range(600_000))}\n')
    assert "1,200,000 cells" in str(error)


def test_a_grid_of_a_search_makes_no_more_points_than_its_budget() -> None:
    ranges = tuple(Range(f"s{number}", choices=tuple("abcdefghij")) for number in range(30))
    assert len(Space("g", ranges).points(7)) == 7


@pytest.mark.parametrize("read", [read_text, Device.file, Workload.file, file_digest])
def test_a_file_without_end_is_no_file_of_settings_and_no_input(read: object) -> None:
    assert callable(read)
    with pytest.raises(InputError, match="/dev/zero"):
        read("/dev/zero")


@pytest.mark.parametrize(
    "command",
    [
        *("simulate {trace} --device {pipe}", "synth {pipe} out.csv", "synth --fio {pipe} -o out.csv"),
        *("run {pipe}", "apps run {pipe}", "apps run email --host {pipe}"),
    ],
)
def test_a_pipe_without_end_is_no_file_of_settings(command: str, trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "endless.toml"
    os.mkfifo(pipe)

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), pipe.open("w") as file:
            while True:
                file.write("a = 1\n" * 10_000)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    assert_refused(emmclab(*command.format(trace=trace, pipe=pipe).split(), cwd=tmp_path), "endless.toml", "or endless")
    assert [path.name for path in tmp_path.iterdir()] == ["endless.toml"]


def test_a_file_of_settings_has_a_greatest_size(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    with path.open("wb") as file:
        file.truncate(MOST_SETTINGS_BYTES + 1)
    for read in (Study.named, Device.named):
        with pytest.raises(InputError, match="16 MB"):
            read(str(path))


@pytest.mark.parametrize("seed", ["18446744073709551616", "9223372036854775808", "-1", "1" * 5000])
@pytest.mark.parametrize("place", ["study", "grid"])
def test_a_seed_that_no_table_holds_is_refused_by_its_key(seed: str, place: str) -> None:
    seeds = f"seeds = [{seed}]\n"
    error = refused(f"{seeds}{GRID}" if place == "study" else f"{GRID}{seeds}")
    assert error.hint
    assert "seeds" in str(error) or len(seed) == 5000


@pytest.mark.parametrize("name", ["-rf", "_x", "cells", "images", "crash", "", "a/b", "..", "a b", "a\\n"])
def test_a_study_has_no_name_that_is_an_option_or_a_folder_of_results(name: str) -> None:
    assert refused(GRID.replace('"mine"', f'"{name}"')).field == "name"


def test_a_grid_is_not_called_as_the_profiles_are() -> None:
    assert "`profile`" in str(refused(GRID.replace('"pages"', '"profile"')))


def test_deep_lists_are_refused_as_any_other_fault_of_a_study(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{GRID}x = {'[' * 20_000}")
    done = emmclab("run", path, "--results", tmp_path)
    assert_fails(done)
    assert "bug" not in done.stderr


@pytest.mark.parametrize("value", ['1\nlies="flush"', "1\rx", "1\n"])
def test_a_value_of_several_lines_is_refused(value: str) -> None:
    with pytest.raises(EmmclabError, match="several lines"):
        Device.preset("emmc51-cache").set({"cache.size_kb": value})
    with pytest.raises(EmmclabError, match="several lines"):
        stack(["journal"], {"journal.log": value})
    with pytest.raises(EmmclabError, match="several lines"):
        configured("emmc51-cache", [f"cache.size_kb={value}x"])


@pytest.mark.parametrize(
    ("command", "problem"),
    [("simulate x.csv", "`seed` cannot be -1")]
    + [(command, "-1 is not in the range") for command in ("crash --device nexus5", "probe x", "search x.toml")],
)
def test_a_seed_below_0_is_refused_before_anything_runs(command: str, problem: str) -> None:
    assert_refused(emmclab(*command.split(), "--seed", -1), problem)
