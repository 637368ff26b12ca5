"""A Ray cluster returns the same bytes as one process, even if a node is killed or workers crash."""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import PATIENCE_S, PYTHONPATH, ROOT, assert_refused, begin, emmclab, environment, kept_cells, need_library
from emmclab import cli
from emmclab.cli.study_options import executor
from emmclab.errors import UnsupportedError
from emmclab.runtime.executors import Crash, each
from emmclab.runtime.result_storage import Folder
from emmclab.studies import Serial, Study
from emmclab.studies import cluster as engine
from emmclab.studies.cell_scheduler import Progress
from emmclab.studies.cluster import RayCluster
from emmclab.studies.run import collect, run_cells

pytestmark = pytest.mark.slow

STUDY = """
name = "small"
inputs = ["{trace}", "{model}", "Movie"]
seeds = [1, 2]

[[grid]]
name = "pages"
devices = ["{device}", "small-1gb"]
precondition = "{trace}"
wrap_addresses = true
[grid.axes]
"gc.policy" = ["greedy", "fifo"]
"timing.parallelism" = ["none", "both"]
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with one processor each on this machine; a test may kill the second one."""
    need_library("ray")
    from ray.cluster_utils import Cluster

    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as short,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # The folder is short, because paths of sockets are limited and some levels below it.
        patch.setenv("TMPDIR", short)
        # Workers import this file, which defines the work.
        patch.setenv("PYTHONPATH", os.pathsep.join([PYTHONPATH, str(Path(__file__).parent)]))
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        yield started
        started.shutdown()


@pytest.fixture
def joined(cluster: Any) -> Iterator[RayCluster]:
    ray = RayCluster(cluster.address)
    yield ray
    ray.close()


def test_two_nodes_of_which_one_is_killed_collect_the_bytes_of_one_process(
    cluster: Any, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes lack the files of the study, so that they receive copies."""
    files = {"trace": tmp_path / "chat.txt", "model": tmp_path / "model.toml", "device": tmp_path / "mine.toml"}
    shutil.copy(trace, files["trace"])
    assert emmclab("fit", trace, "--name", "chat", "-o", files["model"]).returncode == 0
    preset = (ROOT / "presets/devices/small-1gb.toml").read_text()
    files["device"].write_text(preset.replace('name = "small-1gb"', 'name = "mine"'))
    study = Study.parse(STUDY.format(**files), "small.toml")
    cells = study.cells()
    local, other = Folder(tmp_path / "one"), Folder(tmp_path / "other")
    run_cells(study, local, Serial(), cells=cells)

    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    joined = RayCluster(cluster.address)
    assert joined.jobs == 2
    put_object = joined._ray.put

    def hide(value: Any) -> Any:
        """Hide the original files after they are in the object store, so that nodes need the copies."""
        stored = put_object(value)
        if isinstance(value, dict):
            for path in files.values():
                path.rename(f"{path}.hidden")
        return stored

    monkeypatch.setattr(joined._ray, "put", hide)
    killed: list[Progress] = []

    def kill(progress: Progress) -> None:
        if progress.done * 3 > len(cells) and not killed:
            killed.append(progress)
            cluster.remove_node(second, allow_graceful=False)

    try:
        outcome = run_cells(study, other, joined, cells=cells, progress=kill)
    finally:
        joined.close()
        for path in files.values():
            Path(f"{path}.hidden").rename(path)
    assert len(killed) == 1 and killed[0].done < len(cells)
    assert outcome.missing == [] and outcome.failures == []
    outputs = [tmp_path / "one.parquet", tmp_path / "other.parquet"]
    for place, output in zip((local, other), outputs, strict=True):
        assert collect(study, cells, [place], output) == []
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def fall(number: int) -> int:
    """Work that kills its process for one particular number."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_the_task_that_crashed_its_worker_is_named_and_the_others_are_done(joined: RayCluster) -> None:
    outcomes = dict(joined.run(fall, each(range(8))))
    assert isinstance(outcomes.pop(3), Crash)
    assert outcomes == {number: number * number for number in range(8) if number != 3}


def test_a_node_with_another_build_is_refused(joined: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "build_digest", lambda: "another")
    with pytest.raises(UnsupportedError, match="another build of emmclab"):
        list(joined.run(fall, each([1])))


def test_an_interruption_leaves_no_task_behind(joined: RayCluster) -> None:
    run = joined.run(time.sleep, each([3600.0] * 4))
    with pytest.raises(KeyboardInterrupt):
        # The signal is sent to the waiting thread, because a signal to another thread would not wake it.
        main = threading.main_thread().ident
        threading.Timer(1.0, signal.pthread_kill, [main, signal.SIGINT]).start()
        next(run)
    run.close()
    assert dict(joined.run(fall, each([2]))) == {2: 4}


def test_studies_of_served_devices_stay_on_this_machine(joined: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="depends on the kernel"):
        run_cells(Study.named("dsn17-crash"), Folder(tmp_path), joined)


def test_a_dashboard_of_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engine, "RayCluster", lambda *_: SimpleNamespace(dashboard="127.0.0.1:8265"))
    executor(0, "auto")
    assert "http://127.0.0.1:8265" in capsys.readouterr().err


def test_a_cluster_that_is_not_there_and_a_missing_library_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "iiswc15", "--results", str(tmp_path), "--on"]
    assert_refused(emmclab(*words, "ray://127.0.0.1:1"), "no Ray cluster can be joined")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert cli.main([*words, "ray"]) == 2
    assert "pip install 'emmclab[cluster]'" in capsys.readouterr().err


def test_a_run_that_sigterm_ends_on_its_own_cluster_says_nothing_of_ray_and_keeps_its_cells(tmp_path: Path) -> None:
    need_library("ray")
    study = tmp_path / "long.toml"
    study.write_text(f'name = "long"\ninputs = ["Idle"]\nseeds = {list(range(2_000))}\n')
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as short:
        words = ["run", study, "--on", "ray", "--jobs", 1, "--results", tmp_path]
        run = begin(*words, env=environment(TMPDIR=short))
        while not kept_cells(tmp_path) and run.poll() is None:
            time.sleep(0.1)
        run.terminate()
        _, messages = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 128 + signal.SIGTERM, messages
    assert "SIGTERM received" not in messages
    assert kept_cells(tmp_path) > 0


def test_a_cluster_that_is_started_here_has_a_token_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(os, "environ", {"RAY_AUTH_MODE": "disabled"})
    engine._keep_strangers_out()
    assert os.environ == {"RAY_AUTH_MODE": "disabled"}
    tokens = set()
    for _ in range(2):
        monkeypatch.setattr(os, "environ", {})
        engine._keep_strangers_out()
        assert os.environ.keys() == variables
        assert os.environ["RAY_AUTH_MODE"] == "token"
        tokens.add(os.environ["RAY_AUTH_TOKEN"])
    assert len(tokens) == 2
