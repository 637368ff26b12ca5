"""Applications in closed loop through the command line: lists, runs, comparisons, what-ifs, bad programs."""

import json
import re
import shutil
from math import ceil
from pathlib import Path

import pyarrow.parquet
import pytest

import emmclab as lab
from applications import NEW, SMALL
from conftest import ROOT, assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.apps.closed_loop import STATES, applications, dominating, hosts, parts_of, run_application
from emmclab.cli import application
from emmclab.cli.command import walk_commands
from emmclab.errors import ConfigError


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_the_applications_are_listed_with_what_their_users_do() -> None:
    names = [row["name"] for row in applications()]
    assert len(names) == 11
    output = emmclab("apps").stdout
    assert all(name in output for name in names)
    assert emmclab_json("apps", "list", "--json") == applications()
    text = emmclab("apps", "show", "rlbench").stdout
    assert text.startswith('name = "rlbench"') and "user_waits_for" in text


def test_hosts_are_listed_with_partitions_and_networks() -> None:
    output = emmclab("apps", "hosts").stdout
    for host in hosts():
        assert host["name"] in output
        assert all(part["name"] in output for part in host["partition"])


def test_the_schema_knows_every_key_of_the_applications() -> None:
    schema = json.loads(emmclab("apps", "schema").stdout)
    assert {"name", "about", "source", "user_waits_for", "file", "thread"} <= {*schema["properties"]}


def test_a_run_says_where_the_time_went_to_the_nanosecond(small: Path) -> None:
    run = emmclab_json("apps", "run", small, "--json", *NEW)
    app = run["app"]
    assert {*app["states"]} == {*STATES}
    assert sum(app["states"].values()) == app["runtime_ns"] == sum(part["ns"] for part in app["spent"])
    # 10 KB at 11 Mbit/s after a round trip of 5 ms, ten times.
    assert app["states"]["network"] == 10 * (5_000_000 + ceil(10_240 * 8e9 / 11e6))
    assert app["states"]["fsync"] > 0
    assert app["network_bytes"] == 10 * 10_240
    writes = app["requests"]["all"]["write"]
    assert writes["requests"] == run["device"]["requests"]["write"]
    assert writes["bytes"] == run["device"]["requests"]["bytes_written"]
    classes = app["requests"]["classes"]
    assert {"database", "database_journal", "filesystem_journal"} <= {*classes}
    assert sum(group["write"]["bytes"] for group in classes.values()) == writes["bytes"]


def test_a_run_on_the_terminal_answers_first(small: Path) -> None:
    done = emmclab_ok("apps", "run", small, *NEW)
    first = done.stdout.splitlines()[0]
    result = run_application(str(small), "nexus5", precondition="none")
    words, _ = dominating(result)
    assert first.startswith(f"small on nexus5 over wifi: {result.runtime_s:.2f} s")
    assert words in first
    assert "Time that the user waited for" in done.stdout and "syncs of files" in done.stdout


def test_every_command_of_applications_shows_its_results_on_the_terminal(small: Path, tmp_path: Path) -> None:
    calls = tmp_path / "small.strace"
    calls.write_text('7 1.000000 openat(AT_FDCWD, "/data/a", O_RDWR) = 3 <0.000010>\n')
    words: dict[str, list[tuple[object, ...]]] = {
        "list": [()],
        "show": [("email",)],
        "hosts": [()],
        "schema": [()],
        "run": [
            (small, *NEW),
            (small, *NEW, "--what-if", "all", "--filesystem", "lfs", "--sync", "none", "--layer", "advil"),
        ],
        "compare": [(small, "--devices", "nexus5,sdcard", *NEW)],
        "solutions": [(small, *NEW)],
        "learn": [(calls, "-o", tmp_path / "learned.toml")],
    }
    # Applications that run live need root; see test_apps_live.py.
    commands = {words for words, _ in walk_commands(application()) if words.startswith("apps ")}
    assert {f"apps {word}" for word in words} == commands - {"apps live"}
    for command, argument_lists in words.items():
        for arguments in argument_lists:
            done = emmclab_ok("apps", command, *arguments)
            assert len(done.stdout) > 80 and not done.stderr, (command, done.stderr)


