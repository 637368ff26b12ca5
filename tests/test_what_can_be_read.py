"""The page of readable formats is complete, and files of each tool have the columns that it names."""

import shutil
import subprocess
from pathlib import Path

import pytest

import emmclab as api
from conftest import need
from emmclab import _core
from reference import reference

FORMATS = {entry["name"]: entry for entry in _core.formats()}
#: Columns that every format fills.
ALWAYS = {"arrival_ns", "sector", "sectors", "op", "flags"}


def columns(path: Path) -> tuple[str, set[str]]:
    """Return the format of a trace, and the columns that contain a value."""
    trace = api.read(path)
    rows = trace.rows(10_000)
    return str(trace.header["format"]), {name for row in rows for name in row if row[name] not in (None, [])}


def check(path: Path, name: str) -> None:
    """Check that a file has this format, and no more columns than the page states."""
    found, given = columns(path)
    assert found == name
    assert given - ALWAYS <= set(FORMATS[name]["gives"]), name


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, timeout=120, check=False)


def write(folder: Path) -> list[str | Path]:
    """Return a command that writes without the page cache."""
    return ["dd", "if=/dev/zero", f"of={folder / 'data'}", "bs=4096", "count=64", "oflag=direct"]


def test_the_page_names_every_format_and_every_file_that_is_none() -> None:
    page = reference("what-can-be-read.md")
    for name, entry in FORMATS.items():
        assert f"| `{name}` | {entry['from']} |" in page.replace("\\\\|", "\\|"), name
    for what, _ in _core.file_kinds():
        assert what in page


@pytest.mark.parametrize("name", [name for name, entry in FORMATS.items() if entry["writes"]])
def test_what_is_written_gives_the_columns_of_its_format(name: str, tmp_path: Path) -> None:
    if name == "perfetto":
        pytest.skip("a picture is not read")
    path = tmp_path / ("trace." + {"mqsim": "mqsim"}.get(name, "txt"))
    api.convert(api.bundled()[0], path, to=name)
    given = {key for row in api.read(path, format=name).rows(1_000) for key in row if row[key] not in (None, [])}
    assert given - ALWAYS <= set(FORMATS[name]["gives"])


def test_an_iolog_of_fio(tmp_path: Path) -> None:
    need("fio")
    done = run(
        *("fio", "--name=job", "--rw=randwrite", "--bs=4k", "--size=256k", "--ioengine=psync"),
        "--write_iolog=job.log",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    check(tmp_path / "job.log", "fio")


def test_recordings_of_trace_cmd(root: None, tmp_path: Path) -> None:
    del root
    need("trace-cmd")
    done = run(
        *("trace-cmd", "record", "-q", "-C", "mono", "-e", "block", "-o", "trace.dat", *write(tmp_path)), cwd=tmp_path
    )
    if done.returncode != 0:
        pytest.skip(f"trace-cmd cannot record here: {done.stderr.decode(errors='replace')[-200:]}")
    check(tmp_path / "trace.dat", "trace-cmd")
    (tmp_path / "report.txt").write_bytes(run("trace-cmd", "report", "trace.dat", cwd=tmp_path).stdout)
    check(tmp_path / "report.txt", "ftrace")


def test_recordings_of_perf(root: None, tmp_path: Path) -> None:
    del root
    if shutil.which("perf") is None:
        # The package depends on the kernel's version, and many machines do not have it.
        pytest.skip("perf is missing; apt-get install linux-perf")
    done = run(*("perf", "record", "-q", "-a", "-e", "block:*", "-o", "perf.data", *write(tmp_path)), cwd=tmp_path)
    if done.returncode != 0:
        pytest.skip(f"perf cannot record here: {done.stderr.decode(errors='replace')[-200:]}")
    (tmp_path / "script.txt").write_bytes(run("perf", "script", "-i", "perf.data", cwd=tmp_path).stdout)
    check(tmp_path / "script.txt", "ftrace")
