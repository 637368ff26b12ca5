"""A model of files and folders: their state after a sequence of operations, and all versions of each file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from emmclab.crash.programs import FILE_MODE, FOLDER_MODE, HERE, Operation

#: The inode number of the top folder.
TOP = 0
#: Size of a block of a file system in bytes, as in `recording`.
BLOCK = 4096
#: Type of a function that computes the new contents of a file from the old contents.
Change = Callable[[bytes], bytes]


class RefusedError(Exception):
    """Raised if an operation is impossible in this state.

    Attributes:
        problem: `missing`, `present`, `full` (a folder that is not empty), `short` (a file without enough data),
            `bare` (a file without the attribute), `foreign` (a file of another kind), or empty for another reason.
        path: the path with this problem.
    """

    def __init__(self, problem: str = "", path: str = "") -> None:
        """Set the reason."""
        super().__init__(f"{path} is {problem}" if problem else "the operation is not possible here")
        self.problem, self.path = problem, path


@dataclass(frozen=True)
class Version:
    """Contents of a file after the operation with this index, and the number of bytes that fallocate has allocated."""

    index: int
    data: bytes
    allocated: int = 0


@dataclass
class Shift:
    """A move of bytes within a file, and the contents on the disk until the move is durable.

    A file system that overwrites in place may write data to moved blocks before it commits the move (ext4(5),
    `data=ordered`: data is written before the metadata is committed). After a power cut between these two writes, the
    file contains the data at the old place of the blocks.

    Attributes:
        index: index of the operation that moved the bytes.
        offset: offset of the first moved byte, before the operation.
        by: distance in bytes; negative towards the beginning.
        versions: contents of the file without the move.
    """

    index: int
    offset: int
    by: int
    versions: list[Version]

    def write(self, index: int, pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Apply a write to the contents without the move; return its pieces (offset, data), before the move."""
        stays, first = self.offset + min(self.by, 0), self.offset + self.by
        stay = [(offset, data[: max(0, stays - offset)]) for offset, data in pieces]
        moved = [(max(offset, first) - self.by, data[max(0, first - offset) :]) for offset, data in pieces]
        unmoved = [(offset, data) for offset, data in stay + moved if data]
        contents = self.versions[-1].data
        for offset, data in unmoved:
            contents = contents[:offset] + data[: max(0, len(contents) - offset)] + contents[offset + len(data) :]
        self.versions.append(Version(index, contents))
        return unmoved


@dataclass
class Inode:
    """A file, folder, symbolic link or special file.

    Attributes:
        kind: `file`, `folder`, `link`, or a kind of `programs.KINDS`.
        names: entries of a folder: inode number by name.
        target: target of a link.
        versions: all contents of a file so far, the first one empty.
        shifts: operations that moved bytes of a file.
        attributes: extended attributes by name, without `user.`.
        changed: index of the last operation that changed the inode or one of its names; -1 if there is none.
        replaced: index of the last operation that renamed it over another file; -1 if there is none.
        mode: permissions.
        owners: numbers of owner and group.
        modified: time of the last change in seconds, if `utimes` has set it since; else None.
        allocated: parts of a file that fallocate has allocated, as offsets of their begin and end.
        linkable: whether a file without a name may get one (O_TMPFILE).
    """

    kind: str
    names: dict[str, int] = field(default_factory=dict)
    target: str = ""
    versions: list[Version] = field(default_factory=list)
    shifts: list[Shift] = field(default_factory=list)
    attributes: dict[str, bytes] = field(default_factory=dict)
    changed: int = -1
    replaced: int = -1
    mode: int = FILE_MODE
    owners: tuple[int, int] = (0, 0)
    modified: int | None = None
    allocated: tuple[tuple[int, int], ...] = ()
    linkable: bool = False


@dataclass(frozen=True)
class PathTarget:
    """A path in a state of the file-tree model: inode, kind, target of a symbolic link, extended attributes."""

    inode: int
    kind: str
    target: str
    attributes: Mapping[str, bytes]
    #: Permissions, owner and group; time of the last change in seconds, or None if it is not known.
    status: tuple[int, int, int]
    modified: int | None
    #: Number of names (hard links) of the file.
    links: int
    #: Index of the operation that renamed this file over another file; -1 if there was none.
    replaced: int