def test_learned_work_takes_as_long_as_recorded_on_a_host_as_fast_as_the_recorded_machine(tmp_path: Path) -> None:
    calls, program = tmp_path / "calls.strace", tmp_path / "learned.toml"
    calls.write_text(
        '7 1.000000 openat(AT_FDCWD, "/data/a", O_RDWR) = 3 <0.000000>\n7 3.000000 read(3, "", 9) = 9 <0.000000>\n'
    )
    run = ("apps", "run", program, *NEW, "--host", "phone-2020")
    for factor, seconds in ((0.25, 2.0), (1, 0.5)):
        learned = emmclab("apps", "learn", calls, "-o", program, "--cpu-factor", factor)
        assert learned.returncode == 0 and f"a core of CPU factor {factor:g}" in learned.stdout
        assert emmclab_json(*run)["app"]["runtime_ns"] / 1e9 == pytest.approx(seconds, rel=0.01)
    assert_refused(emmclab("apps", "learn", calls, "-o", program, "--cpu-factor", 0), "cpu_factor")


def test_the_same_seed_gives_the_same_bytes(small: Path, tmp_path: Path) -> None:
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    runs = [emmclab("apps", "run", small, *NEW, "--html", page) for page in pages]
    assert runs[0].stdout == runs[1].stdout
    assert pages[0].read_bytes() == pages[1].read_bytes()
    apps = [run_application("pulse", "nexus5", seed=seed, precondition="none")["app"] for seed in (1, 1, 2)]
    assert apps[0] == apps[1] != apps[2]


def test_a_slower_card_is_the_devices_fault_and_a_faster_network_is_not(small: Path) -> None:
    runs = {
        (device, network): run_application(str(small), device, network=network, precondition="none")
        for device in ("nexus5", "sdcard")
        for network in ("wifi", "usb")
    }
    assert runs["sdcard", "wifi"].storage_s > runs["nexus5", "wifi"].storage_s
    assert runs["nexus5", "usb"]["app"]["states"]["network"] < runs["nexus5", "wifi"]["app"]["states"]["network"]


def test_compare_gives_every_combination(small: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    other = shutil.copy(small, tmp_path / "other.toml")
    words = ("apps", "compare", small, other, "--devices", "nexus5,sdcard", "--networks", "wifi,usb", *NEW)
    runs = emmclab_json(*words, "--json", "--html", page)["runs"]
    assert len(runs) == 8
    assert {(run["device"]["device"], run["app"]["network"]) for run in runs} == {
        (device, network) for device in ("nexus5", "sdcard") for network in ("wifi", "usb")
    }
    html = page.read_text()
    assert html.count("<tbody><tr>") == 8
    assert "Waits of the user over time" in html and "Runtime by device and network" in html
    output = emmclab(*words).stdout
    assert "sdcard over usb" in output and "%" in output


def test_what_if_names_the_part_that_dominates(small: Path) -> None:
    # A host without periodic work, which would use the core at other times.
    on = ("--host", "phone-2020")
    done = emmclab("apps", "run", small, "--what-if", "all", *on, *NEW)
    assert "dominates: partition=data (" in done.stdout and "op=fsync (" in done.stdout
    base = run_application(str(small), "nexus5", precondition="none", host="phone-2020")
    parts = parts_of(base)
    assert {"partition=data", "class=database", "op=fsync"} <= {*parts}
    run = emmclab_json("apps", "run", small, "--what-if", "partition=data", "--json", *on, *NEW)
    [row] = run["what_if"]
    assert row["part"] == "partition=data"
    waits_ns = sum(base["app"]["states"][state] for state in ("read", "fsync", "throttled"))
    assert row["runtime_ns"] == base["app"]["runtime_ns"] - waits_ns


def test_layers_stand_between_the_application_and_the_device(small: Path) -> None:
    result = emmclab_json("apps", "run", small, "--layer", "pass-through", "--json", *NEW)
    bare = emmclab_json("apps", "run", small, "--json", *NEW)
    assert result["device"]["layers"][0]["name"] == "pass-through"
    assert result["app"]["requests"]["all"]["write"]["bytes"] == bare["app"]["requests"]["all"]["write"]["bytes"]


def test_the_device_of_an_application_passes_every_check(small: Path) -> None:
    result = emmclab_json("apps", "run", small, "--check", "--json", *NEW)
    assert result["app"] == emmclab_json("apps", "run", small, "--json", *NEW)["app"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("run",), "missing argument 'NAME|FILE'"),
        (("run", "email", "maps"), "(maps)"),
        (("run", "email", "--network", "wifi,usb"), "one application on one device with one network"),
        (("run", "email", "--device", "small-1gb", "--capacity", "64MB"), "too small"),
        (("compare", "email", "maps", "--what-if", "all"), "no such option: --what-if"),
        (("run", "no/such.toml"), "not found"),
    ],
)
def test_wrong_words_are_refused_with_a_hint(words: tuple[str, ...], problem: str) -> None:
    assert_refused(emmclab("apps", *words, *(() if "--precondition" in words else NEW)), problem)


