"""Which names, files and folders a power cut may leave if each entry of each folder is old or new by itself.

An entry is a name in a folder, whichever path leads to the folder. A disk is allowed if its paths can be assigned to
the files and folders of the model in this way: each entry has a target that it had in a state since which it was not
durable, each file has allowed attributes and contents, and the names of one file have one inode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from emmclab.crash.file_differences import content_losses, distance, lost, unlike
from emmclab.crash.file_tree import TOP, PathTarget
from emmclab.crash.mounted_files import Node
from emmclab.crash.program_history import History, entries_of
from emmclab.crash.promises import Lost, Promises

#: Possible targets of an entry by their inodes, the newest last; `None` if the entry may be missing.
Targets = dict[int | None, PathTarget | None]
#: Maximum number of assignments of targets to paths that are tried; a disk that needs more is accepted.
_MOST_TRIES = 10_000


class IndependentNames:
    """The disks that a power cut may leave after a program, on a file system with independent names."""

    def __init__(self, history: History, promises: Promises) -> None:
        """Compute the possible targets of each entry."""
        self._history, self._promises = history, promises
        states = [*enumerate(history.states)][history.least :]
        by_state = [(index, entries_of(state)) for index, state in states]
        folders = {folder for _, entries in by_state for folder in entries}
        #: The possible targets of each entry, by folder and name.
        self._entries = {folder: self._targets(folder, by_state) for folder in folders}
        #: By inode: targets of its names in states with attributes and number of names that a cut may leave.
        self._own: dict[int, list[PathTarget]] = {}
        for index, state in states:
            for target in state.values():
                if index <= history.named.get(target.inode, -1):
                    self._own[target.inode] = []
                self._own.setdefault(target.inode, []).append(target)
        #: Files and folders that have had durable names since, and whose names are not removed, so that one exists.
        self._needed = {
            inode
            for inode, durable in history.named.items()
            if all(inode in _inodes(state) for index, state in states if index >= durable)
        }

    def _targets(
        self, folder: int, by_state: Sequence[tuple[int, Mapping[int, Mapping[str, PathTarget]]]]
    ) -> dict[str, Targets]:
        history = self._history
        living = [(index, entries[folder]) for index, entries in by_state if folder in entries]
        targets: dict[str, Targets] = {}
        for name in {name for _, names in living for name in names}:
            first = max(history.entries.get(folder, 0), history.settled.get((folder, name), 0))
            for index, names in living:
                if (target := names.get(name)) is not None and index <= history.named.get(target.inode, -1):
                    first = max(first, index)
            possible = [names.get(name) for index, names in living if index >= first]
            targets[name] = {None if target is None else target.inode: target for target in possible}
        return targets

    def judge(self, nodes: Mapping[str, Node]) -> Lost | None:
        """Return the promise that a disk breaks; `None` if it breaks none."""
        children: dict[str, list[str]] = {}
        for path in nodes:
            folder, _, name = path.rpartition("/")
            children.setdefault(folder, []).append(name)
        fitting: dict[tuple[str, int], list[PathTarget]] = {}
        if (problem := self._explain(nodes, children, "", TOP, fitting)) is not None:
            return problem
        first = None
        for number, assigned in enumerate(self._assignments(nodes, fitting)):
            problem = assigned if isinstance(assigned, Lost) else self._torn(nodes, assigned)
            if problem is None or number == _MOST_TRIES:
                return None
            first = first or problem
        return first

    def _explain(
        self,
        nodes: Mapping[str, Node],
        children: Mapping[str, Sequence[str]],
        path: str,
        folder: int,
        fitting: dict[tuple[str, int], list[PathTarget]],
    ) -> Lost | None:
        """Store the allowed targets of the entries in a folder, and return the first problem if it is `folder`.

        Args:
            nodes: the files on the disk.
            children: names in each folder on the disk.
            path: path of the folder on the disk.
            folder: inode of the folder in the model.
            fitting: gets the targets that a path may have, the newest first, by path and inode of its folder.
        """
        entries = self._entries[folder]
        for name in sorted({*children.get(path, ()), *entries}):
            inside = f"{path}/{name}" if path else name
            node, allowed = nodes.get(inside), entries.get(name, {None: None})
            if node is None and None in allowed:
                continue
            problems, differences = [], []
            targets = fitting[inside, folder] = []
            for target in reversed(allowed.values()):
                # The attributes may be those of any state that a cut may leave.
                own = [target] if target is None else self._own[target.inode]
                unlikes = [unlike(inside, node, one, self._promises, links=False) for one in own]
                if (difference := unlikes[-1]) is not None and None not in unlikes:
                    differences.append(difference)
                elif target is not None:
                    problem = next(content_losses(self._history, nodes, {inside: target}, self._promises), None)
                    if problem is None and target.kind == "folder":
                        problem = self._explain(nodes, children, inside, target.inode, fitting)
                    targets += [target] if problem is None else []
                    problems += [] if problem is None else [problem]
            if not targets:
                nearest = min(differences, key=lambda one: distance([one]), default=None)
                return problems[0] if problems or nearest is None else lost(self._history, "fsync", nearest.text)
        return None

    def _assignments(
        self, nodes: Mapping[str, Node], fitting: Mapping[tuple[str, int], Sequence[PathTarget]]
    ) -> Iterator[dict[str, PathTarget] | Lost]:
        """Yield the assignments in which paths of one inode are one file, or the reason why there is none."""
        paths = sorted(nodes, key=lambda path: path.split("/"))
        chosen: dict[str, PathTarget] = {}
        pending: list[Iterator[PathTarget]] = []
        while True:
            if len(chosen) == len(paths):
                yield dict(chosen)
            else:
                path = paths[len(chosen)]
                folder = path.rpartition("/")[0]
                pending.append(iter(fitting[path, chosen[folder].inode if folder else TOP]))
            while pending:
                path = paths[len(pending) - 1]
                for later in paths[len(pending) - 1 : len(chosen)]:
                    del chosen[later]
                if (target := next(pending[-1], None)) is None:
                    pending.pop()
                elif (reason := self._clash(nodes, chosen, path, target)) is not None:
                    yield lost(self._history, "fsync", f"{path}: {reason}")
                else:
                    chosen[path] = target
                    break
            else:
                return

    def _clash(
        self, nodes: Mapping[str, Node], chosen: Mapping[str, PathTarget], path: str, target: PathTarget
    ) -> str | None:
        """Return why a path cannot have this target if the other paths have those in `chosen`; `None` if it can."""
        for other, its_target in chosen.items():
            is_inode = nodes[other].inode == nodes[path].inode
            if is_inode and target.inode != its_target.inode:
                return f"has the inode of another file, {other}"
            if target.inode != its_target.inode:
                continue
            # vfat numbers names instead of files, and knows no hard links.
            if not is_inode and (self._promises.fsync_commits or self._most_names(target.inode) > 1):
                return f"no longer the same file as its other name {other}"
            if is_inode and target.kind == "folder":
                return f"also named {other}, though a folder has one name"
        return None

    def _most_names(self, inode: int) -> int:
        """Return the largest number of names that a file had at one time."""
        return max(sum(target.inode == inode for target in state.values()) for state in self._history.states)

    def _torn(self, nodes: Mapping[str, Node], assigned: Mapping[str, PathTarget]) -> Lost | None:
        """Return the promise that is broken by the names of a file together: their number, and that one must exist."""
        names: dict[int, list[str]] = {}
        for path, target in assigned.items():
            names.setdefault(target.inode, []).append(path)
        for inode in sorted(self._needed) if self._promises.rename_is_whole else ():
            present = names.get(inode, [])
            if not present:
                former = [path for path, target in self._history.states[-1].items() if target.inode == inode]
                return lost(self._history, "rename", f"{max(former)}: gone, under its old name and its new name")
            if len(present) > 1 and self._most_names(inode) == 1:
                reason = f"{present[0]}: also named {present[1]}, though it had one name at all times"
                return lost(self._history, "rename", reason)
        for inode, present in names.items():
            links = nodes[present[0]].links
            counts = {len(present), *(target.links for target in self._own[inode])}
            if assigned[present[0]].kind == "file" and links not in counts:
                expected = " or ".join(map(str, sorted(counts)))
                return lost(self._history, "fsync", f"{present[0]}: {links} names, not {expected}")
        return None


def _inodes(state: Mapping[str, PathTarget]) -> set[int]:
    return {target.inode for target in state.values()}