class Tree:
    """Files and folders below a folder; an operation changes them, or is refused if it is impossible."""

    def __init__(self) -> None:
        """Start with an empty folder."""
        self.inodes: dict[int, Inode] = {TOP: Inode("folder", mode=FOLDER_MODE)}
        self._next = TOP + 1
        #: Inodes of open files by their handles.
        self.handles: dict[str, int] = {}

    def find(self, path: str) -> int | None:
        """Return the inode number at a path, or of an open file `@HANDLE`; `None` if there is none."""
        if path.startswith("@"):
            return self.handles.get(path[1:])
        inode = TOP
        for name in path.split("/"):
            if name in ("", HERE):
                continue
            folder = self.inodes[inode]
            if folder.kind != "folder" or name not in folder.names:
                return None
            inode = folder.names[name]
        return inode

    def names(self) -> dict[str, PathTarget]:
        """Return every path with its target."""
        links: dict[int, int] = {}
        paths: list[tuple[str, int]] = []
        pending = [("", TOP)]
        while pending:
            path, number = pending.pop()
            for name, inner in self.inodes[number].names.items():
                inside = f"{path}/{name}" if path else name
                paths.append((inside, inner))
                links[inner] = links.get(inner, 0) + 1
                if self.inodes[inner].kind == "folder":
                    pending.append((inside, inner))
        result: dict[str, PathTarget] = {}
        for path, number in paths:
            node = self.inodes[number]
            status = (node.mode, *node.owners)
            result[path] = PathTarget(
                number, node.kind, node.target, node.attributes, status, node.modified, links[number], node.replaced
            )
        return result

    def apply(self, index: int, step: Operation, data: bytes) -> None:
        """Execute an operation; `data` are the bytes that it writes."""
        words = [str(value) for value in step.arguments]
        numbers = [value for value in step.arguments if isinstance(value, int)]
        match step.verb:
            case "create":
                self._add(index, words[0], Inode("file", versions=[Version(index, b"")]))
            case "mkdir":
                self._add(index, words[0], Inode("folder", mode=FOLDER_MODE))
            case "mknod":
                self._add(index, words[0], Inode(words[1]))
            case "symlink":
                self._add(index, words[1], Inode("link", target=words[0], mode=0o777))
            case "open" | "tmpfile" | "close":
                self._open(index, step.verb, *words)
            case "chmod" | "chown" | "utimes":
                self._set_status(index, words[0], step.verb, words[1:])
            case "clone":
                self._clone(index, words[0], words[1])
            case "link":
                self._link(index, words[0], words[1])
            case "rename":
                self._rename(index, words[0], words[1])
            case "exchange":
                self._exchange(index, words[0], words[1])
            case "unlink" | "rmdir":
                self._remove(index, words[0], folder=step.verb == "rmdir")
            case "setxattr" | "removexattr":
                self._attribute(index, words, data if step.verb == "setxattr" else None)
            case "write" | "dwrite" | "dwritesync" | "mmapwrite":
                self._write(index, words[0], numbers[0], data, grows=step.verb != "mmapwrite")
            case "append":
                self._write(index, words[0], None, data, grows=True)
            case "truncate":
                self._keep_allocated(words[0], 0, numbers[0])
                self._change(index, words[0], lambda old: old[: numbers[0]].ljust(numbers[0], b"\0"))
            case "fallocate":
                self._allocate(index, words[0], words[1], *numbers)
            case "fsync" | "fdatasync":
                # For a symbolic link, the kernel syncs the target of the link, which the model does not follow.
                if self.inodes[self._existing(words[0])].kind not in ("file", "folder"):
                    raise RefusedError("foreign", words[0])
            case "msync" | "msyncrange" | "syncrange":
                file = self._file(words[0])
                if step.verb != "syncrange" and len(file.versions[-1].data) < max(sum(numbers), 1):
                    raise RefusedError("short", words[0])
                if step.verb == "msyncrange" and numbers[0] % BLOCK:
                    raise RefusedError

    def _existing(self, path: str) -> int:
        inode = self.find(path)
        if inode is None:
            raise RefusedError("missing", path)
        return inode

    def _parent(self, path: str) -> tuple[Inode, str]:
        folder, _, name = path.rpartition("/")
        inode = self._existing(folder) if folder else TOP
        if name in ("", HERE) or path.startswith("@"):
            raise RefusedError
        if self.inodes[inode].kind != "folder":
            raise RefusedError("foreign", folder)
        return self.inodes[inode], name

    def _file(self, path: str) -> Inode:
        inode = self.inodes[self._existing(path)]
        if inode.kind != "file":
            raise RefusedError("foreign", path)
        return inode

    def _add(self, index: int, path: str, inode: Inode) -> None:
        folder, name = self._parent(path)
        if name in folder.names:
            raise RefusedError("present", path)
        inode.changed = index
        folder.names[name] = self._new(inode)
        self._touch(index, folder)

    def _new(self, inode: Inode) -> int:
        self.inodes[self._next] = inode
        self._next += 1
        return self._next - 1

    @staticmethod
    def _touch(index: int, *folders: Inode) -> None:
        """Note that the names in folders have changed, and thus their times."""
        for folder in folders:
            folder.changed, folder.modified = index, None

    def _open(self, index: int, verb: str, path: str, handle: str = "") -> None:
        """Open a file, which is created if it is missing; or create one without a name; or close a handle."""
        if verb == "close":
            if self.handles.pop(path, None) is None:
                raise RefusedError
            return
        inode = self.find(path)
        if verb == "tmpfile":
            folder = self._existing(path)
            if self.inodes[folder].kind != "folder":
                raise RefusedError("foreign", path)
            inode = self._new(Inode("file", versions=[Version(index, b"")], changed=index, linkable=True))
        elif inode is None:
            if path.startswith("@"):
                raise RefusedError
            self._add(index, path, Inode("file", versions=[Version(index, b"")]))
            inode = self._existing(path)
        elif self.inodes[inode].kind not in ("file", "folder"):
            raise RefusedError("foreign", path)
        self.handles[handle] = inode

    def _set_status(self, index: int, path: str, verb: str, values: list[str]) -> None:
        inode = self.inodes[self._existing(path)]
        # The kernel cannot change the permissions of a symbolic link.
        if verb == "chmod" and inode.kind == "link":
            raise RefusedError
        if verb == "chmod":
            inode.mode = int(values[0], 8)
        elif verb == "chown":
            inode.owners = int(values[0]), int(values[1])
        else:
            inode.modified = int(values[0])
        inode.changed = index

    def _clone(self, index: int, path: str, other: str) -> None:
        source, target = self._file(path), self._file(other)
        data, old = source.versions[-1].data, target.versions[-1].data
        # A block cannot be shared in part, unless it is the last one of the target.
        if source is target or (len(data) % BLOCK and len(data) < len(old)):
            raise RefusedError
        if not data:
            return
        self._keep_allocated(other, len(data), len(old))
        self._change(index, other, lambda old: data + old[len(data) :])

    def _link(self, index: int, path: str, new: str) -> None:
        inode = self._existing(path)
        folder, name = self._parent(new)
        if name in folder.names:
            raise RefusedError("present", new)
        linked = self.inodes[inode]
        is_named = any(inode in other.names.values() for other in self.inodes.values())
        if linked.kind == "folder" or not (is_named or linked.linkable):
            raise RefusedError("foreign", path)
        folder.names[name] = inode
        linked.changed, linked.linkable = index, False
        self._touch(index, folder)

    def _rename(self, index: int, path: str, new: str) -> None:
        moved = self._existing(path)
        (old_folder, old_name), (folder, name) = self._parent(path), self._parent(new)
        replaced = folder.names.get(name)
        moved_inode = self.inodes[moved]
        if moved_inode.kind == "folder" and (f"{new}/").startswith(f"{path}/") and new != path:
            raise RefusedError
        if replaced is not None:
            if replaced == moved:
                return
            replaced_inode = self.inodes[replaced]
            if (replaced_inode.kind == "folder") != (moved_inode.kind == "folder"):
                raise RefusedError("present", new)
            if replaced_inode.names:
                raise RefusedError("full", new)
            replaced_inode.changed = index
            if moved_inode.kind == "file":
                moved_inode.replaced = index
        del old_folder.names[old_name]
        folder.names[name] = moved
        moved_inode.changed = index
        if moved_inode.kind == "folder":
            moved_inode.modified = None
        self._touch(index, old_folder, folder)

    def _exchange(self, index: int, path: str, other: str) -> None:
        first, second = self._existing(path), self._existing(other)
        if path == other:
            return
        if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
            raise RefusedError
        (folder, name), (other_folder, other_name) = self._parent(path), self._parent(other)
        folder.names[name], other_folder.names[other_name] = second, first
        for inode in (self.inodes[first], self.inodes[second]):
            inode.changed = index
            inode.modified = inode.modified if inode.kind != "folder" else None
        self._touch(index, folder, other_folder)

    def _remove(self, index: int, path: str, *, folder: bool) -> None:
        inode = self._existing(path)
        parent, name = self._parent(path)
        removed = self.inodes[inode]
        if (removed.kind == "folder") != folder:
            raise RefusedError("foreign", path)
        if removed.names:
            raise RefusedError("full", path)
        del parent.names[name]
        removed.changed = index
        self._touch(index, parent)

    def _attribute(self, index: int, arguments: list[str], value: bytes | None) -> None:
        inode = self.inodes[self._existing(arguments[0])]
        if inode.kind not in ("file", "folder"):
            raise RefusedError("foreign", arguments[0])
        if value is None and arguments[1] not in inode.attributes:
            raise RefusedError("bare", arguments[0])
        inode.attributes = {name: old for name, old in inode.attributes.items() if name != arguments[1]}
        if value is not None:
            inode.attributes[arguments[1]] = value
        inode.changed = index

    def _change(self, index: int, path: str, change: Change) -> None:
        inode = self._file(path)
        allocated = sum(end - begin for begin, end in inode.allocated)
        inode.versions.append(Version(index, change(inode.versions[-1].data), allocated))
        inode.modified = None

    def _keep_allocated(self, path: str, begin: int, end: int) -> None:
        """Forget allocated parts of a file outside of a range."""
        inode = self._file(path)
        kept = [(max(first, begin), min(last, end)) for first, last in inode.allocated]
        inode.allocated = tuple((first, last) for first, last in kept if first < last)

    def _write(self, index: int, path: str, offset: int | None, data: bytes, *, grows: bool) -> None:
        old = self._file(path).versions[-1].data
        begin = len(old) if offset is None else offset
        if not grows and (begin + len(data) > len(old) or not old):
            raise RefusedError("short", path)
        self._change(index, path, lambda old: old[:begin].ljust(begin, b"\0") + data + old[begin + len(data) :])
        pieces = [(begin, data)]
        for shift in reversed(self._file(path).shifts):
            pieces = shift.write(index, pieces)

    def _allocate(self, index: int, path: str, mode: str, offset: int, length: int) -> None:
        old = self._file(path).versions[-1].data
        end = offset + length
        if mode in ("collapse_range", "insert_range") and offset + (length if mode == "collapse_range" else 0) >= len(
            old
        ):
            raise RefusedError("short", path)
        zeros = bytes(max(0, min(end, len(old)) - offset))
        changed = {
            "extend": old.ljust(end, b"\0"),
            "unshare_range": old.ljust(end, b"\0"),
            "keep_size": old,
            "punch_hole": old[:offset] + zeros + old[offset + len(zeros) :],
            "zero_range_keep_size": old[:offset] + zeros + old[offset + len(zeros) :],
            "zero_range": old[:offset].ljust(offset, b"\0") + bytes(length) + old[end:],
            "collapse_range": old[:offset] + old[end:],
            "insert_range": old[:offset] + bytes(length) + old[offset:],
        }[mode]
        self._set_allocated(path, mode, offset, end)
        self._change(index, path, lambda _old: changed)
        if mode in ("collapse_range", "insert_range"):
            begin, distance = (end, -length) if mode == "collapse_range" else (offset, length)
            self._file(path).shifts.append(Shift(index, begin, distance, [Version(index, old)]))

    def _set_allocated(self, path: str, mode: str, begin: int, end: int) -> None:
        inode = self._file(path)
        before = [(first, min(last, begin)) for first, last in inode.allocated if first < begin]
        behind = [(max(first, end), last) for first, last in inode.allocated if last > end]
        if mode in ("extend", "keep_size", "zero_range", "zero_range_keep_size"):
            inode.allocated = (*before, (begin, end), *behind)
        elif mode != "unshare_range":
            inode.allocated = tuple(before if mode in ("collapse_range", "insert_range") else before + behind)

    def copy(self) -> "Tree":
        """Return an independent copy."""
        other = Tree()
        other.handles = dict(self.handles)
        other._next = self._next
        other.inodes = {
            number: replace(
                inode,
                names=dict(inode.names),
                versions=list(inode.versions),
                shifts=[replace(shift, versions=list(shift.versions)) for shift in inode.shifts],
            )
            for number, inode in self.inodes.items()
        }
        return other
