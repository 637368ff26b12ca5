"""An option is the same in all commands: name, spelling, default, range and meaning."""

import json
import typing
from pathlib import Path
from typing import Any

import pytest

import emmclab as lab
from conftest import emmclab, emmclab_json, emmclab_ok
from emmclab import _core
from emmclab.apps.closed_loop import APPLICATION_OPTIONS
from emmclab.cli import application
from emmclab.cli.command_groups import walk_commands
from emmclab.errors import ConfigError
from emmclab.live.serve import SERVE_OPTIONS
from emmclab.runtime.option import Option
from emmclab.simulation.rerun import recipe_of
from emmclab.simulation.run_options import DEFAULTS, RUN_OPTIONS, RunOptions, complete_options
from emmclab.simulation.stored_result import read_result
from emmclab.studies import Study
from emmclab.studies.grid import AXES
from emmclab.studies.tables import rows_of

#: Options of commands that have the name of a run option but another meaning.
OTHERS = {
    # Seeds of other things than runs, and of preconditioning alone.
    *((command, "seed") for command in ("profile", "synth", "calibrate", "probe", "serve", "crash", "search")),
    # Applications and advice start from another device state, and are checked in another way.
    *((command, name) for command in ("apps", "advise") for name in ("seed", "precondition", "check")),
    # The flushes of a made trace.
    ("synth", "flush_every"),
    # Options with other meanings.
    *(("devices", "check"), ("crash", "check"), ("crash", "second"), ("durability", "check")),
}
#: Default values of the command line by the corresponding values of Python.
SAME: dict[Any, Any] = {(): []}


def parameters() -> list[tuple[str, Any, str]]:
    """Return the options of commands that are run options: command, parameter, run option."""
    by_option = {one.command_line: name for name, one in RUN_OPTIONS.items() if one.command_line}
    return [
        (command, parameter, by_option[name])
        for command, group in walk_commands(application())
        for parameter in group.params
        for name in parameter.opts
        if name in by_option and hasattr(parameter, "help")
    ]


def test_a_command_has_the_default_the_range_and_the_meaning_of_the_declaration() -> None:
    found = parameters()
    assert {name for command, _, name in found if command == "simulate"} >= {
        *("mode", "precondition", "rate", "passes", "wrap_addresses", "seed", "check", "images", "layers"),
        *("second", "drain", "percentiles", "events", "perfetto"),
    }
    for command, parameter, name in found:
        if (command.partition(" ")[0], name) in OTHERS:
            continue
        one = RUN_OPTIONS[name]
        assert parameter.help == one.about, (command, name)
        assert parameter.default == SAME.get(one.default, one.default), (command, name)
        if one.words:
            assert parameter.metavar == "|".join(one.words), (command, name)


def test_an_option_that_changes_a_run_is_a_key_of_grids_with_its_default() -> None:
    study = Study.parse('name = "one"\ninputs = ["Movie"]\n[[grid]]\nname = "g"\ndevices = ["nexus5"]', "one.toml")
    (grid,) = study.grids
    for name, one in RUN_OPTIONS.items():
        if one.stored != "never" and name not in ("mode", "seed", "victim", "layers", "layer_settings"):
            assert grid.option(name) == (one.default or type(grid.option(name))()), name
    assert grid.modes == (DEFAULTS["mode"],)


def test_the_core_has_each_word_of_the_mode() -> None:
    core = _core.replay_defaults()
    for word in RUN_OPTIONS["mode"].words:
        assert complete_options({"mode": word})["mode"] == word
        assert _core.check_traces(lab.Device.preset("nexus5").core, core | {"mode": word}, [])


@pytest.mark.parametrize("name", [name for name in AXES if name not in ("second", "precondition")])
def test_a_result_repeats_an_option_and_is_simulated_again_with_it(name: str, tmp_path: Path) -> None:
    trace = lab.read(lab.bundled()[0])
    value = True if isinstance(DEFAULTS[name], bool) else 2
    given: Any = {name: value, "layers": ["pass-through"]}
    first = lab.Device.preset("nexus5").simulate(trace, **given)
    assert first["options"][name.removesuffix("_ns")] == value
    file = tmp_path / "first.json"
    file.write_text(json.dumps(first.to_dict()))
    again = recipe_of(read_result(file)).run()
    assert again.deterministic() == first.deterministic() | {"provenance": again["provenance"]}


@pytest.mark.parametrize("declared", [SERVE_OPTIONS, APPLICATION_OPTIONS], ids=["serve", "apps"])
def test_other_functions_have_the_same_defaults(declared: dict[str, Option]) -> None:
    for name in declared.keys() & RUN_OPTIONS.keys() - {"precondition"}:
        assert declared[name].default == DEFAULTS[name], name


def test_simulate_takes_every_option_and_no_other(trace: Path) -> None:
    device, read = lab.Device.preset("nexus5"), lab.read(trace)
    given: Any = dict(DEFAULTS)
    assert device.simulate(read, **given).deterministic() == device.simulate(read).deterministic()
    wrong: Any = {"wrap_adresses": True}
    with pytest.raises(TypeError, match="wrap_addresses"):
        device.simulate(read, **wrong)
    assert typing.get_type_hints(RunOptions, localns={"Device": lab.Device}).keys() == RUN_OPTIONS.keys()


@pytest.mark.parametrize(
    ("option", "value"),
    [("mode", "loose"), ("rate", 0.0), ("rate", float("nan")), ("rate", 1e9), ("passes", 0), ("seed", -1)],
)
def test_an_impossible_value_is_named_with_what_is_allowed(option: str, value: Any) -> None:
    given: Any = {option: value}
    with pytest.raises(ConfigError, match=f"`{option}` cannot be") as refused:
        complete_options(given)
    assert refused.value.field == option
    assert RUN_OPTIONS[option].range in (refused.value.hint or "")


def test_explain_tells_an_option_by_each_of_its_names() -> None:
    for word in ("passes", "--passes"):
        done = emmclab_ok("explain", "--", word)
        assert RUN_OPTIONS["passes"].about in " ".join(done.stdout.split()) and "--passes" in done.stdout
    assert "command line" not in emmclab("explain", "start_offset_ns").stdout
    (row,) = emmclab_json("explain", "passes")
    assert (row["kind"], row["allowed"], row["default"]) == ("option of a run", "1 or more", "1")


def test_every_command_with_a_device_takes_both_spellings_of_the_option() -> None:
    found = {}
    for name, command in walk_commands(application()):
        for parameter in command.params:
            # `record` and `top` choose block devices of a machine, not a simulated device.
            if "device" in (parameter.name or "") and name not in ("record", "top"):
                spelled = [one for one in parameter.opts if one in ("--device", "--devices")]
                if spelled:
                    found[name] = spelled
    assert {*found} >= {"simulate", "compare", "apps run", "apps compare", "advise", "crash"}
    assert all(spelled == ["--device", "--devices"] for spelled in found.values()), found


def test_chosen_percentiles_have_columns_named_as_the_usual_ones() -> None:
    result = {
        "response": {"p99_ms": 2.0, "read": {"p99_ms": 3.0}},
        "percentiles": [
            {"op": op, "percentile": percentile, "response_ms": 1.0}
            for op in ("all", "read")
            for percentile in (99.0, 99.99)
        ],
    }
    cell = {"grid": "g", "settings": {}, "options": {"mode": "open"}}
    ((_, row),) = rows_of({"cell": cell, "result": result})
    usual = {"response_p99_ms", "response_read_p99_ms"}
    assert {name for name in row if "p99" in name} == usual | {"response_p99_99_ms", "response_read_p99_99_ms"}
