"""Programs of file-system operations under power cuts: language, generator, model, check, and published bugs."""

import errno
import gzip
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.cli import crash_batches
from emmclab.cli.crash_batches import explored_in_batches
from emmclab.cli.crash_run import CrashOptions, TimeLimit, checked_options
from emmclab.crash import Workload, generated_programs, programs, record_run
from emmclab.crash.expected_files import CheckPrograms
from emmclab.crash.explore import Options, open_run
from emmclab.crash.file_tree import RefusedError, Tree
from emmclab.crash.generated_programs import known_bug_names, known_bugs, known_programs, load
from emmclab.crash.json_types import BatchesSummary
from emmclab.crash.minimize import minimize_programs
from emmclab.crash.mounted_files import Mounted, Node, Status, UnreadableError
from emmclab.crash.programs import Operation, Program, ProgramError, operation, parse, perform, written_bytes
from emmclab.crash.promises import Finding, ReadFiles
from emmclab.crash.recording import RECORDING_OPTIONS
from emmclab.crash.stored_log import acknowledged_at, commands_before
from emmclab.runtime.option import complete

MOUNT = "mount ext4 rw,relatime"
#: Status of a new file.
STATUS = Status(0o644, 0, 0, 0, 0)
#: Results of an exploration that do not depend on the number of processes.
SAME = ("states", "covered", "findings")


def after(lines: list[str]) -> Tree:
    """Return the tree of files after these operations."""
    tree = Tree()
    for index, line in enumerate(lines):
        parsed = operation(line)
        tree.apply(index, parsed, written_bytes(0, index, parsed))
    return tree


def runner_output(lines: list[str], *, under_way: bool = False, mount: str = MOUNT) -> list[str]:
    """Return the output of the runner for these operations."""
    output = [mount, "begin 0 test"]
    for line in lines:
        output += [f"does {line}", "did"]
    return output[:-1] if under_way else output


def broken_promise(lines: list[str], tree: Tree, contents: dict[str, bytes] | None = None, **how: object) -> str | None:
    """Return the promise that this tree breaks, if any."""
    lost = CheckPrograms()(Files(nodes_of(tree, contents)), runner_output(lines, **how))  # type: ignore[arg-type]
    return None if lost is None else lost.promise


MADE = ["mkdir A", "create A/foo", "write A/foo 0 8192", "sync"]


def test_what_was_synced_has_to_be_there() -> None:
    assert broken_promise(MADE, after(MADE)) is None
    assert broken_promise(MADE, after(MADE[:2])) == "fsync"
    assert broken_promise(MADE, Tree()) == "fsync"
    assert broken_promise(MADE, after(MADE), {"A/foo": b""}) == "fsync"


def test_what_was_not_synced_may_be_old_or_new_but_nothing_else() -> None:
    lines = [*MADE, "rename A/foo A/bar", "write A/bar 0 4096"]
    old, new = after(MADE), after(lines)
    assert broken_promise(lines, old) is None and broken_promise(lines, new) is None
    between = after(lines[:-1])
    assert broken_promise(lines, between) is None, "the name is new and the data old"
    both = nodes_of(new) | {"A/foo": nodes_of(new)["A/bar"]}
    lost = CheckPrograms()(Files(both), runner_output(lines))
    assert lost is not None, "one file has both names"
    full = new.inodes[2].versions[-1].data
    assert broken_promise(lines, new, {"A/bar": full[:1000] + b"?" + full[1001:]}) == "garbage"


def test_a_difference_is_that_from_the_nearest_allowed_state() -> None:
    lines = [*MADE, "create A/new", "write A/new 0 100"]
    new = after(lines)
    strange = nodes_of(new)
    strange["A/new"] = replace(strange["A/new"], attributes={"user.old": b"1"})
    lost = CheckPrograms()(Files(strange), runner_output(lines))
    # The oldest state that a cut may leave has no such file.
    assert lost is not None and "A/new: has the attributes ['user.old'], not []" in lost.detail
    value = nodes_of(after([*MADE, "setxattr A/foo one 20", "sync"]))
    value["A/foo"] = replace(value["A/foo"], attributes={"user.one": b"other"})
    lost = CheckPrograms()(Files(value), runner_output([*MADE, "setxattr A/foo one 20", "sync"]))
    assert lost is not None and "another value of the attribute user.one" in lost.detail


@pytest.mark.parametrize("line", ["msync f", "mmapwrite f 0 100"])
def test_a_map_of_an_empty_file_fails_as_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    perform(operation("create f"), b"")
    with pytest.raises(OSError) as refused:
        perform(operation(line), b"x" * 100)
    assert refused.value.errno == errno.EINVAL
    perform(operation("write f 0 5000"), b"y" * 5000)
    perform(operation(line), b"x" * 100)


