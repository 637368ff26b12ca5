"""Writes what a wheel installs beside its Python package, from the command line: `wheel_data.py FOLDER`.

Manual pages go to `share/man/man1`, completion to where bash, zsh and fish look below the prefix.
"""

from __future__ import annotations

import sys
from pathlib import Path

from emmclab.cli.completion import SHELLS, script
from man_pages import man_pages


def write(folder: Path) -> list[Path]:
    """Write the files into a folder; give their paths."""
    texts = {f"share/man/man1/{name}": text for name, text in man_pages()}
    texts |= {place: script(shell) for shell, place in SHELLS.items()}
    for place, text in texts.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [folder / place for place in texts]


def main(arguments: list[str]) -> int:
    """Write the files."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("error: name the folder to write to\nhint: wheel_data.py FOLDER", file=sys.stderr)
        return 2
    write(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
