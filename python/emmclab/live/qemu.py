"""A served device as the eMMC card of a virtual machine."""

import json
import shlex
from os import PathLike, fspath
from pathlib import Path


def qemu_command(socket: str | PathLike[str]) -> str:
    """Return the command of QEMU (10.1 or later) for a guest with the card at this socket.

    The options for kernel and disk have to be added. The memory of the guest is shared, so that the card can
    transfer data.

    >>> '"path":"/run/card"' in qemu_command("/run/card")
    True
    """
    card = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(Path(fspath(socket)).absolute())}}
    memory = "-m 1G -object memory-backend-memfd,id=ram,size=1G,share=on -machine q35,memory-backend=ram"
    return f"qemu-system-x86_64 {memory} -device {shlex.quote(json.dumps(card, separators=(',', ':')))}"
