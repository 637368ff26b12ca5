"""Every message of the command line is shown: templates, help texts, and outputs as a user sees them.

The texts are in `messages/`; `scripts/messages.py write` accepts a change, which the commit then shows.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE_S, ROOT, environment
from test_house_rules import complain

FOLDER = ROOT / "tests" / "messages"
sys.path.insert(0, str(ROOT / "scripts"))

import messages  # noqa: E402
import messages_outputs as outputs  # noqa: E402
from messages_python import python_texts  # noqa: E402
from messages_rust import rust_texts  # noqa: E402


def entries(*kinds: str) -> list[tuple[str, str]]:
    """The templates of these kinds, each with its source file."""
    found = []
    for _, text in messages.catalogue():
        for line in text.splitlines():
            if line and not line.startswith(" "):
                source = line
            elif line and line[2:7].strip() in kinds:
                found.append((source, line[8:]))
    assert found
    return found


def test_the_kept_messages_are_those_of_the_sources() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "messages.py"), "check"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, check=False
    )
    assert done.stderr == "", done.stderr
    if done.returncode != 0:
        pytest.fail(done.stdout, pytrace=False)


def test_every_command_has_cases_that_show_an_error() -> None:
    kept = {path.stem: path.read_text() for path in (FOLDER / "outputs").glob("*.txt")}
    silent = {"demo", "formats", "layers", "papers", "published"}  # They take no input.
    faults = [
        name for name in outputs.COMMANDS if name not in silent and "! error: " not in kept.get(name, "")
    ]
    complain(faults, "add a line to tests/messages/cases.txt")


def test_no_kept_output_is_a_bug_or_an_error_without_a_hint() -> None:
    faults = []
    for path in sorted((FOLDER / "outputs").glob("*.txt")):
        for case in path.read_text().split("\n\n"):
            if "bug in emmclab" in case or "Traceback" in case:
                faults.append(case)
            if "! error: " in case and "! hint: " not in case:
                faults.append(case)
    complain(faults, "each error has a hint that says what to do")


#: Wordings of the past: who and what as a subject, "no" for "not a", guesses in the passive voice.
RIDDLES = [
    re.compile(pattern)
    for pattern in (
        r"\b[Nn]obody\b|\b[Ww]hoever\b|\bsomebody\b",
        r"^(is|are) no [a-z]|` is no [a-z]|[Tt]his is no [a-z]|[Tt]here is nothing\b",
        r"\bwhat is known here\b|\bknown here\b",
        r"\.\.=",
        r"[Pp]lease\b",
    )
]


def test_messages_are_no_riddles() -> None:
    faults = [
        f"{source}: {text}"
        for source, text in entries("error", "hint", "says", "help")
        for riddle in RIDDLES
        if riddle.search(text)
    ]
    complain(faults, "name the component, the value and what is wrong with it")


def test_errors_and_hints_are_phrases() -> None:
    faults = [
        f"{source}: {text}"
        for source, text in entries("error", "hint")
        if (re.match(r"[A-Z][a-z]+ ", text) and source != "python/emmclab/recordings.py")
        or (text.endswith(".") and not text.endswith("..."))
    ]
    complain(faults, "write a phrase in lower case without a full stop")


def test_hints_do_not_ask_back() -> None:
    faults = [
        f"{source}: {text}"
        for source, text in entries("hint")
        if text.endswith("?") and "did you" not in text
    ]
    complain(faults, "say what to do in place of a question")


@pytest.mark.parametrize("columns", [80, 100])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "COLUMNS", columns)
    faults = [
        f"{name}: {line}"
        for name, text in outputs.helps()
        for line in text.splitlines()
        if len(line) > columns or ("…" in line and "[list|show|" not in line)  # Its help lists the actions.
    ]
    complain(faults, "shorten the metavar or the word that does not fit")


def test_help_has_purpose_paragraphs_and_examples() -> None:
    faults = []
    for name, text in outputs.helps():
        lines = [line.strip() for line in text.splitlines()]
        purpose = lines[lines.index("", 2) + 1] if "" in lines[2:] else ""
        if not re.match(r"[A-Z][a-z]+ ", purpose):
            faults.append(f"{name}: the purpose is {purpose!r}")
        shown = text.rpartition("Example")[2]
        if not re.search(r"^ (\S+ .*; )?emmclab \S+", shown, re.MULTILINE):
            faults.append(f"{name}: no example")
    complain(faults, "give the command a one-line docstring and `examples(...)`")


def test_every_option_says_what_it_is() -> None:
    faults = [
        f"{command} {name}" for command, name, text in outputs.options() if not text.endswith((".", ")"))
    ]
    complain(faults, "give the option a help text, a sentence with unit and allowed values")


def test_numbers_of_published_claims_stand_in_their_sentences() -> None:
    from emmclab.claims import rules
    from emmclab.papers import papers

    number = re.compile(r"\d+(?:[.,]\d+)*")
    faults = [
        f"{rule.id}: {missing} of `{rule.published}`"
        for paper in papers().values()
        for rule in rules(paper)
        if (missing := sorted({*number.findall(rule.published)} - {*number.findall(rule.claim)}))
    ]
    complain(faults, "write the numbers into the sentence of the claim")


def test_the_scanners_find_texts_by_kind(tmp_path: Path) -> None:
    python = tmp_path / "one.py"
    python.write_text(
        '"""Not a message."""\n'
        'def f(x):\n    """Nor this one."""\n    say(f"note: {x:,} of them")\n'
        '    raise ConfigError(f"`{x}` is wrong " "here", kind="config", hint="give {} or " f"{x}")\n'
        'SQL = "select a from b"\nTITLE = "Mean response"\n'
    )
    assert list(python_texts(python)) == [
        ("says", "note: {x:,} of them"),
        ("error", "`{x}` is wrong here"),
        ("hint", "give {} or {x}"),
        ("text", "Mean response"),
    ]
    rust = tmp_path / "one.rs"
    rust.write_text(
        '/// "Not a message".\n#[expect(unsafe_code, reason = "no message either")]\n'
        "fn f<'a>(x: &'a str) -> Result<()> {\n"
        '    let quote = \'"\';\n    assert!(x.len() > 1, "nor this one");\n'
        '    let problem = format!("`{x}` is \\"wrong\\" \\\n        here");\n'
        '    Err(Error::new(Kind::Value, "is wrong").hint("give another"))\n}\n'
        '#[cfg(test)]\nmod tests { const T: &str = "text of a { test"; }\n'
        'const R: &str = r#"a "raw" text"#;\n'
    )
    assert list(rust_texts(rust)) == [
        ("text", '`{x}` is "wrong" here'),
        ("error", "is wrong"),
        ("hint", "give another"),
        ("text", 'a "raw" text'),
    ]
