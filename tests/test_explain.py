"""`explain` accepts names, words, devices and results; results and pages contain their provenance."""

import ctypes
import fcntl
import hashlib
import html
import json
import os
import re
import shlex
import struct
import tomllib
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import emmclab as api
from applications import SEARCH
from conftest import ROOT, assert_fails, assert_refused, emmclab, emmclab_json, emmclab_ok, need_library
from emmclab import __version__
from emmclab.cli.explain_pair import _show_figures
from emmclab.cli.explain_texts import choices
from emmclab.comparison.result_difference import figure, figure_differences
from emmclab.errors import ConfigError
from emmclab.papers.pages import command_of_paper
from emmclab.real_devices.health import read_health_report
from emmclab.runtime import command_line
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_fields
from emmclab.traces.profile_fields import LEDGER_MEANINGS
from emmclab.traces.reading import bundled


def test_a_setting_is_explained_by_its_name() -> None:
    ((row,),) = [emmclab_json("explain", "gc.policy")]
    (result,) = [item for item in Device.preset("small-1gb").explain() if item.key == "gc.policy"]
    assert (row["key"], row["meaning"], row["allowed"]) == ("gc.policy", result.doc, result.allowed)
    stdout = emmclab("explain", "gc.policy").stdout
    assert result.doc[:30] in stdout and "--set gc.policy=VALUE" in stdout


def test_each_word_of_a_choice_is_explained_with_its_setting() -> None:
    stdout = " ".join(emmclab("explain", "cache.lies").stdout.split())
    for word, meaning in choices("cache.lies"):
        assert f"{word}: {meaning}" in stdout
    assert len(choices("cache.lies")) >= 5 and choices("cache.size_kb") == []


def test_every_setting_of_a_device_and_every_field_of_a_result_has_an_explanation() -> None:
    from emmclab.cli.explain_texts import find_meanings

    settings = [row.key for row in Device.preset("pixel6a").explain() if row.key != "about"]
    fields = [field.path for field in result_fields()]
    for key in [item for item in (*settings[::12], *fields[::12]) if item != "name"]:
        assert find_meanings(key), key


def test_a_group_and_a_setting_of_a_layer_are_explained_by_name() -> None:
    keys = {row["key"] for row in emmclab_json("explain", "gc.")}
    assert {"gc.policy", "gc.blocks"} <= keys
    (row,) = emmclab_json("explain", "advil.reserved")
    assert row["kind"] == "setting of a layer" and row["default"] == '"256MB"'


def test_the_ledger_is_explained_as_a_word_as_a_group_and_by_each_of_its_counts(trace: Path) -> None:
    assert emmclab("explain", "ledger").stdout.startswith("ledger: ")
    counts = emmclab_json("profile", trace)[0]["ledger"]
    assert {f"ledger.{count}" for count in counts} < {row["key"] for row in emmclab_json("explain", "ledger.")}
    for count in counts:
        (row,) = emmclab_json("explain", f"ledger.{count}")
        assert row["kind"] == "count of a ledger" and row["meaning"] == LEDGER_MEANINGS[count]


def card(sysfs: Path, kind: str, maker: int) -> Path:
    """Write what sysfs states of a card, and return the path of its disk."""
    folder = sysfs / "block/mmcblk9/device"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "type").write_text(f"{kind}\n")
    (folder / "manfid").write_text(f"0x{maker:06x}\n")
    device = sysfs / "mmcblk9"
    device.touch()
    return device


def test_a_health_report_is_read_by_one_reading_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def ioctl(handle: int, number: int, request: bytes) -> int:
        """Answer as the driver of Linux does, with the struct mmc_ioc_cmd."""
        fields = struct.unpack("=2i2I4I3I2I3IQ", request)
        sent.append((number, fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE, *fields[:4], *fields[8:11]))
        ctypes.memmove(fields[-1] + 274, (300).to_bytes(2, "little") + bytes(2) + (100).to_bytes(2, "little"), 6)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    report, content = read_health_report(f"{card(tmp_path, 'MMC', 0x90)}@hynix-v1", tmp_path)
    assert (report.erases[0].most, report.erases[0].mean, len(content)) == (300, 100, 512)
    # MMC_IOC_CMD on a file that is open for reading; write_flag 0, no ACMD, CMD8; R1 with data, one block of 512 bytes.
    assert sent == [(0xC048B300, os.O_RDONLY, 0, 0, 8, 0x53454852, 0xB5, 512, 1)]
    for kind, maker, name, part in (
        ("MMC", 0x15, "hynix-v1", "manufacturer 0x15"),
        ("SD", 0x90, "hynix-v1", "SD of manufacturer"),
        ("MMC", 0x90, "adata-sd", "not one of"),
        ("MMC", 0x11, "toshiba-erase", "password"),
        ("MMC", 0x90, "kioxia", "no format"),
    ):
        with pytest.raises(ConfigError, match=part) as caught:
            read_health_report(f"{card(tmp_path, kind, maker)}@{name}", tmp_path)
        assert caught.value.hint and len(sent) == 1, "nothing was sent"


