"""Published programs that exposed bugs in file systems: each runs, and a state with its bug is detected."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import assert_refused, emmclab, emmclab_json
from emmclab.crash.expected_files import CheckPrograms
from emmclab.crash.file_tree import Tree
from emmclab.crash.generated_programs import known_bug_names, known_bugs, known_programs, load
from emmclab.crash.mounted_files import Node
from emmclab.crash.programs import Program, written_bytes
from found_files import Made, nodes_of

#: Evidence of each bug, as published: paths that are gone after the last sync, and contents that differ.
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
    "generic-376": (["A/bar"], {}),
    "ext4-direct-write": ([], {"foo": lambda _data: b""}),
}


#: Bugs that left a file in two folders: its name, and the other name.
TWICE = {"new-2": ("B/bar", "A/bar"), "generic-321": ("B/foo", "A/foo"), "generic-343": ("X/foo2", "Y/foo2")}


def mounts(name: str) -> list[str]:
    """Return the first line of the runner for each file system that had a bug."""
    # Without this mode, f2fs may lose a renamed file whose old name a new one has.
    kinds = known_bugs()[name]["file_system"].split(", ")
    return [f"mount {kind} rw,fsync_mode=strict" for kind in kinds]


def after(program: Program) -> dict[str, Node]:
    """Return what a reader finds after the end of a program."""
    tree = Tree()
    for index, one in enumerate(program.operations):
        tree.apply(index, one, written_bytes(0, index, one))
    return nodes_of(tree)


def said(program: Program, mount: str) -> list[str]:
    done = [line for one in program.operations for line in (f"does {one}", "did")]
    return [mount, f"begin 0 {program.name}", *done]


@pytest.mark.parametrize("name", known_bugs())
def test_a_program_is_possible_and_what_it_leaves_breaks_no_promise(name: str) -> None:
    [program] = known_programs(f"known:{name}")
    for mount in mounts(name):
        assert CheckPrograms()(Made(after(program)), said(program, mount)) is None


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_bug_left_is_found(name: str) -> None:
    [program] = known_programs(f"known:{name}")
    gone, changed = SHOWN[name]
    nodes = {path: node for path, node in after(program).items() if path not in gone}
    for path, change in changed.items():
        nodes[path] = replace(nodes[path], data=change(nodes[path].data))
    if name == "generic-066":
        nodes["foo"] = replace(nodes["foo"], attributes={**nodes["foo"].attributes, "user.two": b"1"})
    for mount in mounts(name):
        lost = CheckPrograms()(Made(nodes), said(program, mount))
        assert lost is not None, mount


@pytest.mark.parametrize("name", TWICE)
def test_a_file_in_two_folders_is_found(name: str) -> None:
    [program] = known_programs(f"known:{name}")
    here, there = TWICE[name]
    nodes = after(program)
    nodes |= {there: nodes[here]} | ({"A": nodes["B"]} if name == "new-2" else {})
    lost = CheckPrograms()(Made(nodes), said(program, "mount btrfs rw"))
    assert lost is not None


def test_all_published_programs_are_one_workload() -> None:
    assert len(load("known", 1)) == len(known_bugs()) == len(known_bug_names())
    assert [one.name for one in load("known:new-7", 1)] == ["new-7"]


def test_a_bug_that_is_not_known_is_refused_with_the_names_of_those_that_are() -> None:
    assert_refused(emmclab("crash", "--device", "emmc51-cache", "--workload", "known:none"), "known:new-1, known:new-2")


def test_a_new_file_in_a_renamed_folder_may_be_in_its_old_name_until_it_is_synced() -> None:
    [program] = known_programs("known:new-10")
    lines = said(program, "mount btrfs rw")[:-1]
    old = {"A": nodes_at("A", "folder"), "A/foo": nodes_at("A/foo", "file")}
    assert CheckPrograms()(Made(old), lines) is None
    assert CheckPrograms()(Made(old), [*lines, "did"]) is not None


def nodes_at(path: str, kind: str) -> Node:
    return Node(kind, 100 + len(path), 1, b"", {})


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a served device")
def test_the_kernel_of_this_machine_has_none_of_the_bugs_on_ext4(tmp_path: Path) -> None:
    run = ["crash", "--device", "emmc51-cache", "--workload", "known", "--cuts", "200"]
    found = emmclab_json(*run, "--states", "boundary", "--results", tmp_path)
    assert found["findings"] == []
