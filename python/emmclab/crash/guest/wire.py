"""Protocol between host and guest: JSON lines. Uses only the standard library, as it also runs in guests."""

import binascii
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from emmclab.crash.mounted_files import Node

#: Names of the two channels: requests and answers; lines of the workload and the bytes that confirm them.
CONTROL, LINES = "control", "lines"
#: Path of the agent's configuration in the guest.
ORDERS = "/orders.json"


def packed(data: bytes) -> str:
    """Return bytes as text."""
    return binascii.b2a_base64(data, newline=False).decode()


def unpacked(text: str) -> bytes:
    """Return the bytes of a text."""
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
        )
        for path, kind, inode, links, data, attributes in values
    }


class Answer(TypedDict, total=False):
    """An answer of the guest; its keys depend on the request."""

    #: At the start: the release of the kernel.
    kernel: str
    #: To `mount`: the reason if it was refused. To `mount` and `unmount`: the blocks of 4 KiB that were read.
    refused: str
    blocks: list[int]
    #: To `read` and `tree`: the reason if the kernel cannot read, else the packed contents; None if there are none.
    unreadable: str
    data: str | None
    nodes: list[Any] | None
    #: To `run`: the exit status, and the number of the workload's think pauses.
    status: int
    pauses: int


def send(write: Callable[[bytes], int], message: Mapping[str, object]) -> None:
    """Send a message."""
    data = f"{json.dumps(message)}\n".encode()
    while data:
        data = data[write(data) :]
