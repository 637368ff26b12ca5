"""Measures how many states per second are judged: in process, by e2fsck on a copy, and by mounting, on the same log.

States of ext4 under `sqlite-wal` and `append-log` on `emmc51-cache`, 256 MB, with and without a check.
"""

import os
import sys
import tempfile
from pathlib import Path

from emmclab.crash import Options, Workload, explore, record_run
from emmclab.crash.explore import open_run
from emmclab.simulation.device import Device

#: Recovery, check, and number of cuts, which is smaller for external programs because they are slow.
CASES = (
    ("process", None, 400),
    ("process", "append-log", 400),
    ("process", "sqlite-wal", 400),
    ("e2fsck", None, 4),
    ("mount", None, 4),
)


def main() -> None:
    """Record a run for each workload, explore it, and print a line for each way."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        sys.exit("root and FUSE are needed")
    with tempfile.TemporaryDirectory() as folder:
        logs = {}
        for workload in ("sqlite-wal", "append-log"):
            log = Path(folder) / f"{workload}.log"
            device = Device.named("emmc51-cache").with_capacity("256MB")
            record_run(device, Workload(workload, operations=150), log)
            logs[workload] = open_run(str(log))[0]
        print(f"{'recovery':<10} {'check':<12} {'states':>8} {'states/s':>9}")
        for recovery, check, cuts in CASES:
            run = logs["append-log" if check == "append-log" else "sqlite-wal"]
            exploration = explore(run, Options(cuts=cuts, recovery=recovery, check=check))
            if exploration.findings():
                sys.exit(f"a device that keeps its promises lost data: {exploration.findings()}")
            rate = exploration.states / exploration.took_s
            print(f"{recovery:<10} {check or '-':<12} {exploration.states:>8,} {rate:>9,.0f}")


if __name__ == "__main__":
    main()
