"""Messages of exceptions: names from files can neither harm nor fill a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

import emmclab as lab
from emmclab.errors import ConfigError, FormatError


def test_a_message_has_no_control_characters_and_keeps_lines_and_tabs() -> None:
    error = ConfigError("no \x1b[2Jname\x07 and \u202eturned\n\tgoes on", hint="try \x9b31mthis")
    assert str(error) == "no ␛[2Jname␇ and \N{REPLACEMENT CHARACTER}turned\n\tgoes on"
    assert error.hint == "try \N{REPLACEMENT CHARACTER}31mthis"


def test_a_very_long_name_is_cut_and_a_path_is_not() -> None:
    path = "/".join(["folder"] * 580)
    error = FormatError(f"{path}: `{'x' * 10**6}` is no name", hint=f"take {'y' * 10**6}")
    assert str(error).startswith(f"{path}: `xxx") and str(error).endswith("x` is no name")
    assert len(str(error)) < len(path) + 400 and "…" in str(error)
    assert error.hint is not None and len(error.hint) < 400
    many = FormatError("of these: " + ", ".join(f"name-{number}" for number in range(10**5)))
    assert len(str(many)) < 13_000 and " characters … " in str(many)


def test_errors_of_the_core_are_harmless_too(tmp_path: Path) -> None:
    """The error about a trace of several devices lists the name of a device in the trace."""
    names = ("sda\x1b[31m", "y" * 100_000)
    rows = "".join(f"{number},write,{number * 8},8,{name}\n" for number, name in enumerate(names))
    trace = tmp_path / "two.csv"
    trace.write_text(f"arrival_ns,op,sector,sectors,device\n{rows}")
    with pytest.raises(ConfigError) as caught:
        lab.Device.preset("small-1gb").simulate(lab.read(trace), wrap_addresses=True)
    said = str(caught.value) + (caught.value.hint or "")
    assert "sda␛[31m" in said and "\x1b" not in said and len(said) < 2_000
