"""The first lines of the output of a simulation: its answer, a comparison, and reasons not to trust it."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import emmclab as api
from browsing import Visit
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.simulation.result_text import headline

pytestmark = pytest.mark.slow

#: A device that keeps up with a write of 4 KB every ms, and does not fall asleep.
FAST = ("--device", "small-1gb", "--wrap-addresses")


def _arrivals(path: Path, gaps_us: list[int]) -> Path:
    """Write a trace of 4 KB writes that has only arrival times."""
    now, lines = 0, []
    for number, gap in enumerate(gaps_us):
        now += gap
        lines.append(f"{now * 1000},write,{number % 512 * 8},8")
    path.write_text("arrival_ns,op,sector,sectors\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with one write every 5 ms."""
    return _arrivals(tmp_path_factory.mktemp("traces") / "light.csv", [5_000] * 1_000)


@pytest.fixture(scope="module")
def overloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with more writes than the device can handle."""
    return _arrivals(tmp_path_factory.mktemp("traces") / "heavy.csv", [50] * 4_000)


def test_recorded_is_beside_simulated_in_json_text_and_page(trace: Path, tmp_path: Path, browser: Browser) -> None:
    page = tmp_path / "page.html"
    result = emmclab_json("simulate", trace, *FAST, "--html", page)
    profile = emmclab_json("profile", trace)[0]
    recorded = result["recorded"]
    assert recorded["response"]["all"]["recorded_ms"] == pytest.approx(profile["mean_response_ms"])
    assert recorded["service"]["all"]["recorded_ms"] == pytest.approx(profile["mean_service_ms"])
    assert recorded["no_wait"]["all"]["recorded_pct"] == pytest.approx(profile["no_wait_pct"])
    for op in ("read", "write"):
        pair = recorded["response"][op]
        assert pair["simulated_ms"] == result["response"][op]["mean_ms"]
        error = 100 * (pair["simulated_ms"] / pair["recorded_ms"] - 1)
        assert pair["error_pct"] == pytest.approx(error)
    text = emmclab("simulate", trace, *FAST).stdout
    mean = f"{recorded['response']['read']['recorded_ms']:.3f} ms"
    row = next(line for line in text.splitlines() if line.startswith("Mean response of reads"))
    assert mean in row and f"{recorded['response']['read']['error_pct']:+.1f} %" in row
    visit = Visit(browser, page)
    assert mean in visit.page.locator("#recorded").inner_text()
    assert visit.page.locator("h1").inner_text().startswith("small-1gb: mean response")
    visit.page.close()


def test_without_recorded_times_a_dash_stands_there_and_null_in_json(light: Path) -> None:
    pair = emmclab_json("simulate", light, *FAST)["recorded"]["response"]["all"]
    assert (pair["recorded_ms"], pair["error_pct"]) == (None, None) and pair["simulated_ms"] > 0
    text = emmclab("simulate", light, *FAST).stdout
    assert "no response times are recorded" in text and "Recorded and simulated" not in text
    lines = emmclab("compare", light, "--devices", "small-1gb", "--wrap-addresses").stdout.splitlines()
    assert "–" in next(line for line in lines if line.startswith("small-1gb  ")).split()


def test_closed_loop_is_the_default_where_completions_are_recorded(trace: Path, light: Path) -> None:
    for command in (("simulate",), ("advise", "--new")):
        for path, mode in ((trace, "closed"), (light, "open")):
            result = emmclab_json(command[0], path, *command[1:], *FAST)
            run = (result["device"] if command[0] == "advise" else result)["run"]
            assert run["mode"] == mode and "recorded" in run["mode_reason"]
    assert emmclab_json("compare", trace, "--devices", "small-1gb", "--wrap-addresses")[0]["run"]["mode"] == "closed"
    device = api.Device.preset("small-1gb")
    for wish in ("auto", None):
        run = device.simulate(api.read(trace), mode=wish, wrap_addresses=True)["run"]
        assert (run["mode"], run["mode_reason"]) == ("closed", "completions are recorded")
    open_run = device.simulate(api.read(trace), mode="open", wrap_addresses=True)["run"]
    assert (open_run["mode"], open_run["mode_reason"]) == ("open", None)
    assert "closed loop (completions are recorded)" in emmclab("simulate", trace, *FAST).stdout


def test_a_pipe_is_replayed_in_the_mode_that_its_beginning_allows(trace: Path) -> None:
    with trace.open("rb") as file:
        assert emmclab_json("simulate", "/dev/stdin", *FAST, stdin=file)["run"]["mode"] == "closed"


def test_open_loop_warns_where_requests_wait_for_the_device(tmp_path: Path) -> None:
    rows = [f"{n * 1_500_000},{n * 1_500_000 + 1_000_000},write,{n % 512 * 8},8" for n in range(100)]
    path = tmp_path / "dependent.csv"
    path.write_text("arrival_ns,complete_ns,op,sector,sectors\n" + "\n".join(rows) + "\n")
    first = emmclab("simulate", path, *FAST, "--mode", "open").stdout.splitlines()[0]
    assert "99 % of the recorded requests come within 1 ms" in first and "--mode closed" in first
    assert "warning" not in emmclab("simulate", path, *FAST).stdout


def test_an_overload_is_in_the_first_line_with_a_lower_rate(overloaded: Path, tmp_path: Path, browser: Browser) -> None:
    page = tmp_path / "page.html"
    text = emmclab("simulate", overloaded, *FAST, "--html", page).stdout
    first = text.splitlines()[0]
    assert first.startswith("warning: overloaded: the requests offer")
    rate = first.partition("--rate ")[2].split()[0]
    assert not emmclab_json("simulate", overloaded, *FAST, "--rate", rate)["run"]["load"]["overloaded"]
    load = emmclab_json("simulate", overloaded, *FAST)["run"]["load"]
    assert load["overloaded"] and load["offered_pct"] > 100 and load["backlog_s"] > 0
    visit = Visit(browser, page)
    assert "overloaded: the requests offer" in visit.page.locator("main").inner_text()[:600]
    visit.page.close()


def test_a_queue_that_grew_for_a_part_of_the_trace_is_an_overload_even_if_it_drained_by_the_end(tmp_path: Path) -> None:
    path = _arrivals(tmp_path / "drained.csv", [5_000] * 100 + [50] * 20_000 + [20_000] * 2_000)
    words = ("simulate", path, *FAST, "--mode", "open")
    load = emmclab_json(*words)["run"]["load"]
    assert load["overloaded"] and load["offered_pct"] < 100 < load["peak_offered_pct"]
    assert load["peak_backlog_s"] > 10 * load["backlog_s"]
    first = emmclab(*words).stdout.splitlines()[0]
    assert first.startswith("warning: overloaded: the requests offer at times more")
    rate = first.partition("--rate ")[2].split()[0]
    assert not emmclab_json(*words, "--rate", rate)["run"]["load"]["overloaded"]


def test_no_wait_of_a_simulation_is_that_of_a_profile_of_its_requests(tmp_path: Path) -> None:
    """Also with devices that start several requests at once, and with requests that wait for a wake-up."""
    path = _arrivals(tmp_path / "pairs.csv", [0, 10, 200_000] * 100)
    for device in ("ufs31", "nexus5", "emmc51-cache"):
        events = tmp_path / f"{device}.parquet"
        words = ("--wrap-addresses", "--mode", "open", "--events", events)
        requests = emmclab_json("simulate", path, "--device", device, *words)["requests"]
        assert requests["no_wait_pct"] == pytest.approx(100 / 3, abs=0.5), device
        rows = sorted(api.read(events).rows(10**6), key=lambda row: row["arrival_ns"])
        idle, ended = 0, -1
        for row in rows:
            idle += row["arrival_ns"] >= ended
            ended = max(ended, row["complete_ns"])
        assert requests["no_wait_pct"] == pytest.approx(100 * idle / len(rows))
        assert requests["begun_at_once_pct"] >= 0
    open_loop = emmclab_json("simulate", path, "--device", "ufs31", "--wrap-addresses", "--mode", "open")
    assert open_loop["requests"]["begun_at_once_pct"] > open_loop["requests"]["no_wait_pct"]


def test_advise_never_ranks_on_overload_without_a_word(overloaded: Path) -> None:
    done = emmclab_ok("advise", overloaded, *FAST, "--new")
    first = done.stdout.splitlines()[0]
    assert first.startswith("warning: overloaded") and "too slow for the trace" in first
    options = emmclab_json("advise", overloaded, *FAST, "--new")["options"]
    trusts = [option["trusted"] for option in options]
    assert trusts == sorted(trusts, reverse=True) and not all(trusts)
    assert all("overloaded" in option["note"] for option in options if not option["trusted"])


def test_an_early_end_is_at_the_top_and_status_3(
    light: Path, tiny_device: Path, tmp_path: Path, browser: Browser
) -> None:
    page = tmp_path / "page.html"
    arguments = (light, "--wrap-addresses")
    done = emmclab_ok("simulate", *arguments, "--device", tiny_device, "--html", page, status=3)
    first = done.stdout.splitlines()[0]
    assert first.startswith("warning: ended early, after 128 requests") and "full" in first
    visit = Visit(browser, page)
    assert "ended early, after 128 requests" in visit.page.locator("main").inner_text()[:400]
    visit.page.close()
    done = emmclab_ok("simulate", *arguments, "--device", tiny_device, "--json", status=3)
    assert "ended early" in done.stderr and json.loads(done.stdout)["run"]["stopped"]
    done = emmclab_ok("compare", *arguments, "--devices", f"small-1gb,{tiny_device}", status=3)
    assert "tiny: ended early, after 128 requests" in done.stdout.splitlines()[0]
    assert "only small-1gb served the whole trace and kept up with it" in done.stdout
    emmclab_ok("advise", *arguments, "--device", tiny_device, status=3)
    for command in ("simulate", "compare", "advise", "run"):
        assert "Exit status 3" in emmclab(command, "--help-all").stdout


def test_a_study_with_an_early_end_marks_the_cell_and_exits_with_3(
    light: Path, tiny_device: Path, tmp_path: Path
) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(
        f'name = "mine"\ninputs = ["{light}"]\n[[grid]]\nname = "g"\n'
        f'devices = ["small-1gb", "{tiny_device}"]\nwrap_addresses = true\n'
    )
    results = ("--results", tmp_path / "results", "--jobs", "1")
    assert "ended early: light on tiny (g)" in emmclab_ok("run", study, *results, status=3).stdout
    assert [cell["device"] for cell in emmclab_json("run", study, *results, status=3)["ended_early"]] == ["tiny"]


def test_advise_takes_used_devices_where_nothing_is_recorded_and_nothing_is_asked_for(light: Path) -> None:
    used = emmclab_json("advise", light, *FAST)
    new = emmclab_json("advise", light, *FAST, "--new")
    assert used["device"]["options"]["precondition"].startswith("used:365d,")
    assert new["device"]["options"]["precondition"] == "none"

    def changes(result: dict) -> dict[str, float]:  # type: ignore[type-arg]
        return {option["option"]: option["mean_change_pct"] for option in result["options"]}

    assert used["device"]["gc"]["blocks"] > 0 == new["device"]["gc"]["blocks"]
    assert changes(new)["collection in pauses"] == 0 != changes(used)["collection in pauses"]
    output = emmclab("advise", light, *FAST).stdout
    assert "device: used by a phone (365d" in output and "no response times are recorded" in output


@pytest.mark.parametrize(
    ("by", "words"),
    [("mean", "mean response"), ("p99", "p99 response"), ("waf", "write amplification"), ("lifetime", "lifetime")],
)
def test_the_title_of_advice_names_order(trace: Path, tmp_path: Path, browser: Browser, by: str, words: str) -> None:
    page = tmp_path / "page.html"
    limit = ("--set", "geometry.block_groups.0.erase_limit=3000")
    done = emmclab_ok("advise", trace, *FAST, *limit, "--new", "--by", by, "--html", page)
    # Only reasons not to trust the answer precede it.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("warning: ")]
    assert f"% {words} (" in lines[0] and f"Options by {words}" in done.stdout
    visit = Visit(browser, page)
    assert f"% {words} (" in visit.page.locator("h1").inner_text()
    visit.page.close()


def test_what_is_not_modelled_is_a_dash_and_null(trace: Path) -> None:
    arguments = ("simulate", trace, "--device", "nexus5")
    assert set(emmclab_json(*arguments)["energy"].values()) == {None}
    row = next(line for line in emmclab(*arguments).stdout.splitlines() if line.startswith("Energy"))
    assert row.split() == ["Energy", "–", "mJ"]
    energy = emmclab_json("simulate", trace, *FAST)["energy"]
    assert energy["flash_mj"] == energy["total_mj"] > 0 and energy["idle_mj"] is None


def test_compare_says_first_which_device_is_the_fastest(trace: Path, other_trace: Path) -> None:
    devices = ("--devices", "iiswc15-4ps,iiswc15-8ps")
    results = emmclab_json("compare", trace, *devices)
    means = {result["device"]: result["response"]["mean_response_ms"] for result in results}
    fast, slow = sorted(means, key=means.__getitem__)
    first = emmclab("compare", trace, *devices).stdout.splitlines()[0]
    assert first.startswith(f"{fast} is the fastest: mean response {means[fast]:.2f} ms, {slow}")
    assert f"({means[slow] / means[fast]:.2f} times)" in first
    lines = emmclab("compare", trace, other_trace, *devices).stdout.splitlines()
    assert lines[0].startswith("chat: ") and lines[1].startswith("camera: ")


def test_seeds_give_mean_and_range_of_the_wake_up_lottery(trace: Path) -> None:
    result = emmclab_json("simulate", trace, "--device", "nexus5", "--seeds", "3")
    means = [run["response"]["mean_response_ms"] for run in result["runs"]]
    spread = result["spread"]["response"]["all"]
    assert len(set(means)) == 3 and (spread["low"], spread["high"]) == (min(means), max(means))
    assert spread["mean"] == pytest.approx(sum(means) / 3)
    assert spread["error"] == pytest.approx(100 * (spread["mean"] / spread["recorded"] - 1))
    first = emmclab("simulate", trace, "--device", "nexus5", "--seeds", "3").stdout.splitlines()[0]
    assert f"{spread['mean']:.2f} ms ({min(means):.2f} to {max(means):.2f})" in first
    assert_refused(emmclab("simulate", trace, *FAST, "--seeds", "3"), "nothing is random in a run on small-1gb")
    # The seeds are the same as those of a single run.
    alone = emmclab_json("simulate", trace, "--device", "nexus5", "--seed", "3")
    assert alone["response"] == result["runs"][2]["response"]


def test_one_seed_feeds_preconditioning_wake_up_times_and_choices_of_collection(trace: Path) -> None:
    small = ("--device", "small-1gb", "--set", "geometry.block_groups.0.blocks=32", "--wrap-addresses")
    words = ("simulate", trace, *small, "--precondition", "random:90", "--seeds", "3")
    runs = emmclab_json(*words)["runs"]
    assert [run["options"]["seed"] for run in runs] == [1, 2, 3]
    second = emmclab_json(*words[:-2], "--seed", "2")
    assert all(second[key] == runs[1][key] for key in ("flash", "gc", "response"))
    device = api.Device.preset("nexus5").set({"gc.policy": "d_choices", "gc.seed": 7, "power.seed": 5})

    def seeds(of: api.Device) -> dict[str, str]:
        return {row.key: row.value for row in of.explain() if row.key.endswith(".seed")}

    assert seeds(device.seeded(1)) == {"power.seed": "5", "gc.seed": "7"}
    assert seeds(device.seeded(4)) == {"power.seed": "8", "gc.seed": "10"}
    # The result equals that of seed 0.
    assert int(seeds(api.Device.preset("nexus5").seeded(0))["power.seed"]) > 0


def test_the_headline_of_a_run_is_its_mean_beside_the_recorded_one(trace: Path) -> None:
    result = api.Device.preset("nexus5").simulate(api.read(trace))
    mean, recorded = result["response.mean_response_ms"], result["recorded.response.all.recorded_ms"]
    error = 100 * (mean / recorded - 1)
    assert headline(result) == f"mean response {mean:,.2f} ms, recorded {recorded:,.2f} ms ({error:+.1f} %)"
    assert headline(result) in emmclab("simulate", trace, "--device", "nexus5").stdout.splitlines()[0]


def test_seeds_of_a_trace_without_reads_and_writes_say_so(tmp_path: Path) -> None:
    flushes = tmp_path / "flushes.csv"
    flushes.write_text("arrival_s,op,sector,sectors\n0.0,flush,0,0\n0.5,flush,0,0\n")
    done = emmclab("simulate", flushes, "--device", "small-1gb", "--seeds", 2, "--used", "1d")
    assert done.stdout.startswith("small-1gb, 2 seeds: no read or write was served\n")


def test_several_seeds_show_what_only_the_device_has(trace: Path) -> None:
    words = ("simulate", trace, "--device", "small-1gb", "--precondition", "random:80", "--wrap-addresses")
    result = emmclab_json(*words, "--seeds", 2)
    figures = result["spread"]["figures"]
    runs = [run["write_amplification"]["waf"] for run in result["runs"]]
    waf = figures["write_amplification.waf"]
    assert (waf["low"], waf["high"]) == (min(runs), max(runs))
    output = emmclab(*words, "--seeds", 2).stdout
    assert "p99 response of writes" in output and "Write amplification" in output
    # The trace has no flush and no durable write.
    assert figures["durable.mean_ms"] is None and "flushes and synchronous writes" not in output