def test_an_operation_that_is_under_way_may_be_done_or_not() -> None:
    lines = [*MADE, "unlink A/foo"]
    assert broken_promise(lines, after(MADE), under_way=True) is None
    assert broken_promise(lines, after(lines), under_way=True) is None
    assert broken_promise([*lines, "sync"], after(MADE)) == "fsync", "what was removed and synced returns"


@pytest.mark.parametrize(
    ("move", "write", "before"),
    [("insert_range 4096 4096", (8192, 8192), 4096), ("collapse_range 4096 4096", (4096, 8192), 8192)],
)
def test_an_overwrite_may_be_in_the_old_place_until_durable(move: str, write: tuple[int, int], before: int) -> None:
    operations = ["create foo", "write foo 0 16384", "sync"]
    lines = [*operations, f"fallocate foo {move}", f"write foo {write[0]} {write[1]}"]
    old, new = (after(steps).inodes[1].versions[-1].data for steps in (operations, lines))
    data = new[write[0] : sum(write)]
    unmoved = {"foo": old[:before] + data + old[before + len(data) :]}
    assert broken_promise(lines, after(lines), unmoved) is None
    wrong = {"foo": data + old[len(data) :]}
    assert broken_promise(lines, after(lines), wrong) == "garbage"
    assert broken_promise([*lines, "fdatasync foo"], after(lines), unmoved) == "fsync"


def test_fsync_makes_data_and_the_last_change_of_the_file_durable() -> None:
    lines = ["create foo", "write foo 0 5000", "fsync foo"]
    assert broken_promise(lines, after(lines)) is None
    assert broken_promise(lines, after(lines[:1])) == "fsync", "the data is lost"
    assert broken_promise(lines, Tree()) == "fsync", "the name is lost"
    weak = "mount vfat rw"
    assert broken_promise(lines, Tree(), mount=weak) is None, "POSIX does not promise the name"
    data = ["create foo", "sync", "write foo 0 5000", "fdatasync foo"]
    assert broken_promise(data, after(data[:2])) == "fsync"


def test_what_is_allocated_and_not_written_reads_as_zeros_and_not_as_other_data() -> None:
    lines = ["create foo", "sync", "write foo 0 8192"]
    full = after(lines)
    assert broken_promise(lines, full, {"foo": bytes(8192)}) is None
    stale = {"foo": b"secret" + bytes(8186)}
    assert broken_promise(lines, full, stale) == "garbage"
    nodes = CheckPrograms()(Files(nodes_of(full, stale)), runner_output(lines, mount="mount ext4 rw,data=writeback"))
    assert nodes is not None and nodes.promise == "garbage" and "data=writeback" in str(nodes.documented)
    repeated = ["create foo", "write foo 0 8192", "sync", "truncate foo 100", "write foo 0 8192"]
    assert broken_promise(repeated, after(repeated), {"foo": after(repeated[:2]).inodes[1].versions[-1].data}) is None
    assert broken_promise(repeated, after(repeated), {"foo": bytes(8192)}) == "garbage", "the first 100 bytes stayed"
    synced = [*lines, "fsync foo"]
    assert broken_promise(synced, full, {"foo": bytes(8192)}) == "fsync"


def test_a_file_that_replaced_another_is_not_empty_on_ext4() -> None:
    lines = ["create old", "write old 0 100", "sync", "create new", "write new 0 100", "rename new old"]
    tree = after(lines)
    assert broken_promise(lines, tree) is None
    assert broken_promise(lines, tree, {"old": b""}) == "replace_by_rename"
    assert broken_promise(lines, tree, {"old": b""}, mount="mount ext4 rw,noauto_da_alloc") is None


def test_names_of_one_file_stay_one_file() -> None:
    lines = ["create foo", "link foo bar", "sync"]
    nodes = nodes_of(after(lines))
    apart = nodes | {"bar": Node("file", 7, 2, b"", {}, STATUS)}
    assert CheckPrograms()(Files(nodes), runner_output(lines)) is None
    lost = CheckPrograms()(Files(apart), runner_output(lines))
    assert lost is not None and "no longer the same file" in lost.detail


def test_attributes_are_those_of_a_moment() -> None:
    lines = ["create foo", "setxattr foo one 40", "sync", "setxattr foo one 100", "removexattr foo one"]
    for count in (3, 4, 5):
        assert broken_promise(lines, after(lines[:count])) is None
    assert broken_promise(lines[:4], after(lines[:1])) == "fsync"


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("fly away", 1, "fly"),
        ("create foo\nwrite foo 0", 2, "OFFSET LENGTH"),
        ("create ../foo", 1, "leaves the folder"),
        ("create /etc/foo", 1, "leaves the folder"),
        ("truncate foo -1", 1, "-1"),
        ("fallocate foo sideways 0 1", 1, "sideways"),
        ("dwrite foo 100 4096", 1, "multiples"),
        ("program a b", 1, "one name"),
        ("mknod foo door", 1, "kind of special file"),
        ("chmod foo 888", 1, "three octal digits"),
        ("link foo @open", 1, "no name for a new one"),
    ],
)
def test_a_line_that_is_no_operation_is_named(text: str, line: int, word: str) -> None:
    with pytest.raises(ProgramError, match=word) as caught:
        parse(text)
    assert caught.value.line == line


