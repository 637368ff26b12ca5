"""The Python interface: traces, profiles, data frames and exceptions."""

import json
import pickle
import re
from pathlib import Path

import pytest

import emmclab
from conftest import biotracer
from emmclab.simulation.device import Device
from emmclab.traces.workload import Workload


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
    import pyarrow

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
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.kind, again.line, again.hint) == (str(error), "unit", 3, error.hint)


def _of_names() -> dict[str, tuple[str, str]]:
    """Return the parameters of public functions that are lists of texts: function, and annotation."""
    import inspect
    from importlib import import_module

    modules = ["emmclab", *(f"emmclab.{room}" for room in ("crash", "fleet", "studies"))]
    modules += ["emmclab.apps.closed_loop", "emmclab.apps.processes", "emmclab.apps.solutions"]
    modules += ["emmclab.simulation.layers", "emmclab.studies.advise_deep", "emmclab.studies.search"]
    found = {}
    for module in map(import_module, modules):
        own_names = [
            name
            for name, one in vars(module).items()
            if not name.startswith("_") and getattr(one, "__module__", "") == module.__name__
        ]
        for name in getattr(module, "__all__", own_names):
            one = getattr(module, name)
            own = vars(one).items() if inspect.isclass(one) else ()
            members = [member for key, member in own if not key.startswith("_")]
            for function in [one, *(getattr(member, "__func__", member) for member in members)]:
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
                            found[f"{function.__qualname__}({key})"] = function.__module__, str(kind)
    return found


def test_a_text_is_no_list_of_letters_where_a_function_takes_names() -> None:
    """Everything takes one name as a text, except what gets its list from emmclab."""
    found = _of_names()
    assert {"compare(layers)", "serve(layers)", "summarise(by)", "run_application(beside)"} <= found.keys()
    letters = {
        name: kind
        for name, (_, kind) in found.items()
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
    # As `--layers` of the command, with commas between stacks.
    names = [run.run_name for run in emmclab.compare([opened], [device], layers="none,pass-through")]
    assert names == ["nexus5", "nexus5 under pass-through"]
    with emmclab.serve("small-1gb", clock="free", nbd="auto", layers="pass-through") as disk:
        pass
    assert disk.stop()["options.layers"] == ["pass-through"]


def test_names_of_applications_keys_and_figures_may_be_one_text() -> None:
    from emmclab.apps.closed_loop import program_of, run_application
    from emmclab.apps.solutions import find_solutions
    from emmclab.crash import Workload as CrashWorkload
    from emmclab.studies.search import Objective, require_objectives

    assert program_of("email", "maps").name == "email + maps"
    run = run_application("email", "nexus5", layers="pass-through", sync="database,cache")
    assert run.options.layers == ("pass-through",) and run.options.synced == ("database", "cache")
    assert run_application("email", "nexus5", sync="none").options.synced == ("none",)
    assert [one.name for one in find_solutions("raid0")] == ["plain", "raid0"]
    assert require_objectives("waf", ()) == (Objective("waf"),)
    assert CrashWorkload(command="sync").command == ("sync",)  # type: ignore[arg-type]


def test_what_is_public_shows_how_it_is_used() -> None:
    """Public functions and methods that return something have an example, which is run with the tests."""
    import inspect

    import emmclab.traces.workload

    named = [getattr(emmclab, name) for name in emmclab.__all__]
    named += [one for name, one in vars(emmclab.traces.workload).items() if not name.startswith("_")]
    functions = [one for one in named if inspect.isfunction(one)]
    for one in filter(inspect.isclass, named):
        own = {name: inspect.getattr_static(one, name) for name in vars(one) if not name.startswith("_")}
        bare = [member.__func__ if isinstance(member, staticmethod) else member for member in own.values()]
        functions += [member for member in bare if inspect.isfunction(member)]
    ours = [one for one in functions if one.__module__.startswith("emmclab.")]
    assert len(ours) > 30
    missing = [one.__qualname__ for one in ours if ">>>" not in (one.__doc__ or "")]
    assert missing == [], "add a line that shows it to the docstring"
