"""Results and pages say how they were made: version, command, digests of inputs, changed settings."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, emmclab, emmclab_json
from emmclab import __version__
from emmclab.runtime import command

STUDY = """
name = "nowhere-else"
inputs = ["bad.txt"]
[[grid]]
name = "pages"
devices = ["iiswc15-4ps"]
"""


def _still(result: dict[str, Any]) -> dict[str, Any]:
    """The figures; those for charts are there only with a page."""
    beside = ("computing", "provenance", "over_time", "response_distribution")
    return {name: group for name, group in result.items() if name not in beside}


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
    for said in (about["command"], digest, "gc.policy = &#34;fifo&#34;"):
        assert said in page.read_text()
    again = emmclab_json(*shlex.split(about["command"])[1:])
    assert _still(again) == _still(result)


@pytest.mark.parametrize("command", ["compare", "apps compare"])
def test_each_simulating_command_says_how_its_results_were_made(command: str, trace: Path) -> None:
    inputs = ["email"] if command.startswith("apps") else [trace]
    found = emmclab_json(*command.split(), *inputs, "--devices", "nexus5,sdcard")
    rows = found if isinstance(found, list) else [found]
    assert [name for row in rows for name in row["provenance"]["settings"]] == ["nexus5", "sdcard"]
    for one in rows:
        assert one["provenance"]["command"].startswith(f"emmclab {command} ")


def test_the_command_of_a_result_names_only_what_the_result_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = "--html p.html --json -o=x --over-time o.csv"
    words = f"simulate a.csv {outputs} --seed 2 --jobs 2 --results r -- run --json"
    monkeypatch.setattr(command, "words", words.split())
    assert command.command_line() == "emmclab simulate a.csv --seed 2 -- run --json"


def test_the_command_on_the_page_of_a_study_runs(trace: Path, tmp_path: Path) -> None:
    text = trace.read_text().splitlines(keepends=True)
    (tmp_path / "bad.txt").write_text("".join(text[:20]) + "nonsense\n" + "".join(text[20:]))
    folder = tmp_path / "my studies"
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY.replace("bad.txt", str(tmp_path / "bad.txt")))
    study = ("my studies/study.toml", "--lenient")
    assert emmclab("run", *study, "--jobs", 1, cwd=tmp_path).returncode == 0
    done = emmclab("report", *study, "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"<dt>Command</dt><dd>(.*?)</dd>", (tmp_path / "page.html").read_text())
    words = shlex.split(said.replace("&#39;", "'"))
    assert words[0] == "emmclab"
    again = emmclab(*words[1:], "--jobs", 1, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_the_citation_has_the_version_and_licence_of_the_program() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in text and "\nlicense: Apache-2.0\n" in text
