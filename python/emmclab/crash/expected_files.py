"""Checks of generated programs: which files and folders a power cut may leave, given the preceding syncs.

Files are compared with a model of the program (`file_tree`). Synced data and names must be present; everything else may
be old or new, independently. Each byte must occur in a version of the file, or be zero beyond the end of the last
durable version, so that data of other files is detected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from emmclab.crash.file_differences import Difference, content_losses, distance, folder_fault, lost, table, unlike
from emmclab.crash.independent_names import IndependentNames
from emmclab.crash.mounted_files import Node
from emmclab.crash.program_history import Grammar, History, ParsedLines, promises_in
from emmclab.crash.promises import Files, Lost, Promises, ReadFiles


class CheckPrograms:
    """Checks that the folder of the running program is in a state that its operations and syncs allow."""

    form = "the lines of the runner of programs: `mount TYPE OPTIONS`, `begin N NAME`, `does OPERATION`, ..."

    def __init__(self) -> None:
        """Start before the first program."""
        self._parsed = ParsedLines()
        self._running: tuple[int, History | None] = (-1, None)
        #: The names that a cut may leave after the lines of `_running`; only for file systems with independent names.
        self._names: IndependentNames | None = None

    def reader(self) -> Callable[[str], bool]:
        """Return a function that recognises the output lines of the program runner in their required order."""
        return Grammar()

    def file_names(self, _lines: Sequence[str]) -> list[str]:
        """Return an empty list: the check needs a folder, not single files."""
        return []

    def folder(self, lines: Sequence[str]) -> str | None:
        """Return the folder of the running program; `None` if none is running."""
        history = self._after(lines)
        return None if history is None else f"/p{history.number}"

    def __call__(self, files: Files, lines: Sequence[str]) -> Lost | None:
        """Return the promise that the files of a crash state break; `None` if they break none."""
        history = self._after(lines)
        if history is None or not history.is_known:
            return None
        nodes = files.tree(f"/p{history.number}")
        if nodes is None:
            return lost(history, "sync", f"p{history.number}: the folder is gone")
        promises = promises_in(lines[0])
        broken = self._broken(history, nodes, promises)
        if broken is None and isinstance(files, ReadFiles) and files.unusable:
            return lost(history, "usable", files.unusable)
        return None if broken is None else replace(broken, differs=table(history, nodes, promises))

    def _broken(self, history: History, nodes: Mapping[str, Node], promises: Promises) -> Lost | None:
        if (fault := folder_fault(nodes)) is not None:
            return lost(history, "consistent", fault)
        if promises.names == "in_order":
            return _judge_in_order(history, nodes, promises)
        self._names = self._names or IndependentNames(history, promises)
        return self._names.judge(nodes)

    def _after(self, lines: Sequence[str]) -> History | None:
        if self._running[0] != len(lines):
            self._running, self._names = (len(lines), self._parsed.running(lines)), None
        return self._running[1]


def _judge_in_order(history: History, nodes: Mapping[str, Node], promises: Promises) -> Lost | None:
    """Check a crash state on the assumption that all names and attributes are those of one moment."""
    possible = range(history.least, len(history.states))
    problems: list[list[Lost]] = []
    for index in reversed(possible):
        if next(_differences(history, nodes, index, promises), None) is None:
            losses = [*content_losses(history, nodes, history.states[index], promises)]
            if not losses:
                return None
            problems.append(losses)
    if not problems:
        differences = [[*_differences(history, nodes, index, promises)] for index in reversed(possible)]
        return lost(history, "fsync", min(differences, key=distance)[0].text)
    nearest = min(problems, key=lambda losses: (sum(map(_is_defect, losses)), len(losses)))
    return next(filter(_is_defect, nearest), nearest[0])


def _is_defect(lost: Lost) -> bool:
    return lost.documented is None


def _differences(history: History, nodes: Mapping[str, Node], index: int, promises: Promises) -> Iterator[Difference]:
    """Yield the differences between the names on the disk and the names in the expected state with this index."""
    state = history.states[index]
    for path in sorted({*nodes, *state}):
        if (difference := unlike(path, nodes.get(path), state.get(path), promises)) is not None:
            yield difference
    # Check that two names of one file have one inode, and names of different files different inodes.
    inodes: dict[int, int] = {}
    for path in (path for path in state if path in nodes):
        inode = nodes[path].inode
        if inodes.setdefault(state[path].inode, inode) != inode:
            yield Difference(f"{path}: no longer the same file as its other name")
    if len({*inodes.values()}) != len(inodes):
        yield Difference("two files have one inode")
