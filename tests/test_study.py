"""Studies: results are the same bytes with any number of processes and after interruptions; bad ones are refused."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import (
    PATIENCE_S,
    assert_fails,
    assert_refused,
    begin,
    emmclab,
    emmclab_json,
    emmclab_ok,
    environment,
    kept_cells,
    wait_until,
)
from emmclab.cli.simulation_options import configured
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.files import MOST_SETTINGS_BYTES, read_text, sweep
from emmclab.runtime.local_copies import file_digest
from emmclab.simulation.device import Device
from emmclab.simulation.layers import stack
from emmclab.studies import Results, Serial, Study, run_study
from emmclab.studies.definition import MOST_CELLS
from emmclab.studies.grid import Range, Space
from emmclab.studies.result_rows import StoredCell
from emmclab.studies.store import Store
from emmclab.studies.summary import setting_text, summaries
from emmclab.traces.workload import Workload

STUDY = """
name = "small"
about = "A small study"
inputs = ["Messaging", "CallIn", "Email", "Movie"]
seeds = [1, 2]

[[grid]]
name = "pages"
devices = ["iiswc15-4ps", "iiswc15-hps"]
modes = ["open", "closed"]
[grid.axes]
"timing.parallelism" = ["none", "both"]
"""
CELLS = 4 * 2 * (1 + 2 * 2 * 2)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def finished(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of an uninterrupted run in one process."""
    folder = tmp_path_factory.mktemp("results")
    emmclab_ok("run", study, "--jobs", 1, "--results", folder)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lose(folder: Path, count: int) -> list[str]:
    """Remove the first `count` cells of a finished study; return their keys."""
    store = Store(folder)
    rows = [StoredCell(*row) for row in store.ask(sorted(store.keys()), "result", "rows")]
    for path in (folder / "cells").iterdir():
        path.unlink()
    store.add(rows[count:])
    return [row.key for row in rows[:count]]


def test_every_input_meets_every_device_setting_mode_and_seed(finished: Path) -> None:
    query = "select count(*) runs, count(distinct input) inputs from runs"
    assert emmclab_json("query", query, "--results", finished) == [{"runs": CELLS - 8, "inputs": 4}]
    query = "select device, run_mode, configuration_parallelism, seed, count(*) n from runs group by all"
    rows = emmclab_json("query", query, "--results", finished)
    assert len(rows) == 2 * 2 * 2 * 2
    assert {row["n"] for row in rows} == {4}


def test_two_processes_give_the_bytes_of_one(study: Path, finished: Path, tmp_path: Path) -> None:
    assert emmclab("run", study, "--jobs", 2, "--results", tmp_path).returncode == 0
    assert content(tmp_path) == content(finished)


