"""The script of zsh: a function of its completion system, which lists options with their meaning."""

from __future__ import annotations

from collections.abc import Iterator

from emmclab.cli.completion.parameters import GLOBAL, Command, Parameter, Value

_START = """#compdef emmclab
# {made}

_emmclab() {{
    local curcontext=$curcontext state line ret=1
    typeset -A opt_args
    _arguments -C \\
{globals} \\
        '1: :->command' '*:: :->parameters' && ret=0
    case $state in
    command)
        local -a commands=(
{commands}
        )
        _describe -t commands command commands && ret=0
        ;;
    parameters)
        case $words[1] in
"""
_END = """        esac
        ;;
    esac
    return ret
}

# Read by the completion system, it completes; sourced, it is made known.
if [[ $funcstack[1] == _emmclab ]]; then
    _emmclab "$@"
else
    compdef _emmclab emmclab
fi
"""


def script(commands: list[Command], made: str) -> str:
    """Give the script; `made` says what it was made by."""
    names = [" " * 12 + _quoted(f"{command.name}:{command.about.replace(':', '')}") for command in commands]
    globals_ = " \\\n".join(f"        {spec}" for one in GLOBAL for spec in _option(one, alone=True))
    parts = [_START.format(made=made, globals=globals_, commands="\n".join(names))]
    for command in commands:
        specs = [spec for one in command.options for spec in _option(one)]
        specs += _arguments(command)
        body = " \\\n".join(" " * 16 + spec for spec in specs)
        parts.append(
            f"        {command.name})\n            _arguments -s -S \\\n{body} && ret=0\n            ;;\n"
        )
    return "".join([*parts, _END])


def _option(parameter: Parameter, *, alone: bool = False) -> Iterator[str]:
    """Give a spec for each name; names of an option that is not repeated exclude each other."""
    others = "(- *)" if alone else "" if parameter.repeated else f"({' '.join(parameter.names)})"
    for name in parameter.names:
        start = "*" if parameter.repeated else others
        if parameter.value is None:
            yield _quoted(f"{start}{name}[{_plain(parameter.about)}]")
        else:
            equals = "=" if name.startswith("--") else "+"
            shown = f"{start}{name}{equals}[{_plain(parameter.about)}]"
            yield _quoted(f"{shown}:{_plain(parameter.value.name)}:{_action(parameter.value)}")


def _arguments(command: Command) -> Iterator[str]:
    for place, parameter in enumerate(command.arguments, 1):
        if parameter.value is None:
            continue
        start = "*" if parameter.repeated else f"{place}"
        yield _quoted(f"{start}:{_plain(parameter.value.name)}:{_action(parameter.value)}")


def _action(value: Value) -> str:
    words = " ".join(value.words)
    if words and value.listed:
        return f"_values -s , word {words}"
    either = ["_files"] if value.files else ["_files -/"] if value.folders else []
    if words and (either or "=" in words):
        # Names of settings end in `=`, behind which the value follows without a blank.
        ending = "-S '' " if "=" in words else ""
        return "{" + "; ".join([f"compadd {ending}- {words}", *either]) + "}"
    return f"({words})" if words else either[0] if either else " "


def _plain(text: str) -> str:
    """Escape what ends a part of a spec."""
    for sign in ("\\", "[", "]", ":"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
