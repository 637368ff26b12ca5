"""Job files of fio, also against fio itself, and workloads as traces; models follow only from published tables."""

import gzip
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

import emmclab as lab
from conftest import ROOT, assert_refused, emmclab, emmclab_json, execute, need
from emmclab.errors import ConfigError
from emmclab.runtime.document import difference_text
from emmclab.simulation.device import Device
from emmclab.studies.input import Input
from emmclab.traces.reading import bundled_by_name, read
from emmclab.traces.trace import Trace
from emmclab.traces.workload import Workload, benchmarks, differences, fio_jobs, fit, pattern, workloads

#: Jobs of fio, one per line; each uses one file.
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
    execute(fio, job, f"--write_iolog={log}", cwd=tmp_path)
    log = log if log.exists() else tmp_path / "x.iolog.0"
    theirs, ours = _figures(read(log)), _figures(fio_jobs(job))
    assert theirs.keys() == ours.keys(), (theirs, ours)
    for figure, value in theirs.items():
        near = {"sequential": {"abs": 0.03}, "share of the hottest tenth": {"abs": 0.03}}
        assert ours[figure] == pytest.approx(value, **near.get(figure, {"rel": 0.1, "abs": 3})), (figure, theirs, ours)


def test_a_job_file_becomes_a_trace_by_the_command(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text("[global]\nbs=4k\nsize=1m\n[a]\nrw=randwrite\n[b]\nrw=read\nstonewall\n")
    result = emmclab_json("synth", "--fio", job, "-o", tmp_path / "a.parquet", "--seed", "7")
    assert (result["requests"], result["seed"]) == (512, 7)
    shorter = emmclab_json("synth", "--fio", job, "-o", tmp_path / "b.parquet", "--seed", "7", "--requests", "300")
    assert shorter["requests"] == 300
    first, cut = (list(_figures(read(tmp_path / f"{name}.parquet")).values()) for name in "ab")
    assert first[0] == 256 and cut[0] == 256 and cut[1] == 44
    done = emmclab("synth", "--fio", job, "-o", tmp_path / "c.parquet")
    assert "page cache" in done.stdout + done.stderr


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
        (["Messaging", "out.parquet", "--requests", str(10**20)], "requests"),
        (["Messaging", "out.parquet", "--seed", str(10**20)], "seed"),
        (["Messaging", "out.parquet", "--rate-pct", str(10**20)], "rate"),
        (["none.toml", "out.parquet"], "none.toml"),
    ],
)
def test_contradicting_missing_and_impossible_options_are_refused(tmp_path: Path, words: list[str], field: str) -> None:
    assert_refused(emmclab("synth", *words, cwd=tmp_path), field)
    assert not list(tmp_path.iterdir())


def test_figures_out_of_range_are_refused_in_python() -> None:
    for wrong in ({"iops": float("nan")}, {"size": 1000}, {"span": 0}, {"reads_pct": 101}, {"size": -1}):
        with pytest.raises(ConfigError):
            pattern(10, **wrong)


def test_the_output_of_a_job_or_of_requests_of_one_kind_may_stand_by_itself(tmp_path: Path) -> None:
    (tmp_path / "job.fio").write_text("[a]\nrw=write\nbs=4k\nsize=64k\n")
    for words in (("--fio", "job.fio"), ("--reads", "30", "--requests", "20")):
        done = emmclab("synth", *words, "made.parquet", cwd=tmp_path)
        assert done.returncode == 0 and done.stderr.startswith("made.parquet: "), done.stderr
    refused = emmclab("synth", "--fio", "job.fio", "Facebook", "-o", "made.parquet", cwd=tmp_path)
    assert "both --fio and `Facebook` specify the workload of the trace" in refused.stderr


def test_the_list_has_every_workload_and_benchmark() -> None:
    assert [row["workload"] for row in emmclab_json("synth")] == [*workloads(), *benchmarks()]


def test_a_benchmark_is_made_and_cut_as_a_workload(tmp_path: Path) -> None:
    out = tmp_path / "random.parquet"
    assert emmclab_json("synth", "randomwrite", out, "--requests", 50)["benchmark"] == "RandomWrite"
    assert lab.profile(out)["requests"] == 50
    assert_refused(emmclab("synth", "RandomWrite", out, "--duration", 3), "--requests")