def test_processes_start_in_a_folder_too_deep_for_a_socket(study: Path, finished: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    results = tmp_path / "results"
    emmclab_ok("run", study, "--jobs", 2, "--results", results, env={"TMPDIR": str(deep)})
    assert content(results) == content(finished)


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_gives_the_same_bytes(study: Path, finished: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    stored = 0
    for attempt in range(8):
        run = begin("run", study, "--jobs", "2", "--results", tmp_path)
        deadline = time.monotonic() + PATIENCE_S
        target_count = stored + chance.randrange(1, 12)
        while run.poll() is None and time.monotonic() < deadline:
            if kept_cells(tmp_path) >= target_count:
                break
        run.send_signal(signal.SIGKILL if attempt % 2 else signal.SIGTERM)
        run.wait(PATIENCE_S)
        cells = kept_cells(tmp_path)
        assert cells >= stored, "a finished cell was lost"
        stored = cells
    assert stored > 0
    (tmp_path / "small" / "cells" / ".emmclab-tmp-Xy12Zk").touch()
    assert emmclab("run", study, "--jobs", 2, "--results", tmp_path).returncode == 0
    assert content(tmp_path) == content(finished), "also nothing unfinished is left"


def test_ctrl_c_stops_cells_under_way_and_says_what_is_kept(study: Path, tmp_path: Path) -> None:
    """Results that were not yet in a part are also stored."""
    run = begin("run", study, "--jobs", "2", "--results", tmp_path)

    while run.poll() is None and kept_cells(tmp_path) < 2:
        time.sleep(0.001)
    run.send_signal(signal.SIGINT)
    _, messages = run.communicate(timeout=PATIENCE_S)
    if run.returncode == 0:
        pytest.skip("the run ended before the signal came")
    assert run.returncode == 130
    assert f"{kept_cells(tmp_path)} of {CELLS} cells are stored" in messages
    assert emmclab("run", study, "--jobs", 2, "--results", tmp_path).returncode == 0


def test_a_second_run_in_one_folder_is_refused(study: Path, finished: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "small")
    with store.place.lock(""):
        assert_refused(
            emmclab("run", study, "--jobs", "2", "--results", tmp_path),
            f"another run is writing its results to this folder (process {os.getpid()} on",
            "--shard 1/2",
        )
        assert emmclab("run", study, "--shard", "1/2", "--results", tmp_path).returncode == 2
    assert emmclab("run", study, "--jobs", 2, "--results", tmp_path).returncode == 0
    assert content(tmp_path) == content(finished)


def test_shards_share_a_folder_but_not_a_shard(study: Path, finished: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "small").place.lock("1-of-2"):
        assert emmclab("run", study, "--shard", "2/2", "--jobs", 1, "--results", tmp_path).returncode == 0
        assert emmclab("run", study, "--shard", "1/2", "--jobs", 1, "--results", tmp_path).returncode == 2
        assert emmclab("run", study, "--jobs", 1, "--results", tmp_path).returncode == 2
    assert kept_cells(tmp_path) == CELLS // 2
    emmclab_ok("run", study, "--jobs", 1, "--results", tmp_path)
    for path in (tmp_path / "small").glob(".running*"):
        path.unlink()
    assert content(tmp_path) == content(finished)


HOLDER = """
import fcntl, pathlib, sys, time
files = [open(pathlib.Path(folder, ".emmclab-tmp-Held00"), "w") for folder in sys.argv[1:]]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(1000)
"""


def test_what_killed_processes_left_is_removed_and_what_living_ones_write_stays(trace: Path, tmp_path: Path) -> None:
    """All temporary files are covered: those of conversion, events, images, pages, figures."""
    commands: dict[str, tuple[object, ...]] = {
        "convert": ("convert", trace, "{}/out.csv"),
        "events": ("simulate", trace, "--wrap-addresses", "--events", "{}/rows.parquet"),
        "images": (*("simulate", trace, "--wrap-addresses"), "--precondition", "random:1", "--images", "{}"),
        "page": ("profile", trace, "--html", "{}/page.html"),
        "figures": ("profile", trace, "--figures", "{}"),
        "fit": ("fit", trace, "-o", "{}/model.toml"),
    }
    folders = {name: tmp_path / name for name in commands}
    for folder in folders.values():
        folder.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, *map(str, folders.values())], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        for name, words in commands.items():
            leftover = folders[name] / ".emmclab-tmp-Xy12Zk"
            leftover.write_text("half")
            emmclab_ok(*(str(word).format(folders[name]) for word in words))
            assert not leftover.exists(), name
            assert (folders[name] / ".emmclab-tmp-Held00").exists(), name
    finally:
        holder.kill()
        holder.wait()
    # The lock ended with the process, although its parent had not waited for it.
    for folder in folders.values():
        sweep(folder)
        assert not list(folder.glob(".emmclab-*"))


def test_no_worker_outlives_a_killed_run(study: Path, tmp_path: Path) -> None:
    marked = environment(EMMCLAB_TEST_MARK=str(tmp_path))
    run = begin("run", study, "--jobs", "2", "--results", tmp_path, env=marked)
    while run.poll() is None and not kept_cells(tmp_path):
        time.sleep(0.001)
    run.kill()
    run.wait(PATIENCE_S)
    mark = f"EMMCLAB_TEST_MARK={tmp_path}".encode()

    def has_mark(environ: Path) -> bool:
        with contextlib.suppress(OSError):
            return mark in environ.read_bytes()
        return False

    wait_until(lambda: not any(map(has_mark, Path("/proc").glob("[0-9]*/environ"))))


def test_a_finished_cell_is_not_run_again_unless_told(study: Path, finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    ran: list[int] = []

    class Counting(Serial):
        def run(self, work, next_task, files=()):  # type: ignore[no-untyped-def]
            for task, outcome in super().run(work, next_task, files):
                ran[-1] += len(task.cells)
                yield task, outcome

    chosen = Study.named(str(study))
    for fresh in (False, False, True):
        ran.append(0)
        run_study(chosen, folder, Counting(), fresh=fresh)
    assert ran == [CELLS, 0, CELLS]
    lose(folder, 1)
    ran.append(0)
    run_study(chosen, folder, Counting())
    assert ran[-1] == 1
    assert content(folder) == content(finished / "small")


def test_results_hold_nothing_that_tells_of_the_computer(finished: Path) -> None:
    everything = b"".join(content(finished).values())
    assert b"wall_s" not in everything
    assert b"page_operations_per_s" not in everything


def test_what_decides_a_result_decides_its_key() -> None:
    def keys(text: str) -> set[str]:
        return {cell.key for cell in Study.parse(text, "study.toml").cells()}

    first = keys(STUDY)
    assert len(first) == CELLS
    assert keys(STUDY) == first
    for before, after in [
        ("seeds = [1, 2]", "seeds = [3, 4]"),
        ('["none", "both"]', '["interleave", "multi_plane"]'),
        ('["Messaging", "CallIn", "Email", "Movie"]', '["Twitter"]'),
    ]:
        changed = keys(STUDY.replace(before, after))
        profiles = 0 if "parallelism" in before or "both" in before else 1
        assert not (changed & first) or not profiles
    slower = STUDY.replace('devices = ["iiswc15-4ps", "iiswc15-hps"]', 'devices = ["iiswc15-8ps"]\nrate = 2.0')
    assert len(keys(slower) & first) == 8, "profiles do not depend on the device"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("seeds", "seed", "did you mean `seeds`"),
        ("devices", "device", "did you mean `devices`"),
        ("[grid.axes]", "[grid.axis]", "did you mean `axes`"),
        ("seeds = [1, 2]", 'seeds = ["1"]', "a list of numbers"),
        ('"open", "closed"', '"open", "half"', "use auto, open, closed, back_to_back, live, cuts or app"),
        ('modes = ["open", "closed"]', "modes = []", "this list is empty"),
        ('name = "small"', 'name = "../small"', "letters, digits"),
        ("timing.parallelism", "timing.paralelism", "did you mean `timing.parallelism`"),
        ("iiswc15-hps", "iiswc15-hpz", "iiswc15-hps"),
        ('"Movie"', '"Moovie"', "emmclab synth"),
        ('name = "small"', "name = ", "guides/studies"),
    ],
)
def test_a_wrong_study_is_refused_with_a_hint(before: str, after: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(STUDY.replace(before, after, 1))
    assert_refused(emmclab("run", path, "--jobs", 1, "--results", tmp_path / "results"), says)
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").rglob("*.json"))


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('"timing.parallelism"', '"timing.paralelism"', "grid[1].axes.timing.paralelism"),
        ('["none", "both"]', '["none", "bot"]', "grid[1].axes.timing.parallelism"),
        ("modes", 'precondition = "random:x"\nmodes', "grid[1].precondition"),
        ('"iiswc15-hps"]', '"iiswc15-hpz"]', "grid[1]"),
        ("modes", 'layers = ["advill"]\nmodes', "grid[1]"),
    ],
)
def test_a_fault_of_a_device_names_study_grid_and_key(before: str, after: str, place: str) -> None:
    text = STUDY.replace(before, after, 1)
    with pytest.raises(ConfigError) as caught:
        Study.parse(text, "mine.toml").cells()
    assert str(caught.value).startswith("mine.toml: grid `pages`: `grid[1]")
    assert place in str(caught.value)
    assert caught.value.hint


