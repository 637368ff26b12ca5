"""A file that is refused is read after the cure that its hint proposes."""

import re
import subprocess
from pathlib import Path

import pytest

from conftest import emmclab, emmclab_ok

#: The time to which a clock is set that begins at 0, in seconds.
SET = 1_270_000_000
#: Files that are refused with a command, or with options, that make them readable; FILE is the file.
REFUSED = {
    "a log of fio": "0, 309742, 0, 4096, 249856, 0\n2, 94538, 1, 4096, 3104768, 0\n",
    "a log of fio without priorities": "1, 309742, 0, 4096, 249856\n2, 94538, 1, 4096, 3104768\n",
    "block numbers": "100\n200\n100\n300\n",
    "xperf": (
        "BeginHeader\n    DiskRead,  TimeStamp, Process Name ( PID), ThreadID, IrpPtr\nEndHeader\n"
        "    DiskRead, 125340, System (   4), 188, 0xff, 0x00120a3000, 0x00001000, 451, 0, 0x00060043, 445, "
        'Normal, Original, 0xff, "C:\\a, b"\n'
        "    DiskWrite, 125840, System (   4), 188, 0xff, 0x00120a4000, 0x00001000, 51, 0, 0x00060043, 45, "
        "Normal, Original, 0xff, x\n"
    ),
    "a table with decimal commas": "0,000000 0 4220896 8 0\n3,773000 0 49592384 8 1\n",
    "events with decimal commas": "  8,0    3        1     0,000000000   697  Q   W 223490 + 8 [kjournald]\n",
    "a recording that is there twice": (
        "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.0 fio 7 sda W 8 4096 0.75\n2.0 fio 7 sda W 8 4096 0.7\n"
    )
    * 2,
    "usual names": "time_s op lba size seq\n0.000000 read 2048 8 rand\n0.000112 read 2056 8 seq\n",
    "a bad line": "arrival_us,op,sector,sectors\n1,R,8,8\nx,R,8,8\n",
    "numbers of operations": "arrival_us,op,sector,sectors\n1,0,8,8\n",
    "nanoseconds of fio": "fio version 3 iolog\n"
    + "".join(f"{1_000_000 * at} /f read {4096 * at} 4096\n" for at in range(300)),
    "times without a unit": "arrival,op,sector,sectors\n" + "".join(f"{at // 40},R,8,8\n" for at in range(3000)),
    "a clock that was set": "arrival_s,complete_s,op,sector,sectors\n"
    + "".join(
        f"{SET * (at > 149) + at / 100:.3f},{SET * (at > 148) + at / 100 + 0.001:.3f},R,8,8\n" for at in range(300)
    ),
    "bytes": "arrival_us,op,sector,sectors\n"
    + "".join(f"{at}000,W,{40960 * at},{4096 << at % 4}\n" for at in range(200)),
}


def cures(hint: str) -> list[tuple[list[str], list[str]]]:
    """Return what a hint proposes: lines for a shell, and then options to read the file that they write."""
    quoted = re.findall(r"`([^`]*)`", hint)
    lines = [line for line in quoted if re.match(r"(sed|grep|head|tail) ", line)]
    options: list[str] = []
    if found := re.search(r"--columns ((?:[\w-]+,)+[\w-]+|offset)", hint):
        options += ["--columns", found[1]]
    elif "--columns and --size-unit byte" in hint:
        options += ["--columns", "arrival_us,op,offset,size", "--size-unit", "byte"]
    elif "op_read0" in hint:
        options += ["--columns", "arrival_us,op_read0,sector,sectors"]
    options += ["--size-unit", "page"] if "--size-unit page" in hint else []
    options += ["--size-unit", "sector"] if "--size-unit UNIT" in hint else []
    if found := re.search(r"--time-unit (\w+)", hint):
        options += ["--time-unit", found[1]]
    options += ["--mend-clock"] if "--mend-clock" in hint else []
    options += ["--lenient"] if "--lenient" in hint and "op_read0" not in hint else []
    if not lines:
        return [([], options)]
    return [([line], options) for line in lines]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_read_after_the_cure_that_its_refusal_proposes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "FILE"
    path.write_text(REFUSED[name])
    refused = emmclab("profile", path)
    assert refused.returncode == 2, refused.stdout
    hint = refused.stderr.partition("\nhint: ")[2]
    found = cures(hint)
    assert found != [([], [])], hint
    for lines, options in found:
        read = path
        for line in lines:
            subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
            read = tmp_path / line.rsplit(" ", 1)[1]
        if name == "a log of fio":
            assert "one more `,-` where it has a sixth column" in hint
            options = [option + ",-" if "," in option else option for option in options]
        if name == "bytes":
            read.write_text(REFUSED[name].split("\n", 1)[1])
        emmclab_ok("profile", read, *options)
