"""The script of fish: a line for each command and option, with its meaning."""

from __future__ import annotations

from collections.abc import Iterator

from emmclab.cli.completion.parameters import GLOBAL, Command, Parameter, Value

_START = """# {made}

function __emmclab_runs --description 'Whether the command line has this command; without one, none'
    set -l words (commandline -opc)
    if contains -- -- $words
        return 1
    end
    if set -q argv[1]
        test (count $words) -gt 1; and test $words[2] = $argv[1]
    else
        test (count $words) -eq 1
    end
end

complete -c emmclab -n 'not contains -- -- (commandline -opc)' -f
"""


def script(commands: list[Command], made: str) -> str:
    """Give the script; `made` says what it was made by."""
    lines = [_START.format(made=made)]
    none = "complete -c emmclab -n __emmclab_runs"
    lines += [f"{none} {_given(parameter)}\n" for parameter in GLOBAL]
    for command in commands:
        lines.append(f"{none} -a {command.name} -d {_quoted(command.about)}\n")
    for command in commands:
        runs = f"complete -c emmclab -n '__emmclab_runs {command.name}'"
        lines.append("\n")
        lines += [f"{runs} {_given(parameter)}\n" for parameter in command.options]
        for parameter in command.arguments:
            if parameter.value is not None and (completed := " ".join(_completed(parameter.value))):
                lines.append(f"{runs} {completed}\n")
    return "".join(lines)


def _given(parameter: Parameter) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in parameter.names]
    needs = [] if parameter.value is None else ["-r", *(_completed(parameter.value) or ["-f"])]
    return " ".join([*names, *needs, f"-d {_quoted(parameter.about)}"])


def _completed(value: Value) -> list[str]:
    return [*_words(value), *(["-F"] if value.files else ["-f"] if value.words or value.folders else [])]


def _words(value: Value) -> Iterator[str]:
    words = " ".join(value.words)
    if words and value.listed:
        command = f'string split " " "{words}"'
        yield f"-a {_quoted(f'(__fish_complete_list , {_quoted(command)})')}"
    elif words:
        yield f"-a {_quoted(words)}"
    if value.folders and not value.files:
        yield "-a '(__fish_complete_directories)'"


def _quoted(text: str) -> str:
    """Quote for fish, where a quote and a backslash within quotes have one before."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