def test_settings_of_layers_are_swept_and_shared_like_those_of_the_device(tmp_path: Path) -> None:
    text = """
name = "sharing"
inputs = ["CallIn"]
[[grid]]
name = "pair"
devices = ["nexus5"]
modes = ["open"]
layers = ["pair"]
second = "sdcard"
layer_settings = { "pair.wrap_addresses" = true }
[grid.set]
"pair.longest" = "0KB"
[grid.axes]
"pair.routing" = ["striping", "by_size"]
"gc.policy" = ["greedy", "fifo"]
"""
    results = run_study(Study.parse(text, "sharing.toml"), tmp_path / "sharing", Serial())
    assert not results.failures
    values = {}
    for run in results.runs:
        layer_settings = run["options"]["layer_settings"]
        assert layer_settings.keys() == {"pair.wrap_addresses", "pair.longest", "pair.routing"}
        assert run["settings"].keys() == {"gc.policy"}
        (pair,) = run["layers"]
        values[layer_settings["pair.routing"], run["settings"]["gc.policy"]] = pair
    assert len(values) == 4
    striping, by_size = values["striping", "fifo"], values["by_size", "fifo"]
    assert by_size["internal_bytes"] == 0, "every request is longer than 0 KB"
    assert min(striping["internal_bytes"], striping["card_bytes"]) > 0


