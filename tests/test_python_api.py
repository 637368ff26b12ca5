"""The Python interface: traces, profiles, exceptions, data frames as traces, and tables in notebooks."""

import inspect
import itertools
import json
import pickle
import re
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pytest

import emmclab
import emmclab.traces.workload
from conftest import ROOT, biotracer
from emmclab import ConfigError, FormatError, Trace, UnsupportedError
from emmclab.apps.closed_loop import program_of, run_application
from emmclab.apps.solutions import find_solutions
from emmclab.crash import Workload as CrashWorkload
from emmclab.simulation.device import Device
from emmclab.studies import Study
from emmclab.studies.search import Objective, require_objectives
from emmclab.traces.workload import Workload
from reference import reference

FROM = {"arrow": Trace.from_arrow, "polars": Trace.from_polars, "pandas": Trace.from_pandas}


def frame(**changes: Any) -> dict[str, Any]:
    """Return three writes and a flush, with changes."""
    columns: dict[str, Any] = {
        "arrival_ns": [0, 1_000_000, 2_000_000, 3_000_000],
        "sector": [0, 8, 16, 0],
        "sectors": [8, 8, 8, 0],
        "op": ["write", "write", "read", "flush"],
    }
    return {name: values for name, values in {**columns, **changes}.items() if values is not None}


@pytest.mark.parametrize("library", FROM)
def test_a_frame_gives_the_trace_that_it_was_made_from(library: str, trace: Path) -> None:
    original = emmclab.read(trace)
    copied = FROM[library](getattr(original, f"to_{library}")(), "again")
    assert list(copied.rows(400)) == list(original.rows(400))
    assert copied.name == "again"
    assert (copied.ledger["seen"], copied.ledger["kept"]) == (400, 400)
    assert (copied.header["source"], copied.header["format"]) == ("again", "arrow")
    first, other = copied.profile(), original.profile()
    for field in ("requests", "duration_s", "mean_response_ms", "temporal_locality_pct", "no_wait_pct"):
        assert first[field] == other[field], field


@pytest.mark.parametrize("library", FROM)
def test_the_needed_columns_are_enough(library: str) -> None:
    tables = {"arrow": pyarrow.table, "polars": polars.DataFrame, "pandas": pandas.DataFrame}
    trace = FROM[library](tables[library](frame()))
    assert trace.profile()["requests"] == 3
    assert trace.rows(4)[3]["op"] == "flush"
    assert trace.repeated(2).ledger["kept"] == 8
    assert emmclab.combine([trace, trace]).ledger["kept"] == 8
    assert emmclab.Device.preset("nexus5").simulate(trace)["requests"]["total"] == 4


def test_names_may_be_categories_of_which_some_are_not_used() -> None:
    table = polars.DataFrame(frame(process=["a", "b", None, "a"])).with_columns(
        polars.col("op").cast(polars.Enum(["nonsense", "flush", "read", "write"])),
        polars.col("process").cast(polars.Categorical),
    )
    rows = Trace.from_polars(table).rows()
    assert [row["op"] for row in rows] == ["write", "write", "read", "flush"]
    assert [row["process"] for row in rows] == ["a", "b", None, "a"]
    categories = pandas.DataFrame(frame()).astype({"op": "category"})
    assert Trace.from_pandas(categories).rows()[2]["op"] == "read"


def test_a_large_frame_is_streamed_without_copies_of_its_numbers() -> None:
    rows = 100_000
    arrow = pyarrow.table(
        {
            "arrival_ns": pyarrow.array(range(rows), pyarrow.int64()),
            "sector": pyarrow.array([8] * rows, pyarrow.uint64()),
            "sectors": pyarrow.array([8] * rows, pyarrow.uint32()),
            "op": pyarrow.array(["write"] * rows),
        }
    )
    source = arrow["sector"].chunk(0).buffers()[1]
    batches = list(itertools.islice(Trace.from_arrow(arrow).batches(), 3))
    for batch in batches:
        shared = pyarrow.record_batch(batch)["sector"].buffers()[1]
        assert source.address <= shared.address < source.address + source.size
    assert all(len(batch) < rows / 10 for batch in batches)


