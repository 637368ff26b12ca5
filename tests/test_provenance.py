"""Results and pages contain their provenance: version, command, digests of inputs, changed settings."""

import hashlib
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import emmclab as api
from applications import SEARCH
from conftest import ROOT, emmclab, emmclab_json, emmclab_ok, need_library
from emmclab import __version__
from emmclab.papers.pages import command_of_paper
from emmclab.runtime import command_line
from emmclab.traces.reading import bundled

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