@given(st.text(max_size=200))
def test_any_text_is_programs_or_refused_by_line(text: str) -> None:
    try:
        programs = parse(text)
    except ProgramError as error:
        assert error.line >= 1
    else:
        text_again = "\n".join(map(str, programs))
        assert parse(text_again) == programs


def test_the_whole_space_of_one_operation_and_a_sample_of_more() -> None:
    all_programs = generated_programs.programs("ace:1", 1)
    verbs = {step.verb for program in all_programs for step in program.operations}
    assert verbs == set(programs.OPERATIONS), "each operation and each sync"
    assert len({program.operations for program in all_programs}) == len(all_programs)
    some = generated_programs.programs("ace:3:40", 7)
    assert len(some) == 40 and some == generated_programs.programs("ace:3:40", 7)
    assert some != generated_programs.programs("ace:3:40", 8)
    for program in [*all_programs, *some]:
        # An impossible operation raises an error.
        after(steps(program))


def ace_operations() -> dict[str, list[tuple[str, list[str]]]]:
    """Return ACE's operations by verb, each as one of ours with its files; from the tables of its manual."""
    first, second, folders = ("foo", "A/foo"), ("bar", "A/bar", "A/C/bar"), ("B", "A/C")
    pairs = [(path, new) for path in first + second for new in second if path != new]
    ranges = ("{end} 32768", "0 5000", "{tail} 5000")
    modes = ("zero_range", "zero_range_keep_size", "punch_hole", "keep_size", "extend")
    mapped = (("{end} 32768", "{page}"), ("0 8192", "0"))
    single = {
        "creat": [(f"create {path}", [path]) for path in first],
        "mkdir": [("mkdir A", ["A"])],
        "falloc": [(f"+fallocate {path} {mode} {at}", [path]) for path in first for mode in modes for at in ranges],
        "write": [(f"append {path} 32768", [path]) for path in first],
        "dwrite": [(f"dwritesync {path} {{blocks}} 32768", [path]) for path in first],
        "mmapwrite": [
            (f"+fallocate {path} extend {at}; mmapwrite {path} {at}; msyncrange {path} {page} 8192", [path])
            for path in first
            for at, page in mapped
        ],
        "unlink": [(f"unlink {path}", [path]) for path in first + second],
        "fsetxattr": [(f"setxattr {path} xattr1 4", [path]) for path in first],
        "removexattr": [(f"setxattr {path} xattr1 4; removexattr {path} xattr1", [path]) for path in first],
        "truncate": [(f"+truncate {path} {size}", [path]) for path in first for size in (0, 2500)],
    }
    single["write"] += [(f"+write {path} {at}", [path]) for path in first for at in ranges[1:]]
    single["dwrite"] += [(f"+dwritesync {path} 0 8192", [path]) for path in first]
    named = {verb: [(f"{verb} {path} {new}", [path, new]) for path, new in pairs] for verb in ("link", "rename")}
    moved = [(path, new) for path in ("A", *folders) for new in folders if path != new]
    named["rename"] += [(f"rename {path} {new}", [path, new]) for path, new in moved]
    # For a file, remove() is unlink().
    return {**single, **named, "remove": single["unlink"]}


def ace_syncs(paths: list[str]) -> set[str]:
    """Return the files and folders that ACE may sync in a program that uses these: with their siblings and folders."""
    siblings = {"A": "B", "B": "A"}
    related = {*paths}
    for path in paths:
        folder, _, name = path.rpartition("/")
        related.add(folder or ".")
        related.add(siblings.get(path) or path.replace(name, {"foo": "bar", "bar": "foo"}.get(name, name)))
    return related


@pytest.mark.parametrize(("length", "programs_of_ace"), [(1, 435), (2, 466_382)])
def test_ace_is_a_part_of_the_whole_space(length: int, programs_of_ace: int) -> None:
    """The numbers are those of the programs that ACE generates (utsaslab/crashmonkey, commit 27ca57f)."""
    count = 0
    every = [one for some in ace_operations().values() for one in some]
    for chosen in itertools.product(every, repeat=length):
        syncs = ace_syncs([path for _, paths in chosen for path in paths])
        count += (len(syncs) + 2) ** (length - 1) * (len(syncs) + 1)
        texts = tuple(text for text, _ in chosen)
        # No file system can move a folder into itself.
        if "rename A A/C" not in texts:
            assert {*texts} <= {*generated_programs._OPERATIONS}
            wanted = {"sync", *(f"fsync {path}" for path in syncs)}
            *middle, last = generated_programs._Sequence.of(texts).syncs[0]
            assert all({*wanted, ""} <= {*some} for some in middle) and wanted <= {*last}
    assert count == programs_of_ace


