"""The oracle of generated programs, tested by mutation: it finds each difference that a declared promise forbids.

The reference computes what each sync makes durable from the declarations of the file systems alone: contents of files
with their allocated space, attributes, permissions with owners, times, link counts, and entries, which are names in
folders. It knows nothing of states of paths.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from emmclab.crash.expected_files import CheckPrograms
from emmclab.crash.file_tree import Tree
from emmclab.crash.generated_programs import load
from emmclab.crash.mounted_files import Node
from emmclab.crash.programs import HERE, Operation, Program, written_bytes
from emmclab.crash.promises import Promises, promises_of
from test_crash_programs import STATUS, Files, nodes_of, runner_output, steps

#: Something that a sync makes durable: contents, attributes, status or link count of an inode, or a name in a folder.
Fact = tuple[Any, ...]
#: Facts that are durable with the names of an inode, and facts that only some file systems have.
OWN, STATUSES = ("attributes", "status", "modified", "links"), ("status", "modified")
MOUNTS = ("ext4 rw", "xfs rw", "btrfs rw", "f2fs rw", "f2fs rw,fsync_mode=strict", "vfat rw")
SYNCS = ("sync", "syncfs", "fsync", "fdatasync", "msync", "msyncrange", "dwritesync")


def facts(tree: Tree) -> dict[Fact, Any]:
    """Return everything in a tree that can be durable by itself."""
    links = {target.inode: target.links for target in tree.names().values()}
    result: dict[Fact, Any] = {}
    for number, inode in tree.inodes.items():
        if number in links or number == 0:
            result |= {("entry", number, name): inner for name, inner in inode.names.items()}
            result["attributes", number] = inode.attributes
            result["status", number] = inode.mode, *inode.owners
            result["modified", number] = inode.modified
        if inode.kind == "file":
            # A file may be written before it has a name, and after it has lost its last one.
            result["data", number] = inode.versions[-1].data, inode.versions[-1].allocated
            result |= {("links", number): links[number]} if number in links else {}
    return result


def is_value(fact: Fact, value: Any, possible: list[Any], *, allocated: bool = True) -> bool:
    """Return whether a disk may show a value where these are possible; any time is possible where it is not known.

    `allocated` states whether the space that fallocate reserves is durable.
    """
    if fact[0] == "data":
        least = min(one[1] for one in possible if one is not None) if allocated else 0
        return any(one is not None and one[0] == value[0] for one in possible) and value[1] >= least
    return value in possible or (fact[0] == "modified" and None in possible)


def is_of_living(fact: Fact, state: dict[Fact, Any]) -> bool:
    """Return whether the inode of a fact exists in a state."""
    return (fact[:2] if fact[0] == "data" else ("attributes", fact[1])) in state


class Reference:
    """The states of a program without cuts, and the state since which each fact is durable."""

    def __init__(self, program: Program, promises: Promises) -> None:
        self.promises = promises
        self.trees = [Tree()]
        for index, step in enumerate(program.operations):
            self.trees.append(self.trees[-1].copy())
            self.trees[-1].apply(index, step, written_bytes(0, index, step))
        self.states = [facts(tree) for tree in self.trees]
        self.every = {fact for state in self.states for fact in state}
        #: The state since which facts are durable, and the oldest possible state of a file system with ordered names.
        self.since: dict[Fact, int] = {}
        self.least = 0
        #: The state since which a file or folder has durable names, one of which must then exist.
        self.exists: dict[int, int] = {}
        #: Parts of files that are durable: inode, begin and end, and the state since which they are.
        self.parts: list[tuple[int, int, int, int]] = []
        for index, step in enumerate(program.operations):
            if step.verb in SYNCS:
                self._sync(step, index + 1)

    def _sync(self, step: Operation, now: int) -> None:
        tree = self.trees[now]
        if step.verb in ("sync", "syncfs"):
            self.since, self.least = dict.fromkeys(self.every, now), now
            self.exists = dict.fromkeys(tree.inodes, now)
            return
        path = str(step.arguments[0])
        number = 0 if path == HERE else tree.find(path)
        assert number is not None
        chosen = {("data", number)} | {fact for fact in self.every if fact[:2] == ("entry", number)}
        if step.verb in ("msyncrange", "dwritesync"):
            begin, length = (int(value) for value in step.arguments[1:])
            self.parts.append((number, begin, begin + length, now))
        else:
            self.since |= dict.fromkeys(chosen, now)
        if step.verb not in ("fsync", "dwritesync") or not self.promises.fsync_commits:
            return
        if number and self.promises.names == "each" and not self.names(number, now):
            return
        changed = tree.inodes[number].changed + 1
        if self.promises.names == "in_order":
            self.least = max(self.least, changed)
            return
        names = self.names(number, now)
        own = {*((kind, number) for kind in OWN), *names}
        self.since |= {fact: max(self.since.get(fact, 0), changed) for fact in own}
        self.since |= {fact: max(self.since.get(fact, 0), changed) for fact in self._above(number, changed, now)}
        self.since |= dict.fromkeys(self._old_names(number, now) if self.promises.rename_is_whole else (), now)
        self.exists[number] = changed

    def names(self, number: int, now: int = -1) -> set[Fact]:
        """Return the names of an inode in a state."""
        return {fact for fact, value in self.states[now].items() if fact[0] == "entry" and value == number}

    def _above(self, number: int, changed: int, now: int) -> Iterator[Fact]:
        """Yield the names of the folders above a file at its last change; of renamed ones only if renames are whole."""
        for _, folder, _ in self.names(number, changed):
            every = [self.names(folder, index) for index in range(self.least, now + 1)]
            if self.promises.rename_is_whole or len({frozenset(some) for some in every if some}) == 1:
                yield from self.names(folder, changed)
            yield from self._above(folder, changed, now)

    def _old_names(self, number: int, now: int) -> Iterator[Fact]:
        """Yield the names that a file had before it was renamed within the folder in which it is now."""
        folders = {folder for _, folder, _ in self.names(number, now)}
        for index in range(max(self.least, self.exists.get(number, 0)) + 1, now + 1):
            before, after = self.names(number, index - 1), self.names(number, index)
            gained = {folder for _, folder, _ in after - before} & folders
            yield from (fact for fact in before - after if fact[1] in gained)

    def is_settled(self, number: int) -> bool:
        """Return whether each path of a file or folder leads to it in each state that a cut may leave."""
        names = self.names(number)
        return number == 0 or all({*self.possible(fact)} == {number} and self.is_settled(fact[1]) for fact in names)

    def possible(self, fact: Fact) -> list[Any]:
        """Return the values that a cut may leave of a fact."""
        first = self.since.get(fact, 0)
        if self.promises.names == "in_order" and fact[0] != "data":
            first = self.least
        return [state.get(fact) for state in self.states[first:] if is_of_living(fact, state)]

    def allows(self, index: int) -> bool:
        """Return whether a cut may leave a state as a whole."""
        state, others = self.states[index], self.states[self.least :]
        data = {fact: value for fact, value in state.items() if fact[0] == "data" and ("links", fact[1]) in state}
        allocated = self.promises.permissions
        if any(not is_value(fact, value, self.possible(fact), allocated=allocated) for fact, value in data.items()):
            return False
        for number, begin, end, since in self.parts:
            contents = [other["data", number][0] for other in self.states[since:] if ("data", number) in other]
            parts = [one[begin:end].rstrip(b"\0") for one in contents]
            if ("links", number) in state and state["data", number][0][begin:end].rstrip(b"\0") not in parts:
                return False
        if self.promises.names == "in_order":
            return any(self.is_like(state, other) for other in others)
        if self.promises.rename_is_whole and any(
            ("attributes", number) not in state
            and all(("attributes", number) in other for other in self.states[since:])
            for number, since in self.exists.items()
        ):
            return False
        left_out = ("links", "data") if self.promises.permissions else ("links", "data", *STATUSES)
        every = (fact for fact in self.every if fact[0] not in left_out and is_of_living(fact, state))
        return all(is_value(fact, state.get(fact), self.possible(fact)) for fact in every)

    def is_like(self, state: dict[Fact, Any], other: dict[Fact, Any]) -> bool:
        """Return whether two states have equal names and attributes."""
        facts = {fact for fact in state.keys() | other.keys() if fact[0] != "data"}
        return all(fact in state and fact in other and is_value(fact, state[fact], [other[fact]]) for fact in facts)


def mutations(reference: Reference) -> Iterator[tuple[str, dict[str, Node]]]:
    """Yield disks that differ from the last state in one durable fact, with the kind of the difference."""
    tree, state, disk = reference.trees[-1], reference.states[-1], nodes_of(reference.trees[-1])
    paths = {0: ""} | {target.inode: path for path, target in tree.names().items()}
    for fact in reference.every:
        if (
            fact[1] not in paths
            or not is_of_living(fact, state)
            or any(value != state.get(fact) for value in reference.possible(fact))
        ):
            continue
        if not reference.is_settled(fact[1]):
            continue
        if fact[0] == "entry":
            path = f"{paths[fact[1]]}/{fact[2]}".removeprefix("/")
            yield from of_entry(reference, fact, path, disk)
            continue
        path = paths[fact[1]]
        if path and (reference.promises.permissions or fact[0] not in STATUSES):
            for kind, node in of_inode(fact, disk[path], disk, state[fact]):
                if reference.promises.permissions or kind != "allocated":
                    yield kind, changed(tree, disk, path, node)
    for number, begin, end, since in reference.parts:
        living = [each["data", number] for each in reference.states[since:] if ("data", number) in each]
        parts = {data[begin:end] for data, _ in living}
        if len(parts) == 1 and number in paths and reference.is_settled(number) and (part := parts.pop()):
            node = disk[paths[number]]
            data = node.data[:begin] + bytes([part[0] ^ 255]) + node.data[begin + 1 :]
            yield "part", changed(tree, disk, paths[number], replace(node, data=data))


def changed(tree: Tree, disk: dict[str, Node], path: str, node: Node) -> dict[str, Node]:
    """Return a disk on which the file at a path, by all its names, is another one."""
    inode = tree.names()[path].inode
    return disk | {other: node for other, target in tree.names().items() if target.inode == inode}


def of_entry(
    reference: Reference, fact: Fact, path: str, disk: dict[str, Node]
) -> Iterator[tuple[str, dict[str, Node]]]:
    below = {other for other in disk if other == path or other.startswith(f"{path}/")}
    without = {other: node for other, node in disk.items() if other not in below}
    if path in disk:
        yield "missing", without
        yield "other kind", without | {path: Node("link", 999, 1, b"elsewhere", {}, STATUS)}
        tree = reference.trees[-1]
        settled = {path: node for path, node in without.items() if reference.is_settled(tree.names()[path].inode)}
        files = [node for node in settled.values() if node.kind == disk[path].kind == "file"]
        yield from (("swapped", disk | {path: node}) for node in files if node.inode != disk[path].inode)
        return
    for tree, state in zip(reference.trees, reference.states, strict=True):
        for there, target in tree.names().items():
            if target.inode == state.get(fact):
                node = nodes_of(tree)[there]
                yield "returned", disk | {path: replace(node, inode=999 if node.kind == "folder" else node.inode)}
    yield "returned", disk | {path: Node("file", 999, 1, b"", {}, STATUS)}


def of_inode(fact: Fact, node: Node, disk: dict[str, Node], value: Any) -> Iterator[tuple[str, Node]]:
    if fact[0] == "attributes":
        yield "attribute", replace(node, attributes={**node.attributes, "user.more": b"1"})
        for name, value in node.attributes.items():
            yield "attribute", replace(node, attributes={**node.attributes, name: value[:-1] + bytes([value[-1] ^ 1])})
            yield (
                "attribute",
                replace(node, attributes={other: node.attributes[other] for other in node.attributes if other != name}),
            )
    elif fact[0] == "links":
        yield from (("link count", replace(node, links=node.links + more)) for more in (1, -1))
    elif fact[0] == "status":
        changes = {"mode": {"mode": node.status.mode ^ 0o100}, "owner": {"owner": 77}, "group": {"group": 77}}
        yield from ((kind, replace(node, status=node.status._replace(**change))) for kind, change in changes.items())
    elif fact[0] == "modified":
        if value is not None:
            yield from (
                ("time", replace(node, status=node.status._replace(modified=value + by))) for by in (-1, 1, 1 << 32)
            )
    elif fact[0] == "data":
        if value[1] > 0:
            yield "allocated", replace(node, status=node.status._replace(sectors=(value[1] - 1) // 512))
        middle = len(node.data) // 2
        others = {other.data for other in disk.values() if other.kind == "file"}
        contents = {
            "changed": {node.data[:middle] + b"?" + node.data[middle + 1 :], bytes(len(node.data)), *others},
            "cut": {b"", node.data[:middle], node.data[:-1], node.data + b"\0"},
        }
        yield from ((kind, replace(node, data=data)) for kind, some in contents.items() for data in some - {node.data})


@cache
def programs() -> list[Program]:
    """Return generated programs and those of known bugs, and their beginnings that end with a sync."""
    some = [
        *load("ace:1:500", 1),
        *load("known", 1),
        *load("ace:2:200", 3),
        *load("random:50", 4),
        *load("random:70", 5),
    ]
    places = [(program, place) for program in some for place in range(1, len(program.operations) + 1)]
    beginnings = {
        program.operations[:place]: program.name
        for program, place in places
        if program.operations[place - 1].verb in SYNCS or place == len(program.operations)
    }
    return [Program(name, operations) for operations, name in beginnings.items()]


@pytest.mark.parametrize("mount", MOUNTS)
def test_each_difference_that_a_promise_forbids_is_found(mount: str) -> None:
    promises = promises_of(*mount.split())
    kinds: dict[str, int] = {}
    for program in programs():
        check, lines = CheckPrograms(), runner_output(steps(program), mount=f"mount {mount}")
        for kind, disk in mutations(Reference(program, promises)):
            kinds[kind] = kinds.get(kind, 0) + 1
            assert check(Files(disk), lines) is not None, (kind, str(program), disk)
    assert len(kinds) == (14 if promises.permissions else 9), kinds
    # Few of these programs sync a part of a file, or set a time before a sync.
    rare = {"part": kinds.pop("part"), "time": kinds.pop("time", 100)}
    assert min(kinds.values()) > 100 and rare["part"] > 50 and rare["time"] > 10, (kinds, rare)


@pytest.mark.parametrize("mount", MOUNTS)
def test_an_earlier_state_is_accepted_exactly_if_no_promise_forbids_it(mount: str) -> None:
    promises = promises_of(*mount.split())
    allowed = forbidden = 0
    for program in programs():
        check, lines = CheckPrograms(), runner_output(steps(program), mount=f"mount {mount}")
        reference = Reference(program, promises)
        targets = {(path, target.inode) for tree in reference.trees for path, target in tree.names().items()}
        for index, tree in enumerate(reference.trees):
            is_allowed = reference.allows(index)
            # A disk does not show which of several files or folders that a path had one after the other it has.
            if not is_allowed and len({path for path, _ in targets}) < len(targets):
                continue
            lost = check(Files(nodes_of(tree)), lines)
            assert (lost is None) == is_allowed, (index, str(program), lost)
            allowed, forbidden = allowed + is_allowed, forbidden + (not is_allowed)
    assert allowed > 1_000 and forbidden > 1_000


@pytest.mark.parametrize("mount", MOUNTS)
def test_a_folder_has_one_name_and_a_count_of_its_folders(mount: str) -> None:
    tree = Tree()
    lines = ["mkdir A", "mkdir A/C", "mkdir B"]
    for index, line in enumerate(lines):
        tree.apply(index, Operation("mkdir", (line.split()[1],)), b"")
    disk = nodes_of(tree)
    for path, links in itertools.product(disk, range(6)):
        lost = CheckPrograms()(
            Files(disk | {path: replace(disk[path], links=links)}), runner_output(lines, mount=f"mount {mount}")
        )
        assert (lost is None) == (links in (1, 3 if path == "A" else 2))
    twice = CheckPrograms()(Files(disk | {"B/C": disk["A/C"]}), runner_output(lines, mount=f"mount {mount}"))
    assert twice is not None and "a folder has one name" in twice.detail
