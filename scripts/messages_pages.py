"""The texts in templates of pages that people read: headings, captions, sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from messages_python import is_text

_HEADING = re.compile(r"<(h[1-6]|summary|th)\b")
#: Statements of the template language and comments are no text; tags and line ends part texts.
_SILENT = re.compile(r"\{%.*?%\}|\{#.*?#\}|<(script|style)\b.*?</\1>", re.DOTALL)
_INLINE = re.compile(r"</?(a|b|code|em|span|i)\b[^>]*>")
_TAG = re.compile(r"<[^>]*>|\n")


def page_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Give each text of a template in its order; headings of any length, other texts of two words or more."""
    text = _INLINE.sub("", _SILENT.sub("", path.read_text()))
    position, tag = 0, ""
    for match in [*_TAG.finditer(text), None]:
        piece = " ".join(text[position : match.start() if match else len(text)].split())
        heading = bool(_HEADING.match(tag))
        if re.search(r"[A-Za-z]{2}", re.sub(r"\{\{.*?\}\}", "", piece)) and (heading or is_text(piece)):
            yield ("title" if heading else "text"), piece
        if match:
            position, tag = match.end(), match[0]
