"""Job files of fio: in closed loop on simulated devices, and the same jobs by fio itself."""

import gzip
import json
import shutil

import pytest

import emmclab
from conftest import assert_refused, emmclab_json
from conftest import emmclab as run_emmclab

READS = "[global]\nioengine=libaio\ndirect=1\nrw=randread\nbs=4k\nsize=64m\nnumber_ios=3000\n"


def _job(folder, text, name="job.fio"):
    path = folder / name
    path.write_text(text)
    return path


def _iops(job, device="ufs31", **options):
    result = emmclab.Device.preset(device, "8GB").simulate(emmclab.read(job), precondition="sequential:10", **options)
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
    assert run_emmclab("synth", "--fio", job, "-o", tmp_path / "deep.parquet").returncode == 0
    done = run_emmclab("simulate", tmp_path / "deep.parquet", "--device", "ufs31", "--mode", "back_to_back")
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
    measured = run_emmclab(
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
    done = run_emmclab("simulate", job, "--device", "nexus5", "--fio-host", "none", "--fio-json", out)
    assert done.returncode == 0, done.stderr
    jobs = json.loads(out.read_text())["jobs"]
    assert [row["jobname"] for row in jobs] == ["a", "b", "c", "d"]
    assert jobs[1]["job options"]["bs"] == "64k"
    figures = jobs[0]["read"]
    assert figures["total_ios"] == figures["clat_ns"]["N"] == 3_000
    assert figures["iops"] == pytest.approx(1e9 / figures["lat_ns"]["mean"], rel=0.01)
    assert run_emmclab("calibrate", out, "-o", tmp_path / "device.toml").returncode == 0


def test_the_first_screen_has_the_figures_of_fio(tmp_path):
    job = _job(tmp_path, f"{READS}[j]\n[k]\nstonewall\nnumjobs=2\ngroup_reporting\n")
    shown = run_emmclab("simulate", job, "--device", "ufs31").stdout
    assert "IOPS" in shown.splitlines()[0]
    assert "2 x 1" in shown
    assert "host phone-2020" in shown
    compared = run_emmclab("compare", job, "--devices", "ufs31,emmc51-cache").stdout
    assert "Figures of fio" in compared
    page = tmp_path / "page.html"
    assert run_emmclab("simulate", job, "--device", "ufs31", "--html", page).returncode == 0
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
    assert run_emmclab("run", "m.toml", cwd=tmp_path).returncode == 0
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
    assert_refused(run_emmclab("simulate", _job(tmp_path, text), "--device", "ufs31", *words), field)


def test_the_options_of_jobs_have_no_effect_on_traces():
    with pytest.raises(emmclab.ConfigError, match="iodepth"):
        emmclab.Device.preset("ufs31").simulate(emmclab.read(emmclab.bundled()[0]), iodepth=4)


def test_a_job_that_ends_within_its_ramp_time_has_no_figures(tmp_path):
    job = _job(tmp_path, f"{READS}ramp_time=10\n[j]\n")
    done = run_emmclab("simulate", job, "--device", "ufs31")
    assert done.returncode == 0, done.stderr
    assert "no request was measured" in done.stdout
    figures = emmclab_json("simulate", job, "--device", "ufs31")["fio"]
    assert (figures["iops"], figures["mb_per_s"], figures["lat_us"]) == (None, None, None)


def test_a_compressed_job_file_runs_and_a_pipe_is_refused(tmp_path):
    job = _job(tmp_path, f"{READS}[j]\n")
    packed = tmp_path / "packed.fio.gz"
    packed.write_bytes(gzip.compress(job.read_bytes()))
    assert _iops(packed) == _iops(job)
    assert_refused(run_emmclab("simulate", "-", "--device", "ufs31", input=job.read_text()), "pipe")
