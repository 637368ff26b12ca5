"""Checks of generated programs: what a cut may leave of files and folders, depending on the syncs before.

Files are compared with a model of the program (`file_tree`). Synced data and names have to be
present; each part of the rest may be old or new. Each byte must be that of a version of the file, or zero
beyond the end of the last durable version, so that data of other files is detected.
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
#: Operations that make a file durable; the first one also its names, if the file system promises that.
_ONE = ("fsync", "fdatasync", "msync")
#: Number of bytes of contents that are compared at once.
_PIECE = 512


@dataclass
class History:
    """A program and its model up to a moment.

    Attributes:
        number: number of the program, and so of its folder.
        name: its name.
        states: targets of its paths before the first operation and after each; the last may be in progress.
        tree: the last state, with all versions of all files.
        operations: executed operations, for messages.
        ends: for each state, the operation that it follows.
        is_known: whether the model knows the effect of all operations.
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
        self._told = _ParsedLines()
        self._running: tuple[int, History | None] = (-1, None)

    def reader(self) -> Callable[[str], bool]:
        """Return a function that recognises the lines of the runner, each only where it may follow."""
        return _Grammar()

    def file_names(self, _lines: Sequence[str]) -> list[str]:
        """Return an empty list: the check needs a folder, not single files."""
        return []

    def folder(self, lines: Sequence[str]) -> str | None:
        """Return the folder of the running program; `None` if none is running."""
        history = self._after(lines)
        return None if history is None else f"/p{history.number}"

    def __call__(self, files: Files, lines: Sequence[str]) -> Lost | None:
        """Judge a state."""
        history = self._after(lines)
        if history is None or not history.is_known:
            return None
        nodes = files.tree(f"/p{history.number}")
        if nodes is None:
            return _lost(history, "sync", f"p{history.number}: the folder is gone")
        return _judge_state(history, nodes, _promises(lines[0]))

    def _after(self, lines: Sequence[str]) -> History | None:
        if self._running[0] != len(lines):
            self._running = len(lines), self._told.running(lines)
        return self._running[1]


class _Grammar:
    """Recognises the output of the runner: `mount`, and programs of operations, each with its result."""

    def __init__(self) -> None:
        #: What the last understood line was: the end of `mount` or of a program, its middle, an operation.
        self._after = ""

    def __call__(self, line: str) -> bool:
        verb, _, rest = line.partition(" ")
        if (self._after, verb) in _FOLLOWS and _FORMS[verb](rest):
            self._after = _FOLLOWS[self._after, verb]
            return True
        return False


#: The state of the runner after a line, by that before it and the first word of the line.
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


#: Whether the rest of a line is as the runner prints it, by the first word.
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
    """Parses the output of the runner; lines that were parsed before are not parsed again."""

    def __init__(self) -> None:
        self._start = -1
        self._done: tuple[str, ...] = ()
        self._index = 0
        self._history = History(0, "", [{}], Tree())

    def running(self, lines: Sequence[str]) -> History | None:
        """Return the program that is running after these lines; `None` before, between and after programs."""
        marks = (at for at in reversed(range(len(lines))) if lines[at].startswith(("begin ", "end ")))
        start = next(marks, None)
        if start is None or lines[start].startswith("end "):
            return None
        own = tuple(lines[start + 1 :])
        if start != self._start or own[: len(self._done)] != self._done:
            _, number, name = lines[start].split(maxsplit=2)
            self._start, self._done, self._index = start, (), 0
            self._history = History(int(number), name, [{}], Tree())
        promises = _promises(lines[0])
        ended = len(own) - len(own) % 2
        for at in range(len(self._done), ended, 2):
            if own[at + 1] == "did":
                one = operation(own[at].removeprefix("does "))
                _do(self._history, self._index, one, promises, is_done=True)
            self._index += 1
        self._done = own[:ended]
        if ended == len(own):
            return self._history
        # The last operation is in progress: it may be complete, and later lines state its result.
        history = self._history.copy()
        _do(history, self._index, operation(own[-1].removeprefix("does ")), promises, is_done=False)
        return history


def _do(history: History, index: int, one: Operation, promises: Promises, *, is_done: bool) -> None:
    tree, number = history.tree, history.number
    try:
        tree.apply(index, one, written_bytes(number, index, one))
    except RefusedError:
        # An operation in progress will fail; a completed one followed a link, which the model does not.
        history.is_known &= not is_done
        return
    history.operations.append(one)
    history.ends.append(index)
    history.states.append(tree.names())
    if not is_done:
        return
    last = len(history.states) - 1
    if one.verb in _ALL:
        history.least = last
        history.durable = dict.fromkeys(tree.inodes, index)
        history.named = dict.fromkeys(tree.inodes, last)
    elif one.verb in _ONE:
        inode = TOP if one.arguments[0] == HERE else tree.find(str(one.arguments[0]))
        if inode is None:
            return
        history.durable[inode] = index
        if tree.inodes[inode].kind == "folder":
            history.entries[inode] = last
        if one.verb == "fsync" and promises.fsync_commits:
            changed = history.ends.index(tree.inodes[inode].changed)
            history.named[inode] = max(history.named.get(inode, 0), changed)
            if promises.names == "in_order":
                history.least = max(history.least, changed)


