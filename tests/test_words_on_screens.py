"""Screens and pages name their subjects: inputs, networks in use, write buffers, layers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import emmclab, emmclab_json
from emmclab.apps.closed_loop import run_application
from emmclab.cli.show_crash import _device
from emmclab.pages import crash_text
from emmclab.pages.assemble import _without

OFFLINE = """
name = "offline"
about = "Writes a file"
source = "made for a test"
user_waits_for = "ui"

[[database]]
name = "notes.db"
partition = "data"
size = "100KB"

[[thread]]
name = "ui"
steps = [{ transaction = { database = "notes.db", pages = 2 } }]
"""


def test_a_figure_of_settings_does_not_list_inputs_that_it_lacks_nor_one_of_inputs_settings() -> None:
    inputs = ["Idle", "Movie"]
    assert _without({"open", "programmed"}, inputs) == []
    assert _without({"Idle"}, inputs) == ["Movie"]


@pytest.mark.parametrize("online", [True, False])
def test_a_run_names_its_network_only_if_the_program_uses_one(online: bool, tmp_path: Path) -> None:
    path = tmp_path / "program.toml"
    step = 'steps = [{ network = { size = "10KB" } }, '
    path.write_text(OFFLINE.replace("steps = [", step) if online else OFFLINE)
    result = run_application(str(path), "nexus5", precondition="none")
    assert result.run_name == ("nexus5 over wifi" if online else "nexus5")


def test_writes_of_a_device_with_a_write_buffer_are_complete_there(trace: Path) -> None:
    shown = emmclab("simulate", trace, "--device", "emmc51-cache", "--wrap-addresses")
    assert "complete in the write buffer, durable ones" in " ".join(shown.stdout.split())
    plain = emmclab("simulate", trace, "--device", "iiswc15-4ps", env={"COLUMNS": "150"})
    assert "writes complete when" in " ".join(plain.stdout.split())


def test_the_verdict_of_power_cuts_names_the_layers_above_the_device() -> None:
    facts = {"lies": "none", "device": "emmc51-cache", "layers": ["journal:aware"]}
    kept: Any = SimpleNamespace(facts=facts)
    assert _device(kept) == "emmc51-cache below journal:aware"
    summary = {
        "states": 3,
        "cuts": 2,
        "findings": [],
        "documented": [],
        "doubts": [],
        "verdict": "kept",
        "log": facts | {"acknowledgements": 1},
        "options": {"check": "sqlite"},
    }
    assert crash_text.headline(summary).endswith("of 2 cuts below journal:aware")
    unchecked = crash_text.headline(summary | {"options": {"check": None}})
    assert unchecked.endswith("; nothing checked the data of the workload")


def test_the_time_of_a_collection_is_said_to_be_assumed(trace: Path) -> None:
    (profile,) = emmclab_json("profile", trace)
    assert json.dumps(profile["idle_gc"])
    said = " ".join(emmclab("profile", trace).stdout.split())
    assert "each, assumed) fit into single gaps" in said
    assert "Assumed is the 4PS device of the paper, not that of the trace: 512 of 1,024 pages of 4 KB" in said
