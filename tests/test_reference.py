"""Reference pages document what the program accepts: ranges of settings, columns, formats."""

import re
from pathlib import Path

import pytest

from conftest import ROOT
from emmclab import ConfigError, bundled, read
from emmclab.simulation.device import Device
from reference import reference

#: Settings that must be given together with a policy's own setting.
NEEDS = {
    **{f"slc.{key}": {"slc.mode": "cache", "slc.blocks": 8} for key in ("fold_after_us", "read_us")},
    **{f"slc.{key}": {"slc.mode": "cache", "slc.blocks": 8} for key in ("program_us", "erase_us")},
    "gc.choices": {"gc.policy": "d_choices"},
    "gc.seed": {"gc.policy": "d_choices"},
    "gc.window": {"gc.policy": "windowed_greedy"},
    "mapping.cached_entries": {"mapping.scheme": "dftl"},
    **{f"mapping.{key}": {"mapping.scheme": "dftl"} for key in ("hpb_pages", "lookup_ns", "lookup_nj")},
    **{f"mapping.{key}": {"mapping.scheme": "leaftl"} for key in ("map_cache_kb", "gamma", "compact_after")},
    "mapping.index_pct": {"mapping.scheme": "rqftl"},
    "mapping.cached_maps": {"mapping.scheme": "superblock"},
    "mapping.log_blocks": {"mapping.scheme": "superblock"},
    "mapping.superblock_blocks": {"mapping.scheme": "superblock"},
    "mapping.superblock_log_blocks": {"mapping.scheme": "superblock"},
}


def settings() -> dict[str, list[str]]:
    """Return the rows of the page of settings, by key."""
    text = reference("settings.md")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row for row in rows}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The smallest device."""
    path = tmp_path_factory.mktemp("device") / "device.toml"
    path.write_text("[[geometry.block_groups]]\npage_kb = 4\nblocks = 512\npages_per_block = 64\n")
    return Device.file(path)


def test_every_setting_of_a_device_is_on_the_page_with_what_it_allows() -> None:
    page = settings()
    for name in ("emmc51-cache", "ufs40", "nexus5"):
        for row in Device.preset(name).explain():
            key = re.sub(r"^fitted_to\.0$", "fitted_to", re.sub(r"\.\d+", ".0", row["key"]))
            assert key in page and page[key][3], key


def test_no_number_beyond_the_range_of_the_page_is_accepted(plain: Device) -> None:
    tried = 0
    for key, row in settings().items():
        if not (bounds := re.fullmatch(r"([\d,]+) to ([\d,]+)", row[3])) or key.startswith("power.wake_q"):
            continue
        least, most = (int(bound.replace(",", "")) for bound in bounds.groups())
        for value in (least - 1, most + 1):
            with pytest.raises(ConfigError, match=re.escape(key)):
                plain.set(NEEDS.get(key, {}) | {key: value})
        tried += 1
    assert tried > 60


def test_a_word_that_the_page_does_not_list_is_refused_with_those_that_it_does(plain: Device) -> None:
    words = {key: row[3] for key, row in settings().items() if re.fullmatch(r"[a-z_]+, .*[a-z_]", row[3])}
    assert len(words) > 15
    for key, allowed in words.items():
        with pytest.raises(ConfigError) as caught:
            plain.set({key: "no-such-word"})
        if allowed != "true, false":
            first = allowed.split(", ")[0]
            assert first in f"{caught.value}", key


def test_every_preset_is_on_the_page_of_devices() -> None:
    page = reference("devices.md")
    folders = ("presets/devices", "python/emmclab/papers/*/devices")
    files = {path.stem for folder in folders for path in Path(ROOT).glob(f"{folder}/*.toml")}
    assert files == set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))


def test_every_count_of_the_ledger_is_defined_on_the_page_of_columns() -> None:
    page = reference("trace-columns.md").partition("## Ledger")[2]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    counts = set(read(bundled()[0]).ledger)
    assert {row[0].strip("`") for row in rows} == counts
    assert [row[0] for row in rows if len(row) != 3 or row[2] == row[1]] == []