def test_numbered_programs_are_those_of_the_whole_space() -> None:
    whole = load("ace:1", 1)
    assert [*load("ace:1:0-699", 1), *load("ace:1:700-1571", 1)] == whole and generated_programs.whole(1) == 1572
    assert [program.name for program in load("ace:2:1000000-1000001", 1)] == ["ace-2-1000000", "ace-2-1000001"]
    assert len({program.operations for program in load("ace:2:400000-401999", 1)}) > 1990
    for name in ("ace:1:5-4", "ace:1:0-9999", "ace:3:0-5"):
        assert_refused(emmclab("crash", "--device", "emmc51-cache", "--workload", name), "names no programs")


J_LANG = """# define
A
A/foo

# declare
local_checkpoint

# setup
mkdir A 0777

# run
open Afoo O_RDWR|O_CREAT 0777
write Afoo 0 32768
falloc Afoo FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE 32768 4096
mmapwrite Afoo 0 8192
checkpoint 0
mknod A TEST_FILE_PERMS|S_IFCHR|S_IFBLK 0
dwrite Afoo 0 8192
none
remove Afoo
opendir test 0777
fsync test
checkpoint 1
"""


def test_a_program_of_ace_is_read(tmp_path: Path) -> None:
    (tmp_path / "two.jlang").write_text(J_LANG + "# define\nA\n# run\nmkdir A 0777\nsync\n")
    first, second = load(str(tmp_path / "two.jlang"), 1)
    assert [first.name, second.name, *steps(second)] == ["two-1", "two-2", "mkdir A", "sync"]
    assert steps(first) == [
        *("mkdir A", "sync", "open A/foo Afoo", "write @Afoo 0 32768"),
        *("fallocate @Afoo zero_range_keep_size 32768 4096", "fallocate @Afoo extend 0 8192"),
        *("mmapwrite @Afoo 0 8192", "msyncrange @Afoo 0 8192", "mknod A block"),
        *("close Afoo", "dwritesync A/foo 0 8192", "unlink A/foo", "open . test", "fsync @test"),
    ]


@pytest.mark.parametrize(
    ("wrong", "line", "words"),
    [
        ("sing Afoo", 12, ["sing", "opendir"]),
        ("open Bfoo 0 0", 12, ["Bfoo", "define"]),
        ("write Afoo 0", 12, ["write", "offset length"]),
        ("write Afoo -2000 5000", 12, ["-2000", "number"]),
        ("falloc Afoo FALLOC_FL_NONE 0 1", 12, ["FALLOC_FL_NONE", "FALLOC_FL_KEEP_SIZE"]),
        ("falloc Afoo FALLOC_FL_PUNCH_HOLE 0 1", 12, ["FALLOC_FL_PUNCH_HOLE"]),
        ("mknod A S_IFREG 0", 12, ["S_IFREG", "S_IFIFO"]),
        ("# teardown", 12, ["teardown", "define"]),
    ],
)
def test_a_wrong_line_of_a_program_of_ace_is_named(tmp_path: Path, wrong: str, line: int, words: list[str]) -> None:
    file = tmp_path / "wrong.jlang"
    file.write_text(J_LANG.replace("open Afoo O_RDWR|O_CREAT 0777", wrong))
    run = emmclab("crash", "--device", "emmc51-cache", "--workload", file)
    assert_refused(run, f"wrong.jlang:{line}", *words)


def test_a_folder_that_cannot_be_changed_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p0" / "A").mkdir(parents=True)
    nodes = Mounted(tmp_path).tree("/p0") or {}

    def full(_path: Path) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(tmp_path / "p0" / "A"))

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", full)
        unusable = Mounted(tmp_path).usable("/p0")
    assert unusable.startswith("A: Directory not empty")
    lost = CheckPrograms()(ReadFiles({}, nodes, unusable), runner_output(["mkdir A"]))
    assert lost is not None and lost.promise == "usable" and unusable in lost.detail
    assert Mounted(tmp_path).usable("/p0") == "" and not (tmp_path / "p0").exists()


@pytest.mark.parametrize("seed", range(6))
def test_the_model_leaves_what_the_kernel_leaves(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "_handles", {})
    os.umask(0o022)
    dice = random.Random(seed)
    tree = Tree()
    for index, step in enumerate(generated_programs.programs("random:150", seed)[0].operations):
        # The kernel and the model reject the same operations as impossible.
        for chosen in (step, generated_programs._draw_operation(tree, dice)):
            _both(tree, 2 * index + (chosen is not step), chosen)
    mounted = Mounted(tmp_path).tree("/")
    assert mounted is not None
    named = tree.names()
    assert set(mounted) == set(named)
    for path, step in named.items():
        node, inode = mounted[path], tree.inodes[step.inode]
        assert node.kind == step.kind and (step.kind == "folder" or node.links == step.links)
        assert node.data == (inode.versions[-1].data if inode.versions else step.target.encode()), path
        given_names = {name for name in node.attributes if name.startswith("user.")}
        assert given_names == {f"user.{name}" for name in step.attributes}
        # Only root can be another owner.
        owners = step.status[1:] if os.geteuid() == 0 else node.status[1:3]
        assert node.status[:3] == (step.status[0], *owners) and step.modified in (None, node.status.modified)
        assert not inode.versions or node.status.sectors * 512 >= inode.versions[-1].allocated


