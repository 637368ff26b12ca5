"""Recovers crash states by mounting them, unless the outcome is already known.

The outcome depends only on the blocks that the kernel reads. If a state equals an earlier one in every block that was
read while the earlier one was mounted and examined, both have the same outcome. Such a state is not mounted, but
counted as pruned.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from emmclab import _core
from emmclab.crash.guest.machine import GuestMounts
from emmclab.crash.kernel_log import BlockReads
from emmclab.crash.mounted_files import Mounted, UnreadableError
from emmclab.crash.mounting import KIND_BLOCKS, NotMountedError, mounted
from emmclab.crash.promises import Files, Lost, ReadFiles
from emmclab.crash.scratch_folders import in_memory, scratch

#: Timeout of a mount, seconds.
_PATIENCE_S = 120.0
#: Maximum total size of the files from mounted states that are kept in memory, bytes.
_MOST_KEPT = 256 << 20
#: Outcome of a mounted crash state: its files to compare, a broken promise, or None if its check passed.
Outcome = ReadFiles | Lost | None


class ByMount:
    """Recovers the crash states of an explorer by mounting them; a context manager that removes its files."""

    def __init__(self, explorer: _core.Explorer, *, prune: bool, guest: GuestMounts | None = None) -> None:
        """Set the explorer, and the virtual machine that mounts its crash states (None: this machine mounts them).

        If `prune` is set, a crash state is not mounted if its outcome follows from that of an earlier state.
        """
        self._explorer, self._prune, self._guest = explorer, prune, guest
        self._outcomes: list[Outcome] = []
        self._bytes = 0
        #: Number of crash states whose outcome followed from that of an earlier state, so that they were not mounted.
        self.pruned = 0
        self._end = ExitStack()

    def __enter__(self) -> "ByMount":
        self._folder = self._end.enter_context(scratch(in_memory(self._explorer.host_bytes())))
        self._mount = self._folder / "mount"
        self._mount.mkdir()
        self._reads = BlockReads(self._folder)
        if self._guest is None and self._prune:
            self._end.enter_context(self._reads)
        return self

    def __exit__(self, *_ended: object) -> None:
        self._end.close()

    @property
    def image(self) -> Path:
        """Path of the image of the current crash state."""
        return self._folder / "state.img" if self._guest is None else self._guest.disk

    def outcome(self, key: str, look: Callable[[Files], Outcome]) -> Outcome:
        """Mount the current crash state and return the result of `look`.

        Args:
            key: identifies everything that `look` depends on besides the files: equal keys mean equal outcomes.
            look: called with the files, which are accessible only during the call.
        """
        index = self._explorer.known_outcome(key) if self._reports_reads() else None
        if index is not None:
            self.pruned += 1
            return self._outcomes[index]
        problem = self._explorer.write_image(str(self.image))
        if problem is not None:
            return Lost(**problem)
        read: set[int] = set()
        outcome = self.of_image(look, read)
        if read and self._reports_reads():
            self._remember(key, read, outcome)
        return outcome

    def of_image(self, look: Callable[[Files], Outcome], read: set[int] | None = None) -> Outcome:
        """Mount the image, call `look` with its files, and return the result.

        Add the numbers of the blocks that were read to the set `read`.
        """
        try:
            with self._mounted(set() if read is None else read) as files:
                return look(files)
        except NotMountedError as error:
            return Lost("mountable", "filesystem", str(error))
        except UnreadableError as error:
            return Lost("readable", "filesystem", str(error))

    @contextmanager
    def _mounted(self, read: set[int]) -> Iterator[Files]:
        """Mount the image, in the guest if there is one, otherwise on this machine."""
        if self._guest is not None:
            with self._guest.mounted(read) as files:
                yield files
            return
        with self._reads.watching(read) as attached, mounted(self.image, self._mount, _PATIENCE_S, attached):
            yield Mounted(self._mount)

    def _reports_reads(self) -> bool:
        """Return whether the blocks that a mount reads can be recorded; pruning requires this."""
        return self._prune if self._guest is not None else self._reads.works

    def _remember(self, key: str, read: set[int], outcome: Outcome) -> None:
        size = outcome.size if isinstance(outcome, ReadFiles) else 0
        if self._bytes + size > _MOST_KEPT:
            self._explorer.forget_reads()
            self._outcomes, self._bytes = [], 0
        # The blocks `KIND_BLOCKS` are read before the mount, so the outcome depends on them, too.
        self._explorer.learn_reads(key, [*read, *KIND_BLOCKS], len(self._outcomes))
        self._outcomes.append(outcome)
        self._bytes += size
