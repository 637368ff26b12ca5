"""Options and figures are declared once, equal in all commands, and each has an effect or is rejected."""

import json
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import emmclab as lab
from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab import _core
from emmclab.advice.advise import FIGURES, LIFETIME, ORDERS
from emmclab.advice.journal_modes import MODE_FIGURES
from emmclab.apps.closed_loop import APPLICATION_OPTIONS
from emmclab.cli import application, show_live
from emmclab.cli.command import ALONE, EXCLUSIVE, NEEDS, Command, walk_commands
from emmclab.comparison import comparison_tables
from emmclab.comparison.comparison_tables import COMPARED_FIGURES
from emmclab.comparison.one_at_a_time import MAIN
from emmclab.comparison.seed_statistics import SPREAD_FIGURES
from emmclab.core_types import LiveStatus
from emmclab.errors import ConfigError
from emmclab.live.serve import SERVE_OPTIONS
from emmclab.pages import run_figures, simulation
from emmclab.runtime.option import Option
from emmclab.simulation import result_text
from emmclab.simulation.result import _SECOND, _WAITS, second_figures, ufs_figures
from emmclab.simulation.result_fields import ResultField, layer_field, result_field, result_fields, shown_fields
from emmclab.simulation.run_options import DEFAULTS, RUN_OPTIONS, RunOptions, complete_options
from emmclab.simulation.stored_result import read_result, recipe_of
from emmclab.studies import Study
from emmclab.studies.grid import AXES
from emmclab.studies.store import rows_of
from emmclab.studies.summary import METRICS
from emmclab.traces.reading import bundled_by_name

#: Options of commands that have the name of a run option but another meaning.
OTHERS = {
    # Seeds that are not of runs, or only of preconditioning.
    *(
        (command, "seed")
        for command in ("profile", "synth", "calibrate", "probe", "replay", "serve", "crash", "search")
    ),
    # Applications and advice start from another device state, and are checked differently.
    *((command, name) for command in ("apps", "advise") for name in ("seed", "precondition", "check")),
    # The flushes of a generated trace.
    ("synth", "flush_every"),
    # The default is the host of each figure.
    *((command, "fio_host") for command in ("devices", "calibrate")),
    # Options with a different meaning.
    *(("devices", "check"), ("crash", "check"), ("crash", "second"), ("durability", "check")),
}
#: A job file of fio.
JOB_FILE = bundled_by_name()["matrix"]
#: Defaults of the command line, by the corresponding default in Python.
SAME: dict[Any, Any] = {(): []}


def parameters() -> list[tuple[str, Any, str]]:
    """Return the options of commands that are run options: command, parameter, run option."""
    by_option = {option.command_line: name for name, option in RUN_OPTIONS.items() if option.command_line}
    return [
        (command, parameter, by_option[name])
        for command, group in walk_commands(application())
        for parameter in group.params
        for name in parameter.opts
        if name in by_option and hasattr(parameter, "help")
    ]


def test_a_command_has_the_default_the_range_and_the_meaning_of_the_declaration() -> None:
    result = parameters()
    assert {name for command, _, name in result if command == "simulate"} >= {
        *("mode", "precondition", "rate", "passes", "wrap_addresses", "seed", "check", "images", "layers"),
        *("second", "drain", "percentiles", "events", "perfetto"),
    }
    for command, parameter, name in result:
        if (command.partition(" ")[0], name) in OTHERS:
            continue
        row = RUN_OPTIONS[name]
        assert parameter.help == row.about, (command, name)
        assert parameter.default == SAME.get(row.default, row.default), (command, name)
        if row.words:
            assert parameter.metavar == "|".join(row.words), (command, name)


def test_an_option_that_changes_a_run_is_a_key_of_grids_with_its_default() -> None:
    study = Study.parse('name = "one"\ninputs = ["Movie"]\n[[grid]]\nname = "g"\ndevices = ["nexus5"]', "one.toml")
    (grid,) = study.grids
    for name, row in RUN_OPTIONS.items():
        if row.stored != "never" and name not in ("mode", "seed", "victim", "layers", "layer_settings"):
            assert grid.option(name) == (row.default or type(grid.option(name))()), name
    assert grid.modes == (DEFAULTS["mode"],)