@pytest.mark.parametrize("frames", [polars.DataFrame, pandas.DataFrame])
@pytest.mark.parametrize(
    ("changes", "problem", "hint"),
    [
        *(({name: None}, "missing", "every trace needs arrival_ns, sector, sectors and op") for name in frame()),
        *(
            ({"arrival_ns": None, name: [0, 1, 2, 3]}, "a column `arrival_ns`", "the column to `arrival_ns`.* ns ")
            for name in ("arrival", "arrival_us", "Arrival_Time")
        ),
        ({"arrival_ns": [0.0, 1.5, 2.0, 3.0]}, "cannot have", "the column must contain "),
        ({"sector": ["0", "8", "16", "0"]}, "cannot have", "the column must contain "),
        ({"op": [0, 1, 0, 1]}, "cannot have", "the column must contain "),
        ({"complete_ns": [1.0, None, 3.0, 4.0]}, "cannot have", "the column must contain "),
    ],
)
def test_a_column_that_is_missing_or_of_another_unit_or_type_is_named(
    changes: dict[str, Any], problem: str, hint: str, frames: Any
) -> None:
    name = [*changes][-1]
    read = Trace.from_pandas if frames is pandas.DataFrame else Trace.from_polars
    with pytest.raises(FormatError, match=f"`{name}`.*{problem}") as caught:
        read(frames(frame(**changes)))
    assert caught.value.field == name
    assert re.search(hint, str(caught.value.hint))


@pytest.mark.parametrize(
    ("changes", "row", "problem"),
    [
        ({"sector": [0, 8, None, 0]}, 3, "has no value"),
        ({"op": ["write", None, "read", "read"]}, 2, "has no value"),
        ({"op": ["write", "write", "reed", "read"]}, 3, "`reed`: unknown operation"),
        ({"sectors": [8, -8, 8, 0]}, 2, "`sectors`: .*UInt32"),
        ({"sectors": [8, 0, 8, 0]}, 2, "transfers no data"),
        ({"arrival_ns": [0, 5, 4, 6]}, 3, "arrives before the previous request"),
        ({"complete_ns": [1, 1_000_001, 1_999_999, 3_000_001]}, 3, "earlier"),
    ],
)
def test_an_impossible_value_is_named_with_its_row(changes: dict[str, Any], row: int, problem: str) -> None:
    table = polars.DataFrame(frame(**changes))
    trace = Trace.from_polars(table, "mine")
    with pytest.raises(FormatError, match=problem) as caught:
        _ = trace.ledger
    assert (caught.value.line, caught.value.file) == (row, "mine")


def test_the_row_of_a_fault_counts_from_the_first_of_the_frame() -> None:
    rows = 20_000
    arrivals = list(range(rows))
    arrivals[15_000] = 0
    table = polars.DataFrame(
        {"arrival_ns": arrivals, "sector": [0] * rows, "sectors": [8] * rows, "op": ["write"] * rows}
    )
    with pytest.raises(FormatError, match="arrives before the previous request") as caught:
        _ = Trace.from_polars(table).ledger
    assert caught.value.line == 15_001


def test_columns_that_are_left_out_are_named_in_the_header() -> None:
    table = pandas.DataFrame(frame(latency=[1, 2, 3, 4]), index=[4, 5, 6, 7])
    assert Trace.from_pandas(table).header["note"] == "columns left out: latency"
    assert Trace.from_pandas(pandas.DataFrame(frame())).header["note"] is None


def test_an_empty_frame_is_no_trace() -> None:
    with pytest.raises(FormatError, match="no request"):
        _ = Trace.from_polars(polars.DataFrame(frame()).clear()).ledger


