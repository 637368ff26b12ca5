"""The types of results, of runs and of applications match the results of the core."""

from __future__ import annotations

import ast
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest

import emmclab as lab
from conftest import ROOT
from emmclab.apps.closed_loop import AppOptionFields, run_application
from emmclab.apps.result_types import AppFields
from emmclab.apps.solutions import Risks, risks
from emmclab.calibration.calibrate import calibrate
from emmclab.calibration.calibration_types import Calibration
from emmclab.calibration.validation import ValidationFields, validate
from emmclab.live.serve import serve
from emmclab.live.status_types import FoundImage, LiveStatus
from emmclab.simulation.layers import LayerKind, layers
from emmclab.simulation.over_time_types import RunBin
from emmclab.simulation.result_fields import result_fields
from emmclab.simulation.result_options import ResultOptions
from emmclab.simulation.result_types import ResultFields
from emmclab.simulation.setting_types import Capabilities, ExplainedSetting, FittedFigure
from emmclab.traces.activity_types import Activity
from emmclab.traces.inputs import inputs_of
from emmclab.traces.profile_types import ClockJump, JudgedFinding, Reissues
from emmclab.traces.provenance_types import InputRecord
from emmclab.traces.published import PublishedTables, published
from emmclab.traces.request_types import RequestRow

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
        {
            "layers": ["pair"],
            "layer_settings": {"pair.routing": "striping"},
            "second": "ufs31",
            "drain": True,
        },
    ),
}


def _generic(hint: Any) -> tuple[Any, dict[Any, Any]]:
    """Return the class of a type, without None, and the values of its type variables."""
    if get_origin(hint) is types.UnionType:
        (hint,) = [one for one in get_args(hint) if one is not type(None)]
    origin = get_origin(hint)
    if not is_typeddict(origin):
        return hint, {}
    return origin, dict(zip(origin.__parameters__, get_args(hint), strict=True))


def _fields(hint: Any, name: str = "") -> Iterator[str]:
    """Yield the paths of all fields of a type, groups included."""
    group, variables = _generic(hint)
    yield name
    if is_typeddict(group):
        for field, one in get_type_hints(group).items():
            taken = variables[one] if isinstance(one, TypeVar) else one
            yield from _fields(taken, f"{name}.{field}".lstrip("."))


def _keys(value: Any, hint: Any, name: str = "") -> Iterator[str]:
    """Yield the paths of all keys of a value below its typed groups."""
    group, variables = _generic(hint)
    yield name
    if is_typeddict(group) and value is not None:
        hints = get_type_hints(group)
        for key, one in value.items():
            hint = hints.get(key, Any)
            taken = variables[hint] if isinstance(hint, TypeVar) else hint
            yield from _keys(one, taken, f"{name}.{key}".lstrip("."))


def test_a_declared_field_has_a_type() -> None:
    typed = set(_fields(ResultFields))
    assert [field.path for field in result_fields() if field.path not in typed] == []


@pytest.mark.parametrize("name", RUNS)
def test_a_result_has_the_typed_fields_and_no_other(name: str) -> None:
    preset, settings, options = RUNS[name]
    trace = lab.read(next(path for path in lab.bundled() if path.stem == "messages-wal"))
    result = lab.Device.preset(preset).set(settings).simulate(trace, wrap_addresses=True, **options)
    msgspec.convert(result.to_dict(), ResultFields)
    assert set(_keys(result.to_dict(), ResultFields)) - set(_fields(ResultFields)) == set()
    bins = result.to_dict().get("over_time", [])
    assert msgspec.convert(bins, list[RunBin]) == bins
    assert result.fields["requests"]["total"] == result["requests.total"]


def test_a_result_of_an_application_has_the_typed_fields_and_no_other() -> None:
    result = run_application("email", "nexus5").to_dict()
    del result["options"]
    msgspec.convert(result, AppFields)
    assert set(_keys(result, AppFields)) - set(_fields(AppFields)) == set()


def test_what_the_core_says_of_devices_and_layers_has_the_typed_fields_and_no_other() -> None:
    ufs, emmc = map(lab.Device.preset, ("ufs31", "nexus5"))
    for said, kind in (
        (ufs.explain(), list[ExplainedSetting]),
        (ufs.fitted_figures(), list[FittedFigure]),
        (ufs.capabilities, Capabilities),
        (emmc.capabilities, Capabilities),
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
        (profile.clock_jumps, list[ClockJump]),
        (profile.findings, list[JudgedFinding]),
        (lab.profile(lab.bundled()[0]).reissues, Reissues),
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
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in paths
    ]
    assert found == []


def test_figures_of_a_served_device_have_the_typed_fields_and_no_other() -> None:
    with serve("small-1gb", clock="free", nbd="auto") as disk:
        said = disk.stats(), disk.found
        options = disk.result()["options"]
    assert msgspec.convert(options, ResultOptions) == options
    assert msgspec.convert(msgspec.to_builtins(said), tuple[LiveStatus, FoundImage]) == said


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
