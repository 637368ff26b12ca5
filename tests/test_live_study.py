"""Live studies: programs on served devices have results, claims and pages like simulations."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, begin, emmclab, kept_cells, need, wait_until
from emmclab.errors import ConfigError, UnsupportedError
from emmclab.papers.advil12.live import published_rates, rates
from emmclab.papers.claims import judge_study
from emmclab.papers.pages import write_page
from emmclab.studies import Pool, Results, Serial, Study, run_study
from emmclab.studies import program as programs
from emmclab.studies.bundled import bundled_text
from emmclab.studies.stored_types import Run

pytestmark = pytest.mark.slow

TEXT = bundled_text("advil-live")
SMALL = """
name = "small"
[live]
format = "mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 $EMMCLAB_DEVICE"
mount_options = "noatime,lazytime"
dirty_mb = 8
scale = 0.5
[live.numbers]
blocks = 64
[[program]]
name = "Copy"
each = { kb = [4, 64] }
prepare = "touch $EMMCLAB_MOUNT/there"
run = "RUN"
[[grid]]
name = "bare"
modes = ["live"]
inputs = ["Copy 4", "Copy 64"]
devices = ["small-1gb"]
"""
COPY = "dd if=/dev/zero of=$EMMCLAB_MOUNT/file bs=${kb}k count=$blocks oflag=direct"


def small(run: str) -> str:
    """Return a study of one program."""
    return SMALL.replace("RUN", run)


@pytest.fixture(scope="module")
def live(root: None, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run the study of the paper with a hundredth of its numbers, and with short models of the programs."""
    del root
    need("fio", "postmark", "sqlite3", "mkfs.ext4", "setpriv")
    study = Study.parse(TEXT.replace("scale = 1.0", "scale = 0.01"), "scaled.toml")
    grids = [grid if grid.modes == ("live",) else replace(grid, requests=3000) for grid in study.grids]
    folder = tmp_path_factory.mktemp("live")
    return run_study(replace(study, grids=tuple(grids)), folder, Pool(2))


def written(run: dict[str, Any]) -> int:
    """Return the bytes that a program wrote."""
    return int(run["requests"]["bytes_written"])


def test_each_program_is_measured_from_its_own_start_to_its_last_written_byte(live: Results) -> None:
    numbers = Study.parse(TEXT.replace("scale = 1.0", "scale = 0.01"), "scaled.toml").programs[0].numbers
    size = int(numbers["file_mb"]) << 20
    for grid in ("bare", "ressd", "advil"):
        for name in ("SequentialWrite", "RandomWrite"):
            run = live.run(grid, input=name)
            # With the file of the preparation, it would be twice as much; commits of the file system are few blocks.
            assert size <= written(run) < 1.2 * size, (grid, name)
            assert run["run"]["mode_reason"].startswith("live")
        assert written(live.run(grid, input="SQLite")) > 4096 * int(numbers["sql_transactions"])
        assert written(live.run(grid, input="Postmark")) > 0
    for grid in ("ressd", "advil"):
        layer = live.run(grid, input="RandomWrite")["layers"][0]
        assert layer["logged_bytes"] > 0.9 * size
        assert (
            layer["moved_bytes"] + layer["hot_bytes"] > 0.9 * size
            and live.run(grid, input="RandomWrite")["run"]["drain_s"] > 0
        )
        assert live.run(grid, input="SequentialWrite")["layers"][0]["logged_bytes"] < 0.1 * size


def test_direct_reads_and_writes_of_a_file_have_the_bandwidths_the_device_was_fitted_to(live: Results) -> None:
    measured, paper = rates(live), published_rates()
    assert set(measured) == set(paper)
    # Random writes to a small file stay in the log blocks, and are faster than those to 1 GB.
    for key in (("read", 4), ("write", 4), ("read", 4096), ("write", 4096), ("randread", 4096)):
        assert measured[key] == pytest.approx(paper[key], rel=0.2), key


def test_the_paper_s_claims_are_judged_on_live_results_by_the_same_rules(live: Results, tmp_path: Path) -> None:
    claims = {claim.id: claim for claim in judge_study(live)}
    assert list(claims) == ["advil-fig7-postmark", "advil-fig7-seq", "advil-over-ressd", "advil-ratio-read-write"]
    assert all(claim.evidence["study"] == "advil-live" for claim in claims.values())
    assert claims["advil-ratio-read-write"].verdict == "restated", "the device was fitted to it"
    assert "device mapper" in claims["advil-fig7-seq"].reason
    assert "Phone_6H and WebBench" in claims["advil-over-ressd"].reason
    page = tmp_path / "live.html"
    assert write_page(live, list(claims.values()), page, tmp_path / "figures") == 1
    text = page.read_text(encoding="utf-8")
    assert "Table II" in text and "SQLite" in text and "kernel" in text


