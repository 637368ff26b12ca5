"""Files as a power cut may leave them."""

from emmclab.crash.file_tree import Tree
from emmclab.crash.mounted_files import Node


class Made:
    """The files that a cut left, as specified by a test."""

    def __init__(self, nodes: dict[str, Node] | None) -> None:
        self._nodes = nodes

    def read(self, _path: str) -> bytes | None:
        return None

    def tree(self, _folder: str) -> dict[str, Node] | None:
        return self._nodes


def nodes_of(tree: Tree, contents: dict[str, bytes] | None = None) -> dict[str, Node]:
    """Return what a reader finds after a cut with this state, with other contents for some files."""
    found = {}
    for path, named in tree.names().items():
        inode = tree.inodes[named.inode]
        data = inode.versions[-1].data if inode.versions else named.target.encode()
        attributes = {f"user.{name}": value for name, value in named.attributes.items()}
        found[path] = Node(named.kind, named.inode + 100, named.links, (contents or {}).get(path, data), attributes)
    return found