def _both(tree: Tree, index: int, operation: Operation) -> None:
    data = written_bytes(0, index, operation)
    before = tree.copy()
    try:
        tree.apply(index, operation, data)
    except RefusedError:
        with pytest.raises((OSError, ValueError)):
            perform(operation, data)
    else:
        try:
            perform(operation, data)
        except OSError as error:
            # Operations that this file system does not support are left out.
            assert error.errno in (95, 22) or (error.errno == 1 and os.geteuid() != 0), (operation, error)
            tree.inodes, tree._next, tree.handles = before.inodes, before._next, before.handles


root = pytest.mark.usefixtures("root")


@root
@pytest.mark.parametrize("lie", ["flush", "early_flush", "reorder", "recent", "late_trim", "paired_pages"])
def test_generated_programs_lose_nothing_on_an_honest_device_and_all_on_a_liar(tmp_path: Path, lie: str) -> None:
    words = ("crash", "--device", "emmc51-cache", "--workload", "ace:2:25", "--cuts", "150", "--json")
    if lie == "late_trim":
        words += ("--mount-options", "discard")
    honest = emmclab_json(*words, "--results", tmp_path / "honest")
    assert honest["states"] > 100 and honest["findings"] == []
    liar = emmclab_ok(*words, "--set", f"cache.lies={lie}", "--results", tmp_path / "liar", status=4)
    assert "has no effect here" not in liar.stderr


@root
def test_a_file_of_programs_runs_and_a_wrong_line_of_it_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.prog"
    mine.write_text("program config # replaced\ncreate new\nwrite new 0 100\nfsync new\nrename new old\n")
    words = ("crash", "--device", "emmc51-cache", "--workload", mine, "--cuts", "50", "--json")
    assert emmclab_json(*words, "--results", tmp_path / "results")["findings"] == []
    mine.write_text("create new\nrmdir new\n")
    done = emmclab(*words, "--results", tmp_path / "results")
    assert done.returncode == 0 and "1 operations failed (1 with ENOTDIR)" in done.stderr + done.stdout
    mine.write_text("create new\nsing new\n")
    assert_refused(emmclab(*words, "--results", tmp_path / "results"), "mine.prog:2", "sing")


#: A runner that omits the last sync of one program, but reports it as done.
LYING_RUNNER = """
import sys
from emmclab.crash import programs

run, perform = programs.run, programs.perform

def lying(number, program):
    left_out = program.operations[-1] if number == int(sys.argv[2]) else None
    programs.perform = lambda one, data: one is left_out or perform(one, data)
    run(number, program)

programs.run = lying
programs.main(sys.argv[1])
"""


@root
@pytest.mark.parametrize(
    "recording", [None, 0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 20))]
)
def test_a_runner_that_omits_one_of_all_syncs_is_found_and_an_honest_one_not(
    tmp_path: Path, recording: int | None
) -> None:
    every = load("ace:1:240", 1)
    (tmp_path / "mine.prog").write_text("".join(f"{program}\n" for program in every))
    (tmp_path / "lying.py").write_text(LYING_RUNNER)
    # Some syncs make nothing durable that an earlier sync did not, so that nobody can notice their omission.
    # ext4 does not share blocks.
    needed = [
        number
        for number, program in enumerate(every)
        if broken_promise(steps(program), after(steps(program)[:-2]))
        and not {"clone", "unshare_range"} & {word for step in steps(program) for word in step.split()}
    ]
    synced = sum(any(step.verb in programs.SYNCS for step in program.operations) for program in every)
    left_out = -1 if recording is None else random.Random(recording).choice(needed)
    words = ["crash", "--check", "programs", "--states", "device,boundary", "--results", tmp_path]
    runner = ["--device", "emmc51-cache", "--", sys.executable, tmp_path / "lying.py", tmp_path / "mine.prog", left_out]
    status = 0 if recording is None else 4
    found = json.loads(emmclab_ok(*words, "--json", "--cuts", "300", "--jobs", "1", *runner, status=status).stdout)
    assert len(every) == 240 and found["covered"]["lines_cut"] == found["covered"]["lines"] == synced
    assert all(f"program {every[left_out].name}:" in finding["detail"] for finding in found["findings"])
    if recording == 0:
        words += ["--log", found["log"]["path"], "--fresh"]
        again = emmclab_json(*words, "--cuts", "300", "--jobs", "3", status=4)
        assert [again[name] for name in SAME] == [found[name] for name in SAME], "with another number of processes"
        missing = (
            f"100 of {synced} programs were cut after their last sync; for the other {synced - 100}, "
            f"use --cuts {synced} or more."
        )
        assert missing in emmclab(*words, "--cuts", "100").stdout