def test_without_modes_a_trace_decides_as_in_simulate(tmp_path: Path) -> None:
    arrivals = tmp_path / "arrivals.mqsim"
    arrivals.write_text("0 0 0 8 0\n1000000 0 8 8 0\n2000000 0 16 8 1\n")
    text = f"""
name = "modes"
inputs = ["Messaging", "{arrivals}"]
[[grid]]
name = "all"
devices = ["nexus5"]
"""
    cells = [cell for cell in Study.parse(text, "modes.toml").cells() if cell.grid == "all"]
    modes = {cell.input.name: cell.outcome()["result"]["run"]["mode"] for cell in cells}
    assert modes == {"Messaging": "closed", "arrivals.mqsim": "open"}


AGED = """
name = "aged"
inputs = ["Messaging", "Movie"]
seeds = [1, 2]

[[grid]]
name = "policies"
devices = ["small-1gb"]
precondition = "{}"
wrap_addresses = true
[grid.set]
"geometry.block_groups.0.blocks" = 64
[grid.axes]
"gc.policy" = ["greedy", "fifo"]
"""


@pytest.mark.parametrize(("state", "images"), [("random:80", 4), ("sequential:90", 2), ("{trace}", 2)])
def test_shared_preconditioned_devices_change_no_result(state: str, images: int, trace: Path, tmp_path: Path) -> None:
    """There is one image for each device and seed, regardless of inputs, workers and modes, or one for all seeds if the
    preconditioning has no randomness."""
    (tmp_path / "aged.toml").write_text(AGED.format(state.format(trace=trace)))
    digests = {}
    for name, options in {
        "shared": ("--jobs", 2),
        "serial": ("--jobs", 1),
        "without": ("--jobs", 2, "--images-gb", 0),
        "cramped": ("--jobs", 2, "--images-gb", 0.0002),
    }.items():
        emmclab_ok("run", "aged.toml", *options, "--results", name, cwd=tmp_path)
        folder = tmp_path / name / "aged"
        images_stored = list(folder.glob("images/*/*"))
        size = sum(path.stat().st_size for path in images_stored)
        match name:
            case "shared" | "serial":
                assert len(images_stored) == images
            case "without":
                assert images_stored == []
            case "cramped":
                assert size <= 0.0002 * 2**30
        digests[name] = {path: data for path, data in content(folder).items() if "images" not in path}
    assert digests["shared"] == digests["serial"] == digests["without"] == digests["cramped"]