def _judge_state(history: History, nodes: Mapping[str, Node], promises: Promises) -> Lost | None:
    if promises.names != "in_order":
        return _judge_by_name(history, nodes, promises)
    allowed = [at for at in _from(history) if next(_differences(history, nodes, at), None) is None]
    if not allowed:
        every = [[*_differences(history, nodes, at)] for at in _from(history)]
        return _lost(history, "fsync", min(reversed(every), key=_distance)[0].text)
    problems = [[*_contents(history, nodes, history.states[at], promises)] for at in allowed]
    if not all(problems):
        return None
    nearest = min(reversed(problems), key=lambda found: (sum(map(_is_defect, found)), len(found)))
    return next(filter(_is_defect, nearest), nearest[0])


def _is_defect(lost: Lost) -> bool:
    return lost.documented is None


@dataclass(frozen=True)
class _Difference:
    """A difference of a path from a state of the model; `is_name`: it is missing, or should not exist."""

    text: str
    is_name: bool = False


def _distance(differences: Sequence[_Difference]) -> tuple[int, int]:
    """Return how far from a state something is: first by paths that are missing or too many."""
    return sum(one.is_name for one in differences), len(differences)


def _judge_by_name(history: History, nodes: Mapping[str, Node], promises: Promises) -> Lost | None:
    """Judge a state if each name may be old or new independently."""
    for path in sorted({*nodes, *(path for state in history.states for path in state)}):
        if (difference := _differs_alone(history, nodes, path)) is not None:
            return _lost(history, "fsync", difference.text)
    if promises.rename_is_whole and (reason := _torn_rename(history, nodes)) is not None:
        return _lost(history, "rename", reason)
    for path in sorted(nodes):
        may_be = [named for at in _from(history, path) if (named := history.states[at].get(path)) is not None]
        problems = [
            next(_contents(history, nodes, {path: named}, promises), None)
            for named in may_be or _entries(history, path)
        ]
        if problems and all(problem is not None for problem in problems):
            return problems[-1]
    return None


def _from(history: History, path: str | None = None) -> range:
    """Return the indices of the states that a cut may leave, in all or for one path."""
    least = history.least
    if path is not None:
        folder = path.rpartition("/")[0]
        inside = TOP if not folder else _only(history, folder)
        for at in range(least, len(history.states)):
            named = history.states[at].get(path)
            if (named is not None and history.named.get(named.inode, 0) >= at) or (
                inside is not None and history.entries.get(inside, -1) >= at
            ):
                least = at
    return range(least, len(history.states))


def _only(history: History, folder: str) -> int | None:
    """Return the inode of the folder at a path after any allowed cut; `None` if it may be different ones."""
    found = {named.inode if named else None for named in _states_of(history, folder)}
    return found.pop() if len(found) == 1 else None


def _states_of(history: History, path: str) -> list[PathTarget | None]:
    return [history.states[at].get(path) for at in _from(history, path)]


def _differences(history: History, nodes: Mapping[str, Node], at: int) -> Iterator[_Difference]:
    """Yield how the found names differ from those of a state."""
    state = history.states[at]
    for path in sorted({*nodes, *state}):
        if (difference := _unlike(path, nodes.get(path), state.get(path))) is not None:
            yield difference
    # Two names of one file must have one inode, and those of two files different ones.
    found: dict[int, int] = {}
    for path in (path for path in state if path in nodes):
        inode = nodes[path].inode
        if found.setdefault(state[path].inode, inode) != inode:
            yield _Difference(f"{path}: no longer the same file as its other name")
    if len({*found.values()}) != len(found):
        yield _Difference("two files have one inode")


def _differs_alone(history: History, nodes: Mapping[str, Node], path: str) -> _Difference | None:
    """Return how a path differs from the nearest that it led to since it was durable; `None` if from none."""
    every = [_unlike(path, nodes.get(path), history.states[at].get(path), links=False) for at in _from(history, path)]
    differences = [one for one in every if one is not None]
    if len(differences) < len(every) or _is_entry(history, nodes, path):
        return None
    return min(reversed(differences), key=lambda one: _distance([one]))