def test_a_finding_has_what_is_expected_and_found_at_each_path() -> None:
    lines = [*MADE, "chmod A/foo 600", "fallocate A/foo keep_size 8192 4096", "utimes A/foo 9", "mkdir A/D", "sync"]
    made = nodes_of(after(lines))
    disk = {path: node for path, node in made.items() if path != "A/D"} | {"A/ghost": made["A/foo"]}
    wrong = replace(made["A/foo"], attributes={"user.one": b"1"}, status=STATUS._replace(modified=8))
    disk["A/foo"] = replace(wrong, data=b"", inode=77)
    lost = CheckPrograms()(Files(disk), runner_output(lines))
    assert lost is not None
    rows = {path: (expected, found) for path, expected, found in lost.differs}
    assert {*rows} == {"A/D", "A/foo", "A/ghost"} and rows["A/D"] == ("folder, mode 755 of 0:0", "nothing")
    expected, found = rows["A/foo"]
    assert "file, 8,192 bytes, SHA-256 " in expected and "mode 600 of 0:0, changed at 9 s" in expected
    assert found.startswith("file, 0 bytes") and "mode 644 of 0:0, changed at 8 s, user.one of 1 bytes 31" in found
    assert expected.endswith("at least 4,096 bytes of space") and found.endswith("0 bytes of space")
    # A path that is old or new by itself is no part of the difference.
    lines = [*MADE, "sync", "rename A/foo A/bar", "create B"]
    disk = nodes_of(after(lines[:-1])) | {"A/foo": replace(made["A/foo"], data=b"?" * 8192)}
    lost = CheckPrograms()(Files(disk), runner_output(lines, mount="mount btrfs rw"))
    assert lost is not None and {path for path, *_ in lost.differs} == {"A/foo"}


def test_a_finding_is_made_smaller_with_the_earlier_programs_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [Program(f"n{number}", (operation("mkdir A"), operation("sync"))) for number in range(9)]
    every[3] = Program("needed", (operation("mkdir B"), operation("sync")))
    every[8] = Program("last", tuple(map(operation, ("create a", "create b", "fsync b", "sync"))))
    finding = Finding("fsync", "filesystem", 0, 0, 0, "", "", 0, 0)
    recorded: list[str] = []

    def shown(log: str, *_about: object) -> bool:
        return "needed" in log and "fsync b" in log

    def record(workload: Workload) -> str:
        recorded.append(Path(workload.name).read_text())
        return recorded[-1]

    monkeypatch.setattr("emmclab.crash.minimize._shows", shown)
    arguments = (finding, Options(), record, tmp_path, None)
    smallest = minimize_programs(every, *arguments)  # type: ignore[arg-type]
    assert [program.name for program in smallest] == ["needed", "last"] and steps(smallest[1]) == ["fsync b"]
    assert len(recorded) < 40
    assert minimize_programs(every[4:], *arguments) == []  # type: ignore[arg-type]
    assert minimize_programs(every, *arguments, lambda: False) == []  # type: ignore[arg-type]


@root
def test_a_finding_is_printed_first_and_bundled_so_that_a_script_shows_it(tmp_path: Path) -> None:
    (tmp_path / "two.prog").write_text("program a\nmkdir A\nsync\nprogram b\ncreate new\nwrite new 0 5000\nfsync new\n")
    words = ["--workload", tmp_path / "two.prog", "--cuts", "60", "--states", "omit1:8,only1:4", "--jobs", "1"]
    words += ["--mount-options", "nobarrier", "--results", tmp_path, "--bundle", tmp_path / "found"]
    done = emmclab("crash", "--device", "emmc51-cache", *words, "--html", tmp_path / "page.html")
    assert done.returncode == 4
    first = done.stdout.index("states; the first: emmclab crash --again")
    assert first < done.stdout.index(": smallest: cut "), "the findings, then what is smaller"
    assert "transaction" in done.stdout[done.stdout.index(": smallest: cut ") :], "what the missing write contains"
    folder = tmp_path / "found" / "finding-1"
    text = (folder / "report.txt").read_text()
    assert "mount options nobarrier" in text and "logged block of sector" in text
    assert gzip.decompress((folder / "state.img.gz").read_bytes())[1080:1082] == b"\x53\xef", "an ext4"
    shown = subprocess.run(["sh", folder / "show.sh"], capture_output=True, text=True, check=False)
    assert (shown.returncode == 0 and "total" in shown.stdout) or "mount" in shown.stderr
    assert {path.name for path in folder.iterdir()} == {"report.txt", "show.sh", "state.img.gz"}
    unlimited = emmclab_ok("crash", "--device", "emmc51-cache", *words[:-2], "--minimize-for", "0s", status=4)
    assert "smallest" not in unlimited.stdout


