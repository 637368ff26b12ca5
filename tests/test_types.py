"""Types of results, of stored data and of the core match the returned data, and generated files are current."""

import ast
import copy
import inspect
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import emmclab as lab
from conftest import ROOT, csv_trace, emmclab
from emmclab import _core
from emmclab.apps.closed_loop import AppOptionFields, run_application
from emmclab.apps.solutions import Risks, risks
from emmclab.calibration.calibrate import calibrate
from emmclab.calibration.validation import ValidationFields, validate
from emmclab.core_types import (
    AnnouncedCapabilities,
    AppResult,
    Calibration,
    ClockJumpRow,
    Finding,
    FittedFigure,
    LiveStatus,
    PreviousRun,
    RecordedActivity,
    ReissueSummary,
    SettingExplanation,
    SimulationResult,
)
from emmclab.crash.json_types import CrashSummary
from emmclab.live.serve import serve
from emmclab.runtime.field_mapping import FieldMapping, UnknownFieldError
from emmclab.runtime.result_storage import Folder
from emmclab.simulation.layers import LayerKind, layers
from emmclab.simulation.result import Result
from emmclab.studies.store import Store
from emmclab.studies.stored_types import Entry, Index
from emmclab.studies.verdicts import Ranking
from emmclab.traces.inputs import InputRecord, inputs_of
from emmclab.traces.published import PublishedTables, published
from emmclab.traces.trace import RequestRow
from generate_types import generated
from typed_fields import check_types

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


@pytest.mark.parametrize("name", RUNS)
def test_a_result_has_the_typed_fields_and_no_other(name: str) -> None:
    preset, settings, options = RUNS[name]
    trace = lab.read(next(path for path in lab.bundled() if path.stem == "messages-wal"))
    result = lab.Device.preset(preset).set(settings).simulate(trace, wrap_addresses=True, **options)
    check_types(result, Result)
    assert result.requests.total == result["requests.total"]


def test_a_result_of_an_application_has_the_typed_fields_and_no_other() -> None:
    result = run_application("email", "nexus5")
    check_types(result["app"], AppResult)
    check_types(result["device"], SimulationResult)


def test_what_the_core_says_of_devices_and_layers_has_the_typed_fields_and_no_other() -> None:
    ufs, emmc = map(lab.Device.preset, ("ufs31", "nexus5"))
    for value, kind in (
        (ufs.explain(), list[SettingExplanation]),
        (ufs.fitted_figures(), list[FittedFigure]),
        (ufs.capabilities, AnnouncedCapabilities),
        (emmc.capabilities, AnnouncedCapabilities),
        (layers(), list[LayerKind]),
        (calibrate(lab.read(lab.bundled()[2], only="to=10m")), Calibration),
    ):
        check_types(value, kind)


def test_parts_of_a_profile_have_the_typed_fields_and_no_other(tmp_path: Path) -> None:
    lines = [f"{second},write,{8 * number},8" for number, second in enumerate((0.0, 0.5, 90_000.0, 90_000.5))]
    paused = csv_trace(tmp_path / "paused.csv", "arrival_s,op,sector,sectors", lines)
    profile = lab.read(paused).profile()
    inputs = inputs_of([lab.read(paused, only="op=write")])
    for value, kind in (
        (profile["clock_jumps"], list[ClockJumpRow]),
        (profile.findings, list[Finding]),
        (lab.profile(lab.bundled()[0]).reissues, ReissueSummary),
        (inputs, list[InputRecord]),
        (published(), PublishedTables),
        *((lab.read(path).rows(3), list[RequestRow]) for path in (lab.bundled()[0], *ANNOTATED[:1])),
    ):
        check_types(value, kind)


def test_a_field_is_read_as_an_attribute_or_by_its_path() -> None:
    result = lab.Device.preset("ufs31").simulate(lab.read(lab.bundled()[0]), percentiles=[99.9])
    assert result.ufs and result.ufs.to_host.busy_pct == result["ufs.to_host.busy_pct"]
    assert result.percentiles[0].percentile == result["percentiles"][0]["percentile"] == 99.9
    assert result.wear.erase_counts.from_ == result["wear.erase_counts.from"]
    assert {"requests", "run_name", "durable"} <= {*dir(result)} and "from_" in dir(result.wear.erase_counts)


def test_what_a_result_lacks_is_none_or_an_empty_list() -> None:
    result = lab.Device.preset("nexus5").simulate(lab.read(lab.bundled()[0]))
    assert "ufs" not in list(result) and "ufs" not in result.to_dict()
    assert result.ufs is None and result["ufs"] is None and result["ufs.to_host.busy_pct"] is None
    assert result.layers == result["layers"] == []
    assert "ufs.to_host.busy_pct" in result and "ufs.to_host.busi_pct" not in result


def test_a_wrong_field_is_an_error_with_the_nearest_name() -> None:
    result = lab.Device.preset("nexus5").simulate(lab.read(lab.bundled()[0]))
    for read in (lambda: result.response.p98_ms, lambda: result["response.p98_ms"], lambda: result.responce):  # type: ignore[attr-defined]
        with pytest.raises(UnknownFieldError, match=r"did you mean `(response.p..*_ms|p.*_ms|response)`"):
            read()
    assert not hasattr(result, "responce") and copy.copy(result).device == pickle.loads(pickle.dumps(result)).device


def _paths(kind: type[FieldMapping], above: str = "") -> Iterator[str]:
    """Yield the paths of all fields of groups that every result has."""
    for name, hint in get_type_hints(kind).items():
        if above:
            yield f"{above}{name}"
        if isinstance(hint, type) and issubclass(hint, FieldMapping):
            yield from _paths(hint, f"{above}{name}.")


