"""Pages for users of other tools: their commands run, and the names in them exist."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow
import pytest

from conftest import ROOT, need
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_groups
from pages import follow
from perfetto_messages import recording
from repository import complain, place

pytestmark = pytest.mark.slow

PAGES = sorted((ROOT / "docs/coming-from").glob("*.md"))
NEEDS = {"fio": ("fio", "jq")}
BLOCK_EVENTS = ROOT / "crates/trace/tests/fixtures"
#: Names of the recording in each form on the blktrace page.
FORMS = {
    "disk.blktrace.0": "little.blktrace.0.gz",
    "disk.blktrace.1": "little.blktrace.1.gz",
    "disk.txt": "blkparse.txt.gz",
}


def host_text() -> str:
    """Return the tracer's text of a SQLite workload on this kind of machine."""
    path = str(ROOT / "crates/record/tests/fixtures/host.trace.zst")
    with pyarrow.input_stream(path, compression="zstd") as stream:
        return bytes(stream.read()).decode()


def bring(page: Path, folder: Path) -> None:
    """Write the recordings that the first command of a page reads to a folder."""
    if page.stem == "blktrace":
        for name, stored in FORMS.items():
            (folder / name).write_bytes(gzip.decompress((BLOCK_EVENTS / stored).read_bytes()))
    if page.stem == "perfetto":
        (folder / "chat.perfetto-trace").write_bytes(recording(host_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    need(*NEEDS.get(page.stem, ("jq",)))
    bring(page, tmp_path)
    complain(follow(page, tmp_path), "show what the command prints, or mend the command")


def test_every_setting_and_field_that_a_page_names_is_there() -> None:
    settings = {
        row["key"] for name in ("ufs40", "ssdsim", "emmc51-cache") for row in Device.preset(name).explain()
    }
    # A setting of a policy is explained at the choice of the policy.
    chosen = {"mapping.scheme": "dftl"}, {"gc.policy": "d_choices"}
    settings |= {row["key"] for one in chosen for row in Device.preset("small-1gb").set(one).explain()}
    fields = {field.path for group in result_groups() for field in group.fields}
    groups = {name.partition(".")[0] for name in settings | fields}
    named = re.compile(r"`([a-z]+(?:\.[a-z0-9_]+)+)(?: = [^`]*)?`")
    faults = []
    for page in PAGES:
        text = page.read_text()
        for name in named.findall(text):
            known = any(name == one or one.startswith(f"{name}.") for one in settings | fields)
            if name.partition(".")[0] in groups and not known and not name.endswith(".c"):
                faults.append(f"{place(page)}: {name}")
        # `.read_us` follows a setting of the same group.
        ends = {name.rpartition(".")[2] for name in settings | fields}
        faults += [
            f"{place(page)}: .{name}"
            for name in re.findall(r"`\.([a-z_]+_[a-z_]+)`", text)
            if name not in ends
        ]
    complain(faults, "name a setting of a device or a field of a result")