def test_the_modelled_web_bench_is_what_its_command_makes(tmp_path: Path) -> None:
    out = tmp_path / "WebBench.parquet"
    assert emmclab("apps", "run", "webbench", "--device", "galaxys2", "--events", out).returncode == 0
    bundled = bundled_by_name()["WebBench"]
    assert lab.read(out).to_polars().equals(lab.read(bundled).to_polars())
    output = emmclab("explain", "WebBench").stdout
    assert "webbench" in output.partition("Simulated run")[2]


def test_an_input_of_a_study_may_have_a_length_of_its_own() -> None:
    source = Input.of("Email --requests 500", seed=1)
    assert (source.name, source.requests) == ("Email (500 requests)", 500)
    assert source.open().profile()["requests"] == 500
    for wrong in ("Email --requests none", "Email --requests 0", "chat --requests 5"):
        with pytest.raises(lab.ConfigError):
            Input.of(wrong, seed=1)


def test_length_and_rate_are_chosen(tmp_path: Path) -> None:
    out = tmp_path / "long.parquet"
    assert emmclab_json("synth", "Email", out, "--requests", 12_000)["requests"] == 12_000
    assert lab.profile(out)["requests"] == 12_000
    emmclab("synth", "Email", out, "--duration", 100)
    assert lab.profile(out)["duration_s"] == pytest.approx(100, rel=0.02)
    fast = Workload.preset("Email").trace(rate_pct=200).profile()
    assert fast["arrival_rate_per_s"] == pytest.approx(2 * 3.93, rel=0.05)


