"""Error messages state the given value in the words of the option, before any work is done."""

from pathlib import Path

import pytest

import emmclab as api
from conftest import emmclab


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (("simulate", "chat", "--used", "1"), "`1` is not an age", "90d, 8w, 18mo or 2y"),
        (("simulate", "chat", "--rate", "fast"), "'fast' is not a number", "--help"),
        (("simulate", "chat", "--device", "notes.txt"), "notes.txt is not a TOML file", "or give a TOML file"),
        (("simulate", "chat", "--device", "shelf"), "shelf is a folder", "or give a TOML file"),
        (("simulate", "chat", "--events", "rows.csv"), "rows.csv", "ends in .parquet"),
        (("simulate", "chat", "--precondition", "steady:0"), "0 capacities is impossible", "more than 0"),
        (("profile", "chat", "--bin", "1s"), "--bin has no effect without", "--over-time"),
        (("profile", "bare.csv"), "field `heading` (column 1): `arrival`", "arrival_us"),
        (("profile", "shelf"), "shelf is read as one trace in parts: ", "emmclab fleet"),
        (("simulate", "own.csv", "--device", "zufs"), "own.csv: ", "--layer lfs"),
        (("compare", "own.csv", "--devices", "ufs31,zufs"), "zone 20 is written in order", "--layer lfs"),
        (("fleet", "nowhere"), "nowhere: folder not found", "check the path"),
        (("crash", "--device", "emmc51-cache"), "no workload is given", "sqlite"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_give(
    words: tuple[str, ...], problem: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no device")
    (tmp_path / "bare.csv").write_text("arrival,op,sector,sectors\n1,R,0,8\n")
    (tmp_path / "own.csv").write_text("arrival_us,op,sector,sectors\n1,W,8000000,8\n")
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "app.toml").write_text('name = "app"\n')
    done = emmclab(*words, cwd=tmp_path)
    assert done.returncode == 2
    error, _, advice = done.stderr.partition("\nhint: ")
    assert problem in error and hint in advice, done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--mount", "nowhere/mnt"), "nowhere/mnt: the parent folder was not found"),
        (("--nbd", "nowhere/s.sock"), "folder not found"),
        (("--nbd", "s.sock", "--", "no-such-command"), "no-such-command: command not found"),
    ],
)
def test_serve_refuses_its_options_before_the_device_is_made_ready(
    words: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    done = emmclab("serve", "small-1gb", *words, cwd=tmp_path)
    assert done.returncode == 2 and problem in done.stderr
    assert "ready" not in done.stderr


@pytest.mark.parametrize("name", ["x" * 300, "x" * 100_000])
def test_a_name_that_no_file_can_have_is_a_named_error(name: str) -> None:
    device = api.Device.preset("small-1gb")
    trace = api.read(api.bundled()[0])
    for use in (api.read, api.registers, api.Device.preset, lambda text: device.simulate(trace, precondition=text)):
        with pytest.raises(api.EmmclabError):
            use(name)