def _torn_rename(history: History, nodes: Mapping[str, Node]) -> str | None:
    """Return a durable file that is missing under all its names, or has two although it always had one."""
    for inode, one in history.tree.inodes.items():
        if one.kind == "folder" or inode not in history.named:
            continue
        least = history.least
        names = [[path for path, named in state.items() if named.inode == inode] for state in history.states]
        since = names[max(least, history.named[inode]) :]
        if not all(since):
            continue
        may = {path for some in since for path in some if _may_be(history, path, inode)}
        if not may & nodes.keys():
            return f"{max(since[-1])}: gone, by its old name and by its new one"
        old = {path for some in names[least:] for path in some if _may_be(history, path, inode)}
        there = sorted((may | old) & nodes.keys())
        is_one = max(map(len, names)) == 1 and len({nodes[path].inode for path in there}) == 1
        if is_one and len(there) > 1:
            return f"{there[0]}: also named {there[1]}, though it had one name at all times"
    return None


def _may_be(history: History, path: str, inode: int) -> bool:
    return any(named is not None and named.inode == inode for named in _states_of(history, path))


def _is_entry(history: History, nodes: Mapping[str, Node], path: str) -> bool:
    """Return whether a path exists by a new entry in a folder that still has its old name."""
    node = nodes.get(path)
    return node is not None and any(
        _unlike(path, node, entry, links=False) is None for entry in _entries(history, path)
    )


def _entries(history: History, path: str) -> list[PathTarget]:
    """Return the possible targets of a path, if each entry of each folder may be old or new independently."""
    folder, _, name = path.rpartition("/")
    inodes = {entry.inode for entry in _entries(history, folder)} if folder else {TOP}
    found = []
    for state in history.states[history.least :]:
        paths = [other for other, named in state.items() if named.inode in inodes] if folder else [""]
        entries = [state.get(f"{other}/{name}" if other else name) for other in paths]
        found += [entry for entry in entries if entry is not None]
    return found


def _unlike(path: str, node: Node | None, named: PathTarget | None, *, links: bool = True) -> _Difference | None:
    if node is None or named is None:
        if node is None and named is None:
            return None
        what = "gone" if node is None else f"there again, a {node.kind}"
        return _Difference(f"{path}: {what}", is_name=True)
    if node.kind != named.kind:
        return _Difference(f"{path}: a {node.kind}, not a {named.kind}", is_name=True)
    target = node.data.decode(errors="replace") if named.kind == "link" else ""
    if target != named.target:
        return _Difference(f"{path}: leads to {target!r}, not to {named.target!r}")
    given = {name: value for name, value in node.attributes.items() if name.startswith("user.")}
    synced = {f"user.{name}": value for name, value in named.attributes.items()}
    if given != synced:
        return _Difference(f"{path}: {_attributes(given, synced)}")
    if links and named.kind == "file" and node.links != named.links:
        return _Difference(f"{path}: {node.links} names, not {named.links}")
    return None


def _attributes(given: Mapping[str, bytes], synced: Mapping[str, bytes]) -> str:
    """Return how extended attributes differ."""
    if given.keys() != synced.keys():
        return f"has the attributes {sorted(given)}, not {sorted(synced)}"
    wrong = next(name for name in sorted(given) if given[name] != synced[name])
    return f"has another value of the attribute {wrong}"


def _contents(
    history: History, nodes: Mapping[str, Node], state: Mapping[str, PathTarget], promises: Promises
) -> Iterator[Lost]:
    """Yield what is wrong with the contents of each file."""
    for path, named in state.items():
        node = nodes.get(path)
        if named.kind != "file" or node is None:
            continue
        inode = history.tree.inodes[named.inode]
        versions = inode.versions
        durable = history.durable.get(named.inode, -1)
        before = [version for version in versions if version.index <= durable]
        since = [before[-1] if before else versions[0]]
        since += [version for version in versions if version.index > durable]
        since += [version for shift in inode.shifts if shift.index > durable for version in shift.versions]
        broken = _unlike_all(node.data, [version.data for version in since])
        if broken is not None:
            promise, reason = broken
            lost = _lost(history, promise, f"{path}: {reason}")
            yield replace(lost, documented=promises.stale_data or None) if promise == "garbage" else lost
        elif promises.replace_by_rename and named.replaced >= 0 and not node.data:
            had = [version for version in versions if version.index <= named.replaced]
            if had and had[-1].data and all(version.data for version in versions[versions.index(had[-1]) :]):
                yield _lost(history, "replace_by_rename", f"{path}: empty, though it replaced a file with data")


def _unlike_all(data: bytes, versions: Sequence[bytes]) -> tuple[str, str] | None:
    """Return the promise that contents break, and how they differ from all versions (durable one first)."""
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
            for at, byte in enumerate(piece, start):
                if not _is_of(versions, at, byte):
                    return "garbage", f"byte {at:,} is of no version of the file"
    return None


def _is_of(versions: Sequence[bytes], at: int, byte: int) -> bool:
    """Return whether any version has this byte here; allocated but unwritten bytes read as zero."""
    return any(version[at] == byte if at < len(version) else byte == 0 for version in versions)


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def _lost(history: History, promise: str, detail: str) -> Lost:
    done = "; ".join(map(str, history.operations))
    return Lost(promise, "filesystem", f"{detail} (program {history.name}: {done})")
