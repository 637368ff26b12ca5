"""Named workloads become traces, traces become workloads, and profiles are compared with each other."""

from pathlib import Path

import pytest

import emmclab as lab
from conftest import assert_refused, emmclab, emmclab_json
from emmclab.simulation.device import Device
from emmclab.studies.input import Input
from emmclab.traces.reading import bundled_by_name
from emmclab.traces.workload import Workload, benchmarks, difference_text, differences, fit, workloads


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
    shown = emmclab("explain", "WebBench").stdout
    assert "webbench" in shown.partition("Simulated run")[2]


def test_an_input_of_a_study_may_have_a_length_of_its_own() -> None:
    found = Input.of("Email --requests 500", seed=1)
    assert (found.name, found.requests) == ("Email (500 requests)", 500)
    assert found.open().profile()["requests"] == 500
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


def test_differences_are_in_percent_of_the_first() -> None:
    first, second = (Workload.preset(name).trace().profile() for name in ("Email", "Movie"))
    rows = {row["field"]: row["difference_pct"] for row in differences(first, second)}
    assert rows["requests"] == pytest.approx(100 * (4_781 / 2_906 - 1))
    assert {(row["difference_pct"], row["difference_points"]) for row in differences(first, first)} == {
        (0, None),
        (None, 0),
    }


def test_shares_are_compared_by_percentage_points() -> None:
    first, second = (Workload.preset(name).trace().profile() for name in ("Email", "Movie"))
    rows = {row["field"]: row for row in differences(first, second)}
    for name in ("no_wait_pct", "write_requests_pct", "spatial_locality_pct"):
        assert rows[name]["difference_pct"] is None
        assert rows[name]["difference_points"] == pytest.approx(second[name] - first[name])
        assert difference_text(rows[name]).endswith(" points")


@pytest.mark.parametrize(
    "arguments",
    [
        ("synth", "Messaging", "out.parquet", "--requests", str(10**20)),
        ("synth", "Messaging", "out.parquet", "--seed", str(10**20)),
        ("synth", "Messaging", "out.parquet", "--rate-pct", str(10**20)),
        ("synth", "none.toml", "out.parquet"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = emmclab(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(("error: ", "Usage"))
    assert "hint: " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["telegram_precond", "pubg_precond"])
@pytest.mark.parametrize("parallelism", ["none", "both"])
def test_a_twin_queues_like_its_original(shared_traces: Path, name: str, parallelism: str) -> None:
    recorded = lab.read(shared_traces / "pixel6a" / f"{name}.csv.gz")
    twin = fit(recorded).trace()
    for preset in ("iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps"):
        device = Device.preset(preset).set({"timing.parallelism": parallelism})
        real, made = (
            device.simulate(one, mode="open", wrap_addresses=True)["response.mean_response_ms"]
            for one in (recorded, twin)
        )
        assert made == pytest.approx(real, rel=0.1), preset