def test_a_fit_makes_a_twin_without_addresses(trace: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.toml"
    assert emmclab("fit", trace, "-o", model).returncode == 0
    twin = tmp_path / "twin.parquet"
    assert emmclab("synth", model, twin).returncode == 0
    rows = {row["field"]: row for row in emmclab_json("profile", trace, "--against", twin)["fields"]}
    assert len(rows) == 16
    for name in ("data_size_kb", "requests", "max_size_kb", "write_requests_pct"):
        unit = "points" if name.endswith("_pct") else "pct"
        assert rows[name][f"difference_{unit}"] == pytest.approx(0, abs=1), name
    assert emmclab("fit", trace).stdout == model.read_text()


def test_differences_are_in_percent_of_the_first_and_those_of_shares_in_percentage_points() -> None:
    first, second = (Workload.preset(name).trace().profile() for name in ("Email", "Movie"))
    rows = {row["field"]: row for row in differences(first, second)}
    assert rows["requests"]["difference_pct"] == pytest.approx(100 * (4_781 / 2_906 - 1))
    assert {(row["difference_pct"], row["difference_points"]) for row in differences(first, first)} == {
        (0, None),
        (None, 0),
    }
    for name in ("no_wait_pct", "write_requests_pct", "spatial_locality_pct"):
        assert rows[name]["difference_pct"] is None
        assert rows[name]["difference_points"] == pytest.approx(second[name] - first[name])
        assert difference_text(rows[name]).endswith(" points")


@pytest.mark.parametrize("name", ["telegram_precond", "pubg_precond"])
@pytest.mark.parametrize("parallelism", ["none", "both"])
def test_a_twin_queues_like_its_original(shared_traces: Path, name: str, parallelism: str) -> None:
    recorded = lab.read(shared_traces / "pixel6a" / f"{name}.csv.gz")
    twin = fit(recorded).trace()
    for preset in ("iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps"):
        device = Device.preset(preset).set({"timing.parallelism": parallelism})
        real, synthetic = (
            device.simulate(trace, mode="open", wrap_addresses=True)["response.mean_response_ms"]
            for trace in (recorded, twin)
        )
        assert synthetic == pytest.approx(real, rel=0.1), preset


def generate(root: Path, action: str, status: int = 0) -> str:
    """Run the script of the models, which must end with this exit status, and return what it prints."""
    return execute(sys.executable, root / "presets" / "workloads" / "make.py", action, status=status).stdout


def test_the_presets_are_what_the_program_makes_of_the_published_tables() -> None:
    generate(ROOT, "check")


def test_a_changed_table_or_model_is_found_and_written_anew(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    table = tmp_path / "presets" / "published" / "iiswc15_table4_timing.csv"
    table.write_text(table.read_text().replace(",3.01,4.09,", ",3.02,4.09,"))
    movie = tmp_path / "presets" / "workloads" / "movie.toml"
    movie.write_text(movie.read_text().replace("no_wait_pct = 23.0", "no_wait_pct = 24.0"))
    assert "movie.toml, email.toml" in generate(tmp_path, "check", status=1)
    generate(tmp_path, "write")
    generate(tmp_path, "check")
    assert movie.read_bytes() == (ROOT / "presets" / "workloads" / "movie.toml").read_bytes()


READS = "[global]\nioengine=libaio\ndirect=1\nrw=randread\nbs=4k\nsize=64m\nnumber_ios=3000\n"


def _job(folder, text, name="job.fio"):
    path = folder / name
    path.write_text(text)
    return path


def _iops(job, device="ufs31", **options):
    result = lab.Device.preset(device, "8GB").simulate(lab.read(job), precondition="sequential:10", **options)
    return result.fio.iops


def test_iops_grow_with_the_queue_depth(tmp_path):
    job = _job(tmp_path, f"{READS}[j]\n")
    one, eight, many = (_iops(job, iodepth=depth) for depth in (1, 8, 32))
    assert eight > 3 * one
    assert many >= eight
    assert _iops(job, iodepth=8) == eight, "the same job gives the same figures"
    sequential = _job(tmp_path, "[w]\nioengine=libaio\ndirect=1\nrw=write\nbs=128k\nsize=512m\n", "w.fio")
    assert _iops(sequential, iodepth=8) > 1.05 * _iops(sequential)


def test_a_trace_made_of_a_deep_job_is_not_taken_for_one_with_a_wrong_unit(tmp_path):
    job = _job(tmp_path, "[j]\nioengine=libaio\ndirect=1\nrw=randread\nbs=4k\nsize=64m\niodepth=32\n")
    assert emmclab("synth", "--fio", job, "-o", tmp_path / "deep.parquet").returncode == 0
    done = emmclab("simulate", tmp_path / "deep.parquet", "--device", "ufs31", "--mode", "back_to_back")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("depth", [1, 8, 32])
def test_fio_on_the_served_device_measures_what_the_simulation_states(tmp_path, depth):
    if shutil.which("fio") is None:
        pytest.skip("needs fio")
    job = _job(tmp_path, f"{READS}iodepth={depth}\n[j]\n")
    simulated = _iops(job)
    # A clock that is 200 times as slow, so that the time that this machine needs for a request does not matter. Other
    # programs of a busy machine can only make a run slower, so that the fastest of three runs counts.
    for _ in range(3):
        real = _served_iops(tmp_path, depth)
        if real > 0.9 * simulated:
            break
    assert real == pytest.approx(simulated, rel=0.1)
    assert real < 1.03 * simulated, (
        "software is not faster than the device, whose figure varies with the random addresses"
    )


def _served_iops(tmp_path, depth):
    measured = emmclab(
        *(
            "serve",
            "ufs31",
            "--capacity",
            "8GB",
            "--clock",
            "x200",
            "--precondition",
            "sequential:10",
            "--nbd",
            "d.sock",
        ),
        *("--", "fio", "--name=j", "--ioengine=nbd", "--uri=nbd+unix:///?socket=d.sock", "--rw=randread", "--bs=4k"),
        *("--size=64m", "--number_ios=3000", f"--iodepth={depth}", "--output-format=json", "--output=fio.json"),
        cwd=tmp_path,
    )
    assert measured.returncode == 0, measured.stderr
    return 200 * json.loads((tmp_path / "fio.json").read_text())["jobs"][0]["read"]["iops"]


def test_the_json_of_fio_calibrates_a_device(tmp_path):
    job = _job(
        tmp_path,
        f"{READS}[a]\n[b]\nstonewall\nbs=64k\n[c]\nstonewall\nrw=randwrite\n[d]\nstonewall\nrw=randwrite\nbs=16k\n",
    )
    out = tmp_path / "out.json"
    done = emmclab("simulate", job, "--device", "nexus5", "--fio-host", "none", "--fio-json", out)
    assert done.returncode == 0, done.stderr
    jobs = json.loads(out.read_text())["jobs"]
    assert [row["jobname"] for row in jobs] == ["a", "b", "c", "d"]
    assert jobs[1]["job options"]["bs"] == "64k"
    figures = jobs[0]["read"]
    assert figures["total_ios"] == figures["clat_ns"]["N"] == 3_000
    assert figures["iops"] == pytest.approx(1e9 / figures["lat_ns"]["mean"], rel=0.01)
    assert emmclab("calibrate", out, "-o", tmp_path / "device.toml").returncode == 0


def test_the_first_screen_has_the_figures_of_fio(tmp_path):
    job = _job(tmp_path, f"{READS}[j]\n[k]\nstonewall\nnumjobs=2\ngroup_reporting\n")
    shown = emmclab("simulate", job, "--device", "ufs31").stdout
    assert "IOPS" in shown.splitlines()[0]
    assert "2 x 1" in shown
    assert "host phone-2020" in shown
    compared = emmclab("compare", job, "--devices", "ufs31,emmc51-cache").stdout
    assert "Figures of fio" in compared
    page = tmp_path / "page.html"
    assert emmclab("simulate", job, "--device", "ufs31", "--html", page).returncode == 0
    assert "Figures of fio" in page.read_text()


def test_options_of_a_run_replace_those_of_the_jobs_and_are_axes_of_studies(tmp_path):
    job = _job(tmp_path, f"{READS}[j]\n")
    result = emmclab_json("simulate", job, "--device", "ufs31", "--rw", "randwrite", "--bs", "16k", "--numjobs", "2")
    assert [row["write"]["bytes"] // row["write"]["requests"] for row in result["fio"]["jobs"]] == [16_384, 16_384]
    assert result["options"]["bs"] == "16k"
    study = (
        'name = "m"\ninputs = ["job.fio"]\n[[grid]]\nname = "g"\ndevices = ["ufs31"]\n[grid.axes]\niodepth = [1, 8]\n'
    )
    (tmp_path / "m.toml").write_text(study)
    assert emmclab("run", "m.toml", cwd=tmp_path).returncode == 0
    query = "select options_iodepth as depth, fio_iops as iops from runs order by depth"
    rows = emmclab_json("query", query, "--study", "m.toml", "--json", cwd=tmp_path)
    assert [row["depth"] for row in rows] == [1, 8]
    assert rows[1]["iops"] > 3 * rows[0]["iops"]


@pytest.mark.parametrize(
    ("text", "words", "field"),
    [
        (f"{READS}[j]\n", ("--rate", "2"), "rate"),
        (f"{READS}[j]\n", ("--passes", "2"), "passes"),
        (f"{READS}[j]\n", ("--flush-every", "2"), "flush_every"),
        (f"{READS}[j]\n", ("--only", "op=read"), "only"),
        (f"{READS}[j]\n", ("--fio-host", "none.toml"), "none.toml"),
        (f"{READS}[j]\n", ("--bs", "4q"), "job.fio: field `bs`: `4q`"),
        (f"{READS}[j]\n", ("--mode", "open", "--fio-json", "out.json"), "--fio-json"),
        (f"{READS}[j]\n", ("--mode", "open", "--iodepth", "4"), "iodepth"),
        (f"{READS}size=640g\n[j]\n", (), "640"),
        (READS.replace("direct=1\n", "") + "[j]\n", (), "direct"),
        (f"{READS}latency_target=5ms\n[j]\n", (), "latency_target"),
        ("[j]\nrw=sideways\n", (), "rw"),
    ],
)
def test_what_a_job_file_cannot_have_is_refused_by_name(tmp_path, text, words, field):
    assert_refused(emmclab("simulate", _job(tmp_path, text), "--device", "ufs31", *words), field)


def test_the_options_of_jobs_have_no_effect_on_traces():
    with pytest.raises(lab.ConfigError, match="iodepth"):
        lab.Device.preset("ufs31").simulate(lab.read(lab.bundled()[0]), iodepth=4)


def test_a_job_that_ends_within_its_ramp_time_has_no_figures(tmp_path):
    job = _job(tmp_path, f"{READS}ramp_time=10\n[j]\n")
    done = emmclab("simulate", job, "--device", "ufs31")
    assert done.returncode == 0, done.stderr
    assert "no request was measured" in done.stdout
    figures = emmclab_json("simulate", job, "--device", "ufs31")["fio"]
    assert (figures["iops"], figures["mb_per_s"], figures["lat_us"]) == (None, None, None)


def test_a_compressed_job_file_runs_and_a_pipe_is_refused(tmp_path):
    job = _job(tmp_path, f"{READS}[j]\n")
    packed = tmp_path / "packed.fio.gz"
    packed.write_bytes(gzip.compress(job.read_bytes()))
    assert _iops(packed) == _iops(job)
    assert_refused(emmclab("simulate", "-", "--device", "ufs31", input=job.read_text()), "pipe")
