"""Programs that ran before a power cut: their operations, read from the runner's lines, and what was made durable."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emmclab.crash.file_tree import TOP, PathTarget, RefusedError, Tree
from emmclab.crash.programs import HERE, Operation, operation, written_bytes
from emmclab.crash.promises import Promises, promises_of

#: Operations that make all earlier operations durable.
_ALL = ("sync", "syncfs")
#: Operations that make one file durable, or a part of it.
_ONE, _PART = ("fsync", "fdatasync", "msync"), ("msyncrange", "dwritesync")
#: Operations that also make the names of the file durable, if the file system promises that.
_COMMITTING = ("fsync", "dwritesync")


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
        parts: by inode, parts that are durable by themselves: index of the operation, begin and end in bytes.
        named: by inode, the index in `states` from which its own name and attributes are durable.
        entries: by inode of a folder, the index in `states` from which the names in it are durable.
        settled: by inode of a folder and name in it, the index in `states` from which this name is durable by an
            fsync of another file.
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
    parts: dict[int, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    named: dict[int, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    settled: dict[tuple[int, str], int] = field(default_factory=dict)

    def copy(self) -> "History":
        """Return an independent copy."""
        return replace(
            self,
            states=list(self.states),
            tree=self.tree.copy(),
            operations=list(self.operations),
            ends=list(self.ends),
            durable=dict(self.durable),
            parts=dict(self.parts),
            named=dict(self.named),
            entries=dict(self.entries),
            settled=dict(self.settled),
        )


class Grammar:
    """Recognises the output of the program runner: a line `mount`, then programs with the result of each operation."""

    def __init__(self) -> None:
        #: State of the program runner after a line: `between` programs, `inside` one, or `doing` an operation.
        self._after = ""

    def __call__(self, line: str) -> bool:
        """Return whether a line may follow the lines before it."""
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


def promises_in(line: str) -> Promises:
    """Return the promises of the file system in the first line of the runner."""
    _, kind, options = [*line.split(), "", ""][:3]
    return promises_of(kind, options)


class ParsedLines:
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
        promises = promises_in(lines[0])
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
    elif step.verb in (*_ONE, *_PART):
        inode = TOP if step.arguments[0] == HERE else tree.find(str(step.arguments[0]))
        if inode is None:
            return
        if step.verb in _PART:
            begin, length = map(int, step.arguments[1:])
            history.parts[inode] = (*history.parts.get(inode, ()), (index, begin, begin + length))
        else:
            history.durable[inode] = index
        if tree.inodes[inode].kind == "folder":
            history.entries[inode] = newest
        is_named = inode == TOP or any(target.inode == inode for target in history.states[-1].values())
        # The sync of an open file without a name commits nothing else, unless changes are committed in their order.
        is_named |= promises.names == "in_order"
        if step.verb in _COMMITTING and promises.fsync_commits and is_named:
            changed = history.ends.index(tree.inodes[inode].changed)
            if promises.rename_is_whole:
                history.settled |= dict.fromkeys(_old_names(history, inode), newest)
            history.named[inode] = max(history.named.get(inode, 0), changed)
            if promises.names == "in_order":
                history.least = max(history.least, changed)
            above = _names_above(history, inode, changed, is_whole=promises.rename_is_whole)
            history.settled |= {name: max(history.settled.get(name, 0), changed) for name in above}


def _names_above(history: History, inode: int, changed: int, *, is_whole: bool) -> Iterator[tuple[int, str]]:
    """Yield the names of the folders above a file at its last change, each with the inode of its folder.

    Only if `is_whole` is set, the names of renamed folders are among them.
    """
    for path in (path for path, target in history.states[changed].items() if target.inode == inode):
        for above in (path[:place] for place, letter in enumerate(path) if letter == "/"):
            names = _names_of(history, history.states[changed][above].inode)
            if is_whole or len({*names.values()} - {frozenset()}) == 1:
                yield from names[max(changed, history.least)]


def _old_names(history: History, inode: int) -> Iterator[tuple[int, str]]:
    """Yield the names that a file lost since its last fsync when it was renamed within the folder in which it is."""
    names = _names_of(history, inode)
    last = {folder for folder, _ in names[len(history.states) - 1]}
    for index in range(max(history.least, history.named.get(inode, 0)) + 1, len(history.states)):
        gained = {folder for folder, _ in names[index] - names[index - 1]} & last
        yield from ((folder, name) for folder, name in names[index - 1] - names[index] if folder in gained)


def _names_of(history: History, inode: int) -> dict[int, frozenset[tuple[int, str]]]:
    """Return the names of a file, each with the inode of its folder, in each state that a cut may leave."""
    return {
        index: frozenset(
            (above, name)
            for above, names in entries_of(history.states[index]).items()
            for name, target in names.items()
            if target.inode == inode
        )
        for index in range(history.least, len(history.states))
    }


def entries_of(state: Mapping[str, PathTarget]) -> dict[int, dict[str, PathTarget]]:
    """Return the names in each folder of a state, by the inode of the folder."""
    entries: dict[int, dict[str, PathTarget]] = {TOP: {}}
    entries |= {target.inode: {} for target in state.values() if target.kind == "folder"}
    for path, target in state.items():
        folder, _, name = path.rpartition("/")
        entries[state[folder].inode if folder else TOP][name] = target
    return entries
