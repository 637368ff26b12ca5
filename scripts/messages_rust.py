"""The texts in Rust sources that people read, by a scanner of tokens: errors, hints, sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from messages_python import is_text

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>[bc]?r(?P<hashes>\#*)"(?P<body>.*?)"(?P=hashes))
    | (?P<bytes>b"(?:[^"\\]|\\.)*")
    | (?P<string>"(?P<inside>(?:[^"\\]|\\.)*)")
    | (?P<char>b?'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))')
    | (?P<attribute>\#!?\[)
    | (?P<call>(?:[A-Za-z_][A-Za-z0-9_]*(?:::<[^>(]*>)?::)*[A-Za-z_][A-Za-z0-9_]*!?\s*[(\[])
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:\n\s*|u\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SINGLE = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
#: Calls whose texts appear in failed assertions and debuggers only.
_INTERNAL = {"assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"}
_INTERNAL |= {"unreachable", "panic", "expect", "include_str", "concat", "debug_struct", "write_bytes"}
#: Functions that make an error of a problem.
_ERRORS = {"new", "refused", "fault", "damaged", "bad", "unsupported", "cut", "nonsense", "failed", "wrong"}
_ERRORS |= {"outside", "beyond", "denied", "no_entry", "image_error", "config", "refuse", "invalid"}


def rust_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Give each text of a file with its kind, in the order of the file; tests and assertions are left out."""
    code = path.read_text()
    position, calls = 0, [""]
    while match := _TOKEN.search(code, position):
        position = match.end()
        kind = match.lastgroup
        if kind == "hashes" or kind == "body":
            kind = "raw"
        elif kind == "inside":
            kind = "string"
        if kind == "block":
            position = _after_comment(code, position)
        elif kind == "attribute":
            position = _after_bracket(code, position)
            if code[match.start() : position] == "#[cfg(test)]":
                position = _after_item(code, position)
        elif kind == "call":
            calls.append(re.sub(r"[!\s(\[]+$", "", match["call"]))
        elif kind == "open":
            calls.append("" if match["open"] != "{" else "{")
        elif kind == "close":
            if len(calls) > 1:
                calls.pop()
        elif kind in ("string", "raw"):
            text = match["body"] if match["inside"] is None else _unescaped(match["inside"])
            said = _kind(calls)
            if said is not None and text.strip() and (said == "hint" or is_text(text)):
                yield said, text


def _kind(calls: list[str]) -> str | None:
    """Give the kind of a text by the calls around it; none where people do not read it."""
    for call in reversed(calls):
        name = call.rsplit("::", 1)[-1]
        if name in _INTERNAL:
            return None
        if name in ("hint", "hint_text"):
            return "hint"
        if call.endswith("Error::new") or (name in _ERRORS and name != "new"):
            return "error"
        if call == "{":
            break
    return "text"


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return chr(int(match[1] or match[2], 16))
        return _SINGLE.get(match[3], match[3]) if match[3] else ""

    return _ESCAPE.sub(plain, text)


def _after_comment(code: str, position: int) -> int:
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(code, position):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(code)


def _after_bracket(code: str, position: int) -> int:
    """Give the end of a bracket that was opened before; texts inside may hold brackets."""
    depth = 1
    while depth and (match := _TOKEN.search(code, position)):
        position = match.end()
        depth += match[0][-1] in "([{" and match.lastgroup in ("call", "open", "attribute")
        depth -= match.lastgroup == "close"
    return position


def _after_item(code: str, position: int) -> int:
    """Give the end of the item behind an attribute: its braces or its semicolon."""
    while match := re.compile(r"[{;]").search(code, position):
        return match.end() if match[0] == ";" else _after_bracket(code, match.end())
    return len(code)
