"""Every command that writes a file, on a disk without any room."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import emmclab

STUDY = """
name = "small"
about = "one cell"
inputs = ["Email"]

[[grid]]
name = "only"
devices = ["nexus5"]
"""
#: The command lines; OUT is a name on the full disk, TRACE a trace of 400 requests.
COMMANDS = (
    *(f"convert TRACE OUT.{ending}" for ending in ("csv", "parquet", "csv.gz", "csv.zst", "csv.xz")),
    "synth Email OUT.parquet --requests 400",
    "synth --reads 30 --size 4k --requests 400 -o OUT.csv",
    "fit TRACE -o OUT.toml",
    "profile TRACE --html OUT.html",
    "profile TRACE --figures OUT",
    "profile TRACE --over-time OUT.csv",
    "journal TRACE --html OUT.html",
    "simulate TRACE --device nexus5 --html OUT.html",
    "simulate TRACE --device nexus5 --events OUT.parquet",
    "simulate TRACE --device nexus5 --perfetto OUT.perfetto-trace",
    "compare TRACE --devices nexus5,ufs31 --html OUT.html",
    "advise TRACE --device nexus5 --new --html OUT.html",
    "validate TRACE --device nexus5 --html OUT.html",
    "query --trace TRACE 'select * from trace' -o OUT.csv",
    "query --trace TRACE 'select * from trace' -o OUT.parquet",
    "fleet FOLDER -o OUT.parquet",
    "run STUDY --results OUT",
    "crash --device small-1gb --workload append-log --results OUT",
    "crash --device small-1gb --workload append-log --operations 5 --results RESULTS --save-log OUT.log",
    "crash --device small-1gb --workload append-log --operations 5 --results RESULTS --save-dm-log OUT.log",
    "apps run email --device nexus5 --html OUT.html",
    "serve small-1gb --clock free --nbd SOCKET --record OUT.parquet -- true",
    "serve small-1gb --clock free --nbd SOCKET --image OUT.img -- true",
)


@pytest.fixture
def full_disk(root: None, tmp_path: Path) -> Iterator[Path]:
    """A file system on which folders and empty files can be made, and nothing can be written."""
    del root
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    filler = folder / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_full_disk_is_a_named_error_that_leaves_no_part_of_a_file(
    line: str, trace: Path, full_disk: Path, tmp_path: Path
) -> None:
    study, folder = tmp_path / "small.toml", tmp_path / "recordings"
    study.write_text(STUDY)
    folder.mkdir()
    (folder / "chat.txt").write_bytes(trace.read_bytes())
    places = {
        "OUT": full_disk / "out",
        "TRACE": trace,
        "STUDY": study,
        "FOLDER": folder,
        "RESULTS": tmp_path / "results",
        "SOCKET": tmp_path / "n.sock",
    }
    words = [
        next((str(place) + word.removeprefix(name) for name, place in places.items() if word.startswith(name)), word)
        for word in shlex.split(line)
    ]
    _refused(words, full_disk)


def test_the_image_of_a_state_on_a_full_disk_leaves_no_part_of_it(full_disk: Path, tmp_path: Path) -> None:
    results, image = ("--results", tmp_path / "results"), full_disk / "state.img"
    lies = ("--device", "emmc51-cache", "--set", "cache.lies=flush", "--workload", "append-log")
    found = json.loads(emmclab("crash", *lies, "--cuts", "20", *results, "--json").stdout)["findings"]
    again = next(one["again"] for one in found if one["again"] is not None)
    # There is room for the folder that it is made in and some blocks, but not for all.
    (full_disk / "filler").write_bytes(bytes(4096))
    words = ["crash", "--again", again, *map(str, results), "--save-image", str(image)]
    _refused(words, full_disk, holds=str(image))
    assert not image.exists()


def _refused(words: list[str], full_disk: Path, holds: str = "") -> None:
    done = emmclab(*words)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert holds in done.stderr
    assert "error: " in done.stderr and "No space left" in done.stderr, done.stderr
    left = [path for path in full_disk.rglob("*") if path.is_file() and path.name != "filler"]
    assert not [path for path in left if path.stat().st_size], left
