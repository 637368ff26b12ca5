"""Power cuts under load: acknowledged data is present, and a device that lies is detected."""

import json
import mmap
import os
import subprocess
from pathlib import Path

import pytest

import emmclab as lab
from conftest import PATIENCE_S, missing
from cut_rounds import BLOCK, CUTS, lost_in, stamp
from emmclab.live.control import Control

CACHED = {
    "geometry.block_groups.0.blocks": 64,
    "cache.size_kb": 512,
    "cache.write_back": "when_full",
    "power.sleep_after_us": 0,
}


class Direct:
    """A block device that is accessed without the page cache."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_DIRECT)
        self._out, self._in = mmap.mmap(-1, BLOCK), mmap.mmap(-1, BLOCK)

    def write(self, block: int, version: int) -> None:
        self._out[:] = stamp(version)
        os.pwritev(self._file, [self._out], block * BLOCK)

    def flush(self) -> None:
        os.fsync(self._file)

    def read(self, block: int) -> bytes:
        os.preadv(self._file, [self._in], block * BLOCK)
        return self._in[:]

    def close(self) -> None:
        os.close(self._file)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("layers", [[], ["advil"]])
def test_nothing_acknowledged_is_lost_under_a_loop_device(layers: list[str]) -> None:
    sizes = {"advil.reserved": "8MiB"} if layers else {}
    device = lab.Device.preset("small-1gb").set(CACHED)
    with lab.serve(device, layers=layers, layer_settings=sizes, loop=True, clock="x0.1") as served:
        disk = Direct(served.path)
        try:
            assert lost_in(disk, served.cut, served.restore) == []
        finally:
            disk.close()
        assert served.stats()["cuts"] == CUTS


@pytest.mark.usefixtures("root")
def test_a_device_that_ignores_flushes_is_caught_under_a_loop_device() -> None:
    device = lab.Device.preset("small-1gb").set(CACHED | {"cache.lies": "flush"})
    with lab.serve(device, loop=True, clock="x0.1") as served:
        disk = Direct(served.path)
        try:
            assert lost_in(disk, served.cut, served.restore)
        finally:
            disk.close()


#: The Python interpreter that Debian's packages are for.
SYSTEM_PYTHON = "/usr/bin/python3"
#: Runs rounds over an NBD connection, in a Python that has libnbd.
OVER_NBD = """
import json, nbd, sys
h = nbd.NBD()
h.connect_uri({uri!r})
sys.path[:0] = [{tests!r}]
import socket, cut_rounds as rounds

class Remote:
    def write(self, block, version):
        self.do(h.pwrite, rounds.stamp(version), block * rounds.BLOCK)
    def flush(self):
        self.do(h.flush)
    def read(self, block):
        return bytes(h.pread(rounds.BLOCK, block * rounds.BLOCK))
    def do(self, call, *given):
        try:
            call(*given)
        except nbd.Error as error:
            raise OSError(str(error))

def ask(command):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect({control!r})
        client.sendall(json.dumps({{"command": command}}).encode() + b"\\n")
        assert json.loads(client.makefile().readline())["ok"]

print(json.dumps(rounds.lost_in(Remote(), lambda: ask("cut"), lambda: ask("restore"))))
"""


@pytest.mark.parametrize("lie", ["none", "flush"])
def test_nothing_acknowledged_is_lost_over_nbd_but_by_a_device_that_lies(tmp_path: Path, lie: str) -> None:
    if subprocess.run([SYSTEM_PYTHON, "-c", "import nbd"], capture_output=True, check=False).returncode:
        missing("python3-libnbd", "apt-get install python3-libnbd")
    tmp_path.chmod(0o700)
    device = lab.Device.preset("small-1gb").set(CACHED | {"cache.lies": lie})
    control = tmp_path / "control.sock"
    with lab.serve(device, nbd=tmp_path / "nbd.sock", clock="x0.1") as served, Control(served, control, lambda: None):
        script = OVER_NBD.format(tests=str(Path(__file__).parent), control=str(control), uri=served.path)
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
    assert bool(json.loads(done.stdout)) == (lie != "none"), done.stdout
