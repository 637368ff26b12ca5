"""Studies of power cuts: one verdict for each run, in tables and pages; and the bundled study `power-cuts`."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import assert_refused, emmclab, emmclab_json
from crash_runs import cut_result
from emmclab.errors import ConfigError
from emmclab.studies import Results, Study
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, LOST, CutCell, CutRun
from emmclab.studies.verdicts import NOT_JUDGED, tables

SMALL = """
name = "small"
about = "A few cuts"
[cuts]
capacity = "256MB"
operations = 12
cuts = 30
states = "device,boundary,omit1:4"
[cuts.file_systems]
ordered = { mount = "data=ordered" }
no_room = { mount = "data=ordered" }
wrong_mkfs = { mkfs = ["-O", "no_such_feature"] }
wrong_mount = { mount = "no_such_option" }

[[grid]]
name = "plain"
inputs = ["sqlite-delete-full", "sqlite-delete-extra", "sqlite-wal-off"]
file_systems = ["ordered"]

[[grid]]
name = "lies"
inputs = ["sqlite-delete-extra"]
file_systems = ["ordered"]
[grid.set]
"cache.lies" = "flush"

[[grid]]
name = "layer"
inputs = ["sqlite-delete-extra"]
file_systems = ["ordered"]
layers = ["advil"]
layer_settings = { "advil.reserved" = "8MiB" }

[[grid]]
name = "no room"
inputs = ["sqlite-delete-extra"]
file_systems = ["no_room"]
layers = ["advil"]
layer_settings = { "advil.reserved" = "100GiB" }

[[grid]]
name = "wrong options"
inputs = ["sqlite-delete-extra"]
file_systems = ["wrong_mkfs", "wrong_mount"]
""".replace("[[grid]]", '[[grid]]\nmodes = ["cuts"]\ndevices = ["emmc51-cache"]')


@pytest.fixture(scope="module")
def folder(root: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a finished study."""
    del root
    folder = tmp_path_factory.mktemp("cuts")
    (folder / "small.toml").write_text(SMALL)
    done = emmclab("run", "small.toml", "--jobs", 2, cwd=folder)
    # Some cells fail, because the log of the layer is larger than the device, or ext4 lacks the options; the other
    # cells are stored.
    assert done.returncode == 1 and "advil" in done.stderr, done.stderr
    (folder / "printed").write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return Results.load(folder / "emmclab-results/small")


def words(results: Results) -> dict[tuple[str, str], str]:
    """Return the text of the verdict of each run, by workload and column."""
    return {
        (name.removeprefix("sqlite-"), str(column)): cell.text
        for table in tables(results)
        for (name, column), cell in table.cells.items()
    }


def test_each_run_has_one_verdict_and_the_lowest_level_that_lost(results: Results) -> None:
    cache = "ordered, emmc51-cache"
    assert words(results) == {
        ("delete-full", cache): DOCUMENTED,
        ("delete-extra", cache): KEPT,
        ("wal-off", cache): f"{LOST}: application",
        ("delete-extra", f"{cache} cache.lies=flush"): f"{LOST}: device",
        ("delete-extra", f"{cache}, advil advil.reserved=8MiB"): KEPT,
        ("delete-extra", "no_room, emmc51-cache, advil advil.reserved=100GiB"): NOT_JUDGED,
        ("delete-extra", "wrong_mkfs, emmc51-cache"): NOT_JUDGED,
        ("delete-extra", "wrong_mount, emmc51-cache"): NOT_JUDGED,
    }
    messages = {run["options"]["file_system"]: run["message"] for run in results.failures}
    assert messages["wrong_mkfs"] == "mkfs.ext4: Invalid filesystem option set: no_such_feature"
    assert messages["wrong_mount"].startswith("mount: the disk: ") and "/" not in messages["wrong_mount"]
    for run in results.cuts:
        assert 0 < run["cuts"] <= 30 and run["states"] > run["lost_states"] + run["documented_states"] - 1
        assert bool(run["findings"]) == (run["verdict"] == LOST)
        assert run["lost"] == {level: level == run["lost_at"] for level in run["lost"]}


def cut_run(verdict: str, states: int, **options: Any) -> CutRun:
    """Return a run of one workload on one device."""
    cell = CutCell("grid", "files", "emmc51-cache", {}, {"file_system": "ordered", **options})
    return CutRun(cell, cut_result(verdict, states=states))


