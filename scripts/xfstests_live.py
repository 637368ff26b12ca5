"""Runs xfstests on ext4, on served devices and on plain loop devices, and compares the verdicts.

    scripts/xfstests_live.py XFSTESTS [--device PRESET] [--layer NAME] [--set KEY=VALUE]... [--seconds S]
        [TEST]...

XFSTESTS is a folder in which xfstests was built (not part of this project). Without tests, the tests of
`generic` in the group `quick` run in order; no batch begins after S seconds. Needs root, and the users that
xfstests needs. Ends with status 1 if a test fails only on the served device.
"""

import argparse
import contextlib
import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import emmclab as lab

#: Number of tests per call of `check`.
_BATCH = 10
_USERS = ("fsgqa", "fsgqa2")
#: Maximum time of a batch, seconds; a test that hangs is reported as a failure.
_PATIENCE_S = 1800


class Verdict(NamedTuple):
    """The result of a test of xfstests, and its duration."""

    word: str
    why: str
    seconds: float


def quick(folder: Path) -> list[str]:
    """Return the tests of `generic` that are in the group `quick`, in order."""
    tests = []
    for line in (folder / "tests" / "generic" / "group.list").read_text(encoding="utf-8").splitlines():
        number, _, groups = line.partition(" ")
        if number.isdigit() and "quick" in groups.split():
            tests.append(f"generic/{number}")
    return tests


@contextlib.contextmanager
def served(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Serve two devices as loop devices."""
    device = lab.Device.named(options.device)
    settings = [text.partition("=") for text in options.settings]
    above = {"layers": options.layers, "layer_settings": {key: value for key, _, value in settings}}
    with (
        lab.serve(device, loop=True, clock="free", **above) as test,
        lab.serve(device, loop=True, clock="free", **above) as scratch,
    ):
        options.bytes = test.capacity_bytes
        yield test.path, scratch.path


@contextlib.contextmanager
def plain(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str]]:
    """Attach two sparse files of the same size as loop devices."""
    with contextlib.ExitStack() as ends:
        paths = []
        for name in ("test", "scratch"):
            file = folder / name
            with file.open("wb") as image:
                image.truncate(options.bytes)
            words = ["losetup", "--find", "--show", "--direct-io=on", str(file)]
            path = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
            ends.callback(subprocess.run, ["losetup", "-d", path], check=False)
            paths.append(path)
        yield paths[0], paths[1]


def verdicts(folder: Path, tests: list[str], devices: tuple[str, str], seconds: float) -> dict[str, Verdict]:
    """Run the tests in batches on a pair of devices; return the verdicts."""
    results_by_test: dict[str, Verdict] = {}
    with tempfile.TemporaryDirectory(prefix="emmclab-xfstests-") as place:
        test, scratch, results = (Path(place, name) for name in ("test", "scratch", "results"))
        for folder_to_make in (test, scratch, results):
            folder_to_make.mkdir()
        configuration = {"FSTYP": "ext4", "TEST_DEV": devices[0], "TEST_DIR": str(test), "SCRATCH_DEV": devices[1]}
        configuration |= {"SCRATCH_MNT": str(scratch), "RESULT_BASE": str(results), "HOST_OPTIONS": "/dev/null"}
        environment = {**os.environ, **configuration, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        subprocess.run(["mkfs.ext4", "-q", "-F", devices[0]], check=True, env=environment)
        begun = time.monotonic()
        try:
            for start in range(0, len(tests), _BATCH):
                if time.monotonic() - begun > seconds:
                    break
                words = ["./check", "-R", "xunit", *tests[start : start + _BATCH]]
                output = subprocess.run(
                    words, cwd=folder, env=environment, capture_output=True, timeout=_PATIENCE_S, check=False
                )
                report = results / "result.xml"
                if not report.exists():
                    sys.exit(f"xfstests wrote no report: {(output.stdout + output.stderr).decode()[-800:]}")
                results_by_test |= dict(read(report))
                report.unlink()
                print(
                    f"{devices[0]}: {len(results_by_test)} tests in {time.monotonic() - begun:,.0f} s", file=sys.stderr
                )
        finally:
            for mounted in (scratch, test):
                subprocess.run(["umount", "-q", mounted], check=False)
    return results_by_test


def read(report: Path) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts in a report."""
    # The report is trusted, because xfstests has just written it.
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314
        word, why = "pass", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                word = "not run" if child.tag == "skipped" else "fail"
                why = child.get("message") or ""
        yield case.get("name") or "", Verdict(word, why, float(case.get("time") or 0))


def main() -> int:
    """Print the table of differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--device", default="emmc51-cache")
    parser.add_argument("--layer", dest="layers", action="append", default=[])
    parser.add_argument("--set", dest="settings", action="append", default=[], help="a setting of a layer")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_intermixed_args()
    if not (options.folder / "check").exists() or os.geteuid() != 0:
        sys.exit(f"{options.folder}: contains no built xfstests, or you are not root")
    users = {entry.pw_name for entry in pwd.getpwall()}
    if missing := [user for user in _USERS if user not in users]:
        sys.exit(f"xfstests needs the users {', '.join(missing)}: useradd --create-home NAME")
    tests = options.tests or quick(options.folder)
    with served(options) as devices:
        served_verdicts = verdicts(options.folder, tests, devices, options.seconds)
    # The plain devices run the tests that the served devices had time for.
    with tempfile.TemporaryDirectory(prefix="emmclab-plain-") as place, plain(options, Path(place)) as devices:
        plain_verdicts = verdicts(options.folder, list(served_verdicts), devices, float("inf"))
    words = ("pass", "fail", "not run")
    for name, side in (("served", served_verdicts), ("plain", plain_verdicts)):
        counts = ", ".join(f"{sum(verdict.word == word for verdict in side.values())} {word}" for word in words)
        print(f"{name}: {len(side)} tests: {counts}; {sum(verdict.seconds for verdict in side.values()):,.0f} s")
    differing = [test for test in served_verdicts if served_verdicts[test].word != plain_verdicts[test].word]
    print(f"{len(differing)} verdicts differ" + (":" if differing else ""))
    for test in differing:
        why = served_verdicts[test].why or plain_verdicts[test].why
        print(f"| {test} | {served_verdicts[test].word} | {plain_verdicts[test].word} | {why} |")
    return int(any(served_verdicts[test].word == "fail" for test in differing))


if __name__ == "__main__":
    sys.exit(main())