def test_a_health_report_is_explained_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "report").write_text((bytes([7, 0, 0, 0xA0, 0, 0, 1, 0xF8, 0, 0, 1, 0x9D]) + bytes(500)).hex())
    result = emmclab_json("explain", "--health", tmp_path / "report")
    assert result["erases"][0] == {"area": "MLC/TLC", "least": None, "mean": 413, "most": 504}
    assert all(field["from"].startswith("SDeMMCHealth") for field in result["fields"])
    assert "mean erases, MLC/TLC" in emmclab_ok("explain", "--health", f"{tmp_path / 'report'}@toshiba-erase").stdout
    assert_refused(emmclab("explain", "--health", f"{tmp_path / 'report'}@adata-sd"), "begins with 07 00")


@pytest.mark.parametrize("word", ["lifetime", "wear", "p99", "queue", "EXT_CSD", "fsync", "TBW", "latency", "overload"])
def test_words_that_engineers_ask_are_in_the_glossary(word: str) -> None:
    assert ": " in emmclab_ok("explain", word).stdout


def test_two_devices_show_only_the_settings_in_which_they_differ() -> None:
    output = emmclab_json("explain", "ufs31", "pixel6a")
    rows = {row["key"]: (row["first"], row["second"]) for row in output["differences"]}
    settings = [{row.key: row.value for row in Device.preset(name).explain()} for name in ("ufs31", "pixel6a")]
    for key in {key for key in {*settings[0], *settings[1]} if not key.startswith(("name", "about", "fitted_to"))}:
        pair = (settings[0].get(key), settings[1].get(key))
        assert (key in rows) == (pair[0] != pair[1])
        assert rows.get(key, pair) == pair
    assert "have the same settings" in emmclab("explain", "ufs31", "ufs31").stdout


def test_a_result_shows_the_settings_that_are_stored_in_it(trace: Path, tmp_path: Path) -> None:
    result = emmclab_json("simulate", trace, "--device", "iiswc15-hps", "--set", "cache.size_kb=512")
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    (output,) = emmclab_json("explain", path)
    assert output["made"]["options"] == result["options"]
    assert output["made"]["provenance"]["settings"] == {"iiswc15-hps": {"cache.size_kb": "512"}}
    stdout = emmclab("explain", path).stdout
    assert "provenance.settings.iiswc15-hps.cache.size_kb" in stdout and "options.precondition" in stdout


def test_a_misspelt_setting_is_refused_with_the_one_that_it_may_mean() -> None:
    assert_refused(emmclab("explain", "gc.polcy"), "`gc.policy`")


def test_only_the_changed_settings_of_a_device_are_listed_on_request(tmp_path: Path) -> None:
    preset = (ROOT / "presets/devices/small-1gb.toml").read_text()
    (tmp_path / "mine.toml").write_text(preset.replace('name = "small-1gb"', 'name = "mine"'))
    rows, changed = (emmclab_json("explain", tmp_path / "mine.toml", *more) for more in ((), ("--changed",)))
    assert changed == [row for row in rows if row["value"] != row["default"]] and 0 < len(changed) < len(rows)
    # A preset may set a value that is also the default.
    preset = emmclab_json("explain", "pixel6a", "--changed")
    assert not {"gc.policy", "gc.mode"} & {row["key"] for row in preset}
    assert all(row["origin"] != "default" for row in preset)
    for words in (("rate",), ("nexus5", "ufs31")):
        done = emmclab("explain", *words, "--changed")
        assert_refused(done)
        assert "--changed" in done.stderr.partition("hint:")[0]