@root
def test_a_whole_space_is_explored_in_batches_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_batches, "_BATCH", 6)
    monkeypatch.setattr(crash_batches, "_PILOTS", (1, 2))
    monkeypatch.setattr(generated_programs, "whole", lambda _length: 15)
    recording = complete(RECORDING_OPTIONS, {}, "a recording")
    given = {"workload": Workload("ace:2"), "options": Options(cuts=30), "results": tmp_path, "jobs": 2}
    run = CrashOptions(device="emmc51-cache", recording=recording, **given)  # type: ignore[arg-type]

    def explored() -> tuple[BatchesSummary, set[float]]:
        summary, broken = explored_in_batches(run, checked_options(run), TimeLimit(None))
        assert broken == []
        return summary, {path.stat().st_mtime for path in tmp_path.glob("crash/batches-*/*.json")}

    first, times = explored()
    assert (first["batches"], first["batches_in_all"], len(times)) == (3, 3, 3)
    assert first["programs"] == first["cut_after_last_sync"] == 14 and first["states"] >= 30
    assert [path.name.partition("-")[0] for path in tmp_path.glob("crash/*")] == ["batches"], "no log is kept"
    next(tmp_path.glob("crash/batches-*/0-5.json")).unlink()
    second, more = explored()
    assert len(times & more) == 2 and (second["batches"], second["programs"]) == (3, 14)


@root
def test_a_line_is_logged_before_what_the_program_writes_after_it(tmp_path: Path) -> None:
    script = """
import os
file = os.open("file", os.O_CREAT | os.O_RDWR)
os.pwrite(file, bytes(4096 * 60), 0)
os.fsync(file)
for number in range(60):
    print("before", number, flush=True)
    os.pwrite(file, b"a" * 4096, 4096 * number)
    os.fdatasync(file)
"""
    log = tmp_path / "run.log"
    record_run("emmc51-cache", Workload(command=(sys.executable, "-c", script)), log)
    run, facts = open_run(str(log))
    lines = acknowledged_at(run)
    flushes = [flush for flush in commands_before(run, facts["moments"]) if flush.op == "flush"]
    assert len(lines) == 60
    for line, next_line in zip(lines, [*lines[1:], 1 << 62], strict=True):
        assert any(
            flush.complete_ns is not None and line <= flush.arrival_ns <= flush.complete_ns <= next_line
            for flush in flushes
        )


