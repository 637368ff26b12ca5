"""Former names of settings are taken for one more version, and said."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import emmclab
from conftest import emmclab as command

OLD = "gc.hard_free_blocks"
NOTE = "`gc.hard_free_blocks` is called `gc.low_watermark` now"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A device file from before."""
    path = tmp_path / "old.toml"
    path.write_text(
        "[gc]\nhard_free_blocks = 2\n"
        "[[geometry.block_groups]]\npage_kb = 4\nblocks = 512\npages_per_block = 64\n"
    )
    return path


def test_python_warns_once_for_each_name(file: Path) -> None:
    with pytest.warns(DeprecationWarning, match="called `gc.low_watermark` now") as caught:
        device = emmclab.Device.file(file)
    assert len(caught) == 1
    with pytest.warns(DeprecationWarning, match="called `gc.high_watermark` now") as caught:
        changed = device.set({"gc.soft_free_blocks": 9})
    assert len(caught) == 1 and len(changed.notes) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changed.set({"gc.low_watermark": 3})


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "TRACE", "--device", "nexus5", "--set", f"{OLD}=2", "--json"],
        ["simulate", "TRACE", "--device", "FILE", "--wrap-addresses", "--json"],
        ["compare", "TRACE", "--devices", "nexus5,iiswc15-4ps", "--wrap-addresses", "--set", f"{OLD}=2"],
        ["explain", "FILE"],
    ],
)
def test_commands_say_it_once(trace: Path, file: Path, arguments: list[str]) -> None:
    paths = {"TRACE": str(trace), "FILE": str(file)}
    done = command(*[paths.get(argument, argument) for argument in arguments])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NOTE) == 1 and NOTE not in done.stdout
    assert f"note: {NOTE}" in done.stderr