def test_when_writes_complete_is_the_same_words_in_a_run_and_in_its_explanation(trace: Path, tmp_path: Path) -> None:
    for device, words in (
        ("emmc51-cache", "in the write buffer, durable ones when programmed"),
        ("nexus5", "when programmed"),
    ):
        result = tmp_path / f"{device}.json"
        result.write_text(emmclab_ok("simulate", trace, "--device", device, "--json").stdout)
        explained = [line.split(maxsplit=1) for line in emmclab("explain", result).stdout.splitlines()]
        assert ["configuration.write_complete", words] in [[part.strip() for part in row] for row in explained]
        # The words are those of the device, also for a trace that does not use the buffer.
        for only in ((), ("--only", "op=read")):
            stdout = " ".join(emmclab("simulate", trace, "--device", device, *only).stdout.split())
            assert f"writes complete {words}" in stdout
        described = " ".join(emmclab("explain", device).stdout.split())
        assert f"Here: writes complete {words}." in described


def test_a_device_is_explained_with_the_erase_limit_of_each_kind_of_block() -> None:
    text = emmclab("explain", "emmc51-cache").stdout
    # 4 planes of 1,532 blocks, of which 40 are in SLC mode.
    assert re.search(r"TLC +5,968 +3,000", text) and re.search(r"SLC cache +160 +30,000", text)
    assert re.search(r"MLC, pages of 16 KB +7,672 +3,000", emmclab("explain", "nexus5").stdout)


def test_an_option_of_any_command_is_explained() -> None:
    output = emmclab_json("explain", "--used")
    assert [row["option"] for row in output] == ["--used"]
    assert {"simulate", "serve"} <= {*output[0]["commands"]}
    assert_refused(emmclab("explain", "--usde"), "no such option: --usde")
    assert "option of a run" in emmclab("explain", "--rate").stdout


FIFO = ("--set", "gc.policy=fifo")
BUFFER = ("--set", "cache.size_kb=512")


@pytest.fixture
def simulated(trace: Path, tmp_path: Path) -> Any:
    """Return a function that writes results of `simulate` into files."""

    def write(name: str, *more: object, device: str = "small-1gb", source: Path = trace) -> Path:
        result = emmclab_json("simulate", source, "--device", device, "--wrap-addresses", *more)
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(result))
        return path

    return write


def _keys(value: Any) -> set[tuple[str, str]]:
    return {(row["kind"], row["key"]) for row in value["differences"]}


def test_options_settings_layers_and_figures_that_differ_are_named(simulated: Any) -> None:
    first = simulated("first")
    second = simulated("second", *FIFO, *BUFFER, "--rate", "2", "--layer", "journal:delta")
    output = emmclab_json("explain", first, second)
    assert {("setting", "gc.policy"), ("setting", "cache.size_kb"), ("option", "rate")} <= _keys(output)
    assert ("layers", "layers") in _keys(output)
    assert not [key for key in _keys(output) if key[0] in ("input", "version")]
    fields = [json.loads(path.read_text()) for path in (first, second)]
    rows = {row["path"]: row for row in output["figures"]}
    before, after = (figure(item, "response.mean_response_ms") for item in fields)
    row = rows["response.mean_response_ms"]
    assert (row["first"], row["second"], row["unit"]) == (before, after, "ms")
    assert before and after and row["difference_pct"] == pytest.approx(100 * (after / before - 1))
    assert not [path for path in rows if path.startswith("computing.")]


def test_results_that_were_made_in_the_same_way_have_no_difference(simulated: Any) -> None:
    output = emmclab_json("explain", simulated("first"), simulated("second"))
    assert output["differences"] == [] and output["figures"] == []


def test_other_traces_and_options_are_found(simulated: Any, trace: Path, other_trace: Path, tmp_path: Path) -> None:
    first, second = simulated("first"), simulated("second", source=other_trace)
    assert ("input", "trace") in _keys(emmclab_json("explain", first, second))
    writes = simulated("writes", "--only", "op=write")
    assert _keys(emmclab_json("explain", first, writes)) == {("reading", "only")}
    copy = tmp_path / "copy.txt"
    copy.write_bytes(trace.read_bytes())
    assert _keys(emmclab_json("explain", first, simulated("copied", source=copy))) == set()


