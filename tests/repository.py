"""Lists the files of the repository, and reports faults in them."""

import subprocess
from pathlib import Path

import pytest

from conftest import ROOT


def tracked(*endings: str) -> list[Path]:
    """Return the project's files with one of these endings, from git if available, else from the folders."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False)
    names = done.stdout.decode().splitlines()
    if done.returncode != 0:
        skipped = {".git", ".venv", "target", "build"}
        names = [
            str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file() and not skipped & {*path.parts}
        ]
    return [ROOT / name for name in sorted(names) if name.endswith(endings) and (ROOT / name).is_file()]


def complain(faults: list[str], cure: str) -> None:
    """Fail with all faults at once and the remedy."""
    if faults:
        pytest.fail("\n".join([*faults, f"cure: {cure}"]), pytrace=False)


def place(path: Path, line: int | None = None) -> str:
    """Return the path, and line if any, of a place in a file."""
    return f"{path.relative_to(ROOT)}" + (f":{line}" if line else "")