def test_the_core_has_each_word_of_the_mode() -> None:
    core = _core.replay_defaults()
    for word in RUN_OPTIONS["mode"].words:
        assert complete_options({"mode": word})["mode"] == word
        assert _core.check_traces(lab.Device.preset("nexus5").core, core | {"mode": word}, [])


@pytest.mark.parametrize("name", [name for name in AXES if name not in ("second", "precondition")])
def test_a_result_repeats_an_option_and_is_simulated_again_with_it(name: str, tmp_path: Path) -> None:
    is_of_jobs = RUN_OPTIONS[name].panel == "Job file"
    trace = lab.read(JOB_FILE if is_of_jobs else lab.bundled()[0])
    of_jobs = {"rw": "randwrite", "bs": "8k", "fio_host": "none"}
    value = True if isinstance(DEFAULTS[name], bool) else of_jobs.get(name, 2)
    values: Any = {name: value, "layers": ["pass-through"]}
    first = lab.Device.preset("nexus5").simulate(trace, **values)
    assert first["options"][name.removesuffix("_ns")] == value
    file = tmp_path / "first.json"
    file.write_text(json.dumps(first.to_dict()))
    rerun = recipe_of(read_result(file)).run()
    assert rerun.deterministic() == first.deterministic() | {"provenance": rerun["provenance"]}


@pytest.mark.parametrize("declared", [SERVE_OPTIONS, APPLICATION_OPTIONS], ids=["serve", "apps"])
def test_other_functions_have_the_same_defaults(declared: dict[str, Option]) -> None:
    for name in declared.keys() & RUN_OPTIONS.keys() - {"precondition"}:
        assert declared[name].default == DEFAULTS[name], name


def test_simulate_takes_every_option_and_no_other(trace: Path) -> None:
    device, read = lab.Device.preset("nexus5"), lab.read(trace)
    values: Any = dict(DEFAULTS)
    assert device.simulate(read, **values).deterministic() == device.simulate(read).deterministic()
    wrong: Any = {"wrap_adresses": True}
    with pytest.raises(TypeError, match="wrap_addresses"):
        device.simulate(read, **wrong)
    assert typing.get_type_hints(RunOptions, localns={"Device": lab.Device}).keys() == RUN_OPTIONS.keys()


@pytest.mark.parametrize(
    ("option", "value"),
    [("mode", "loose"), ("rate", 0.0), ("rate", float("nan")), ("rate", 1e9), ("passes", 0), ("seed", -1)],
)
def test_an_impossible_value_is_named_with_what_is_allowed(option: str, value: Any) -> None:
    values: Any = {option: value}
    with pytest.raises(ConfigError, match=f"`{option}` cannot be") as refused:
        complete_options(values)
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
    spellings = {}
    for name, command in walk_commands(application()):
        for parameter in command.params:
            # `record` and `top` choose block devices of a machine, not a simulated device.
            if "device" in (parameter.name or "") and name not in ("record", "top"):
                spelled = [spelling for spelling in parameter.opts if spelling in ("--device", "--devices")]
                if spelled:
                    spellings[name] = spelled
    assert {*spellings} >= {"simulate", "compare", "apps run", "apps compare", "advise", "crash"}
    assert all(spelled == ["--device", "--devices"] for spelled in spellings.values()), spellings


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


COMMANDS: dict[str, Any] = {
    name: command for name, command in walk_commands(application()) if isinstance(command, Command)
}


def options_of(command: Any) -> dict[str, Any]:
    """Return the options of a command by each of their names, except `--help`."""
    options = (row for row in command.params if row.param_type_name == "option")
    return {name: option for option in options for name in option.opts}


def refusal(name: str, words: list[str]) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        COMMANDS[name].make_context(f"emmclab {name}", words)
    return refused.value


def with_value(command: str, option: str) -> list[str]:
    return [option] if options_of(COMMANDS[command])[option].is_flag else [option, "1"]