def test_one_change_at_a_time_is_the_run_with_that_change_alone(simulated: Any) -> None:
    first, second = simulated("first"), simulated("second", *FIFO, *BUFFER, "--rate", "2")
    alone = emmclab_json("explain", first, second, "--one-at-a-time")["one_at_a_time"]
    assert alone["not_repeated"] == []
    rows = {row["label"]: row for row in alone["moved"]}
    assert set(rows) == {"rate", "gc.policy", "cache.size_kb"}
    path = "response.mean_response_ms"
    ends = [figure(json.loads(item.read_text()), path) for item in (first, second)]
    assert [alone["first"][path], alone["second"][path]] == ends
    for label, options in (("rate", ("--rate", "2")), ("gc.policy", FIFO), ("cache.size_kb", BUFFER)):
        expected = figure(json.loads(simulated("alone", *options).read_text()), path)
        assert rows[label]["figures"][path] == expected
        assert expected is not None and ends[0] is not None and ends[1] is not None
        share = 100 * (expected - ends[0]) / (ends[1] - ends[0])
        assert rows[label]["share_pct"][path] == pytest.approx(share)
    rest = 100 - sum(row["share_pct"][path] for row in alone["moved"])
    assert alone["together_pct"][path] == pytest.approx(rest)


def test_settings_that_are_impossible_alone_are_changed_together(simulated: Any) -> None:
    first, second = simulated("first", device="nexus5"), simulated("second", device="ufs31")
    alone = emmclab_json("explain", first, second, "--one-at-a-time")["one_at_a_time"]
    assert not [row["label"] for row in alone["moved"] if row["reason"]]
    assert [row["label"] for row in alone["moved"] if row["label"].startswith("interface.*")]


def test_two_devices_are_compared_under_a_trace_as_two_results_are(trace: Path) -> None:
    output = emmclab_json("explain", "ufs31", "pixel6a", "--trace", trace)
    settings = emmclab_json("explain", "ufs31", "pixel6a")["differences"]
    names = {row["key"] for row in settings}
    assert {key for kind, key in _keys(output) if kind == "setting"} == names
    assert {kind for kind, _ in _keys(output)} == {"setting"}
    assert [row for row in output["figures"] if row["path"] == "response.mean_response_ms"]


def test_requests_of_a_run_and_its_page_are_results_too(trace: Path, tmp_path: Path) -> None:
    places: dict[str, list[Path]] = {"events": [], "html": []}
    for name, more in (("first", ()), ("second", BUFFER)):
        for option, ending in (("events", "parquet"), ("html", "html")):
            places[option].append(tmp_path / f"{name}.{ending}")
        outputs = ("--events", places["events"][-1], "--html", places["html"][-1])
        emmclab_json("simulate", trace, "--device", "small-1gb", "--wrap-addresses", *more, *outputs)
    for pair in places.values():
        output = emmclab_json("explain", *pair)
        assert _keys(output) == {("setting", "cache.size_kb")}
        rows = {row["path"]: row for row in output["figures"]}
        assert rows["response.mean_response_ms"]["first"] != rows["response.mean_response_ms"]["second"]
    alone = emmclab_json("explain", *places["events"], "--one-at-a-time")["one_at_a_time"]
    assert [row["label"] for row in alone["moved"]] == ["cache.size_kb"]
    answer = emmclab_json("explain", places["events"][0])
    assert answer["run"]["provenance"]["inputs"][0]["path"] == str(trace)


