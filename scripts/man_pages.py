"""Manual pages of the command line, one for each command and one of all: `emmclab.1`, `emmclab-NAME.1`.

They are in the language of man(7). `scripts/wheel_data.py` puts them into the wheel.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from emmclab import __version__
from emmclab.cli import application
from emmclab.cli.completion.parameters import first_sentence

ROOT = Path(__file__).parents[1]

#: Exit codes of every command.
EXITS = {
    0: "done",
    1: "failed run",
    2: "bad input or option",
    3: "a simulated device stopped before the end of its trace",
    4: "a power cut broke a promise",
    130: "Ctrl-C",
    141: "closed pipe",
}
#: Variables that commands read.
ENVIRONMENT = {
    "EMMCLAB_DEBUG": "With 1, a bug shows its traceback.",
    "EMMCLAB_TRACES": "Folder of recorded traces that `claims` and `reproduce` look at.",
    "NO_COLOR": "Tables have no colours.",
}

_HELP = ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nShow a page of help.\n"


def man_pages() -> Iterator[tuple[str, str]]:
    """Give the name and the text of each page."""
    group: Any = typer.main.get_command(application())
    yield "emmclab.1", _whole(group)
    for name, command in group.commands.items():
        yield f"emmclab-{name}.1", _page(name, command)


def _whole(group: Any) -> str:
    parts = [
        *_head("emmclab", group.help),
        ".SH SYNOPSIS\n.B emmclab\n.I COMMAND\n[\\fIOPTIONS\\fR]\n",
        ".SH DESCRIPTION\n",
        _text(group.help),
        ".PP\nResults go to the standard output, messages to the standard error.\n",
        ".SH COMMANDS\n",
    ]
    for name, command in group.commands.items():
        parts.append(f".TP\n.BR emmclab\\-{_plain(name)} (1)\n{_text(first_sentence(command.help) + '.')}")
    parts += [".SH OPTIONS\n", *_options(group.params), _HELP]
    parts.append(".SH ENVIRONMENT\n")
    parts += [f".TP\n.B {_plain(name)}\n{_text(about)}" for name, about in ENVIRONMENT.items()]
    parts.append(".SH EXIT STATUS\n")
    parts += [f".TP\n.B {code}\n{_text(f'{about[0].upper()}{about[1:]}.')}" for code, about in EXITS.items()]
    return "".join([*parts, *_examples(group)])


def _page(name: str, command: Any) -> str:
    seen = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in seen if one.param_type_name == "argument"]
    usage = " ".join(
        ["[\\fIOPTIONS\\fR]", *(f"\\fI{_plain(one.metavar or one.name)}\\fR" for one in arguments)]
    )
    parts = [
        *_head(f"emmclab-{name}", command.help),
        f".SH SYNOPSIS\n.B emmclab {_plain(name)}\n{usage}\n",
        ".SH DESCRIPTION\n",
        _text(command.help),
    ]
    if arguments:
        parts.append(".SH ARGUMENTS\n")
        for one in arguments:
            parts.append(
                f".TP\n.I {_plain(one.metavar or one.name)}\n{_text((one.help or '') + _default(one))}"
            )
    parts.append(".SH OPTIONS\n")
    panels: dict[str, list[Any]] = {}
    for one in seen:
        if one.param_type_name == "option":
            panels.setdefault(one.rich_help_panel or "", []).append(one)
    parts += [*_options(panels.pop("", [])), _HELP]
    for panel, options in panels.items():
        parts += [f".SS {_plain(panel)}\n", *_options(options)]
    parts.append(".SH SEE ALSO\n.BR emmclab (1)\n")
    return "".join([*parts[:-1], *_examples(command), parts[-1]])


def _head(name: str, help_: str) -> Iterator[str]:
    yield '.\\" Made of the command line by scripts/man_pages.py.\n'
    yield f'.TH {_plain(name.upper())} 1 {_released()} "emmclab {__version__}" "emmclab"\n.ad l\n.nh\n'
    about = first_sentence(help_)
    yield f".SH NAME\n{_plain(name)} \\- {_plain(about[0].lower() + about[1:])}\n"


def _options(options: Iterable[Any]) -> Iterator[str]:
    for one in options:
        value = f" \\fI{_plain(one.metavar)}\\fR" if one.metavar and not one.is_flag else ""
        names = [f"\\fB{_plain(name)}\\fR" for name in (*one.opts, *one.secondary_opts)]
        yield f".TP\n{', '.join(names)}{value}\n{_text((one.help or '') + _default(one))}"


def _default(parameter: Any) -> str:
    given = parameter.default
    if parameter.required or isinstance(given, bool) or given in (None, "", [], ()) or callable(given):
        return ""
    shown = ",".join(map(str, given)) if isinstance(given, list | tuple) else given
    return f" Default: {shown}."


def _examples(command: Any) -> Iterator[str]:
    """Give the commands of the line below the help."""
    commands = re.findall(r"\[cyan\](.*?)\[/\]", command.epilog or "")
    if commands:
        # Not to be filled: each stands on its own line.
        yield ".SH EXAMPLES\n.nf\n"
        yield "".join(f"{_plain(one)}\n" for one in commands)
        yield ".fi\n"


def _text(text: str) -> str:
    """Give paragraphs; what stands in backquotes is bold."""
    parts = []
    for paragraph in text.strip().split("\n\n"):
        words = re.split(r"`([^`]*)`", " ".join(paragraph.split()))
        line = "".join(
            f"\\fB{_plain(part)}\\fR" if place % 2 else _plain(part) for place, part in enumerate(words)
        )
        # A sentence in a line, and none that begins as a request would.
        parts.append(re.sub(r"(?m)^([.'])", r"\\&\1", line.replace(". ", ".\n")) + "\n")
    return ".PP\n".join(parts)


def _plain(text: str) -> str:
    """Escape what man would read as more than a sign."""
    return (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("~", "\\(ti")
        .replace("^", "\\(ha")
    )


def _released() -> datetime.date:
    """Give the day of the newest version in CHANGELOG.md."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[\d[^\]]*\] - (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(
            "error: CHANGELOG.md has no `## [VERSION] - YYYY-MM-DD`\nhint: add the released version"
        )
    return datetime.date.fromisoformat(found[1])
