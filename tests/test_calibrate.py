"""`emmclab calibrate`: a preset from measured service times."""

import json
from pathlib import Path

import pytest

import emmclab as api
from conftest import emmclab, emmclab_json


def _fio(path: Path, read_us: float = 100.0, write_us: float = 400.0) -> Path:
    """Write results of fio for a device that needs a fixed time plus 10 us per KB."""
    jobs = []
    for kb in (4, 8, 16, 32, 64, 128):
        for side, base in (("read", read_us), ("write", write_us)):
            ns = 1000 * (base + 10 * kb)
            latency = {"mean": ns, "percentile": {"50.000000": ns}}
            done = {"total_ios": 500, "io_bytes": 500 * kb * 1024, "clat_ns": latency}
            jobs.append({"jobname": f"{side}-{kb}k", "job options": {"bs": f"{kb}k"}, side: done})
    path.write_text(json.dumps({"fio version": "fio-3.33", "jobs": jobs}))
    return path


def test_a_preset_from_fio_runs_and_answers_as_measured(trace: Path, tmp_path: Path) -> None:
    source, preset = _fio(tmp_path / "fio.json"), tmp_path / "card.toml"
    found = emmclab_json("calibrate", source, "-o", preset, "--capacity-gb", "4")
    assert preset.read_text() == found["toml"] and 'name = "card"' in found["toml"]
    assert found["held_out_median_error_pct"] < 5
    assert emmclab_json("simulate", trace, "--device", preset)["requests"]["total"] == 400
    again = emmclab("calibrate", source, "--name", "card", "--capacity-gb", "4")
    assert (again.returncode, again.stdout) == (0, found["toml"])
    assert api.calibrate(source, name="card", capacity_gb=4)["toml"] == found["toml"]


def test_words_go_to_stderr_and_the_preset_to_its_file(trace: Path, tmp_path: Path) -> None:
    preset = tmp_path / "phone.toml"
    done = emmclab("calibrate", trace, "-o", preset)
    assert (done.returncode, done.stdout) == (0, "")
    assert "held-out half" in done.stderr and preset.read_text().startswith("# Written by")
    assert emmclab("explain", preset).returncode == 0


def test_the_curves_of_a_probe_are_no_service_times_and_refused_with_a_cure(tmp_path: Path) -> None:
    path, out = tmp_path / "probe.json", tmp_path / "out.toml"
    assert emmclab("probe", "small-1gb", "--span-mb", "64", "-o", path).returncode == 0
    done = emmclab("calibrate", path, "-o", out)
    assert done.returncode == 2 and not out.exists()
    assert f"{path}: the result of a probe has mean bandwidths" in done.stderr
    assert "emmclab record" in done.stderr and "fio --iodepth=1" in done.stderr
    with pytest.raises(api.UnsupportedError, match="the result of a probe"):
        api.calibrate(path)
