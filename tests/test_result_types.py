"""The types of results, of runs and of applications match the results of the core."""

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import emmclab as lab
from conftest import ROOT
from emmclab.apps.closed_loop import AppOptionFields, run_application
from emmclab.apps.result_types import AppFields
from emmclab.apps.solutions import Risks, risks
from emmclab.calibration.calibrate import calibrate
from emmclab.calibration.validation import ValidationFields, validate
from emmclab.core_types import (
    AnnouncedCapabilities,
    Calibration,
    ClockJumpRow,
    Finding,
    FittedFigure,
    LiveStatus,
    PreviousRun,
    ReissueSummary,
    SettingExplanation,
)
from emmclab.live.serve import serve
from emmclab.simulation.layers import LayerKind, layers
from emmclab.simulation.result_fields import ResultFields, result_fields
from emmclab.traces.activity import Activity
from emmclab.traces.inputs import InputRecord, inputs_of
from emmclab.traces.published import PublishedTables, published
from emmclab.traces.trace import RequestRow

#: Traces with block notes.
ANNOTATED = sorted((ROOT / "python" / "emmclab" / "data" / "annotated").glob("*.parquet"))
#: Runs that together have every group of a result.
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "an eMMC": ("nexus5", {}, {"percentiles": [99.9], "distribution": True, "over_time": True}),
    "a host that packs": ("nexus5", {"host.kernel": "linux_4.9"}, {"first_writes": 3}),
    "a UFS": ("ufs31", {}, {"mode": "open"}),
    "zones": ("zufs", {}, {"layers": ["lfs"]}),
    "two devices": (
        "nexus5",
        {},
        {"layers": ["pair"], "layer_settings": {"pair.routing": "striping"}, "second": "ufs31", "drain": True},
    ),
}


def _typed(value: Any, hint: Any) -> Any:
    """Convert a value to a type, which drops keys that the type does not have."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))


@pytest.mark.parametrize("name", RUNS)
def test_a_result_has_the_typed_fields_and_no_other(name: str) -> None:
    preset, settings, options = RUNS[name]
    trace = lab.read(next(path for path in lab.bundled() if path.stem == "messages-wal"))
    result = lab.Device.preset(preset).set(settings).simulate(trace, wrap_addresses=True, **options)
    assert _typed(result.to_dict(), ResultFields) == msgspec.to_builtins(result.to_dict())
    assert result.fields["requests"]["total"] == result["requests.total"]


def test_a_result_of_an_application_has_the_typed_fields_and_no_other() -> None:
    result = run_application("email", "nexus5").to_dict()
    del result["options"]
    assert _typed(result, AppFields) == result


def test_what_the_core_says_of_devices_and_layers_has_the_typed_fields_and_no_other() -> None:
    ufs, emmc = map(lab.Device.preset, ("ufs31", "nexus5"))
    for said, kind in (
        (ufs.explain(), list[SettingExplanation]),
        (ufs.fitted_figures(), list[FittedFigure]),
        (ufs.capabilities, AnnouncedCapabilities),
        (emmc.capabilities, AnnouncedCapabilities),
        (layers(), list[LayerKind]),
        (calibrate(lab.read(lab.bundled()[2], only="to=10m")), Calibration),
    ):
        assert said
        # Conversion drops keys that the type does not have, so that the comparison would fail.
        assert msgspec.convert(msgspec.to_builtins(said), kind) == said


def test_parts_of_a_profile_have_the_typed_fields_and_no_other(tmp_path: Path) -> None:
    paused = tmp_path / "paused.csv"
    lines = [f"{second},write,{8 * number},8" for number, second in enumerate((0.0, 0.5, 90_000.0, 90_000.5))]
    paused.write_text("\n".join(["arrival_s,op,sector,sectors", *lines]) + "\n")
    profile = lab.read(paused).profile()
    made = inputs_of([lab.read(paused, only="op=write")])
    for said, kind in (
        (profile.clock_jumps, list[ClockJumpRow]),
        (profile.findings, list[Finding]),
        (lab.profile(lab.bundled()[0]).reissues, ReissueSummary),
        (made, list[InputRecord]),
        (published(), PublishedTables),
        *((lab.read(path).rows(3), list[RequestRow]) for path in (lab.bundled()[0], *ANNOTATED[:1])),
    ):
        assert said
        assert msgspec.convert(msgspec.to_builtins(said), kind) == said


def test_the_package_reads_a_result_by_its_typed_fields() -> None:
    """A path must come from the declaration, so that mypy checks every other key."""
    paths = {field.path for field in result_fields() if "." in field.path}
    paths |= {path.rpartition(".")[0] for path in paths if path.count(".") > 1}
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / "python" / "emmclab").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in paths
    ]
    assert found == []


def test_figures_of_a_served_device_have_the_typed_fields_and_no_other() -> None:
    with serve("small-1gb", clock="free", nbd="auto") as disk:
        said = disk.stats(), disk.found
    assert msgspec.convert(msgspec.to_builtins(said), tuple[LiveStatus, PreviousRun]) == said


def test_what_commands_print_has_the_typed_fields_and_no_other() -> None:
    wal = lab.read(next(path for path in lab.bundled() if path.stem == "messages-wal"))
    for said, kind in (
        ([json.loads(lab.read(path).header["activity"] or "{}") for path in lab.bundled()], list[Activity]),
        (validate(wal).to_dict(), ValidationFields),
        (risks(), Risks),
        (run_application("email", "nexus5").options.to_dict(), AppOptionFields),
    ):
        assert said
        assert msgspec.convert(msgspec.to_builtins(said), kind) == said
