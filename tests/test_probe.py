"""The probe measures the settings of presets, and writes only where it is allowed to."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import PATIENCE_S, assert_refused, begin, emmclab, emmclab_json, emmclab_ok, missing, need
from emmclab.real_devices.probe import Simulated, page_size, probe
from emmclab.simulation.device import Device

MB = 1024


@pytest.mark.parametrize(("preset", "page_kb", "block_kb"), [("galaxys2", 32, 4096), ("microsd-class10", 16, 2048)])
def test_the_sizes_of_the_papers_devices_are_found(preset: str, page_kb: int, block_kb: int) -> None:
    result = probe(Simulated(Device.preset(preset)), write=True, span_kb=1024 * MB)
    assert (result.clustered_page_kb, result.clustered_block_kb) == (page_kb, block_kb)


def test_a_device_that_maps_every_page_shows_no_clusters() -> None:
    result = probe(Simulated(Device.preset("iiswc15-4ps")), write=True, span_kb=128 * MB)
    assert (result.clustered_page_kb, result.clustered_block_kb) == (None, None)
    assert "does not depend on its position" in result.findings[0]


@given(
    page_kb=st.sampled_from([8, 16, 32, 64, 128]),
    dearer=st.floats(1.1, 3),
    noise=st.lists(st.floats(-0.01, 0.01), min_size=64, max_size=64),
)
def test_the_period_is_found_under_noise(page_kb: int, dearer: float, noise: list[float]) -> None:
    period = page_kb // 4
    times = [(dearer if (i + 1) % period == 0 else 1.0) + noise[i] for i in range(64)]
    assert page_size(times) == page_kb


@given(st.lists(st.floats(0.99, 1.01), min_size=64, max_size=64))
def test_noise_alone_has_no_period(times: list[float]) -> None:
    assert page_size(times) is None


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A file on a file system with direct I/O."""
    path = tmp_path / "scratch.bin"
    path.write_bytes(bytes(64 << 20))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        missing("direct I/O in the folder for temporary files", "set TMPDIR to a folder on a disk")
    return path


def test_a_file_is_only_read_unless_told_otherwise(scratch: Path) -> None:
    result = scratch.with_name("probe.json")
    output = emmclab_json("probe", scratch, "--span-mb", 48, "-o", result)
    assert output["wrote"] is False and json.loads(result.read_text()) == output
    assert {point["op"] for point in output["points"]} == {"read"}
    assert not any(scratch.read_bytes())


def test_a_file_is_overwritten_only_with_leave(scratch: Path, tmp_path: Path) -> None:
    assert_refused(emmclab("probe", scratch, "--write"), "--yes")
    assert not any(scratch.read_bytes())
    page = tmp_path / "probe.html"
    done = emmclab_ok("probe", scratch, "--write", "--yes", "--span-mb", 32, "--html", page)
    assert "clustered block" in done.stdout
    assert "Bandwidth by size" in page.read_text()
    content = scratch.read_bytes()
    assert any(content[: 32 << 20])
    assert not any(content[32 << 20 :])


@pytest.fixture
def loop(root: None, scratch: Path) -> Iterator[Path]:
    """A loop device over the scratch file."""
    del root
    need("losetup")
    done = subprocess.run(["losetup", "--find", "--show", str(scratch)], capture_output=True, text=True, check=True)
    yield Path(done.stdout.strip())
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True)


def test_a_block_device_is_probed_and_may_be_interrupted(loop: Path, scratch: Path) -> None:
    assert emmclab_json("probe", loop, "--span-mb", 32)["span_mb"] == 32
    end = time.monotonic() + PATIENCE_S
    status = 0
    # The command may have ended before the signal if this process waited for a processor.
    while status == 0 and time.monotonic() < end:
        scratch.write_bytes(bytes(64 << 20))
        process = begin("probe", loop, "--write", "--yes", "--span-mb", "64")
        while not _is_written(scratch) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
        status = process.returncode
    assert status == 130
    assert "Traceback" not in stderr


def _is_written(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(1 << 20))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["galaxys3"], "there is no device preset"),
        (["galaxys2", "--span-mb", "1"], "span of 1 MB"),
        (["/nowhere/device"], "cannot be opened"),
        (["/dev/null", "--set", "gc.window=3"], "settings of a real device"),
    ],
)
def test_bad_targets_are_refused_with_the_cure(arguments: list[str], part: str) -> None:
    assert_refused(emmclab("probe", *arguments), part)
