"""Differences of a file on a disk from its model: name, kind, attributes, names of the same file, and contents."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emmclab.crash.file_tree import PathTarget, Version
from emmclab.crash.mounted_files import Node, Status
from emmclab.crash.program_history import History
from emmclab.crash.promises import Lost, Promises

#: Number of bytes of contents that are compared at once.
_PIECE = 512


@dataclass(frozen=True)
class Difference:
    """A difference between a path on disk and in the model; `is_name`: the path is missing, or should not exist."""

    text: str
    is_name: bool = False


def distance(differences: Sequence[Difference]) -> tuple[int, int]:
    """Return a sort key for a set of differences: the number of missing or extra paths, and the number of all."""
    return sum(difference.is_name for difference in differences), len(differences)


def unlike(
    path: str, node: Node | None, expected: PathTarget | None, promises: Promises, *, links: bool = True
) -> Difference | None:
    """Return how a path on the disk differs from the model; with `links`, also by its number of names."""
    if node is None or expected is None:
        if node is None and expected is None:
            return None
        problem = "gone" if node is None else f"exists again, as a {node.kind}"
        return Difference(f"{path}: {problem}", is_name=True)
    if node.kind != expected.kind:
        return Difference(f"{path}: a {node.kind}, not a {expected.kind}", is_name=True)
    target = node.data.decode(errors="replace") if expected.kind == "link" else ""
    if target != expected.target:
        return Difference(f"{path}: leads to {target!r}, not to {expected.target!r}")
    attributes = {name: value for name, value in node.attributes.items() if name.startswith("user.")}
    synced = {f"user.{name}": value for name, value in expected.attributes.items()}
    if attributes != synced:
        return Difference(f"{path}: {_attributes(attributes, synced)}")
    if promises.permissions and node.status is not None:
        if node.status[:3] != expected.status:
            return Difference(f"{path}: {_owned(*node.status[:3])}, not {_owned(*expected.status)}")
        if expected.modified not in (None, node.status.modified):
            return Difference(f"{path}: changed at {node.status.modified} s, not at {expected.modified} s")
    if links and expected.kind != "folder" and node.links != expected.links:
        return Difference(f"{path}: {node.links} names, not {expected.links}")
    return None


def _owned(mode: int, owner: int, group: int) -> str:
    return f"mode {mode:03o} of {owner}:{group}"


def _attributes(actual: Mapping[str, bytes], synced: Mapping[str, bytes]) -> str:
    if actual.keys() != synced.keys():
        return f"has the attributes {sorted(actual)}, not {sorted(synced)}"
    wrong = next(name for name in sorted(actual) if actual[name] != synced[name])
    return f"has another value of the attribute {wrong}"


def content_losses(
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
        allowed = _allowed(history, target.inode)
        broken = _unlike_all(node.data, [version.data for version in allowed])
        for index, begin, end in history.parts.get(target.inode, ()) if broken is None else ():
            if index > durable and broken is None:
                since = max(version.index for version in versions if version.index <= index)
                # Zeros before the end of a file that were never written may be beyond its end after a cut.
                parts = [one.data[begin:end].ljust(end - begin, b"\0") for one in allowed if one.index >= since]
                if (part := _unlike_all(node.data[begin:end].ljust(end - begin, b"\0"), parts)) is not None:
                    broken = part[0], f"from byte {begin:,} on: {part[1]}"
        least = min(version.allocated for version in allowed)
        space = least if node.status is None else node.status.sectors * 512
        if broken is None and promises.permissions and space < least:
            broken = "fsync", f"{space:,} bytes of space, though fallocate reserved {least:,}"
        if broken is not None:
            promise, reason = broken
            loss = lost(history, promise, f"{path}: {reason}")
            yield replace(loss, documented=promises.stale_data or None) if promise == "garbage" else loss
        elif promises.replace_by_rename and target.replaced >= 0 and not node.data:
            old = [version for version in versions if version.index <= target.replaced]
            if old and old[-1].data and all(version.data for version in versions[versions.index(old[-1]) :]):
                yield lost(history, "replace_by_rename", f"{path}: empty, though it replaced a file with data")


def _allowed(history: History, number: int) -> list[Version]:
    """Return the contents that a file may have, the durable ones first."""
    inode, durable = history.tree.inodes[number], history.durable.get(number, -1)
    older = [version for version in inode.versions if version.index <= durable]
    return [
        older[-1] if older else inode.versions[0],
        *(version for version in inode.versions if version.index > durable),
        *(version for shift in inode.shifts if shift.index > durable for version in shift.versions),
    ]


#: What stands in a table for a path that does not exist.
_NOTHING = "nothing"


def table(history: History, nodes: Mapping[str, Node], promises: Promises) -> list[tuple[str, str, str]]:
    """Return the paths that differ from the nearest state that a cut may leave: path, what is expected, what was found.

    Where each name is old or new by itself, paths that are as in any such state are left out.
    """
    states = []
    for state in reversed(history.states[history.least :]):
        pairs = ((path, *_both(history, state.get(path), nodes.get(path), promises)) for path in {*state, *nodes})
        states.append({path: (expected, found) for path, expected, found in pairs})
    odd = [sorted(path for path, (expected, found) in state.items() if expected != found) for state in states]

    def distance_of(place: int) -> tuple[int, int]:
        return sum(_NOTHING in states[place][path] for path in odd[place]), len(odd[place])

    nearest = min(range(len(odd)), key=distance_of)
    paths = odd[nearest]
    if promises.names == "each":
        paths = [path for path in paths if all(path in some for some in odd)] or paths
    return [(path, *states[nearest][path]) for path in paths]


def _both(history: History, target: PathTarget | None, node: Node | None, promises: Promises) -> tuple[str, str]:
    """Describe what a path has to be, and what it is; equal texts if the path is as it may be."""
    is_timed = target is not None and target.modified is not None
    found = _NOTHING
    if node is not None:
        found = _described(node, promises, is_timed=is_timed)
    if target is None:
        return _NOTHING, found
    versions = _allowed(history, target.inode) if target.kind == "file" else []
    possible = [version.data for version in versions] or [target.target.encode()]
    is_fine = node is not None and _unlike_all(node.data, possible) is None
    data = node.data if node is not None and is_fine else possible[-1]
    attributes = {f"user.{name}": value for name, value in target.attributes.items()}
    links = target.links if target.kind != "folder" or node is None else node.links
    status = None
    if node is None or node.status is not None:
        status = Status(*target.status, target.modified or 0, 0)
    like = Node(target.kind, 0, links, data, attributes, status)
    expected = _described(like, promises, is_timed=is_timed)
    least = min((version.allocated for version in versions), default=0)
    space = least if node is None or node.status is None else node.status.sectors * 512
    if promises.permissions and space < least:
        expected, found = f"{expected}, at least {least:,} bytes of space", f"{found}, {space:,} bytes of space"
    return expected, found


def _described(node: Node, promises: Promises, *, is_timed: bool) -> str:
    parts = [node.kind]
    if node.kind == "file":
        parts.append(f"{len(node.data):,} bytes, SHA-256 {hashlib.sha256(node.data).hexdigest()[:8]}")
    elif node.kind == "link":
        parts.append(f"to {node.data.decode(errors='replace')}")
    if node.kind != "folder" and node.links != 1:
        parts.append(f"{node.links} names")
    if promises.permissions and node.status is not None:
        parts.append(_owned(*node.status[:3]))
    if is_timed and promises.permissions and node.status is not None:
        parts.append(f"changed at {node.status.modified} s")
    named = sorted((name, value) for name, value in node.attributes.items() if name.startswith("user."))
    return ", ".join([*parts, *(f"{name} of {len(value)} bytes {value[:4].hex()}..." for name, value in named)])


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


def lost(history: History, promise: str, detail: str) -> Lost:
    """Return the broken promise of a file system, with the program that shows it."""
    operations = "; ".join(map(str, history.operations))
    return Lost(promise, "filesystem", f"{detail} (program {history.name}: {operations})")


def folder_fault(nodes: Mapping[str, Node]) -> str | None:
    """Return how a folder contradicts itself: it has two paths, or its count is not that of its folders."""
    paths: dict[int, str] = {}
    inner: dict[str, int] = {}
    for path, node in nodes.items():
        if node.kind == "folder":
            above = path.rpartition("/")[0]
            inner[above] = inner.get(above, 0) + 1
            if (other := paths.setdefault(node.inode, path)) != path:
                return f"{path}: also named {other}, though a folder has one name"
    for path in paths.values():
        # `.` in the folder and `..` in each of its folders are names of a folder, unless its count is always 1.
        if nodes[path].links not in (1, 2 + inner.get(path, 0)):
            return f"{path}: its count of names is {nodes[path].links}, with {inner.get(path, 0)} folders in it"
    return None
