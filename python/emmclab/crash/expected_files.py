"""Checks of generated programs: which files and folders a power cut may leave, given the preceding syncs.

Files are compared with a model of the program (`file_tree`). Synced data and names must be present; everything else may
be old or new, independently. Each byte must occur in a version of the file, or be zero beyond the end of the last
durable version, so that data of other files is detected.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emmclab.crash.file_tree import TOP, PathTarget, RefusedError, Tree
from emmclab.crash.mounted_files import Node
from emmclab.crash.programs import HERE, Operation, operation, written_bytes
from emmclab.crash.promises import Files, Lost, Promises, promises_of

#: Operations that make all earlier operations durable.
_ALL = ("sync", "syncfs")
#: Operations that make one file durable; fsync also makes its names durable, if the file system promises that.
_ONE = ("fsync", "fdatasync", "msync")
#: Number of bytes of contents that are compared at once.
_PIECE = 512


@dataclass
class History:
    """A program, and a model of its files after the operations executed so far.

    Attributes:
        number: number of the program and of its folder.
        name: name of the program.
        states: targets of all paths of the program: before its first operation, then after each operation. The last
            operation may be in progress.
        tree: the last state, with all versions of all files.
        operations: executed operations, for messages.
        ends: for each state, the index of the operation that it follows; -1 for the first state.
        is_known: whether the model covers all operations so far.
        least: index in `states` of the first state that a cut may leave.
        durable: by inode, the operation after which its contents are durable.
        named: by inode, the index in `states` from which its own name and attributes are durable.
        entries: by inode of a folder, the index in `states` from which the names in it are durable.
    """

    number: int
    name: str
    states: list[dict[str, PathTarget]]
    tree: Tree
    operations: list[Operation] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [-1])
    is_known: bool = True
    least: int = 0
    durable: dict[int, int] = field(default_factory=dict)
    named: dict[int, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)

    def copy(self) -> "History":
        """Return an independent copy."""
        return replace(
            self,
            states=list(self.states),
            tree=self.tree.copy(),
            operations=list(self.operations),
            ends=list(self.ends),
            durable=dict(self.durable),
            named=dict(self.named),
            entries=dict(self.entries),
        )


class CheckPrograms:
    """Checks that the folder of the running program is in a state that its operations and syncs allow."""

    form = "the lines of the runner of programs: `mount TYPE OPTIONS`, `begin N NAME`, `does OPERATION`, ..."

    def __init__(self) -> None:
        """Start before the first program."""
        self._parsed = _ParsedLines()
        self._running: tuple[int, History | None] = (-1, None)

    def reader(self) -> Callable[[str], bool]:
        """Return a function that recognises the output lines of the program runner in their required order."""
        return _Grammar()

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
            return _lost(history, "sync", f"p{history.number}: the folder is gone")
        return _judge_state(history, nodes, _promises(lines[0]))

    def _after(self, lines: Sequence[str]) -> History | None:
        if self._running[0] != len(lines):
            self._running = len(lines), self._parsed.running(lines)
        return self._running[1]


class _Grammar:
    """Recognises the output of the program runner: a line `mount`, then programs with the result of each operation."""

    def __init__(self) -> None:
        #: State of the program runner after a line: `between` programs, `inside` one, or `doing` an operation.
        self._after = ""

    def __call__(self, line: str) -> bool:
        verb, _, arguments = line.partition(" ")
        if (self._after, verb) in _FOLLOWS and _FORMS[verb](arguments):
            self._after = _FOLLOWS[self._after, verb]
            return True
        return False


#: State transitions of the program runner. A key consists of the state before a line and the first word of the line;
#: the value is the state after it.
_FOLLOWS = {
    ("", "mount"): "between",
    ("between", "begin"): "inside",
    ("inside", "does"): "doing",
    ("doing", "did"): "inside",
    ("doing", "failed"): "inside",
    ("inside", "end"): "between",
}


def _is_operation(text: str) -> bool:
    try:
        operation(text)
    except ValueError:
        return False
    return True


#: Functions that validate the rest of a line, by the first word of the line.
_FORMS: dict[str, Callable[[str], bool]] = {
    "mount": lambda rest: len(rest.split()) == 2,
    "begin": lambda rest: re.fullmatch(r"[0-9]{1,9} \S+", rest) is not None,
    "does": _is_operation,
    "did": lambda rest: not rest,
    "failed": lambda rest: len(rest.split()) == 1,
    "end": lambda rest: re.fullmatch(r"[0-9]{1,9}", rest) is not None,
}


def _promises(line: str) -> Promises:
    _, kind, options = [*line.split(), "", ""][:3]
    return promises_of(kind, options)


class _ParsedLines:
    """Parses the output of the program runner incrementally."""

    def __init__(self) -> None:
        self._start = -1
        self._done: tuple[str, ...] = ()
        self._index = 0
        self._history = History(0, "", [{}], Tree())

    def running(self, lines: Sequence[str]) -> History | None:
        """Return the program that is running after these output lines; `None` if none is running."""
        marks = (index for index in reversed(range(len(lines))) if lines[index].startswith(("begin ", "end ")))
        start = next(marks, None)
        if start is None or lines[start].startswith("end "):
            return None
        following = tuple(lines[start + 1 :])
        if start != self._start or following[: len(self._done)] != self._done:
            _, number, name = lines[start].split(maxsplit=2)
            self._start, self._done, self._index = start, (), 0
            self._history = History(int(number), name, [{}], Tree())
        promises = _promises(lines[0])
        complete = len(following) - len(following) % 2
        for index in range(len(self._done), complete, 2):
            if following[index + 1] == "did":
                step = operation(following[index].removeprefix("does "))
                _do(self._history, self._index, step, promises, is_done=True)
            self._index += 1
        self._done = following[:complete]
        if complete == len(following):
            return self._history
        # The last operation has begun, but no line states its result yet. It may be complete on the disk or not.
        history = self._history.copy()
        _do(history, self._index, operation(following[-1].removeprefix("does ")), promises, is_done=False)
        return history


def _do(history: History, index: int, step: Operation, promises: Promises, *, is_done: bool) -> None:
    tree, number = history.tree, history.number
    try:
        tree.apply(index, step, written_bytes(number, index, step))
    except RefusedError:
        # The operation is impossible in the model. If it is in progress, it will fail. If it is complete, it must have
        # followed a symbolic link. The model does not support links, so the history is then unknown.
        history.is_known &= not is_done
        return
    history.operations.append(step)
    history.ends.append(index)
    history.states.append(tree.names())
    if not is_done:
        return
    newest = len(history.states) - 1
    if step.verb in _ALL:
        history.least = newest
        history.durable = dict.fromkeys(tree.inodes, index)
        history.named = dict.fromkeys(tree.inodes, newest)
    elif step.verb in _ONE:
        inode = TOP if step.arguments[0] == HERE else tree.find(str(step.arguments[0]))
        if inode is None:
            return
        history.durable[inode] = index
        if tree.inodes[inode].kind == "folder":
            history.entries[inode] = newest
        if step.verb == "fsync" and promises.fsync_commits:
            changed = history.ends.index(tree.inodes[inode].changed)
            history.named[inode] = max(history.named.get(inode, 0), changed)
            if promises.names == "in_order":
                history.least = max(history.least, changed)


def _judge_state(history: History, nodes: Mapping[str, Node], promises: Promises) -> Lost | None:
    if promises.names != "in_order":
        return _judge_by_name(history, nodes, promises)
    allowed = [index for index in _from(history) if next(_differences(history, nodes, index), None) is None]
    if not allowed:
        differences = [[*_differences(history, nodes, index)] for index in _from(history)]
        return _lost(history, "fsync", min(reversed(differences), key=_distance)[0].text)
    problems = [[*_contents(history, nodes, history.states[index], promises)] for index in allowed]
    if not all(problems):
        return None
    nearest = min(reversed(problems), key=lambda losses: (sum(map(_is_defect, losses)), len(losses)))
    return next(filter(_is_defect, nearest), nearest[0])


def _is_defect(lost: Lost) -> bool:
    return lost.documented is None


@dataclass(frozen=True)
class _Difference:
    """A difference between a path on disk and in the model; `is_name`: the path is missing, or should not exist."""

    text: str
    is_name: bool = False


def _distance(differences: Sequence[_Difference]) -> tuple[int, int]:
    """Return a sort key for a set of differences: the number of missing or extra paths, and the number of all."""
    return sum(difference.is_name for difference in differences), len(differences)


def _judge_by_name(history: History, nodes: Mapping[str, Node], promises: Promises) -> Lost | None:
    """Check a crash state on the assumption that each name may be old or new independently."""
    for path in sorted({*nodes, *(path for state in history.states for path in state)}):
        if (difference := _differs_alone(history, nodes, path)) is not None:
            return _lost(history, "fsync", difference.text)
    if promises.rename_is_whole and (reason := _torn_rename(history, nodes)) is not None:
        return _lost(history, "rename", reason)
    for path in sorted(nodes):
        may_be = [target for index in _from(history, path) if (target := history.states[index].get(path)) is not None]
        problems = [
            next(_contents(history, nodes, {path: target}, promises), None)
            for target in may_be or _entries(history, path)
        ]
        if problems and all(problem is not None for problem in problems):
            return problems[-1]
    return None


def _from(history: History, path: str | None = None) -> range:
    """Return the indices of the expected states that a power cut may leave, of the whole folder or of one path."""
    least = history.least
    if path is not None:
        folder = path.rpartition("/")[0]
        inside = TOP if not folder else _inode_of_folder(history, folder)
        for index in range(least, len(history.states)):
            target = history.states[index].get(path)
            if (target is not None and history.named.get(target.inode, 0) >= index) or (
                inside is not None and history.entries.get(inside, -1) >= index
            ):
                least = index
    return range(least, len(history.states))


def _inode_of_folder(history: History, folder: str) -> int | None:
    """Return the inode of a folder if it is the same in all states that a power cut may leave; otherwise `None`."""
    inodes = {target.inode if target else None for target in _states_of(history, folder)}
    return inodes.pop() if len(inodes) == 1 else None


def _states_of(history: History, path: str) -> list[PathTarget | None]:
    return [history.states[index].get(path) for index in _from(history, path)]


def _differences(history: History, nodes: Mapping[str, Node], index: int) -> Iterator[_Difference]:
    """Yield the differences between the names on the disk and the names in the expected state with this index."""
    state = history.states[index]
    for path in sorted({*nodes, *state}):
        if (difference := _unlike(path, nodes.get(path), state.get(path))) is not None:
            yield difference
    # Check that two names of one file have one inode, and names of different files different inodes.
    inodes: dict[int, int] = {}
    for path in (path for path in state if path in nodes):
        inode = nodes[path].inode
        if inodes.setdefault(state[path].inode, inode) != inode:
            yield _Difference(f"{path}: no longer the same file as its other name")
    if len({*inodes.values()}) != len(inodes):
        yield _Difference("two files have one inode")


def _differs_alone(history: History, nodes: Mapping[str, Node], path: str) -> _Difference | None:
    """Return how the state of a path differs least from an allowed state; `None` if the state is allowed."""
    possible = [_unlike(path, nodes.get(path), target, links=False) for target in _states_of(history, path)]
    differences = [difference for difference in possible if difference is not None]
    if len(differences) < len(possible) or _is_entry(history, nodes, path):
        return None
    return min(reversed(differences), key=lambda difference: _distance([difference]))


def _torn_rename(history: History, nodes: Mapping[str, Node]) -> str | None:
    """Describe a durable file that has lost all its names, or has two names although it never had more than one."""
    for inode, model_inode in history.tree.inodes.items():
        if model_inode.kind == "folder" or inode not in history.named:
            continue
        least = history.least
        names = [[path for path, target in state.items() if target.inode == inode] for state in history.states]
        since = names[max(least, history.named[inode]) :]
        if not all(since):
            continue
        may = {path for some in since for path in some if _may_be(history, path, inode)}
        if not may & nodes.keys():
            return f"{max(since[-1])}: gone, under its old name and its new name"
        former = {path for some in names[least:] for path in some if _may_be(history, path, inode)}
        present = sorted((may | former) & nodes.keys())
        is_one = max(map(len, names)) == 1 and len({nodes[path].inode for path in present}) == 1
        if is_one and len(present) > 1:
            return f"{present[0]}: also named {present[1]}, though it had one name at all times"
    return None


def _may_be(history: History, path: str, inode: int) -> bool:
    return any(target is not None and target.inode == inode for target in _states_of(history, path))


def _is_entry(history: History, nodes: Mapping[str, Node], path: str) -> bool:
    """Return whether a path is allowed if each entry of each folder may be old or new independently."""
    node = nodes.get(path)
    return node is not None and any(
        _unlike(path, node, entry, links=False) is None for entry in _entries(history, path)
    )


def _entries(history: History, path: str) -> list[PathTarget]:
    """Return the possible targets of a path, if each entry of each folder may be old or new independently."""
    folder, _, name = path.rpartition("/")
    inodes = {entry.inode for entry in _entries(history, folder)} if folder else {TOP}
    targets = []
    for state in history.states[history.least :]:
        paths = [parent for parent, target in state.items() if target.inode in inodes] if folder else [""]
        entries = [state.get(f"{parent}/{name}" if parent else name) for parent in paths]
        targets += [entry for entry in entries if entry is not None]
    return targets


def _unlike(path: str, node: Node | None, expected: PathTarget | None, *, links: bool = True) -> _Difference | None:
    if node is None or expected is None:
        if node is None and expected is None:
            return None
        problem = "gone" if node is None else f"exists again, as a {node.kind}"
        return _Difference(f"{path}: {problem}", is_name=True)
    if node.kind != expected.kind:
        return _Difference(f"{path}: a {node.kind}, not a {expected.kind}", is_name=True)
    target = node.data.decode(errors="replace") if expected.kind == "link" else ""
    if target != expected.target:
        return _Difference(f"{path}: leads to {target!r}, not to {expected.target!r}")
    attributes = {name: value for name, value in node.attributes.items() if name.startswith("user.")}
    synced = {f"user.{name}": value for name, value in expected.attributes.items()}
    if attributes != synced:
        return _Difference(f"{path}: {_attributes(attributes, synced)}")
    if links and expected.kind == "file" and node.links != expected.links:
        return _Difference(f"{path}: {node.links} names, not {expected.links}")
    return None


def _attributes(actual: Mapping[str, bytes], synced: Mapping[str, bytes]) -> str:
    if actual.keys() != synced.keys():
        return f"has the attributes {sorted(actual)}, not {sorted(synced)}"
    wrong = next(name for name in sorted(actual) if actual[name] != synced[name])
    return f"has another value of the attribute {wrong}"


def _contents(
    history: History, nodes: Mapping[str, Node], state: Mapping[str, PathTarget], promises: Promises
) -> Iterator[Lost]:
    """Yield the durability promises that are broken by the contents of files."""
    for path, target in state.items():
        node = nodes.get(path)
        if target.kind != "file" or node is None:
            continue
        inode = history.tree.inodes[target.inode]
        versions = inode.versions
        durable = history.durable.get(target.inode, -1)
        older = [version for version in versions if version.index <= durable]
        allowed = [older[-1] if older else versions[0]]
        allowed += [version for version in versions if version.index > durable]
        allowed += [version for shift in inode.shifts if shift.index > durable for version in shift.versions]
        broken = _unlike_all(node.data, [version.data for version in allowed])
        if broken is not None:
            promise, reason = broken
            lost = _lost(history, promise, f"{path}: {reason}")
            yield replace(lost, documented=promises.stale_data or None) if promise == "garbage" else lost
        elif promises.replace_by_rename and target.replaced >= 0 and not node.data:
            old = [version for version in versions if version.index <= target.replaced]
            if old and old[-1].data and all(version.data for version in versions[versions.index(old[-1]) :]):
                yield _lost(history, "replace_by_rename", f"{path}: empty, though it replaced a file with data")


def _unlike_all(data: bytes, versions: Sequence[bytes]) -> tuple[str, str] | None:
    """Return the promise that the contents of a file break, and how they differ; None if they break none.

    `versions` are the contents that the file may have, the durable version first.
    """
    sizes = [len(version) for version in versions]
    if not min(sizes) <= len(data) <= max(sizes):
        expected = f"{sizes[0]:,}" if len({*sizes}) == 1 else f"{min(sizes):,} to {max(sizes):,}"
        return "fsync", f"{len(data):,} bytes, not {expected}"
    if any(version == data for version in versions):
        return None
    if len(versions) == 1:
        return "fsync", f"byte {_first_difference(data, versions[0]):,} is not what was synced"
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        if not any(version[start : start + _PIECE] == piece for version in versions):
            for offset, byte in enumerate(piece, start):
                if not _is_of(versions, offset, byte):
                    return "garbage", f"byte {offset:,} belongs to no version of the file"
    return None


def _is_of(versions: Sequence[bytes], offset: int, byte: int) -> bool:
    """Return whether a version of the file has this byte at this offset; bytes beyond its end count as zero."""
    return any(version[offset] == byte if offset < len(version) else byte == 0 for version in versions)


def _first_difference(data: bytes, other: bytes) -> int:
    pairs = enumerate(zip(data, other, strict=False))
    return next((offset for offset, pair in pairs if pair[0] != pair[1]), len(data))


def _lost(history: History, promise: str, detail: str) -> Lost:
    operations = "; ".join(map(str, history.operations))
    return Lost(promise, "filesystem", f"{detail} (program {history.name}: {operations})")
