"""Refusals say what was given in the words of the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import emmclab


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (("simulate", "chat", "--used", "1"), "`1` is not an age", "90d, 8w, 18mo or 2y"),
        (("simulate", "chat", "--rate", "fast"), "'fast' is not a number", "--help"),
        (
            ("simulate", "chat", "--device", "notes.txt"),
            "notes.txt is not a TOML file",
            "or give a TOML file",
        ),
        (("simulate", "chat", "--device", "shelf"), "shelf is a folder", "or give a TOML file"),
        (("simulate", "chat", "--events", "rows.csv"), "rows.csv", "ends in .parquet"),
        (("simulate", "chat", "--capacity", "big"), "`big` is not a size", "128GB"),
        (("profile", "chat", "--bin", "1s"), "figures over time", "--over-time"),
        (("profile", "shelf"), "shelf is read as one trace in parts: ", "emmclab fleet"),
        (("fleet", "nowhere"), "nowhere: folder not found", "check the path"),
        (("crash", "--device", "emmc51-cache"), "no workload is given", "sqlite"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_give(
    words: tuple[str, ...], problem: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no device")
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "app.toml").write_text('name = "app"\n')
    done = emmclab(*words, cwd=tmp_path)
    assert done.returncode == 2
    error, _, advice = done.stderr.partition("\nhint: ")
    assert problem in error and hint in advice, done.stderr
