"""Pages whose commands are executed: each command runs as printed, and its output matches the page."""

import functools
import gzip
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

import emmclab as lab
from conftest import ROOT, biotracer, missing, need
from emmclab import _core
from emmclab.cli import application, insert_default_values
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_groups
from pages import BLOCK, File, Step, follow, parts, run
from perfetto_messages import host_text, recording
from repository import complain, place, tracked

pytestmark = pytest.mark.slow

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
COMING_FROM = sorted((ROOT / "docs/coming-from").glob("*.md"))
#: Guides that mount file systems.
MOUNTING = ("database-commits", "empty-configuration", "mount-options", "sqlite-safe")
#: Guides on wear.
WEAR = ("which-process-wears", "app-on-a-cheap-phone", "life-time-bytes", "write-amplification")
#: Programs that a page uses in addition to emmclab and a shell.
NEEDS = {
    "android-platform-engineer": ("jq", "sqlite3", "strace"),
    "firmware-engineer": ("jq", "qemu-io"),
    "storage-researcher": ("jq",),
    "crash-ci": ("strace",),
    "database-commits": ("setpriv",),
    "replay-on-disk": ("qemu-io",),
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
    """Write the recordings that the first command of a page reads into a folder."""
    if page.stem == "blktrace":
        for name, stored in FORMS.items():
            (folder / name).write_bytes(gzip.decompress((BLOCK_EVENTS / stored).read_bytes()))
    if page.stem == "perfetto":
        (folder / "chat.perfetto-trace").write_bytes(recording(host_text()))


@pytest.mark.parametrize(
    "page",
    [
        *(*TUTORIALS, *COMING_FROM),
        *(
            ROOT / f"docs/guides/{name}.md"
            for name in ("sd-card-lies", "lifetime", "crash-ci", "replay-on-disk", *WEAR)
        ),
        *(pytest.param(ROOT / f"docs/guides/{name}.md", marks=pytest.mark.root) for name in MOUNTING),
    ],
    ids=lambda page: page.stem,
)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
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
    settings = {row.key for name in ("ufs40", "ssdsim", "emmc51-cache") for row in Device.preset(name).explain()}
    # A setting of a policy is explained at the choice of the policy.
    chosen = {"mapping.scheme": "dftl"}, {"gc.policy": "d_choices"}
    settings |= {row.key for setting in chosen for row in Device.preset("small-1gb").set(setting).explain()}
    fields = {field.path for group in result_groups() for field in group.fields}
    groups = {name.partition(".")[0] for name in settings | fields}
    named = re.compile(r"`([a-z]+(?:\.[a-z0-9_]+)+)(?: = [^`]*)?`")
    faults = []
    for page in COMING_FROM:
        text = page.read_text()
        for name in named.findall(text):
            is_known = any(name == setting or setting.startswith(f"{name}.") for setting in settings | fields)
            if name.partition(".")[0] in groups and not is_known and not name.endswith(".c"):
                faults.append(f"{place(page)}: {name}")
        # `.read_us` follows a setting of the same group.
        ends = {name.rpartition(".")[2] for name in settings | fields}
        faults += [f"{place(page)}: .{name}" for name in re.findall(r"`\.([a-z_]+_[a-z_]+)`", text) if name not in ends]
    complain(faults, "name a setting of a device or a field of a result")


GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
PAGES = [path for path in tracked(".md") if path.name == "README.md" or path.is_relative_to(ROOT / "docs")]
#: Pattern before a command in a line: the start, a prompt, a pipe or a word that runs it.
BEGIN = re.compile(r"(?:^|\$ |# |\| |sudo |exec |; )(?=emmclab [a-z])")
#: Commands of guides that are not executed here, by their first words, with the reason.
NOT_RUN = {
    "record --adb|top --adb": "a phone; crates/record tests a stand-in behind the real adb server",
    "explain --read-health": "a real device; test_explain.py",
    "profile .*--fsync": "a recording with waits; test_journal.py",
    "serve|control": "test_serve.py, test_followed_pages.py",
    "crash": "test_guides.py, test_followed_pages.py, test_crash.py",
    "durability": "test_followed_pages.py, test_durability.py",
    "replay|simulate real.parquet": "test_followed_pages.py, test_disk_replay.py",
    "apps live": "root; test_apps_live.py",
    "apps learn|apps run app.toml": "strace; test_followed_pages.py",
    "apps compare|apps solutions": "a minute; test_apps.py, test_solutions.py",
    "run power-cuts|report power-cuts|query .* --study power-cuts": "root, minutes; test_cut_study.py",
    "reproduce|papers|claims": "minutes; test_claims.py, test_dsn17.py, test_fast12.py, test_systor24.py",
    "devices --check \\w+ *#": "a minute; test_measured_figures.py",
    "run study.toml --on|run study.toml --shard .*SLURM|run .*JOB_COMPLETION": "a cluster; test_cluster.py",
    "run .* s3:": "a bucket; test_bucket.py",
    "fleet": "test_fleet.py, test_bucket.py",
    "collect study.toml /shared|report study.toml --results all|search": "test_cluster.py, test_search.py",
    "query .*roles.sql": "test_journal.py",
    "advise": "some seconds; test_advise.py, test_followed_pages.py",
    "lifetime --registers": "registers of two dates; test_lifetime.py",
    "lifetime --app": "a program file; test_software_changes.py",
    "synth behaviour.toml|profile trace.txt --against twin": "a million requests; test_workloads.py",
    "validate log106_Messaging.txt": "a trace of a paper; test_validate_recordings.py",
    "calibrate fio.json": "ten minutes of fio; test_fitted_devices.py",
}
#: Devices and processes in the guides, with their replacements in the traces of this test.
STANDS_FOR = {"device=8,0": "op=read", "process=kworker/*,from=10s,to=2m30s": "from=1s"}
STUDY = """name = "study"
inputs = ["trace.txt"]
[[grid]]
name = "collection"
devices = ["small-1gb"]
wrap_addresses = true
[grid.axes]
"gc.policy" = ["greedy", "fifo"]
"""


def lines(page: Path) -> list[str]:
    """Return the lines of the code blocks of a page; continued lines are joined."""
    text = page.read_text()
    fenced = [inside for _, inside in BLOCK.findall(text)]
    rest = BLOCK.sub("", text)
    indented = [line.strip() for line in re.sub(r"\\\n +", " ", rest).splitlines() if re.match(" {4,}", line)]
    return [*indented, *(line for inside in fenced for line in re.sub(r"\\\n +", " ", inside).splitlines())]


def words_of(text: str) -> list[str]:
    """Return the words of the command at the start of a text, up to a shell operator or a comment."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in lexer:
        if word[0] in "|;&<>#":
            break
        words.append(word)
    return words


def commands(page: Path) -> list[list[str]]:
    """Return the commands on a page as words: those in code blocks, and those between backticks."""
    matches = [line[begin.end() :] for line in lines(page) for begin in BEGIN.finditer(line)]
    matches += re.findall(r"(?<!`)`(emmclab [a-z][^`\n]*)`(?!`)", BLOCK.sub("", page.read_text()))
    split = []
    for text in matches:
        # SQL continues on the next lines; `...` replaces the rest of a command.
        if text.count('"') % 2 == 0 and text.count("'") % 2 == 0 and "..." not in text:
            split.append(words_of(text))
    return split


@functools.cache
def program() -> Any:
    return application()


def fault(words: list[str]) -> str | None:
    """Return why the program rejects the options of a command; None if it accepts them."""
    if not words or words[0].startswith("-"):
        return None
    command, rest = program(), words
    while rest and not rest[0].startswith("-") and isinstance(command, TyperGroup):
        command_of_word = command.commands.get(rest[0])
        if command_of_word is None:
            return f"there is no command {rest[0]}"
        command, rest = command_of_word, rest[1:]
    context = command.context_class(command, info_name=words[0])
    try:
        # A sentence may mention a command by its first words, or only one of its options.
        command.make_parser(context).parse_args(insert_default_values(rest))
    except Exception as error:  # typer has exceptions of its own for options.
        formatted = getattr(error, "format_message", None)
        if formatted is None:
            raise
        named = "Missing argument" in formatted() or formatted() == f"Option '{words[-1]}' requires an argument."
        return None if named else str(formatted())
    return None


def test_the_program_takes_every_command_that_a_page_names() -> None:
    faults, count = [], 0
    for page in PAGES:
        for command in commands(page):
            count += 1
            if problem := fault(command[1:]):
                faults.append(f"{place(page)}: {shlex.join(command)}: {problem}")
    assert count > 250
    complain(faults, "name a command and options of the program")


def test_hints_name_commands_and_options_of_the_program() -> None:
    faults, count = [], 0
    for path in sorted((ROOT / "tests/messages").glob("*.txt")):
        hints = re.findall(r"^! hint: (.*(?:\n! +.*)*)", path.read_text(), re.MULTILINE)
        for command in {command for hint in hints for command in re.findall(r"`emmclab ([^`]*)`", hint)}:
            count += 1
            if problem := fault(shlex.split(command)):
                faults.append(f"{path.name}: emmclab {command}: {problem}")
    assert count > 15
    complain(faults, "name commands and options of the program in hints")


def bring_inputs(folder: Path) -> None:
    """Create small files with the names that guides use in a folder."""
    bundled = {path.stem: path for path in [*lab.bundled(), *lab.bundled(annotated=True)]}
    (folder / "trace.txt").write_text(biotracer(400))
    (folder / "blocks.txt").write_text("7\n8\n7\n")
    for name in ("old", "music.txt", "chat.txt"):
        (folder / name).write_text(biotracer(200, 1_400_000_000 + len(name)))
    with gzip.open(folder / "old.Z", "wb") as packed:
        packed.write((folder / "old").read_bytes())
    shutil.copy(bundled["messages-wal"], folder / "trace.parquet")
    (folder / "chat.perfetto-trace").write_bytes(recording(host_text()))
    shutil.copy(ROOT / "fuzz/corpus/trace_dat/packed", folder / "trace.dat")
    script = '<script class="trace-data" type="application/text">\n'
    (folder / "page.html").write_text(f"<!DOCTYPE html>\n<html>\n{script}{host_text()}</script>\n</html>\n")
    for name in ("trace", "monday", "tuesday"):
        lab.convert(folder / "trace.txt", folder / f"{name}.csv.gz")
    (folder / "trace-in-parts").mkdir()
    shutil.copy(folder / "trace.txt", folder / "trace-in-parts/1.txt")
    (folder / "trace-in-parts/2.txt").write_text(biotracer(100, 1_400_009_000))
    register = bytearray(512)
    for at, value in {192: 8, 194: 2, 196: 0x57, 215: 7, 251: 1, 504: 1}.items():
        register[at] = value
    (folder / "ext_csd.txt").write_text(register.hex())
    # A health report with mean erases where two of its formats have them.
    report = bytearray(512)
    report[68], report[76], report[274], report[278] = 9, 5, 9, 5
    (folder / "report.bin").write_bytes(report)
    phone = lab.read(bundled["messages-wal"])
    files = {"disks": ["mmcblk0"], "kind": "emmc", "folder": "/sys/mmc0:0001", "gaps": []}
    batches = list(phone.batches())
    header = {**phone.header, "registers": json.dumps([{**files, "files": {"ext_csd": register.hex()}}])}
    writer = _core.Writer(folder / "phone.parquet", header)
    for batch in batches:
        writer.write(batch)
    writer.finish(phone.ledger, header)
    (folder / "study.toml").write_text(STUDY)
    (folder / "my-study.toml").write_text(STUDY.replace('"study"', '"my-study"'))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_command_of_a_guide_runs_or_says_why_it_does_not(page: Path, tmp_path: Path) -> None:
    bring_inputs(tmp_path)
    for part in parts(page):
        if isinstance(part, File):
            (tmp_path / part.name).write_text(part.text)
    for line in lines(page):
        begin = BEGIN.search(line)
        if begin is None or any(re.match(pattern, line[begin.end() + len("emmclab ") :]) for pattern in NOT_RUN):
            continue
        shell = re.sub(r"^\S*\$ ", "", line.partition("   #")[0])
        for condition, here in STANDS_FOR.items():
            shell = shell.replace(condition, here)
        run(Step(shell, ()), tmp_path)
