"""Pages whose commands are executed: each runs as printed, and its output is what the page shows."""

import gzip
import os
import re
from pathlib import Path

import pytest

from conftest import ROOT, missing, need
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_groups
from pages import Step, follow, parts
from perfetto_messages import host_text, recording
from repository import complain, place

pytestmark = pytest.mark.slow

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
COMING_FROM = sorted((ROOT / "docs/coming-from").glob("*.md"))
#: Guides that mount file systems.
MOUNTING = ("database-commits", "empty-configuration", "mount-options", "sqlite-safe")
#: Programs that a page uses in addition to emmclab and a shell.
NEEDS = {
    "android-platform-engineer": ("jq", "sqlite3", "strace"),
    "firmware-engineer": ("jq", "qemu-io"),
    "storage-researcher": ("jq",),
    "database-commits": ("setpriv",),
    "fio": ("fio", "jq"),
    **dict.fromkeys(("blktrace", "mqsim", "perfetto", "ssdsim"), ("jq",)),
}
POSTGRESQL = Path("/usr/lib/postgresql/15/bin/initdb")
BLOCK_EVENTS = ROOT / "crates/trace/tests/fixtures"
#: Names of the recording in each form on the blktrace page.
FORMS = {
    "disk.blktrace.0": "little.blktrace.0.gz",
    "disk.blktrace.1": "little.blktrace.1.gz",
    "disk.txt": "blkparse.txt.gz",
}


def bring(page: Path, folder: Path) -> None:
    """Write the recordings that the first command of a page reads to a folder."""
    if page.stem == "blktrace":
        for name, stored in FORMS.items():
            (folder / name).write_bytes(gzip.decompress((BLOCK_EVENTS / stored).read_bytes()))
    if page.stem == "perfetto":
        (folder / "chat.perfetto-trace").write_bytes(recording(host_text()))


@pytest.mark.parametrize(
    "page",
    [
        *(*TUTORIALS, *COMING_FROM, ROOT / "docs/guides/sd-card-lies.md"),
        *(pytest.param(ROOT / f"docs/guides/{name}.md", marks=pytest.mark.root) for name in MOUNTING),
    ],
    ids=lambda page: page.stem,
)
def test_every_command_of_a_page_prints_what_the_page_shows(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need(*NEEDS.get(page.stem, ()))
    if page.stem in MOUNTING:
        request.getfixturevalue("root")
        need("mkfs.ext4")
    if page.stem == "database-commits" and not POSTGRESQL.exists():
        missing("PostgreSQL 15", "apt-get install postgresql-15")
    tmp_path.chmod(0o700)
    bring(page, tmp_path)
    as_root = os.geteuid() == 0 and Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()
    complain(follow(page, tmp_path, as_root=as_root), "show what the command prints, or mend the command")
    if not as_root and any(isinstance(part, Step) and part.as_root for part in parts(page)):
        missing("root, for some of the commands of a page,", "run the tests with sudo")


def test_every_setting_and_field_that_a_page_names_is_there() -> None:
    settings = {row["key"] for name in ("ufs40", "ssdsim", "emmc51-cache") for row in Device.preset(name).explain()}
    # A setting of a policy is explained at the choice of the policy.
    chosen = {"mapping.scheme": "dftl"}, {"gc.policy": "d_choices"}
    settings |= {row["key"] for one in chosen for row in Device.preset("small-1gb").set(one).explain()}
    fields = {field.path for group in result_groups() for field in group.fields}
    groups = {name.partition(".")[0] for name in settings | fields}
    named = re.compile(r"`([a-z]+(?:\.[a-z0-9_]+)+)(?: = [^`]*)?`")
    faults = []
    for page in COMING_FROM:
        text = page.read_text()
        for name in named.findall(text):
            known = any(name == one or one.startswith(f"{name}.") for one in settings | fields)
            if name.partition(".")[0] in groups and not known and not name.endswith(".c"):
                faults.append(f"{place(page)}: {name}")
        # `.read_us` follows a setting of the same group.
        ends = {name.rpartition(".")[2] for name in settings | fields}
        faults += [f"{place(page)}: .{name}" for name in re.findall(r"`\.([a-z_]+_[a-z_]+)`", text) if name not in ends]
    complain(faults, "name a setting of a device or a field of a result")