def test_a_file_of_several_results_is_named_with_a_number(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "compared.json"
    devices = ("--devices", "nexus5,small-1gb", "--wrap-addresses")
    path.write_text(json.dumps(emmclab_json("compare", trace, *devices)))
    output = emmclab_json("explain", f"{path}#1", f"{path}#2")
    assert (output["first"]["name"], output["second"]["name"]) == ("chat on nexus5", "chat on small-1gb")
    for wrong in (path, f"{path}#3"):
        assert_refused(emmclab("explain", wrong, f"{path}#2"), "2 results", f"{path}#1")


def test_what_is_no_result_is_refused_with_its_place(simulated: Any, trace: Path, tmp_path: Path) -> None:
    good = simulated("good")
    cut, other, page, rows = (tmp_path / name for name in ("cut.json", "other.json", "page.html", "rows.parquet"))
    cut.write_text(good.read_text()[:400])
    other.write_text('{"a": [1, 2]}')
    page.write_text("<html><body>hello</body></html>")
    rows.write_bytes(b"PAR1 nothing")
    cases: list[tuple[tuple[object, ...], tuple[str, ...]]] = [
        ((good, cut), ("cut.json", "line 1", "not JSON")),
        ((other, good), ("other.json", "not a result", "--against")),
        ((good, page), ("page.html", "not a result")),
        ((good, rows), ("rows.parquet", "not a result")),
        ((good, tmp_path / "gone.json"), ("gone.json", "found")),
        ((good, "nexus5"), ("nexus5", "good.json")),
        ((good, good, "--trace", trace), ("--trace",)),
        (("nexus5", "ufs31", "--one-at-a-time"), ("--trace",)),
        (("nexus5", "--one-at-a-time"), ("explain A B",)),
    ]
    for words, problems in cases:
        assert_refused(emmclab("explain", *words), *problems)


def test_a_result_without_provenance_is_compared_by_its_options_and_not_repeated(simulated: Any) -> None:
    first, second = simulated("first"), simulated("second", "--rate", "2")
    silent = json.loads(first.read_text())
    del silent["provenance"]
    first.write_text(json.dumps(silent))
    done = emmclab("explain", first, second, "--json")
    assert done.returncode == 0 and "first.json has no `provenance`" in done.stderr
    assert ("option", "rate") in _keys(json.loads(done.stdout))
    assert_fails(emmclab("explain", first, second, "--one-at-a-time"), "first.json", "provenance")


def test_a_trace_that_is_gone_or_has_changed_is_named(simulated: Any, trace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_bytes(trace.read_bytes())
    pair = [simulated("first", source=copy), simulated("second", *BUFFER, source=copy)]
    lines = copy.read_text().splitlines(keepends=True)
    copy.write_text("".join(lines[:-1]))
    assert_refused(emmclab("explain", *pair, "--one-at-a-time"), "copy.txt", "changed", "first.json")
    copy.unlink()
    assert_refused(emmclab("explain", *pair, "--one-at-a-time"), "copy.txt", "file not found", "first.json")


def test_a_device_is_made_again_of_the_settings_in_a_result() -> None:
    from emmclab.simulation.stored_result import device_from

    for name in ("nexus5", "ufs31", "pixel6a", "emmc51-cache", "galaxys2"):
        device = Device.preset(name)
        assert device_from(tomllib.loads(device.to_toml())).digest == device.digest


def test_numbers_that_differ_look_different_and_rounding_is_no_difference() -> None:
    first = {"run": {"simulated_s": 1.0}, "waits": {"queue_ms": 100.00001}}
    second = {"run": {"simulated_s": 1.0 + 1e-15}, "waits": {"queue_ms": 100.00002}}
    (result,) = figure_differences(first, second)
    assert result["path"] == "waits.queue_ms"
    out = StringIO()
    _show_figures(Console(file=out, width=120), [result])
    assert "100.00001" in out.getvalue() and "100.00002" in out.getvalue() and "< 0.01 %" in out.getvalue()


STUDY = """
name = "nowhere-else"
inputs = ["bad.txt"]
[[grid]]
name = "pages"
devices = ["iiswc15-4ps"]
"""


def _still(result: dict[str, Any]) -> dict[str, Any]:
    """Return the figures without those for charts, which exist only with a page."""
    excluded = ("computing", "provenance", "over_time", "response_distribution")
    return {name: group for name, group in result.items() if name not in excluded}


def test_a_result_holds_version_command_inputs_and_changed_settings(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("simulate", trace, "--device", "small-1gb", "--set", "gc.policy=fifo", "--wrap-addresses")
    result = emmclab_json(*words, "--html", page)
    about = result["provenance"]
    digest = hashlib.sha256(trace.read_bytes()).hexdigest()[:16]
    (device,) = about.pop("devices")
    assert device["name"] == "small-1gb" and device["settings"]["gc"]["policy"] == "fifo"
    assert about == {
        "version": __version__,
        "command": shlex.join(["emmclab", *map(str, words)]),
        "inputs": [{"name": "chat", "path": str(trace), "sha256": digest, "reading": {}}],
        "aged_by": [],
        "settings": {"small-1gb": {"gc.policy": '"fifo"'}},
    }
    for part in (about["command"], digest, "gc.policy = &#34;fifo&#34;"):
        assert part in page.read_text()
    repeated = emmclab_json(*shlex.split(about["command"])[1:])
    assert _still(repeated) == _still(result)


@pytest.mark.parametrize("command", ["compare", "apps compare"])
def test_each_simulating_command_says_how_its_results_were_made(command: str, trace: Path) -> None:
    inputs = ["email"] if command.startswith("apps") else [trace]
    results = emmclab_json(*command.split(), *inputs, "--devices", "nexus5,sdcard")
    rows = results if isinstance(results, list) else [results]
    assert [name for row in rows for name in row["provenance"]["settings"]] == ["nexus5", "sdcard"]
    for entry in rows:
        assert entry["provenance"]["command"].startswith(f"emmclab {command} ")


#: Commands with a page, by the name of their files; `T` is a trace, `S` a study with a search.
PAGES = {
    "simulate": "simulate T --device small-1gb --wrap-addresses --only op=write",
    "simulate-rate": "simulate T --device small-1gb --wrap-addresses --rate 2 --passes 2",
    "compare": "compare T --devices nexus5,small-1gb --wrap-addresses --layers none,pass-through",
    "profile": "profile T --percentiles 50,99",
    "advise": "advise T --device small-1gb --wrap-addresses --new --by waf",
    "validate": "validate T --device nexus5",
    "apps-run": "apps run email --device nexus5",
    "apps-compare": "apps compare email --devices nexus5,sdcard",
    "search": "search S --minimize waf --budget 2 --batch 2 --no-baselines --jobs 1",
}


@pytest.mark.parametrize("name", PAGES)
def test_the_command_of_a_result_and_page_runs_and_is_explained(name: str, trace: Path, tmp_path: Path) -> None:
    if name == "search":
        need_library("optuna")
    study = tmp_path / "study.toml"
    study.write_text(SEARCH.format(input=trace, most=60.0))
    words = [{"T": str(trace), "S": str(study)}.get(word, word) for word in PAGES[name].split()]
    results = ("--results", tmp_path / "results") if name == "search" else ()
    page, file = tmp_path / f"{name}.html", tmp_path / f"{name}.json"
    file.write_text(json.dumps(emmclab_json(*words, *results, "--html", page)))
    commands = set()
    for place in (page, file):
        for entry in emmclab_json("explain", place):
            about = entry["made"]["provenance"]
            assert about["version"] == __version__
            commands.add(about["command"])
    (command,) = commands
    (command_shown,) = re.findall(r"<dt>Command</dt><dd>(.*?)</dd>", page.read_text())
    assert html.unescape(command_shown) == command
    done = emmclab_ok(*shlex.split(command)[1:], "--json", cwd=tmp_path)
    (again_said,) = {provenance["command"] for provenance in _provenances(json.loads(done.stdout))}
    assert again_said == command


def _provenances(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [provenance for part in value for provenance in _provenances(part)]
    return [value["provenance"]]


def test_the_command_on_the_page_of_a_paper_names_traces_by_their_paths_and_how_they_were_read() -> None:
    about = {
        "name": "iiswc15",
        "sources": ["my traces/a.txt", str(bundled()[0])],
        "reading": {"mend_clock": "1h", "only": ["op=read"]},
    }
    command = command_of_paper(about)
    traces = ["--trace", "my traces/a.txt", "--mend-clock", "1h", "--only", "op=read"]
    assert shlex.split(command) == ["emmclab", "reproduce", "iiswc15", *traces]


def test_the_command_of_a_result_names_only_what_the_result_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = "--html p.html --json -o=x --over-time o.csv"
    words = f"simulate a.csv {outputs} --seed 2 --jobs 2 --results r -- run --json"
    monkeypatch.setattr(command_line, "words", words.split())
    assert command_line.command_line() == "emmclab simulate a.csv --seed 2 -- run --json"


def test_the_command_on_the_page_of_a_study_runs(trace: Path, tmp_path: Path) -> None:
    text = trace.read_text().splitlines(keepends=True)
    (tmp_path / "bad.txt").write_text("".join(text[:20]) + "nonsense\n" + "".join(text[20:]))
    folder = tmp_path / "my studies"
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY.replace("bad.txt", str(tmp_path / "bad.txt")))
    study = ("my studies/study.toml", "--lenient")
    assert emmclab("run", *study, "--jobs", 1, cwd=tmp_path).returncode == 0
    emmclab_ok("report", *study, "--html", "page.html", cwd=tmp_path)
    (command_shown,) = re.findall(r"<dt>Command</dt><dd>(.*?)</dd>", (tmp_path / "page.html").read_text())
    words = shlex.split(command_shown.replace("&#39;", "'"))
    assert words[0] == "emmclab"
    emmclab_ok(*words[1:], "--jobs", 1, cwd=tmp_path)


def test_a_result_without_provenance_is_the_same_otherwise(trace: Path) -> None:
    device, source = api.Device.preset("small-1gb"), api.read(trace)
    full, untold = (device.simulate(source, wrap_addresses=True, provenance=value) for value in (True, False))
    assert full.provenance and untold.provenance is None
    assert _still(untold.to_dict()) == _still(full.to_dict())


def test_the_citation_has_the_version_and_licence_of_the_program() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in text and "\nlicense: Apache-2.0\n" in text
