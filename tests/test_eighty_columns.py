"""Tables fit into 80 columns without losing a digit or a part of a name."""

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import emmclab as lab
from conftest import emmclab, emmclab_ok
from emmclab.cli.tables import DataConsole, framed, show_explained
from emmclab.simulation.device import Device

COLUMNS = 80
#: Realistically long names of a trace, a device and a study.
TRACE = "messages-of-the-second-of-november-with-a-write-ahead-log"
DEVICE = "a-phone-of-2021-with-the-flash-of-its-successor"
COMMANDS = [
    "explain nexus5",
    "explain {device}.toml",
    "explain ufs31 {device}.toml",
    "explain ufs31 ufs40 --trace {trace}.parquet",
    "explain gc.",
    "explain --glossary",
    "explain {trace}.parquet",
    "explain two.json",
    "explain two.json#1 two.json#2",
    "formats",
    "layers",
    "devices",
    "devices --capacity 128GB",
    pytest.param("devices --check ufs31", marks=pytest.mark.slow),
    "devices --check emmc51-cache",
    "papers",
    "papers tables",
    "fleet fleet",
    "head {trace}.parquet",
    "profile {trace}.parquet --percentiles 50,90,99,99.9,99.99,99.999",
    "profile {trace}.parquet other.parquet --compare",
    "profile {trace}.parquet --against other.parquet",
    "journal {trace}.parquet",
    "simulate {trace}.parquet --device {device}.toml --layer pass-through",
    "simulate {trace}.parquet --device ufs31 --percentiles 50,99.99",
    "compare {trace}.parquet --devices emmc51-cache,{device}.toml",
    "compare {trace}.parquet --devices emmc51-cache,{device}.toml --percentiles 50,90,99,99.9,99.99",
    "compare {trace}.parquet --devices emmc51-cache --layers none,journal:delta,journal:aware",
    "compare {trace}.parquet --devices emmc51-cache,{device}.toml --seeds 2 --precondition random:1",
    "advise {trace}.parquet --device {device}.toml --new",
    "validate {trace}.parquet --device {device}.toml",
    "apps",
    "apps hosts",
    "apps run facebook --device {device}.toml --precondition none",
    "apps compare facebook --devices {device}.toml,emmc51-cache --networks wifi,usb --precondition none",
    "apps solutions facebook --device {device}.toml --precondition none --solution lfs",
    "query --trace {trace}.parquet 'select * from trace limit 3'",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace, a device and results of long names."""
    folder = tmp_path_factory.mktemp("narrow")
    trace = next(path for path in lab.bundled() if path.stem == "messages-wal")
    (folder / "fleet").mkdir()
    for name in (TRACE, "fleet/one", f"fleet/{TRACE}"):
        shutil.copy(trace, folder / f"{name}.parquet")
    shutil.copy(next(path for path in lab.bundled() if path.stem == "browser-cache"), folder / "other.parquet")
    shutil.copy(folder / "other.parquet", folder / "fleet" / "other.parquet")
    settings = Device.preset("ufs40").to_toml()
    text = re.sub(r'^name = ".*"$', f'name = "{DEVICE}"', settings, count=1, flags=re.MULTILINE)
    (folder / f"{DEVICE}.toml").write_text(text)
    done = emmclab("compare", f"{TRACE}.parquet", "--devices", "ufs31,nexus5", "--json", cwd=folder)
    (folder / "two.json").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_of_a_command_is_wider_than_the_terminal_or_cut(command: str, folder: Path) -> None:
    words = command.format(trace=TRACE, device=DEVICE)
    done = emmclab_ok(*shlex.split(words), cwd=folder, env={"COLUMNS": str(COLUMNS)})
    wide = [line for line in done.stdout.splitlines() if len(line.rstrip()) > COLUMNS and _of_a_table(line)]
    assert wide == []
    assert "…" not in done.stdout


def _of_a_table(line: str) -> bool:
    """Return whether a line has columns, or is the rule below headings; other lines are wrapped sentences."""
    return "  " in line.strip() or "─" in line


def _printed(table: Table, width: int) -> str:
    out = io.StringIO()
    DataConsole(file=out, width=width, highlight=False, emoji=False).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 80, 60, 40])
def test_a_table_that_is_too_wide_has_all_its_numbers_and_names(width: int) -> None:
    table = framed("Wide")
    names = ["a-name-of-a-trace-that-is-as-long-as-a-sentence", "short"]
    numbers = [[f"{column}{row},{column * 7:06d}.{row}" for column in range(1, 9)] for row in range(2)]
    table.add_column("Name")
    for column in range(1, 9):
        table.add_column(f"Heading\n{column}", justify="right")
    for name, cells in zip(names, numbers, strict=True):
        table.add_row(Text(name), *cells)
    text = _printed(table, width)
    assert max(map(len, map(str.rstrip, text.splitlines()))) <= width
    found = text.split()
    assert [number for cells in numbers for number in cells if found.count(number) != 1] == []
    first = "".join(line.split(" ", 1)[0] for line in text.splitlines())
    assert all(name in first for name in names)
    assert found.count("Heading") == 8


def test_parts_of_a_table_are_alike_in_width_and_have_the_names_of_the_rows() -> None:
    table = framed()
    for heading in ("name", *"abcdefghij"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    table.add_row("row", *(["1234567"] * 10))
    blocks = [block.splitlines() for block in _printed(table, 80).strip("\n").split("\n\n")]
    assert [block[0].split() for block in blocks] == [["name", *"abcde"], ["name", *"fghij"]]
    assert [block[-1].split()[0] for block in blocks] == ["row", "row"]


def test_a_meaning_stands_below_its_row_in_the_width_of_the_terminal() -> None:
    table = framed("Settings")
    for heading in ("Setting", "Value"):
        table.add_column(heading)
    table.add_row("gc.policy", "greedy")
    out = io.StringIO()
    console = DataConsole(file=out, width=30, highlight=False, emoji=False)
    show_explained(console, table, [Text("What is collected, and in which order")])
    assert out.getvalue().splitlines() == [
        "Settings",
        "Setting    Value",
        "─" * 17,
        "gc.policy  greedy",
        "    What is collected, and in",
        "    which order",
    ]
