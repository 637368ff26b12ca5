"""Any file name and any encoding of the terminal is accepted."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import COMMAND, PATIENCE_S, emmclab, environment


@pytest.fixture
def oddly_named(trace: Path, tmp_path: Path) -> bytes:
    """A copy of the trace whose name is not valid UTF-8 and contains a space."""
    path = os.fsencode(tmp_path) + b"/my K\xfcche.txt"
    Path(os.fsdecode(path)).write_bytes(trace.read_bytes())
    return path


def run(*words: str | bytes, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command with bytes as arguments."""
    command = [*COMMAND, *words]
    done = subprocess.run(
        command, capture_output=True, env=environment(), cwd=folder, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_name_that_is_no_utf8_is_shown_with_a_replacement(oddly_named: bytes, tmp_path: Path) -> None:
    said = run("profile", oddly_named, "--json", folder=tmp_path).stdout
    assert json.loads(said)[0]["name"] == "my K\N{REPLACEMENT CHARACTER}che"
    for words in (
        ("profile", oddly_named, "--html", "page.html", "--figures", "figures"),
        ("head", oddly_named),
        ("explain", oddly_named, "--json"),
        ("convert", oddly_named, oddly_named + b".parquet", "--json"),
        ("simulate", oddly_named, "--wrap-addresses", "--html", "run.html"),
    ):
        run(*words, folder=tmp_path)


def test_a_study_takes_such_a_name(oddly_named: bytes, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text('name = "small"\ninputs = ["Idle"]\n')
    from emmclab.studies import Serial, Study, run_study

    named = Study.named(str(study)).with_inputs([os.fsdecode(oddly_named)])
    found = run_study(named, tmp_path / "results", Serial())
    assert found.about["recorded"] == ["my K\N{REPLACEMENT CHARACTER}che.txt"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_any_encoding_takes_the_tables(trace: Path, encoding: str) -> None:
    done = emmclab("profile", trace, env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert "Table III" in done.stdout