def test_an_option_of_one_value_is_refused_by_every_command_if_it_is_repeated() -> None:
    tried = 0
    for name, command in COMMANDS.items():
        for spelled, option in options_of(command).items():
            if option.multiple or (option.is_flag and not option.secondary_opts):
                continue
            words = [spelled, *option.secondary_opts] if option.is_flag else [spelled, "one", spelled, "two"]
            refused = refusal(name, words)
            assert refused.hint and ("exclude" if option.is_flag else "2 times") in str(refused), words
            tried += 1
    assert tried > 300


def test_a_repeated_flag_and_a_repeatable_option_are_no_error(trace: Path) -> None:
    assert emmclab("head", trace, "--json", "--json").returncode == 0
    twice = ("--set", "timing.parallelism=both", "--set", "gc.policy=greedy")
    assert emmclab("simulate", trace, "--device", "nexus5", *twice).returncode == 0


@pytest.mark.parametrize(
    ("words", "problem", "cure"),
    [
        (("compare", "--device", "nexus5", "--devices", "ufs31"), "2 times", "`--devices nexus5,ufs31`"),
        (("simulate", "--device", "nexus5", "--device", "ufs31"), "simulate takes one", "emmclab compare"),
        (("simulate", "--devices", "nexus5,ufs31"), "accepts only one device", "emmclab compare"),
        (("profile", "--seed", "3"), "no effect without --against", "leave it out"),
        (("simulate", "--mode", "back_to_back", "--rate", "2"), "`rate` has no effect", "--mode open"),
    ],
)
def test_an_option_without_effect_is_refused(trace: Path, words: tuple[str, ...], problem: str, cure: str) -> None:
    done = emmclab(words[0], trace, *words[1:])
    assert done.returncode == 2, done.stderr
    assert problem in done.stderr and cure in done.stderr.partition("hint:")[2], done.stderr


@pytest.mark.parametrize("names", ["nexus5", "gc.policy", "watermark", "nexus5 ufs31"])
def test_options_of_reading_are_refused_where_no_trace_is_read(names: str) -> None:
    assert_refused(emmclab("explain", *names.split(), "--only", "op=read"), "--only is for reading a trace")


def test_options_that_need_or_exclude_others_are_refused_by_their_command() -> None:
    for name, needs in NEEDS.items():
        for option, others in needs.items():
            assert {option, *others} <= options_of(COMMANDS[name]).keys(), name
            assert refusal(name, with_value(name, option)).field == option
    for name, alone in ALONE.items():
        for option, allowed in alone.items():
            known_options = options_of(COMMANDS[name])
            assert {option, *allowed} <= known_options.keys(), name
            other = next(
                candidate.opts[0] for candidate in known_options.values() if not {option, *allowed} & {*candidate.opts}
            )
            words = with_value(name, option) + with_value(name, other)
            assert option in str(refusal(name, words)), words
    for name, pairs in EXCLUSIVE.items():
        for pair in pairs:
            assert {*pair} <= options_of(COMMANDS[name]).keys(), name
            words = [word for option in pair for word in with_value(name, option)]
            assert all(option in str(refusal(name, words)) for option in pair), words


#: Values of options that change how the command processes the trace.
VALUES = {
    "--bin": "1s",
    "--capacity": "64GB",
    "--device2": "nexus5",
    "--events": "events.parquet",
    "--figures": "figures",
    "--flush-every": "2",
    "--html": "page.html",
    "--layer": "advil",
    "--layers": "none,advil",
    "--mode": "back_to_back",
    "--only": "op=read",
    "--over-time": "bins.csv",
    "--passes": "2",
    "--percentiles": "50,99.5",
    "--perfetto": "run.pftrace",
    "--precondition": "random:20",
    "--rate": "3",
    "--seed": "7",
    "--seeds": "2",
    "--set": "nand.read_us=500",
    "--used": "30d",
    "--against": "Messaging",
    "--bs": "8k",
    "--fio-host": "none",
    "--fio-json": "fio.json",
    "--iodepth": "3",
    "--numjobs": "2",
    "--rw": "write",
}
#: Options that do not change the result of this trace: they select resources, allow what the trace lacks, or check.
NEUTRAL = {
    *("--check", "--jobs", "--images", "--wrap-addresses", "--html", "--device"),
    *("--format", "--lenient", "--columns", "--time-unit", "--size-unit", "--reorder-window", "--mend-clock"),
    *("--reissue-window", "--drop-reissued"),
}


