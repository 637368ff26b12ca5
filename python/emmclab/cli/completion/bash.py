"""The script of bash 4.4 and later: a function that looks at the words before the cursor."""

from __future__ import annotations

from collections.abc import Iterator

from emmclab.cli.completion.parameters import GLOBAL, Command, Parameter, Value

_START = """# {made}
# Words with `=` come in three: the name, `=` and the value.

_emmclab_words() {{ # words
    COMPREPLY+=($(compgen -W "$1" -- "$word"))
    [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
}}

_emmclab_list() {{ # words, several with commas between
    local before=
    [[ $word == *,* ]] && before=${{word%,*}},
    COMPREPLY+=($(compgen -P "$before" -W "$1" -- "${{word##*,}}"))
}}

_emmclab_files() {{ compopt -o default; }}

_emmclab_folders() {{ compopt -o dirnames; }}

_emmclab() {{
    local IFS=$' \\t\\n' word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} at
    COMPREPLY=()
    if [[ $word == = ]]; then
        word=
    elif [[ $previous == = ]] && ((COMP_CWORD > 1)); then
        previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    # What stands behind `--` is another command.
    for ((at = 2; at < COMP_CWORD; at++)); do
        if [[ ${{COMP_WORDS[at]}} == -- ]]; then
            compopt -o default
            return
        fi
    done
    if ((COMP_CWORD == 1)); then
        _emmclab_words {first}
        return
    fi
    case ${{COMP_WORDS[1]}} in
"""
_END = """    esac
}

complete -F _emmclab emmclab
"""


def script(commands: list[Command], made: str) -> str:
    """Give the script; `made` says what it was made by."""
    names = " ".join(name for parameter in GLOBAL for name in parameter.names)
    first = _quoted(f"{' '.join(command.name for command in commands)} {names}")
    parts = [_START.format(made=made, first=first)]
    for parameter in GLOBAL:
        if parameter.value is not None:
            calls = "; ".join(_calls(parameter.value))
            parts.append(f"    {'|'.join(parameter.names)})\n        {calls}\n        ;;\n")
    for command in commands:
        parts += [f"    {command.name})\n", *_options(command), *_rest(command), "        ;;\n"]
    return "".join([*parts, _END])


def _options(command: Command) -> Iterator[str]:
    valued = [one for one in command.options if one.value is not None]
    if not valued:
        return
    yield "        case $previous in\n"
    for parameter in valued:
        assert parameter.value is not None  # noqa: S101
        calls = [*_calls(parameter.value), "return"]
        yield f"        {'|'.join(parameter.names)})\n"
        yield "".join(f"            {call}\n" for call in calls)
        yield "            ;;\n"
    yield "        esac\n"


def _rest(command: Command) -> Iterator[str]:
    names = " ".join(name for parameter in command.options for name in parameter.names)
    yield "        if [[ $word == -* ]]; then\n"
    yield f"            _emmclab_words {_quoted(names)}\n"
    calls = [call for one in _arguments(command) for call in _calls(one)]
    if calls:
        yield "        else\n"
        yield "".join(f"            {call}\n" for call in dict.fromkeys(calls))
    yield "        fi\n"


def _arguments(command: Command) -> Iterator[Value]:
    return (one.value for one in command.arguments if isinstance(one, Parameter) and one.value is not None)


def _calls(value: Value) -> Iterator[str]:
    if value.words:
        yield f"_emmclab_{'list' if value.listed else 'words'} {_quoted(' '.join(value.words))}"
    if value.files:
        yield "_emmclab_files"
    elif value.folders:
        yield "_emmclab_folders"


def _quoted(text: str) -> str:
    quote = "'"
    return quote + text.replace(quote, "'\\''") + quote
