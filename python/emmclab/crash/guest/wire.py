"""Protocol between host and guest: JSON lines. Uses only the standard library, as it also runs in guests."""

import binascii
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from emmclab.crash.mounted_files import Node, Status

#: Names of the two channels to a guest. The first carries requests and answers; the second carries output lines of the
#: workload and their confirmations.
CONTROL, LINES = "control", "lines"
#: Path of the agent's configuration in the guest.
ORDERS = "/orders.json"


def packed(data: bytes) -> str:
    """Encode bytes as Base64 text."""
    return binascii.b2a_base64(data, newline=False).decode()


def unpacked(text: str) -> bytes:
    """Decode the bytes of a Base64 text."""
    return binascii.a2b_base64(text)


def nodes_packed(nodes: dict[str, Node]) -> list[Any]:
    """Encode files and folders as JSON values."""
    return [
        [
            packed(os.fsencode(path)),
            node.kind,
            node.inode,
            node.links,
            packed(node.data),
            {packed(os.fsencode(name)): packed(value) for name, value in node.attributes.items()},
            node.status,
        ]
        for path, node in nodes.items()
    ]


def nodes_unpacked(values: list[Any]) -> dict[str, Node]:
    """Decode files and folders from JSON values."""
    return {
        os.fsdecode(unpacked(path)): Node(
            kind,
            inode,
            links,
            unpacked(data),
            {os.fsdecode(unpacked(name)): unpacked(value) for name, value in attributes.items()},
            Status(*status),
        )
        for path, kind, inode, links, data, attributes, status in values
    }


class Answer(TypedDict, total=False):
    """An answer of the guest; its keys depend on the request."""

    #: Answer at the start: the release of the guest's kernel.
    kernel: str
    #: Answers to `mount` and `unmount`: why a mount was refused (`refused`), and which 4 KiB blocks were read
    #: (`blocks`).
    refused: str
    blocks: list[int]
    #: Answers to the requests `read` and `tree`: why the kernel cannot read the files (`unreadable`), or their contents
    #: (`data`, `nodes`).
    unreadable: str
    data: str | None
    nodes: list[Any] | None
    #: Answer to `use`: why no file could be made, written and removed in each folder; empty if it could.
    unusable: str
    #: Answers to `run`: exit status of the workload (`status`), and number of its think-time pauses (`pauses`).
    status: int
    pauses: int


def send(write: Callable[[bytes], int], message: Mapping[str, object]) -> None:
    """Send a message as a line of JSON."""
    data = f"{json.dumps(message)}\n".encode()
    while data:
        data = data[write(data) :]