def test_python_gives_what_the_command_line_prints(small: Path) -> None:
    result = run_application(str(small), "nexus5", precondition="none").to_dict()
    assert json.dumps(result["app"]) == json.dumps(emmclab_json("apps", "run", small, *NEW)["app"])
    with pytest.raises(ConfigError):
        run_application("nothing", "nexus5")


def test_the_program_of_the_guide_runs_and_its_options_are_those_of_the_command(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/apps.md").read_text()
    [program] = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    path = tmp_path / "notes.toml"
    path.write_text(program)
    assert emmclab_json("apps", "run", path, "--json", *NEW)["app"]["program"] == "notes"
    options = {
        name
        for words, command in walk_commands(application())
        if words.startswith("apps ")
        for parameter in command.params
        for name in parameter.opts
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", guide))
    assert named and named <= options
    steps = {
        name for row in re.findall(r"^\| (`[^|]*`) \|", guide, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    step_kinds = json.loads(emmclab("apps", "schema").stdout)["$defs"]["ProgramStep"]["oneOf"]
    assert steps == {key for step in step_kinds for key in step["properties"]}


def test_the_requests_of_an_application_are_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "email.parquet"
    on = ("--device", "emmc51-cache", "--host", "phone-2020-ext4")
    done = emmclab_json("apps", "run", "email", *on, "--events", path)
    trace = lab.read(path)
    assert trace.ledger["kept"] == done["device"]["requests"]["total"]
    rows = trace.to_arrow().to_pylist()
    assert all(row["complete_ns"] >= row["arrival_ns"] for row in rows)
    written_sectors = sum(row["sectors"] for row in rows if row["op"] == "write")
    assert written_sectors * 512 == done["device"]["requests"]["bytes_written"]
    # The flags show what a sync requests.
    durable = sum(bool(row["flags"] & 6) or row["op"] == "flush" for row in rows)
    assert durable == done["device"]["durable"]["requests"] > 0
    about = json.loads(pyarrow.parquet.read_metadata(path).metadata[b"emmclab.run"])
    assert (about["application"], about["device"]) == ("email", "emmc51-cache")
    assert emmclab("profile", path).returncode == 0


def test_applications_at_once_slow_each_other_and_the_first_is_waited_for() -> None:
    alone = emmclab_json("apps", "run", "email", "--device", "nexus5")
    both = emmclab_json("apps", "run", "email", "--beside", "facebook", "--device", "nexus5")
    assert both["app"]["runtime_ns"] > alone["app"]["runtime_ns"]
    assert both["options"]["beside"] == ["facebook"] and alone["options"]["beside"] == []
    assert both["app"]["user_waits_for"] == alone["app"]["user_waits_for"]
    assert any(thread["name"].startswith("facebook: ") for thread in both["app"]["threads"])
    result = emmclab_json("apps", "run", "email + facebook", "--device", "nexus5")
    assert result["app"] == both["app"]