def test_a_file_that_the_kernel_cannot_read_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p0" / "A").mkdir(parents=True)
    (tmp_path / "p0" / "A" / "foo").write_bytes(b"data")
    assert set(Mounted(tmp_path).tree("/p0") or {}) == {"A", "A/foo"}
    assert Mounted(tmp_path).tree("/p1") is None and Mounted(tmp_path).read("/p1") is None

    def broken(_path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(UnreadableError, match="/p0/A/foo: Input/output error"):
        Mounted(tmp_path).tree("/p0")
    with pytest.raises(UnreadableError, match="/p0/A/foo: Input/output error"):
        Mounted(tmp_path).read("/p0/A/foo")


@pytest.mark.slow
@root
def test_btrfs_without_barriers_loses_what_was_synced(tmp_path: Path) -> None:
    device = ("--device", "emmc51-cache", "--capacity", "512MB", "--fs", "btrfs", "--mount-options", "nobarrier")
    states = ("--workload", "ace:2:6", "--cuts", 8, "--states", "boundary,only1:4", "--recovery", "mount")
    findings = emmclab_json("crash", *device, *states, "--results", tmp_path, status=4)["findings"]
    assert {finding["level"] for finding in findings} == {"filesystem"}
    assert min(len(finding["minimal"]["program"]) for finding in findings) <= 3, "operations are left out, too"


class Files:
    """The files after a cut, as a test specifies them."""

    def __init__(self, nodes: dict[str, Node] | None) -> None:
        self._nodes = nodes

    def read(self, _path: str) -> bytes | None:
        return None

    def tree(self, _folder: str) -> dict[str, Node] | None:
        return self._nodes


def nodes_of(tree: Tree, contents: dict[str, bytes] | None = None) -> dict[str, Node]:
    """Return the nodes that a reader finds in this tree, with other contents for some files."""
    nodes = {}
    for path, named in tree.names().items():
        inode = tree.inodes[named.inode]
        data = inode.versions[-1].data if inode.versions else named.target.encode()
        attributes = {f"user.{name}": value for name, value in named.attributes.items()}
        sectors = -(-inode.versions[-1].allocated // 512) if inode.versions else 0
        status = Status(*named.status, named.modified or 0, sectors)
        data = (contents or {}).get(path, data)
        nodes[path] = Node(named.kind, named.inode + 100, named.links, data, attributes, status)
    return nodes


#: The published evidence of each bug: paths that are missing after the last sync, and contents that differ.
SHOWN: dict[str, tuple[list[str], dict[str, Callable[[bytes], bytes]]]] = {
    "new-1": (["A/bar"], {}),
    "new-3": (["A", "A/C", "A/C/foo"], {}),
    "new-4": (["B", "B/foo"], {}),
    "new-5": (["B/foo"], {}),
    "new-6": (["test/foo"], {}),
    "new-7": (["A/bar"], {}),
    "new-9": ([], {"foo": lambda data: data + bytes(4096)}),
    "new-10": (["B/foo"], {}),
    "generic-056": ([], {"foo": lambda _data: b""}),
    "generic-059": ([], {"foo": lambda data: data.replace(bytes(96), b"?" * 96)}),
    "generic-066": ([], {}),
    "generic-090": ([], {"foo": lambda data: data[:32768]}),
    "generic-177": ([], {"foo": lambda data: b"?" * len(data)}),
    "generic-322": (["bar"], {}),
    "generic-335": (["C/foo"], {}),
    "generic-336": (["C/bar"], {}),
    "generic-341": (["A/Y/X", "A/Y/X/foo", "A/Y/X/bar"], {}),
    "generic-342": (["A/bar"], {}),
    "generic-348": ([], {"A/bar1": lambda _data: b""}),
    "generic-325": ([], {"foo": lambda data: data[:-1] + b"?"}),
    "generic-376": (["A/foo"], {}),
    "ext4-direct-write": ([], {"foo": lambda _data: b""}),
}


#: Bugs after which a file or folder is in two folders: its name, and the other name.
TWICE = [
    *[("new-2", "B/bar", "A/bar"), ("generic-321", "B/foo", "A/foo")],
    *[("generic-343", "X/foo2", "Y/foo2"), ("generic-343", "X/Z", "Y/Z")],
]


def steps(program: Program) -> list[str]:
    """Return the operations of a program as lines."""
    return [str(step) for step in program.operations]


def mounts(name: str) -> list[str]:
    """Return the first line of the runner for each file system that had a bug."""
    # Without this mode, f2fs may lose a renamed file if a new file has its old name.
    kinds = known_bugs()[name]["file_system"].split(", ")
    return [f"mount {kind} rw,fsync_mode=strict" for kind in kinds]


@pytest.mark.parametrize("name", known_bugs())
def test_a_program_is_possible_and_what_it_leaves_breaks_no_promise(name: str) -> None:
    [program] = known_programs(f"known:{name}")
    for mount in mounts(name):
        assert broken_promise(steps(program), after(steps(program)), mount=mount) is None


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_bug_left_is_found(name: str) -> None:
    [program] = known_programs(f"known:{name}")
    missing_paths, changed = SHOWN[name]
    nodes = {path: node for path, node in nodes_of(after(steps(program))).items() if path not in missing_paths}
    for path, change in changed.items():
        nodes[path] = replace(nodes[path], data=change(nodes[path].data))
    if name == "generic-066":
        nodes["foo"] = nodes_of(after(steps(program)[:-2]))["foo"]
    for mount in mounts(name):
        assert CheckPrograms()(Files(nodes), runner_output(steps(program), mount=mount)) is not None, mount


@pytest.mark.parametrize(("name", "here", "there_name"), TWICE)
def test_a_file_or_folder_in_two_folders_is_found(name: str, here: str, there_name: str) -> None:
    [program] = known_programs(f"known:{name}")
    nodes = nodes_of(after(steps(program)))
    nodes |= {there_name: nodes[here]} | ({"A": nodes["B"]} if name == "new-2" else {})
    assert CheckPrograms()(Files(nodes), runner_output(steps(program), mount="mount btrfs rw")) is not None


def test_all_published_programs_are_one_workload() -> None:
    assert len(load("known", 1)) == len(known_bugs()) == len(known_bug_names())
    assert [program.name for program in load("known:new-7", 1)] == ["new-7"]


def test_a_bug_that_is_not_known_is_refused_with_the_names_of_those_that_are() -> None:
    assert_refused(emmclab("crash", "--device", "emmc51-cache", "--workload", "known:none"), "known:new-1, known:new-2")


def test_a_new_file_in_a_renamed_folder_may_be_in_its_old_name_until_it_is_synced() -> None:
    [program] = known_programs("known:new-10")
    lines = runner_output(steps(program), mount="mount btrfs rw")
    old = {
        "A": Node("folder", 101, 1, b"", {}, STATUS._replace(mode=0o755)),
        "A/foo": Node("file", 105, 1, b"", {}, STATUS),
    }
    assert CheckPrograms()(Files(old), lines[:-1]) is None
    assert CheckPrograms()(Files(old), lines) is not None


@root
def test_the_kernel_of_this_machine_has_none_of_the_bugs_on_ext4(tmp_path: Path) -> None:
    run = ["crash", "--device", "emmc51-cache", "--workload", "known", "--cuts", "200"]
    result = emmclab_json(*run, "--states", "boundary", "--results", tmp_path)
    assert result["findings"] == []