@pytest.mark.parametrize("command", ["simulate", "compare", "profile"])
def test_each_option_alone_changes_the_result_or_is_refused(command: str, trace: Path, tmp_path: Path) -> None:
    device = {"simulate": ("--device", "nexus5"), "compare": ("--devices", "nexus5,emmc51-cache")}
    base = (command, trace, *device.get(command, ()))

    def outcome(*more: str) -> tuple[int, str, set[Path]]:
        before = {*tmp_path.iterdir()}
        done = emmclab(*base, *more, cwd=tmp_path)
        assert done.returncode in (0, 2), done.stderr
        return done.returncode, done.stdout, {*tmp_path.iterdir()} - before

    plain, unchanged = outcome(), []
    for name, option in options_of(COMMANDS[command]).items():
        if NEUTRAL.isdisjoint(option.opts) and name not in ("--json", "--help", "-h"):
            assert option.is_flag or name in VALUES, f"{name} needs a value in VALUES, or stands in NEUTRAL"
            result = outcome(name) if option.is_flag else outcome(name, VALUES[name])
            unchanged += [name] if result == plain else []
    assert unchanged == []


#: Tables of figures, on the terminal and on pages.
TABLES = {
    "a run": result_text.FIGURES,
    "a comparison under layers": comparison_tables._OF_LAYERS,
    "a comparison": comparison_tables._OF_SPACE,
    "time and durability": comparison_tables._TIME_AND_DURABILITY,
    "recorded beside simulated": tuple(row.field for row in COMPARED_FIGURES),
    "events on the page": simulation._EVENTS,
    "tiles of the page": simulation._MAIN,
    "advice": tuple(FIGURES.values()),
    "modes of the journal": MODE_FIGURES,
    "one change at a time": MAIN,
    "parts of the mean response": shown_fields(_WAITS),
    "lifetime": (LIFETIME,),
    "figures over seeds": SPREAD_FIGURES,
    "charts of runs": (run_figures._MEAN, run_figures._SPACE, run_figures._WAF),
    "the answer of a run": (result_text._MEAN, result_text._P99),
    "the second device": shown_fields(tuple(_SECOND.values())),
    "the live view": show_live.FIGURES,
}


@pytest.fixture(scope="module")
def recording() -> Path:
    """A trace with flushes and synchronous writes."""
    return next(path for path in lab.bundled() if path.stem == "messages-rollback")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_takes_label_unit_and_digits_from_the_declaration(name: str) -> None:
    declared = {field.path: field for field in result_fields()}
    assert [field.path for field in TABLES[name] if field is not declared[field.path] or not field.label] == []


def test_a_declared_figure_has_a_label_of_its_own_and_a_direction_that_is_one() -> None:
    labelled = [field for field in result_fields() if field.label]
    labels = [field.label for field in labelled]
    assert [label for label in labels if labels.count(label) > 1] == []
    assert {field.better for field in result_fields()} == {"", "lower", "higher"}
    assert [field.path for field in result_fields() if not field.label and (field.short or field.better)] == []


def test_settings_are_ranked_in_the_declared_direction() -> None:
    for metric in METRICS:
        (field,) = [field for field in result_fields() if (field.path,) == metric.paths]
        assert (metric.label, metric.unit, metric.digits) == (field.label, field.unit, field.digits)
        assert metric.highest_is_best is (field.better == "higher")
    assert [by for by, field in FIGURES.items() if field.better != "lower" or ORDERS[by] != field.name] == []


def _shown_figures(fields: Sequence[ResultField], result: lab.Result) -> Iterator[tuple[str, str]]:
    for field in fields:
        yield field.label, field.text(result.measured(field.path))


