"""Job files of fio as traces, compared with the I/O log that fio itself writes for the same job."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from conftest import assert_refused, emmclab, emmclab_json, need
from emmclab.errors import ConfigError
from emmclab.traces.generated import fio_jobs, pattern
from emmclab.traces.reading import read
from emmclab.traces.trace import Trace

#: Jobs, one per line; each is on one file.
JOBS = {
    "sequential": "rw=write bs=64k size=1025k",
    "again": "rw=read bs=64k size=256k io_size=448k",
    "holes": "rw=write:4k bs=4k size=256k",
    "backwards": "rw=read:-8k bs=4k size=256k",
    "random": "rw=randwrite bs=4k size=8m",
    "several passes": "rw=randwrite bs=4k size=1m io_size=3m",
    "mixed": "rw=randrw rwmixread=70 bs=4k size=16m",
    "mixed streams": "rw=rw rwmixwrite=20 bs=4k size=256m fsync=5",
    "sizes": "rw=randwrite bssplit=4k/80:64k/20 size=64m",
    "sizes anywhere": "rw=randread bssplit=4k/60:16k/20:64k/20 size=64m norandommap",
    "a range": "rw=write bsrange=4k-16k size=32m",
    "a random range": "rw=randwrite bsrange=4k-16k size=32m",
    "runs": "rw=randread:8 bs=4k size=8m",
    "identical": "rw=randwrite:3 rw_sequencer=identical bs=4k size=8m",
    "half random": "rw=randread percentage_random=50 bs=4k size=16m",
    "zipf": "rw=randwrite bs=4k size=64m random_distribution=zipf:0.9",
    "steep zipf": "rw=randread bs=4k size=64m random_distribution=zipf:1.2",
    "pareto": "rw=randread bs=4k size=64m random_distribution=pareto:0.2",
    "normal": "rw=randwrite bs=4k size=64m random_distribution=normal",
    "zoned": "rw=randwrite bs=4k size=64m random_distribution=zoned:60/10:30/20:10/70",
    "aligned": "rw=randread bs=16k ba=4k size=32m",
    "trims": "rw=trimwrite bs=16k size=4m",
    "random trims": "rw=randtrimwrite bs=16k size=4m",
    "syncs": "rw=randwrite bs=8k size=4m fsync=7",
    "units": "rw=write bs=4kib size=400k",
    "a number": "rw=randread bs=4k size=64m number_ios=500",
    "at an offset": "rw=write bs=4k size=1m offset=512k",
    "rates": "rw=rw bs=4k size=4m rate=40m,10m",
    "loops": "rw=randwrite bs=4k size=1m loops=3",
}


@pytest.fixture(scope="module")
def fio() -> str:
    """The path of fio."""
    need("fio")
    return "fio"


def _figures(trace: Trace) -> dict[str, float]:
    """Return figures of a trace that do not depend on single addresses."""
    counts: Counter[str] = Counter()
    touched: Counter[int] = Counter()
    ends: dict[str, int] = {}
    followed = total = 0
    for row in trace.to_arrow().to_pylist():
        op, sector, sectors = row["op"], row["sector"], row["sectors"]
        counts[op] += 1
        if op == "flush":
            continue
        total += sectors
        followed += ends.get(op) == sector
        ends[op] = sector + sectors
        touched[sector // 8] += 1
    data = sum(count for op, count in counts.items() if op != "flush")
    hot = sum(count for _, count in touched.most_common(max(1, len(touched) // 10)))
    return {
        **{op: float(count) for op, count in counts.items()},
        "sectors": float(total),
        "sequential": followed / data,
        "blocks": float(len(touched)),
        "share of the hottest tenth": hot / data,
    }


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_the_requests_that_fio_issues(fio: str, tmp_path: Path, name: str) -> None:
    job = tmp_path / "job.fio"
    job.write_text("\n".join(["[job]", "ioengine=null", "filename=x", *JOBS[name].split()]) + "\n")
    log = tmp_path / "x.iolog"
    done = subprocess.run(
        [fio, str(job), f"--write_iolog={log}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    log = log if log.exists() else tmp_path / "x.iolog.0"
    theirs, ours = _figures(_read(log)), _figures(fio_jobs(job))
    assert theirs.keys() == ours.keys(), (theirs, ours)
    for figure, value in theirs.items():
        near = {"sequential": {"abs": 0.03}, "share of the hottest tenth": {"abs": 0.03}}
        assert ours[figure] == pytest.approx(value, **near.get(figure, {"rel": 0.1, "abs": 3})), (figure, theirs, ours)


def _read(path: Path) -> Trace:
    return read(path)


def test_a_job_file_becomes_a_trace_by_the_command(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text("[global]\nbs=4k\nsize=1m\n[a]\nrw=randwrite\n[b]\nrw=read\nstonewall\n")
    made = emmclab_json("synth", "--fio", job, "-o", tmp_path / "a.parquet", "--seed", "7")
    assert (made["requests"], made["seed"]) == (512, 7)
    again = emmclab_json("synth", "--fio", job, "-o", tmp_path / "b.parquet", "--seed", "7", "--requests", "300")
    assert again["requests"] == 300
    first, cut = (list(_figures(_read(tmp_path / f"{name}.parquet")).values()) for name in "ab")
    assert first[0] == 256 and cut[0] == 256 and cut[1] == 44
    said = emmclab("synth", "--fio", job, "-o", tmp_path / "c.parquet")
    assert "page cache" in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--reads", "30"], "--output"),
        (["--reads", "30", "-o", "a.csv"], "--requests"),
        (["--size", "4 apples", "--requests", "5", "-o", "a.csv"], "--size"),
        (["--zipf", "0", "--requests", "5", "-o", "a.csv"], "zipf"),
        (["Email", "--reads", "30", "-o", "a.csv"], "`Email`"),
        (["--reads", "30", "--rate-pct", "50", "-o", "a.csv"], "--rate-pct"),
        (["--fio", "a.fio", "--reads", "30", "-o", "a.csv"], "--reads"),
        (["-o", "a.csv"], "workload is missing"),
    ],
)
def test_options_of_several_sources_and_missing_ones_are_refused(tmp_path: Path, words: list[str], field: str) -> None:
    assert_refused(emmclab("synth", *words, cwd=tmp_path), field)
    assert not list(tmp_path.iterdir())


def test_figures_out_of_range_are_refused_in_python() -> None:
    for wrong in ({"iops": float("nan")}, {"size": 1000}, {"span": 0}, {"reads_pct": 101}, {"size": -1}):
        with pytest.raises(ConfigError):
            pattern(10, **wrong)


def test_the_output_of_a_job_or_of_requests_of_one_kind_may_stand_by_itself(tmp_path: Path) -> None:
    (tmp_path / "job.fio").write_text("[a]\nrw=write\nbs=4k\nsize=64k\n")
    for words in (("--fio", "job.fio"), ("--reads", "30", "--requests", "20")):
        made = emmclab("synth", *words, "made.parquet", cwd=tmp_path)
        assert made.returncode == 0 and made.stderr.startswith("made.parquet: "), made.stderr
    refused = emmclab("synth", "--fio", "job.fio", "Facebook", "-o", "made.parquet", cwd=tmp_path)
    assert "both --fio and `Facebook` specify the workload of the trace" in refused.stderr