def test_an_image_that_a_killed_run_left_half_made_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "aged.toml").write_text(AGED.format("random:80"))
    assert emmclab("run", "aged.toml", "--jobs", 1, cwd=tmp_path).returncode == 0
    folder = tmp_path / "emmclab-results" / "aged"
    before = content(folder)
    images = sorted(folder.glob("images/*/*.emmcimg"))
    images[0].write_bytes(images[0].read_bytes()[:1000])
    images[1].unlink()
    (images[1].with_suffix(".lock")).touch()
    for path in folder.glob("cells/*"):
        path.unlink()
    other = folder / "images" / "0123456789abcdef"
    other.mkdir()
    emmclab_ok("run", "aged.toml", "--jobs", 1, cwd=tmp_path)
    assert not other.exists(), "images of another build are of no use"
    now = content(folder)
    assert {path: now[path] for path in before if "images" not in path} == {
        path: data for path, data in before.items() if "images" not in path
    }
    assert not list(folder.rglob("*.lock"))


def test_a_question_reads_results_and_no_other_file(finished: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    assert_refused(emmclab("query", f"select * from '{secret}'", "--results", finished))
    assert_refused(emmclab("query", f"copy (select 1) to '{tmp_path / 'out.csv'}'", "--results", finished))
    assert not (tmp_path / "out.csv").exists()


def test_a_report_of_a_study_draws_without_running(study: Path, finished: Path, tmp_path: Path) -> None:
    before = content(finished)
    emmclab_ok("report", study, "--results", finished, "--html", tmp_path / "page.html")
    assert "Messaging" in (tmp_path / "page.html").read_text()
    assert content(finished) == before
    assert_refused(
        emmclab("report", study, "--results", tmp_path, "--html", tmp_path / "other.html"), "run the study first"
    )


def test_a_broken_result_is_named(finished: Path, tmp_path: Path) -> None:
    for name, data in content(finished / "small").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (key,) = lose(tmp_path, 1)
    with pytest.raises(InputError, match=key):
        Results.load(tmp_path)
    broken = tmp_path / "cells" / f"{0:032x}.parquet"
    broken.write_text("{")
    with pytest.raises(InputError, match=r"0000\.parquet: this part of the results is damaged"):
        Store(tmp_path).keys()


def test_a_trace_and_its_twin_are_told_apart(trace: Path, tmp_path: Path) -> None:
    model = tmp_path / "behaviour.toml"
    assert emmclab("fit", trace, "--name", "chat", "-o", model).returncode == 0
    path = tmp_path / "twins.toml"
    path.write_text(f'name = "twins"\ninputs = ["{trace}", "{model}"]\nseeds = [1, 2]\n')
    assert emmclab("run", path, "--jobs", 1, "--results", tmp_path).returncode == 0
    assert list(Results.load(tmp_path / "twins").profiles) == [
        "chat",
        "chat (behaviour.toml)",
        "chat (behaviour.toml) (seed 2)",
    ]


AGES = """
name = "ages"
inputs = ["CallIn --requests 300"]
[[grid]]
name = "g"
devices = ["small-1gb"]
wrap_addresses = true
[grid.axes]
precondition = ["none", "sequential:50"]
rate = [1, 4]
"gc.policy" = ["greedy", "fifo"]
"""


@pytest.mark.parametrize(
    ("key", "hint"),
    [("capacity", "a [[grid]] with its own `capacity` for each value"), ("modes", "`modes = [...]` of the grid")],
)
def test_a_key_of_the_grid_among_the_axes_is_refused_with_its_place(key: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"axes.{key}") as refused:
        Study.parse(AGES.replace("rate = [1, 4]", f'{key} = ["a", "b"]'), "ages.toml")
    assert refused.value.hint == f"write {hint}"


def test_options_of_a_run_are_axes_of_cells_tables_and_summaries_as_settings_are(tmp_path: Path) -> None:
    file = tmp_path / "ages.study.toml"
    file.write_text(AGES)
    emmclab_ok("run", file, "--jobs", 1, "--results", tmp_path / "r")
    query = "select options_precondition p, options_rate r, gc_policy g from runs order by all"
    rows = emmclab_json("query", query, "--study", file, "--results", tmp_path / "r")
    values = [tuple(row.values()) for row in rows]
    ages, rates, policies = ("none", "sequential:50"), (1.0, 4.0), ("fifo", "greedy")
    assert values == [(p, r, g) for p in ages for r in rates for g in policies]
    [summary] = summaries(Results.load(tmp_path / "r" / "ages"))
    assert {"precondition", "rate", "gc.policy"} == {*summary.swept}
    assert setting_text(summary.points[0].setting) == "precondition = none, rate = 1, gc.policy = greedy"
    page = tmp_path / "ages.html"
    assert emmclab("report", file, "--results", tmp_path / "r", "--html", page).returncode == 0
    assert "sequential:50" in page.read_text()


@pytest.mark.parametrize(
    ("option", "instead", "problem"),
    [
        ("rate = [1, 4]", 'rate = [1, "fast"]', "`fast` is of the wrong type"),
        ("rate = [1, 4]", "rate = [1, -4]", "`rate` cannot be -4"),
        ("wrap_addresses = true", 'precondition = "none"', "the grid has `precondition` already"),
        ("rate = [1, 4]", "drain = [true, false]", "acts on layers, and the grid has none"),
        ('"sequential:50"', '"sequential:500"', "500 % of the capacity"),
    ],
)
def test_an_option_as_an_axis_is_checked_as_the_option_is(option: str, instead: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"grid\[1\].axes\.|axes\.precondition") as refused:
        Study.parse(AGES.replace(option, instead), "ages.toml").cells()
    assert problem in str(refused.value) and refused.value.hint


def test_a_grid_takes_from_the_defaults_what_it_does_not_say() -> None:
    grids = '[[grid]]\nname = "a"\n[[grid]]\nname = "b"\ndevices = ["ufs31"]\n'
    text = f'name = "x"\ninputs = ["Idle"]\n[defaults]\ndevices = ["nexus5"]\nrate = 2\n{grids}'
    read = Study.parse(text, "x.toml")
    assert [(grid.devices, grid.option("rate")) for grid in read.grids] == [(("nexus5",), 2), (("ufs31",), 2)]
    written_out = text.replace('[defaults]\ndevices = ["nexus5"]\nrate = 2\n', "")
    written_out = written_out.replace('name = "a"', 'name = "a"\ndevices = ["nexus5"]\nrate = 2')
    written_out = written_out.replace('name = "b"', 'name = "b"\nrate = 2')
    assert Study.parse(written_out, "x.toml").definition == read.definition
    with pytest.raises(ConfigError, match="no_such"):
        Study.parse(text.replace("rate = 2", "no_such = 2"), "x.toml")


def test_files_that_are_not_results_stay_and_links_are_refused(study: Path, tmp_path: Path) -> None:
    """A folder of results may come from another user, with links in it."""
    words = ("run", study, "--jobs", 1, "--results", tmp_path / "results")
    assert emmclab(*words).returncode == 0
    stored = tmp_path / "results" / "small"
    docs = tmp_path / "docs"
    (docs / "other").mkdir(parents=True)
    files = [docs / "thesis.tex", docs / "other" / "mail.txt", docs / f"{0:032x}.lock"]
    foreign = ["photo.jpg", "thesis.parquet", f"{1:032x}.txt"]
    planted = [stored / "cells" / name for name in foreign]
    planted += [stored / "images" / "other" / "notes", stored / "images" / f"{2:016x}" / "notes"]
    planted += [stored / "crash" / "deadbeef" / "notes"]
    for path in (*files, *planted):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (stored / "images" / f"{3:016x}").symlink_to(docs)
    done = emmclab_ok(*words)
    assert "3 files are not results of the study, and are ignored: " in done.stderr
    done = emmclab_ok(*words, "--fresh")
    for path in (*files, *planted):
        assert path.read_text() == "mine", path
    for name in ("images", "cells", "index.json", ".running"):
        path = stored / name
        if path.exists():
            path.rename(tmp_path / f"former-{name}")
        target = docs if name in ("images", "cells") else files[0]
        path.symlink_to(target)
        assert_fails(emmclab(*words), f"{path}: this is a symbolic link")
        assert all(path.read_text() == "mine" for path in files), name
        path.unlink()
        if (former := tmp_path / f"former-{name}").exists():
            former.rename(path)
    assert emmclab(*words).returncode == 0


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