def test_terminal_and_page_show_a_figure_in_the_same_words_and_digits(recording: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("simulate", recording, "--device", "ufs31")
    result = lab.Result(emmclab_json(*command, "--html", page))
    lines = [re.split(r"  +", line.strip()) for line in emmclab(*command).stdout.splitlines()]
    html = page.read_text(encoding="utf-8")
    for label, text in _shown_figures(TABLES["a run"], result):
        assert [label, text] in [cells[:2] for cells in lines], label
        assert f'<th scope="row">{label}</th>' in html and f">{text}</td>" in html, label
    for field, value in ufs_figures(result.ufs):
        assert [field.label, field.text(value)] in [cells[:2] for cells in lines], field.path
        assert f'<th scope="row">{field.label}</th><td>{field.text(value)}</td>' in html, field.path


def test_a_comparison_and_advice_have_the_digits_of_a_run(recording: Path) -> None:
    command = ("compare", recording, "--devices", "emmc51-cache,ufs31")
    text = emmclab(*command).stdout
    for result in map(lab.Result, emmclab_json(*command)):
        lines = text[text.index("mean response, change") :].splitlines()
        cells = [line.split() for line in lines if line.startswith(result["device"])]
        for path in ("response.mean_response_ms", "response.p99_ms"):
            assert result_field(path).text(result[path]) in cells[0], path
        for _, figure in _shown_figures(TABLES["a comparison"], result):
            assert figure in cells[0]
        for _, figure in _shown_figures(TABLES["time and durability"], result):
            assert figure in cells[1]


def test_layers_and_the_second_device_have_the_words_and_digits_of_a_run(recording: Path, tmp_path: Path) -> None:
    # The result has a group of counts of the host, on which a table once failed.
    second = tmp_path / "second.toml"
    second.write_text(lab.Device.preset("nexus5").set({"host.packed_writes": 8}).to_toml())
    above = ("--layer", "pair", "--set", "pair.routing=striping", "--device2", second)
    command = ("simulate", recording, "--device", "emmc51-cache", *above)
    result = lab.Result(emmclab_json(*command))
    lines = [re.split(r"  +", line.strip()) for line in emmclab(*command).stdout.splitlines()]
    assert result.second_device and result.second_device.host
    (layer,) = result["layers"]
    counts = [(layer_field(name), value) for name, value in layer.items() if name not in ("name", "left_out")]
    for field, value in (*second_figures(result.second_device), *counts):
        assert [field.label, field.text(value)] in [cells[:2] for cells in lines], field.path
    declared = {field.unit: field.display_unit for field in result_fields() if field.label}
    assert all(field.display_unit == declared[field.unit] for field, _ in counts)


def test_the_live_view_has_the_words_and_digits_of_a_run() -> None:
    status = {"response_p50_us": 1234.5, "response_p99_us": None, "waf": 1.2345, "erases": 1234}
    status |= dict.fromkeys(("interval_requests", "interval_bytes", "volatile_bytes", "free_blocks"), 0)
    status |= dict.fromkeys(("requests", "bytes_read", "bytes_written", "failed", "cuts", "open"), 0)
    status |= {"powered": True, "clock": "free", "simulated_s": 0.0, "refused": [], "image_error": None}
    live = SimpleNamespace(device=lab.Device.preset("nexus5"), paths=["/dev/loop1"])
    console = Console(width=120)
    with console.capture() as capture:
        console.print(show_live.live_view(live, LiveStatus(status), 1.0))
    over, heads, _, row, *_ = capture.get().splitlines()[1:]
    assert over.split() == ["p50", "p99"] and heads.count("ms") == 2
    assert all(field.short in f"{over} {heads}" for field in show_live.FIGURES)
    values = (1.2345, None, 1.2345, 1234)
    assert [field.text(value) for field, value in zip(show_live.FIGURES, values, strict=True)] == [
        row.split()[place] for place in (2, 3, 7, 9)
    ]


def test_the_figures_of_durability_are_fields_that_are_explained_and_compared(recording: Path, tmp_path: Path) -> None:
    assert "durable.p99_ms" in emmclab("explain", "durable.").stdout
    result = tmp_path / "two.json"
    done = emmclab("compare", recording, "--devices", "ufs31,ufs40", "--json")
    result.write_text(done.stdout)
    different = emmclab_json("explain", f"{result}#1", f"{result}#2")["figures"]
    assert {"durable.mean_ms", "durable.p99_ms"} <= {row["path"] for row in different}
    done = emmclab_ok("explain", f"{result}#1", f"{result}#2", "--one-at-a-time", cwd=tmp_path)
    heads = done.stdout[done.stdout.index("From A to B") :]
    assert all(word in heads for word in ("Mean response", "p99 response", "synchronous"))