@pytest.mark.usefixtures("root")
def test_direct_writes_of_one_request_at_a_time_are_the_same_in_each_run(tmp_path: Path) -> None:
    need("mkfs.ext4", "setpriv")
    study = Study.parse(small(COPY), "small.toml")
    run_1, run_2 = (run_study(study, tmp_path / name, Serial()) for name in ("one", "two"))
    for first, second in zip(run_1.runs, run_2.runs, strict=True):
        kb = int(first["input"].split()[1])
        assert written(first) >= 32 * kb * 1024
        # The number of journal commits may differ by one, because they follow the host's clock.
        assert written(second) == pytest.approx(written(first), abs=128 * 1024)
        assert second["run"]["simulated_s"] == pytest.approx(first["run"]["simulated_s"], rel=0.2)
        assert first["live"]["file_system"]["dirty_mb"] == 8


@pytest.mark.usefixtures("root")
def test_a_failed_program_is_named_with_its_words_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    need("mkfs.ext4", "setpriv")
    file = tmp_path / "broken.toml"
    file.write_text(small("echo no such luck >&2; exit 3"), encoding="utf-8")
    done = emmclab("run", file, "--results", tmp_path / "results", "--jobs", "1")
    assert done.returncode != 0 and "no such luck" in done.stderr and "status 3" in done.stderr
    assert kept_cells(tmp_path / "results") == 0
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_programs_and_leaves_no_mount(tmp_path: Path, jobs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    need("mkfs.ext4", "setpriv")
    file, mark = tmp_path / "slow.toml", f"emmclab-test-{os.getpid()}-{jobs}"
    script = f"touch {tmp_path}/started; bash -c 'exec -a {mark} sleep 600'"
    file.write_text(small(script), encoding="utf-8")
    words = ["run", str(file), "--results", str(tmp_path / "results"), "--jobs", jobs]
    process = begin(*words)
    wait_until((tmp_path / "started").exists, process)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output

    def leftovers() -> list[str]:
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        return [str(line) for line in lines if mark.encode() in line]

    wait_until(lambda: not (leftovers() or str(tmp_path) in Path("/proc/mounts").read_text()))


def test_a_machine_that_cannot_serve_is_told_before_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.parse(small("true"), "small.toml")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnsupportedError, match="root"):
        run_study(study, tmp_path, Serial())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    needy = replace(study.programs[0], needs={"no-such-tool": "no-such-package"})
    monkeypatch.setattr(programs.Path, "exists", lambda _: True)
    with pytest.raises(UnsupportedError, match="no-such-tool") as refused:
        programs.require([needy])
    assert "no-such-package" in str(refused.value.hint)
    assert kept_cells(tmp_path) == 0


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("scale = 0.5", "scale = 2", "live.scale"),
        ("kb = [4, 64]", 'kb = ["4; rm"]', "is not a number or a word"),
        ("blocks = 64", '"a-b" = 64', "is not a valid name of a variable"),
        ("blocks = 64", 'blocks = "many"', "wrong type"),
        ('"Copy 4", "Copy 64"', '"Copy 5"', "no program `Copy 5`"),
        ('modes = ["live"]', 'modes = ["live", "open"]', "has no other"),
        ('modes = ["live"]', 'modes = ["live"]\nrate = 2.0', "no such key"),
        ("[live", "[lives", "did you mean `live`"),
        ("each = { kb = [4, 64] }", "each = { kb = [4, 4] }", "two programs"),
        ('run = "RUN"', "", "`program[1].run`"),
    ],
)
def test_mistakes_in_a_live_study_are_named(before: str, after: str, problem: str) -> None:
    assert before in SMALL
    with pytest.raises(ConfigError) as refused:
        Study.parse(SMALL.replace(before, after), "small.toml").cells()
    assert problem in f"{refused.value} {refused.value.hint}"


def test_the_numbers_are_scaled_in_one_place() -> None:
    unscaled = {program.name: program.numbers for program in Study.parse(TEXT, "x.toml").programs}
    assert unscaled["Postmark"] == {
        "file_mb": 1024,
        "files": 160_000,
        "directories": 20_000,
        "transactions": 60_000,
        "sql_transactions": 10_000,
    }
    tenth = Study.parse(TEXT.replace("scale = 1.0", "scale = 0.1"), "x.toml").programs
    assert [program.numbers["files"] for program in tenth] == [16_000] * len(tenth)
    assert tenth[-1].numbers["kb"] == 4096, "sizes of requests are not"
    assert tenth[0].digest != Study.parse(TEXT, "x.toml").programs[0].digest
    assert json.loads(tenth[0].to_json())["numbers"]["file_mb"] == 102


def test_a_run_whose_layers_had_nothing_to_move_has_a_dash_on_the_page(live: Results, tmp_path: Path) -> None:
    runs = [Run({**run, "run": {**run["run"], "drain_s": None}}) for run in live.runs]
    page = tmp_path / "live.html"
    write_page(replace(live, runs=runs), judge_study(live), page, None)
    assert ">–</td></tr>" in page.read_text()