def test_what_is_no_table_is_refused() -> None:
    for wrong in (frame(), [1, 2], "trace.csv"):
        with pytest.raises(ConfigError, match="not a table"):
            Trace.from_arrow(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as lazy:
        Trace.from_polars(polars.DataFrame(frame()).lazy())  # type: ignore[arg-type]
    assert "collect" in str(lazy.value.hint)


def test_a_stream_can_be_read_once() -> None:
    table = pyarrow.table(frame())
    stream = Trace.from_arrow(table.to_reader())
    assert stream.profile()["requests"] == 3
    assert "Trace" in stream._repr_html_()
    with pytest.raises(UnsupportedError, match="cannot be read twice"):
        stream.profile()


def test_read_profile_table(trace: Path) -> None:
    profile = emmclab.read(trace).profile()
    assert profile.name == "chat"
    assert profile["requests"] == 400
    assert "Mean response" in profile.table()
    assert repr(profile.table()) == str(profile.table())
    assert "400 seen" in profile._repr_html_()


def test_to_dict_is_a_copy(trace: Path) -> None:
    profile = emmclab.profile(trace)
    fields = profile.to_dict()
    fields["figures"].clear()
    assert profile.figure("size_distribution")
    assert json.loads(json.dumps(profile.to_dict())) == profile.to_dict()


def test_trace_is_read_anew_each_time(trace: Path) -> None:
    opened = emmclab.read(trace)
    assert opened.profile().to_dict() == opened.profile().to_dict()
    assert sum(len(batch) for batch in opened.batches()) == 400
    assert opened.ledger["kept"] == 400


def test_arrow_shares_the_memory_of_the_core(trace: Path) -> None:
    (batch,) = emmclab.read(trace).batches()
    first, second = pyarrow.record_batch(batch), pyarrow.record_batch(batch)
    assert first["sector"].buffers()[1].address == second["sector"].buffers()[1].address


def test_exceptions_say_where_and_what(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text(biotracer(3) + "1\t\t2\n")
    with pytest.raises(emmclab.FormatError) as caught:
        emmclab.profile(bad)
    assert isinstance(caught.value, emmclab.EmmclabError)
    assert isinstance(caught.value, ValueError)
    assert (caught.value.file, caught.value.line) == (str(bad), 4)
    with pytest.raises(OSError, match="nothing") as refused:
        emmclab.read(tmp_path / "nothing.txt")
    assert refused.value.errno == 2


def test_made_traces_combine_with_each_other_and_with_recorded_ones(trace: Path) -> None:
    music, email = (Workload.preset(name).trace() for name in ("Music", "Email"))
    both = emmclab.combine([music, email])
    assert both.name == "Music/Email"
    assert both.profile()["requests"] == music.profile()["requests"] + email.profile()["requests"]
    assert both.repeated(2).ledger["kept"] == 2 * both.ledger["kept"]
    mixed = emmclab.combine([emmclab.read(trace), email])
    arrivals = [row["arrival_ns"] for row in mixed.rows(500)]
    assert arrivals == sorted(arrivals)
    assert mixed.ledger["kept"] == emmclab.read(trace).ledger["kept"] + email.ledger["kept"]
    result = Device.preset("iiswc15-4ps").simulate(music, email)
    assert result["requests"]["total"] == both.ledger["kept"]


def test_one_trace_is_no_combination(trace: Path) -> None:
    with pytest.raises(emmclab.ConfigError):
        emmclab.combine([emmclab.read(trace)])


def test_bundled_traces_are_small_and_profiled() -> None:
    paths = emmclab.bundled()
    assert paths
    assert sum(path.stat().st_size for path in paths) < 1_000_000
    for path in paths:
        assert emmclab.profile(path)["requests"] > 0


def test_errors_survive_a_process_boundary() -> None:
    error = emmclab.UnitError("times are absurd", kind="unit", file="a.txt", line=3, hint="try --time-unit ms")
    unpickled = pickle.loads(pickle.dumps(error))
    assert (str(unpickled), unpickled.kind, unpickled.line, unpickled.hint) == (str(error), "unit", 3, error.hint)


def _of_names() -> dict[str, tuple[str, str]]:
    """Return the annotations of the parameters of public functions that are lists of texts."""
    modules = ["emmclab", *(f"emmclab.{room}" for room in ("crash", "fleet", "studies"))]
    modules += ["emmclab.apps.closed_loop", "emmclab.apps.processes", "emmclab.apps.solutions"]
    modules += ["emmclab.simulation.layers", "emmclab.studies.advise_deep", "emmclab.studies.search"]
    parameters = {}
    for module in map(import_module, modules):
        own_names = [
            name
            for name, item in vars(module).items()
            if not name.startswith("_") and getattr(item, "__module__", "") == module.__name__
        ]
        for name in getattr(module, "__all__", own_names):
            item = getattr(module, name)
            attributes = vars(item).items() if inspect.isclass(item) else ()
            members = [member for key, member in attributes if not key.startswith("_")]
            for function in [item, *(getattr(member, "__func__", member) for member in members)]:
                if inspect.isfunction(function) and function.__module__.startswith("emmclab."):
                    kinds = inspect.get_annotations(function)
                    for group in re.findall(
                        r"(?:Unpack\[|\*<class '[\w.]+\.)(\w+)", " ".join(map(str, kinds.values()))
                    ):
                        kinds |= inspect.get_annotations(function.__globals__[group])
                    for key, annotation in kinds.items():
                        kind = re.sub(r"\b(?:collections\.abc|typing)\.", "", str(annotation))
                        kind = re.sub(r"^(?:ForwardRef\(['\"])?Annotated\[", "", kind).replace(
                            "str | Iterable[str]", "Names"
                        )
                        is_list = re.match(r"(Sequence|Iterable|Collection|list)\[str\b|Names\b", str(kind))
                        if is_list and key != "return":
                            parameters[f"{function.__qualname__}({key})"] = function.__module__, str(kind)
    return parameters


def test_a_text_is_no_list_of_letters_where_a_function_takes_names() -> None:
    """Functions accept a single name as a text, except those whose list comes from emmclab."""
    parameters = _of_names()
    assert {"compare(layers)", "serve(layers)", "summarise(by)", "run_application(beside)"} <= parameters.keys()
    letters = {
        name: kind
        for name, (_, kind) in parameters.items()
        if not re.match(r"Names\b", kind) and not re.search(r"\| str\b", kind)
    }
    assert {name for name in letters if not name.endswith("run(files)")} == {"Results.of_entries(texts)"}


def test_one_layer_as_a_text_is_the_list_with_it(trace: Path) -> None:
    opened, device = emmclab.read(trace), Device.preset("nexus5")
    text = device.simulate(opened, layers="pass-through", provenance=False)
    listed = device.simulate(opened, layers=["pass-through"], provenance=False)
    assert text["options.layers"] == listed["options.layers"] == ["pass-through"]
    assert text["response"] == listed["response"]
    with pytest.raises(emmclab.ConfigError, match="there is no layer `a,b`"):
        device.simulate(opened, layers="a,b")
    # Stacks are separated by commas, as in the option `--layers`.
    names = [run.run_name for run in emmclab.compare([opened], [device], layers="none,pass-through")]
    assert names == ["nexus5", "nexus5 under pass-through"]
    with emmclab.serve("small-1gb", clock="free", nbd="auto", layers="pass-through") as disk:
        pass
    assert disk.stop()["options.layers"] == ["pass-through"]


def test_names_of_applications_keys_and_figures_may_be_one_text() -> None:
    assert program_of("email", "maps").name == "email + maps"
    run = run_application("email", "nexus5", layers="pass-through", sync="database,cache")
    assert run.options.layers == ("pass-through",) and run.options.synced == ("database", "cache")
    assert run_application("email", "nexus5", sync="none").options.synced == ("none",)
    assert [solution.name for solution in find_solutions("raid0")] == ["plain", "raid0"]
    assert require_objectives("waf", ()) == (Objective("waf"),)
    assert CrashWorkload(command="sync").command == ("sync",)  # type: ignore[arg-type]


def test_what_is_public_shows_how_it_is_used() -> None:
    """Public functions and methods that return something have an example, which is run with the tests."""
    named = [getattr(emmclab, name) for name in emmclab.__all__]
    named += [item for name, item in vars(emmclab.traces.workload).items() if not name.startswith("_")]
    functions = [item for item in named if inspect.isfunction(item)]
    for item in filter(inspect.isclass, named):
        attributes = {name: inspect.getattr_static(item, name) for name in vars(item) if not name.startswith("_")}
        bare = [member.__func__ if isinstance(member, staticmethod) else member for member in attributes.values()]
        functions += [member for member in bare if inspect.isfunction(member)]
    ours = [item for item in functions if item.__module__.startswith("emmclab.")]
    assert len(ours) > 30
    missing = [item.__qualname__ for item in ours if ">>>" not in (item.__doc__ or "")]
    assert missing == [], "add a line that shows it to the docstring"


EVIL = '<script>alert("x")</script>'


class Balanced(HTMLParser):
    """Collects tags that are not closed, and content that a notebook must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        for name, value in attrs:
            assert name == "style", name
            assert "#" not in str(value) and "url" not in str(value), "a colour or file of its own"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def html_of(thing: object) -> str:
    """Return the HTML of an object, after checks that it is complete and harmless."""
    html: str = thing._repr_html_()  # type: ignore[attr-defined]
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert not parser.seen & {"script", "style", "img", "link", "iframe"}
    assert len(html) < 20_000
    return html


def test_a_trace_shows_its_origin_and_first_requests(trace: Path) -> None:
    opened = emmclab.read(trace)
    html = html_of(opened)
    assert "chat" in html and "biotracer" in html and html.count("<tr>") > 8
    assert "400 seen" not in html
    assert opened.ledger["seen"] == 400
    assert "400 seen" in html_of(opened)


def test_a_profile_shows_the_tables_and_findings(trace: Path) -> None:
    html = html_of(emmclab.profile(trace))
    assert "Table III" in html and "Table IV" in html and "11 findings" in html and "400 seen" in html


def test_a_result_shows_response_times_with_units(trace: Path) -> None:
    result = emmclab.Device.preset("iiswc15-hps").simulate(emmclab.read(trace))
    html = html_of(result)
    assert "chat on iiswc15-hps" in html
    assert "Mean, ms" in html and f">{result['response.max_ms']:,.3f}<" in html
    writes_only = emmclab.Device.preset("iiswc15-hps").simulate(emmclab.read(emmclab.bundled()[3]))
    assert "–" in html_of(writes_only) or writes_only["requests"]["read"] > 0


def test_a_comparison_shows_its_tables_and_its_answer(trace: Path) -> None:
    devices = [emmclab.Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    html = html_of(emmclab.compare([emmclab.read(trace)], devices))
    assert "mean response, change against the first device" in html and "iiswc15-hps" in html and "fast" in html


def test_a_study_shows_its_grids() -> None:
    html = html_of(Study.named("iiswc15"))
    for grid in Study.named("iiswc15").grids:
        assert f">{grid.name}<" in html


def test_foreign_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "evil.txt"
    path.write_text(biotracer(50))
    trace = emmclab.read(path)
    trace.name = EVIL
    trace.header["note"] = EVIL
    for thing in (trace, trace.profile(), emmclab.Device.preset("iiswc15-hps").simulate(trace)):
        html = html_of(thing)
        assert "&lt;script&gt;" in html and "<script" not in html


def test_the_outputs_of_the_guide_are_those_of_this_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from python_guide import outputs as blocks

    for block in blocks((ROOT / "docs/guides/python.md").read_text()):
        assert block.told == block.text or (block.html and block.told is None) or not block.text


def test_the_guide_covers_what_python_offers() -> None:
    code = (ROOT / "docs/guides/python.md").read_text()
    for call in ("emmclab.read", "to_polars", "from_polars", ".simulate(", "capacity=", "run_study", "Study.parse"):
        assert call in code, call


def test_the_reference_has_every_public_name() -> None:
    page = reference("python.md")
    for name in {*set(emmclab.__all__) - {"__version__", "VictimPolicy", "VictimView"}, "Study"}:
        assert re.search(rf"^\.\. auto(class|function):: {name}$", page, re.MULTILINE), name