def test_no_run_hides_another_in_the_table() -> None:
    def under(reserved: str) -> dict[str, Any]:
        return {"layers": ["advil"], "layer_settings": {"advil.reserved": reserved}}

    runs = [
        cut_run(KEPT, 5, **under("8MiB")),
        cut_run(LOST, 7, **under("16MiB")),
        # For two seeds, the worst verdict and the sum of the states are shown.
        cut_run(LOST, 20),
        cut_run(KEPT, 30),
        cut_run(KEPT, 3, **under("8MiB"), second="sdcard"),
    ]
    (table,) = tables(cast("Results", SimpleNamespace(cut_runs=lambda: runs, failures=[])))
    place = "ordered, emmc51-cache"
    assert {str(column): (cell.word, cell.states) for (_, column), cell in table.cells.items()} == {
        f"{place}, advil advil.reserved=8MiB": (KEPT, 5),
        f"{place}, advil advil.reserved=16MiB": (LOST, 7),
        place: (LOST, 50),
        f"{place}, advil advil.reserved=8MiB on sdcard": (KEPT, 3),
    }


def test_the_terminal_the_page_and_the_tables_say_the_same(folder: Path, results: Results) -> None:
    printed = (folder / "printed").read_text()
    assert "2 of 5 runs lost acknowledged data" in printed
    for words_ in ("kept", "documented", "lost: device", "lost: application", "not judged"):
        assert words_ in printed, words_
    summary = emmclab_json("report", "small.toml", "--html", "page.html", cwd=folder)
    assert summary["answer"] in printed and sum(summary["verdicts"].values()) == len(summary["runs"]) == 8
    assert sorted(f"{run['verdict']}: {run['level']}".removesuffix(": ") for run in summary["runs"]) == sorted(
        words(results).values()
    )
    page = (folder / "page.html").read_text(encoding="utf-8")
    badges = re.findall(r'<td class="text"><span class="badge \w+">([^<]+)</span>', page)
    assert sorted(badges) == sorted(words(results).values())
    assert "synchronous=EXTRA" in page.partition("Documented losses")[2]
    rows = emmclab_json("query", "select verdict, lost_at, cache_lies from cuts", "--study", "small", cwd=folder)
    assert len(rows) == len(results.cuts) == 5 and len(results.failures) == 3
    assert [row["lost_at"] for row in rows if row["cache_lies"] == "flush"] == ["device"]


def test_a_finding_is_shown_again_from_the_kept_log(folder: Path, results: Results) -> None:
    finding = next(run for run in results.cuts if run["grid"] == "lies")["findings"][0]
    again = ("crash", "--again", finding["again"], "--results", "emmclab-results/small")
    shown = emmclab_json(*again, cwd=folder, status=4)["findings"]
    assert finding["promise"] in [shown_finding["promise"] for shown_finding in shown]


def test_finished_cells_are_not_run_again_and_more_cuts_are_other_cells(folder: Path, results: Results) -> None:
    done = emmclab("run", "small.toml", "--json", cwd=folder)
    assert json.loads(done.stdout)["digest"] == results.digest
    study = Study.parse(SMALL, "small.toml")
    assert {cell.key for cell in study.cells()}.isdisjoint(cell.key for cell in study.with_scale(2).cells())


def test_the_study_of_emmclab_crosses_every_axis() -> None:
    study = Study.named("power-cuts")
    assert study.cuts is not None
    options = [json.loads(cell.options) for cell in study.cells()]
    settings = [json.loads(cell.settings) for cell in study.cells()]
    sqlite = {f"sqlite-{mode}-{level}" for mode in ("delete", "truncate", "persist", "wal") for level in LEVELS}
    assert {cell.input.name for cell in study.cells()} == sqlite
    assert {option["file_system"] for option in options} == set(study.cuts.file_systems)
    assert {name for option in options for name in option.get("layers", ())} == {"advil", "ressd"}
    assert {option.get("cache.lies") for option in settings} == {None, "flush", "fua", "barrier", "tear"}
    assert {cell.device for cell in study.cells()} == {"emmc51-tlc", "emmc51-cache"}
    ten = [json.loads(cell.options)["cuts"] for cell in study.with_scale(10).cells()]
    assert ten == pytest.approx([10 * option["cuts"] for option in options], abs=5)


LEVELS = ("off", "normal", "full", "extra")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('file_systems = ["ordered"]', 'file_systems = ["orderly"]', "file_systems"),
        ('"sqlite-wal-off"', '"sqlite-wol-off"', "inputs"),
        ('modes = ["cuts"]', 'modes = ["cuts", "open"]', "modes"),
        ("cuts = 30", "cuts = 0", "cuts.cuts"),
        ("operations = 12", "operation = 12", "operations"),
        ('mount = "data=ordered"', 'mount = "data=ordered", recovery = "hope"', "recovery"),
        ('"cache.lies" = "flush"', '"cache.lies" = "maybe"', "cache.lies"),
    ],
)
def test_a_fault_of_a_definition_is_named(old: str, new: str, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        Study.parse(SMALL.replace(old, new), "small.toml").cells()


def test_a_study_that_cuts_no_power_has_no_scale() -> None:
    assert_refused(emmclab("run", "iiswc15", "--scale", "2"), "is not a study of power cuts")
    assert_refused(emmclab("run", "power-cuts", "--scale", "0"), "scale")
