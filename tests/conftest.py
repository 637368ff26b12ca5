"""Fixtures and helpers of all tests: small traces, recorded traces, and the command line as a user runs it."""

import contextlib
import fcntl
import functools
import gc
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest
from playwright.sync_api import Browser, sync_playwright

from commands import Commands

if TYPE_CHECKING:
    from crash_runs import Runs

#: Random tests are reproducible and have no deadline, so that neither chance nor a slow machine causes a failure.
hypothesis.settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("same")

ROOT = Path(__file__).parents[1]
#: Paths of the package of this checkout, and of the module that loads the core that `scripts/test.sh` built.
PYTHONPATH = f"{ROOT / 'python'}:{ROOT / 'tests' / 'tested_core'}"
COMMAND = [sys.executable, "-m", "emmclab"]
#: Time after which a waiting test has hung, also on a busy machine, seconds.
PATIENCE_S = 600


def cases(most: int) -> int:
    """Return the number of random cases of a test whose default is `most`; in `make test` it is a quarter.

    The environment variable is that of the random tests in Rust, whose default is 256 cases.
    """
    return max(1, most * int(os.environ.get("PROPTEST_CASES", "256")) // 256)


@pytest.fixture(scope="session", autouse=True)
def _no_signal_is_ignored() -> None:
    """Restore the handlers of signals that nohup or a background job has set to be ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, handler)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a user without a terminal."""
    own_names = ("COLUMNS", "EMMCLAB_DEBUG", "EMMCLAB_TRACES")
    inherited = {name: value for name, value in os.environ.items() if name not in own_names}
    return inherited | {"PYTHONPATH": PYTHONPATH, "NO_COLOR": "1"} | more


@functools.cache
def forked() -> Commands:
    """Return the object that runs commands in the usual environment."""
    return Commands(environment())


def emmclab(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a separate process; the option `patience_s` is the timeout in seconds."""
    env = environment(**options.pop("env", {}))
    patience_s = options.pop("patience_s", PATIENCE_S)
    command = [*COMMAND, *map(str, arguments)]
    if forked().can_run(env, options):
        return forked().run(command, env, patience_s, **options)
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=patience_s, check=False, **options)


def emmclab_ok(*arguments: object, status: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command that has to succeed, or to end with another status."""
    done = emmclab(*arguments, **options)
    assert done.returncode == status, done.stderr + done.stdout
    return done


def emmclab_json(*arguments: object, **options: Any) -> Any:
    """Run a command that has to succeed, or to end with another status; return its JSON."""
    return json.loads(emmclab_ok(*arguments, "--json", **options).stdout)


def profiled(*arguments: object) -> dict[str, Any]:
    """Return the profile of the only trace that these arguments of `emmclab profile` name."""
    (profile,) = emmclab_json("profile", *arguments)
    return profile


def begin(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start the command line; by default its output and messages go to pipes."""
    usual: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **usual | options)


def execute(*command: object, status: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, which must end with this exit status, and return what it printed."""
    usual: dict[str, Any] = {"capture_output": True, "text": True, "timeout": PATIENCE_S}
    done = subprocess.run([*map(str, command)], **usual | options)
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return done


def executable(path: Path, text: str) -> Path:
    """Write a program, and return its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def csv_trace(path: Path, heading: str, rows: Iterable[str]) -> Path:
    """Write a trace as CSV with a heading, and return its path."""
    path.write_text("\n".join([heading, *rows, ""]))
    return path


def busy_s(process: subprocess.Popen[str]) -> float:
    """Return the processor time that a process has used so far."""
    fields = Path("/proc", str(process.pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(holds: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a condition holds; fail if that takes too long, or if the process ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


@dataclass(frozen=True)
class Reproduced:
    """A folder in which the studies of papers are run once for all tests and workers."""

    folder: Path

    @property
    def results(self) -> Path:
        """The folder of the results of all studies."""
        return self.folder / "results"

    def page(self, study: str) -> Path:
        """Return the page of a study, which runs first if needed; its figures are in `figures` next to it."""

        def make(folder: Path) -> None:
            words = ("reproduce", study, "--jobs", 2, "--results", self.results)
            outputs = ("--html", folder / "page.html", "--figures", folder / "figures")
            assert "reproduced" in emmclab_ok(*words, *outputs, cwd=folder).stdout

        return self.once(study, make) / "page.html"

    def ledger(self) -> list[dict[str, Any]]:
        """Return the whole ledger, as `emmclab claims --json` prints it."""

        def make(folder: Path) -> None:
            output = emmclab_json("claims", "--jobs", 2, "--results", self.results)
            (folder / "ledger.json").write_text(json.dumps(output))

        claims: list[dict[str, Any]] = json.loads((self.once("ledger", make) / "ledger.json").read_text())
        return claims

    def copied(self, folder: Path) -> Path:
        """Return a results folder below `folder` with a copy of the cells of `iiswc15`, which tests may change."""
        self.page("iiswc15")
        return Path(shutil.copytree(self.results / "iiswc15", folder / "results" / "iiswc15").parent)

    def once(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return a folder of this name, which `make` fills on first use."""
        folder = self.folder / name
        with self.alone():
            if not (folder / "made").is_file():
                folder.mkdir(exist_ok=True)
                make(folder)
                (folder / "made").touch()
        return folder

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def kept_cells(results: Path) -> int:
    """Return the number of stored cells below a results folder, of all studies."""
    from emmclab.errors import InputError
    from emmclab.studies.result_rows import keys_of

    while True:
        keys: dict[Path, set[str]] = {}
        try:
            for part in results.glob("**/cells/[!.]*.parquet"):
                about = part.stat()
                identity = (str(part), about.st_ino, about.st_mtime_ns)
                # Tests call this repeatedly during a run, so the counts are cached: a part never changes.
                if identity not in _keys_of_parts:
                    _keys_of_parts[identity] = keys_of([part], results)
                keys.setdefault(part.parent, set()).update(_keys_of_parts[identity])
            return sum(map(len, keys.values()))
        except (InputError, FileNotFoundError):  # A run has joined the parts, or removed a folder, meanwhile.
            continue


#: The keys of the cells of parts, by path, inode and modification time.
_keys_of_parts: dict[tuple[str, int, int], set[str]] = {}


#: Marker of the tests that use a fixture, directly or indirectly, by fixture: a requirement of the machine.
MARKERS = {"root": "root", "chromium": "browser", "cargo": "build", "ublk": "guest", "reproduced": "slow"}

#: Debian packages, each with its programs if their names differ from that of the package.
PACKAGES = {
    "btrfs-progs": ("mkfs.btrfs",),
    "e2fsprogs": ("debugfs", "e2fsck", "fsck.ext4", "mkfs.ext4", "resize2fs", "tune2fs"),
    "libnbd-bin": ("nbdinfo",),
    "man-db": ("man",),
    "mount": ("losetup", "mount"),
    "qemu-utils": ("qemu-io",),
    "util-linux": ("setpriv", "unshare"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use."""
    for item in items:
        for fixture, marker in MARKERS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


def pytest_collection_finish() -> None:
    """Exclude the collected tests and modules from garbage collection, because they live to the end."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo the freeze: DuckDB reports objects that are never collected as leaks when the process ends."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each missing requirement, or write a line per test to the file of EMMCLAB_SKIPPED."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports]
    if file := os.environ.get("EMMCLAB_SKIPPED"):
        with Path(file).open("a") as skipped:
            skipped.writelines(f"{reason}\n" for reason in reasons)
        return
    for reason, count in sorted(Counter(reasons).items()):
        terminalreporter.write_line(f"{count} test{'s' if count > 1 else ''} skipped: {reason}")


def missing(requirement: str, command: str) -> NoReturn:
    """Report a missing requirement: fail in continuous integration, else skip the test.

    `command` installs it.
    """
    if os.environ.get("CI") == "true":
        pytest.fail(f"{requirement} is missing, and CI=true; {command}", pytrace=False)
    pytest.skip(f"{requirement} is missing; {command}")


def need_library(*names: str) -> None:
    """Skip a test if one of these Python libraries is missing."""
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            missing(f"the Python library {name}", "make setup")


def need(*tools: str) -> None:
    """Skip a test if one of these programs is missing; programs for root may be in `/sbin`."""
    for tool in tools:
        if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            package = next((name for name, tools in PACKAGES.items() if tool in tools), tool)
            missing(tool, f"apt-get install {package}")


def make_btrfs(disk: str | Path) -> None:
    """Make a btrfs on a disk or in a file, in a mount namespace without the loop devices of other tests.

    `mkfs.btrfs` opens the file of every mounted loop device, and fails if the server of a device is
    killed meanwhile.
    """
    need("mkfs.btrfs", "unshare")
    script = """
PATH=$PATH:/usr/sbin:/sbin
while read -r source target _; do
    case $source in /dev/loop*) umount --lazy "$target" ;; esac
done </proc/self/mounts
exec mkfs.btrfs -q -f "$1"
"""
    # With `slave`, unmounting outside also unmounts in the namespace, so that no loop device stays busy.
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh", str(disk)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def alone_on_this_machine(name: str) -> Iterator[None]:
    """Lock a resource of this machine against other tests, other test runs, and the tests in Rust."""
    with (Path(tempfile.gettempdir()) / f"emmclab-{name}-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def root() -> None:
    """Require root, FUSE and loop devices."""
    if os.geteuid() != 0:
        missing("root", "run the tests with sudo")
    if not Path("/dev/fuse").exists():
        missing("/dev/fuse", "modprobe fuse")
    if not Path("/dev/loop-control").exists():
        missing("/dev/loop-control", "modprobe loop")


@pytest.fixture
def ublk(root: None) -> Iterator[None]:
    """Lock the ublk driver for this test, because its devices share one namespace."""
    del root
    if not Path("/dev/ublk-control").exists():
        # A missing driver in the kernel cannot be installed, so the test is skipped also with CI=true.
        pytest.skip("ublk_drv is missing; modprobe ublk_drv")
    with alone_on_this_machine("ublk"):
        yield


@pytest.fixture(scope="session")
def cargo() -> str:
    """Require cargo, and return its path."""
    need("cargo")
    return "cargo"


def biotracer(requests: int, first_s: int = 1_400_000_000) -> str:
    """Return a BIOtracer log of an invented application: writes of 4 to 64 KB, a few reads, bursts, long gaps."""
    lines = []
    now = first_s * 10**6  # microseconds
    for number in range(requests):
        now += 400_000 if number % 25 == 0 else 1_000 + 370 * (number % 7)
        sector = 8 * (number % 90) * (1 + number % 5) + (1 << 20) * (number % 3)
        size_kb = (4, 4, 8, 4, 64, 16)[number % 6]
        start, issue = now + 20, now + 30 + (3_000 if number % 25 == 0 else 0)
        times = [now, start, issue, issue + 500 + 40 * size_kb]
        flags = 5 if number % 8 else 4
        stamps = [f"{time // 10**6}.{time % 10**6:06d}000" for time in times]
        lines.append("\t\t".join([str(sector), str(size_kb * 2), str(size_kb * 1024), str(flags), *stamps]))
    return "\n".join(lines) + "\n"


def ended_in_the_middle(command: list[object], folder: Path, number: int) -> tuple[int, str]:
    """Send a signal to a command that reads an endless trace, once it writes; return status and output."""
    process = begin(*command, stdin=subprocess.PIPE, stdout=None)

    def feed(pipe: IO[str]) -> None:
        with contextlib.suppress(OSError):
            for part in itertools.count():
                pipe.write(biotracer(2_000, first_s=1_400_000_000 + part * 1_000))

    feeder = threading.Thread(target=feed, args=(process.stdin,), daemon=True)
    feeder.start()
    deadline = time.monotonic() + PATIENCE_S
    # Python creates and removes a file in the folder for temporary files, to test whether it is writable.
    before: set[Path] = set()
    while process.poll() is None and time.monotonic() < deadline:
        there = set(folder.iterdir())
        if there & before:
            break
        before = there
        time.sleep(0.005)
    process.send_signal(number)
    feeder.join(PATIENCE_S)
    assert process.stderr is not None
    words = process.stderr.read()
    return process.wait(PATIENCE_S), words


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 400 requests."""
    path = tmp_path_factory.mktemp("traces") / "chat.txt"
    path.write_text(biotracer(400))
    return path


@pytest.fixture(scope="session")
def other_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second trace, of 150 requests."""
    path = tmp_path_factory.mktemp("traces") / "camera.txt"
    path.write_text(biotracer(150, first_s=1_500_000_000))
    return path


@pytest.fixture(scope="session")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose conversion takes seconds."""
    path = tmp_path_factory.mktemp("traces") / "long.txt"
    piece = 20_000
    with path.open("w") as file:
        for part in range(20):
            file.write(biotracer(piece, first_s=1_400_000_000 + part * 10_000))
    return path


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of recorded traces (EMMCLAB_TRACES)."""
    folder = Path(os.environ.get("EMMCLAB_TRACES", ROOT.parent / "shared" / "traces"))
    if not (folder / "nexus5").is_dir():
        missing("the folder of real traces", "set EMMCLAB_TRACES to it")
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser in which pages are tested."""
    need("chromium")
    return str(shutil.which("chromium"))


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """The browser, which is started once for all tests."""
    with sync_playwright() as playwright:
        patience_ms = 1000 * PATIENCE_S
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=patience_ms)
        monkeypatch = pytest.MonkeyPatch()
        for kind in ("new_page", "new_context"):
            make = getattr(browser, kind)

            def patient(*words: Any, make: Any = make, **options: Any) -> Any:
                page = make(*words, **options)
                page.set_default_timeout(patience_ms)
                return page

            monkeypatch.setattr(browser, kind, patient)
        yield browser
        monkeypatch.undo()
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the source code of axe-core."""
    need_library("axe_playwright_python")
    spec = importlib.util.find_spec("axe_playwright_python")
    return Path(str(spec and spec.origin)).with_name("axe.min.js").read_text()


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """The studies of the papers, without external traces; tests must not change the results."""
    base = tmp_path_factory.getbasetemp()
    # The folder of a worker is in the folder of the session.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reproduced"
    folder.mkdir(exist_ok=True)
    return Reproduced(folder)


@pytest.fixture(scope="session")
def ledger(reproduced: Reproduced) -> list[dict[str, Any]]:
    """The ledger of claims of all papers."""
    reproduced.page("iiswc15")
    return reproduced.ledger()


def instances(loop: str) -> list[str]:
    """Return the tracefs instances that record this loop device and no other disk.

    Recordings of all disks do not belong to this test, nor do recordings of an earlier disk with its number.
    """
    return sorted(_instances(loop) - _instances_before.get(loop, set()))


def _instances(loop: str) -> set[str]:
    major, minor = Path(f"/sys/block/{Path(loop).name}/dev").read_text().split(":")
    filter_of_loop = f"dev == {int(major) << 20 | int(minor)}"
    names = set()
    for entry in Path("/sys/kernel/tracing/instances").iterdir():
        with contextlib.suppress(OSError):
            if (entry / "events/block/block_rq_issue/filter").read_text().strip() == filter_of_loop:
                names.add(entry.name)
    return names


#: Instances that existed before the loop device of a test.
_instances_before: dict[str, set[str]] = {}


@pytest.fixture(scope="session")
def tracefs(root: None) -> None:
    """Require tracefs."""
    del root
    tracing = Path("/sys/kernel/tracing/instances")
    with alone_on_this_machine("tracefs"):
        if not tracing.exists():
            subprocess.run(["mount", "-t", "tracefs", "nodev", str(tracing.parent)], check=False)
    if not tracing.exists():
        missing("tracefs", "use a kernel with CONFIG_FTRACE")


@pytest.fixture(scope="session")
def tiny_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device of 512 KB without garbage collection, which is full when each of its 128 pages is written."""
    path = tmp_path_factory.mktemp("devices") / "tiny.toml"
    path.write_text(
        'name = "tiny"\n[[geometry.block_groups]]\npage_kb = 4\nblocks = 8\npages_per_block = 16\n'
        "read_us = 50\nprogram_us = 500\nerase_us = 1000\n"
        "[capacity]\nover_provisioning_pct = 0\n[gc]\npolicy = 'none'\n"
    )
    return path


@pytest.fixture
def crash(root: None, tmp_path: Path) -> "Runs":
    """`emmclab crash` in a separate folder."""
    from crash_runs import Runs

    del root
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def loop(tracefs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A loop device of 16 MB, for tests that record this host."""
    del tracefs
    need("losetup")
    disk = tmp_path_factory.mktemp("disk") / "disk"
    with disk.open("wb") as file:
        file.truncate(16 << 20)
    find = ["losetup", "--find", "--show", str(disk)]
    name = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    _instances_before[name] = _instances(name)
    yield name
    subprocess.run(["losetup", "-d", name], check=True)


#: Starts an S3 server, which prints its port and ends when its standard input ends.
SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
import sys
sys.stdin.read()
"""


class Server:
    """An S3 server on a free port, with one bucket."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"
        self.variables = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/sweeps", method="PUT"), timeout=PATIENCE_S)

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    need_library("obstore", "moto", "flask", "flask_cors")
    started = Server()
    for name, value in started.variables.items():
        monkeypatch.setenv(name, value)
    yield started
    started.stop()


def assert_fails(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """Check that stderr contains an `error:` and a `hint:`, possibly of several lines, and these words."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"^error: (.|\n)*^hint: ", done.stderr, re.MULTILINE), done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """Check that stderr contains one `error:` line, then a `hint:`, and these words, and that stdout is empty."""
    assert_fails(done, *words, code=code)
    assert done.stdout == ""
    # Slow work prints its progress before the error.
    assert re.search(r"^error: .*\nhint: ", done.stderr, re.MULTILINE), done.stderr
