"""Every option of a command has an effect, or is refused."""

from pathlib import Path
from typing import Any

import pytest

from conftest import assert_refused, emmclab
from emmclab.cli import application
from emmclab.cli.command import ALONE, EXCLUSIVE, NEEDS, Command
from emmclab.cli.command_groups import walk_commands
from emmclab.errors import ConfigError

COMMANDS: dict[str, Any] = {
    name: command for name, command in walk_commands(application()) if isinstance(command, Command)
}


def options_of(command: Any) -> dict[str, Any]:
    """Return the options of a command by each of their names, except `--help`."""
    options = (one for one in command.params if one.param_type_name == "option")
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
    ("words", "said", "cure"),
    [
        (("compare", "--device", "nexus5", "--devices", "ufs31"), "2 times", "`--devices nexus5,ufs31`"),
        (("simulate", "--device", "nexus5", "--device", "ufs31"), "simulate takes one", "emmclab compare"),
        (("simulate", "--devices", "nexus5,ufs31"), "takes one device", "emmclab compare"),
        (("profile", "--seed", "3"), "no effect without --against", "leave it out"),
        (("simulate", "--mode", "back_to_back", "--rate", "2"), "`rate` has no effect", "--mode open"),
    ],
)
def test_a_command_with_an_option_without_effect_ends_with_the_cure(
    trace: Path, words: tuple[str, ...], said: str, cure: str
) -> None:
    done = emmclab(words[0], trace, *words[1:])
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and cure in done.stderr.partition("hint:")[2], done.stderr


@pytest.mark.parametrize("what", ["nexus5", "gc.policy", "watermark", "nexus5 ufs31"])
def test_options_of_reading_are_refused_where_no_trace_is_read(what: str) -> None:
    assert_refused(emmclab("explain", *what.split(), "--only", "op=read"), "--only is for reading a trace")


def test_options_that_need_or_exclude_others_are_refused_by_their_command() -> None:
    for name, needs in NEEDS.items():
        for option, others in needs.items():
            assert {option, *others} <= options_of(COMMANDS[name]).keys(), name
            assert refusal(name, with_value(name, option)).field == option
    for name, alone in ALONE.items():
        for option, allowed in alone.items():
            known = options_of(COMMANDS[name])
            assert {option, *allowed} <= known.keys(), name
            other = next(one.opts[0] for one in known.values() if not {option, *allowed} & {*one.opts})
            words = with_value(name, option) + with_value(name, other)
            assert option in str(refusal(name, words)), words
    for name, pairs in EXCLUSIVE.items():
        for pair in pairs:
            assert {*pair} <= options_of(COMMANDS[name]).keys(), name
            words = [word for option in pair for word in with_value(name, option)]
            assert all(option in str(refusal(name, words)) for option in pair), words


#: Values of options that change what the command does with the trace.
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
}
#: Options that change nothing about the result of this trace: they select resources, accept what it does not
#: have, or check.
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
            found = outcome(name) if option.is_flag else outcome(name, VALUES[name])
            unchanged += [name] if found == plain else []
    assert unchanged == []
