"""States whose outcome follows from that of an earlier one are not mounted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import emmclab
from emmclab.crash.explore import Exploration, Options, explore, open_run
from emmclab.crash.kernel_log import BlockReads, _blocks_of
from emmclab.crash.scratch_folders import in_memory, scratch

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a served device")
INSTANCES = Path("/sys/kernel/tracing/instances")


def recorded(folder: Path, *words: str) -> Path:
    """Record generated programs; return the log."""
    log = folder / "run.log"
    done = emmclab(
        "crash", "--device", "emmc51-cache", *words, "--recovery", "mount", "--check", "true", "--cuts", 1,
        "--save-log", log, "--results", folder,
    )  # fmt: skip
    # The check proves nothing (5), or a mount fails (4): only the log is needed.
    assert done.returncode in (4, 5), done.stderr
    return log


def both(log: Path, cuts: int, states: str) -> tuple[Exploration, Exploration]:
    """Explore a log with pruning and without."""
    found = []
    for prune in (True, False):
        run, _ = open_run(str(log))
        options = Options(cuts=cuts, states=states, recovery="mount", check="programs", prune=prune)
        found.append(explore(run, options))
    return found[0], found[1]


@root
@pytest.mark.parametrize(
    "words",
    [
        ("--workload", "ace:2:6"),
        pytest.param(("--workload", "ace:2:8", "--fs", "xfs"), marks=pytest.mark.slow),
        pytest.param(("--workload", "ace:2:8", "--fs", "btrfs"), marks=pytest.mark.slow),
        pytest.param(
            ("--workload", "ace:2:8", "--fs", "btrfs", "--mount-options", "nobarrier"), marks=pytest.mark.slow
        ),
    ],
    ids=["ext4", "xfs", "btrfs", "btrfs-nobarrier"],
)
def test_pruning_changes_no_verdict(tmp_path: Path, words: tuple[str, ...]) -> None:
    log = recorded(tmp_path, *words)
    pruned, whole = both(log, 12, "boundary,omit1:6,only1:6")
    assert whole.pruned == 0 < pruned.pruned < pruned.states == whole.states
    assert pruned.verdicts == whole.verdicts
    assert [(one.promise, one.level, one.index, one.count) for one in pruned.findings()] == [
        (one.promise, one.level, one.index, one.count) for one in whole.findings()
    ]
    assert bool(whole.findings()) == ("nobarrier" in words), "the control shows that verdicts differ at all"


def test_nothing_is_known_of_reads_where_the_kernel_lost_events() -> None:
    read = b"  mount-7 [000] ..... 1.2: block_bio_queue: 7,1 RM 8 + 8 [mount]\n"
    written = b"  mount-7 [000] ..... 1.3: block_bio_queue: 7,1 FWS 80 + 8 [mount]\n"
    other = b"  mount-7 [000] ..... 1.4: block_bio_queue: 7,2 R 800 + 8 [mount]\n"
    assert _blocks_of(read + written + other, 7, 1) == {1}
    assert _blocks_of(read + b"CPU:0 [LOST 12 EVENTS]\n" + read, 7, 1) is None


@root
def test_reads_of_a_device_are_told_while_it_is_watched(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    with BlockReads(tmp_path) as reads:
        if not reads.works:
            pytest.skip("this kernel has no tracefs")
        device = subprocess.check_output(["losetup", "-f", "--show", image], text=True).strip()
        try:
            read: set[int] = set()
            with reads.watching(read) as attached:
                attached(device)
                handle = os.open(device, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(handle, 4096, 5 * 4096)
                os.pread(handle, 512, 9 * 4096 + 512)
                os.close(handle)
            assert {5, 9} <= read and len(read) < 200
        finally:
            subprocess.run(["losetup", "-d", device], check=True)


@root
def test_the_trace_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom pathlib import Path\nfrom emmclab.crash.kernel_log import BlockReads\n"
        f"with BlockReads(Path({str(tmp_path)!r})) as reads:\n    print(reads.works, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    works = killed.stdout.read().strip() == "True"
    killed.wait()
    if not works or not INSTANCES.is_dir():
        pytest.skip("this kernel has no tracefs, or the system has not mounted it")
    left = INSTANCES / f"emmclab-crash-{killed.pid}-0"
    assert left.is_dir()
    with BlockReads(tmp_path):
        assert not left.exists()


def test_images_are_in_memory_only_where_there_is_plenty() -> None:
    assert in_memory(1 << 60) is None
    with scratch(in_memory(1 << 20)) as folder:
        assert folder.is_dir()