def test_the_package_reads_a_result_by_attributes() -> None:
    """A path must come from the declaration, so that mypy checks every other field."""
    paths = {*_paths(SimulationResult)}
    reads = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / "python" / "emmclab").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in paths
    ]
    assert reads == []


def test_figures_of_a_served_device_have_the_typed_fields_and_no_other() -> None:
    with serve("small-1gb", clock="free", nbd="auto") as disk:
        values = disk.stats(), disk.found
    for value, kind in zip(values, (LiveStatus, PreviousRun), strict=True):
        check_types(value, kind)


def test_what_commands_print_has_the_typed_fields_and_no_other() -> None:
    wal = lab.read(next(path for path in lab.bundled() if path.stem == "messages-wal"))
    for value, kind in (
        ([json.loads(lab.read(path).header["activity"] or "{}") for path in lab.bundled()], list[RecordedActivity]),
        (validate(wal).to_dict(), ValidationFields),
        (risks(), Risks),
        (run_application("email", "nexus5").options.to_dict(), AppOptionFields),
    ):
        check_types(value, kind)


def test_index_and_cells_have_the_typed_fields_and_no_other(trace: Path, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    # The workload does not fit on the small device, so that its cells fail.
    study.write_text(
        f'name = "small"\ninputs = ["{trace}", "Idle"]\nseeds = [1, 2]\n[[grid]]\nname = "g"\n'
        'devices = ["nexus5"]\nmodes = ["open"]\n[grid.axes]\n"gc.policy" = ["greedy", "fifo"]\n'
        '[[grid]]\nname = "fails"\ndevices = ["small-1gb"]\nmodes = ["open"]\nwrap_addresses = false\n'
    )
    emmclab("run", study, "--results", tmp_path / "results")
    store = Store(Folder(tmp_path / "results" / "small"))
    index = msgspec.json.decode(msgspec.json.encode(store.index()), type=Index)
    assert index == store.index()
    texts = list(store.results())
    entries = [msgspec.json.decode(text, type=Entry) for text in texts]
    assert [msgspec.json.decode(text) for text in texts] == entries
    assert {"failed", "result"} <= {name for entry in entries for name in entry}
    assert {"device" in entry["cell"] for entry in entries} == {False, True}


def test_rankings_have_the_typed_fields_and_no_other(trace: Path, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(
        f'name = "small"\ninputs = ["{trace}"]\n[[grid]]\nname = "g"\ndevices = ["nexus5", "ufs31"]\n'
        'modes = ["open"]\nlayers = ["lfs"]\n'
    )
    emmclab("run", study, "--results", tmp_path / "results")
    done = emmclab("report", study, "--results", tmp_path / "results", "--json", cwd=tmp_path)
    rankings = msgspec.json.decode(done.stdout)["rankings"]
    assert rankings and msgspec.convert(rankings, list[Ranking]) == rankings
    (first, *_) = Store(Folder(tmp_path / "results" / "small")).results()
    entry = msgspec.json.decode(first)
    assert msgspec.convert(entry, Entry) == entry


@pytest.mark.usefixtures("root")
def test_a_summary_has_the_typed_fields_and_no_other(tmp_path: Path) -> None:
    lying = ("--device", "emmc51-cache", "--set", "cache.lies=flush")
    words = ("--workload", "sqlite-wal-full", "--operations", 5, "--cuts", 5, "--states", "device", "--json")
    done = emmclab("crash", *lying, *words, cwd=tmp_path)
    summary = msgspec.json.decode(done.stdout, type=CrashSummary)
    assert msgspec.json.decode(msgspec.json.encode(summary)) == msgspec.json.decode(done.stdout)
    assert summary["findings"] and "minimal" in summary["findings"][0]


def test_generated_files_are_current() -> None:
    assert [path.name for path, text in generated().items() if path.read_text() != text] == []


STUB = ROOT / "python" / "emmclab" / "_core.pyi"


def stub_names(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, list[str] | None]]:
    """Yield the names in the stub; `__init__` is treated as the class itself."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            declared = node.args
            listed = [*declared.posonlyargs, *declared.args, declared.vararg, *declared.kwonlyargs]
            names = [item.arg for item in listed if item is not None and item.arg not in ("self", "cls")]
            is_property = "property" in map(ast.unparse, node.decorator_list)
            name = f"{prefix}{node.name}".removesuffix(".__init__")
            yield name, None if is_property else names
        elif isinstance(node, ast.ClassDef):
            yield node.name, None
            yield from stub_names(node.body, f"{node.name}.")
        elif isinstance(node, ast.AnnAssign):
            yield prefix + ast.unparse(node.target), None


def compiled(thing: Any, prefix: str = "") -> Iterator[tuple[str, list[str] | None]]:
    """Yield the names in the core, except for those that every object or module has."""
    common = {*dir(object), "__module__", "__doc__"}
    for name in vars(thing):
        if name in common or (not prefix and name.startswith("_")):
            continue
        member = getattr(thing, name)
        yield prefix + name, parameters(member)
        if inspect.isclass(member):
            yield from compiled(member, f"{name}.")


def parameters(thing: Any) -> list[str] | None:
    """Return the names of parameters from the text signature, if any, without `self`."""
    try:
        return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]
    except (TypeError, ValueError):
        return None


def test_the_stub_agrees_with_the_core() -> None:
    stub, core = dict(stub_names(ast.parse(STUB.read_text()).body)), dict(compiled(_core))
    assert set(stub) - {"__version__"} == set(core)
    names = [name for name in stub if stub[name] is not None and core.get(name) is not None]
    assert len(names) > 100
    assert {name: stub[name] for name in names} == {name: core[name] for name in names}
