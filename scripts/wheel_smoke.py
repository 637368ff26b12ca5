"""Tests an installed emmclab without its sources: `wheel_smoke.py PREFIX [FOLDER]...`.

PREFIX is the virtual environment in which the wheel is installed. No installed file may contain the path of
a FOLDER, such as the sources, or the home folder of the user who built the wheel. Needs only the standard
library; prints a line for each step, and ends with 1 at the first failure.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Number of requests of the generated trace, and the time limit of a step in seconds.
REQUESTS, PATIENCE_S = 600, 300


class SmokeError(Exception):
    """A step failed."""


class Installed:
    """An installation, run in a separate folder without other settings of this user."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        """Set the environment below `prefix`; `folder` is where commands run."""
        self.prefix, self.folder = prefix, folder
        path = f"{prefix / 'bin'}:/usr/bin:/bin"
        self.environment = {"PATH": path, "HOME": str(folder), "NO_COLOR": "1", "LANG": "C.UTF-8"}

    def run(self, *words: str, program: str = "emmclab") -> str:
        """Run a command that has to succeed; return what it prints."""
        done = subprocess.run(
            [str(self.prefix / "bin" / program), *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            ended = f"`{program} {' '.join(words)}` ended with {done.returncode}"
            raise SmokeError(f"{ended}: {done.stderr.strip()}")
        return done.stdout

    def json(self, *words: str) -> Any:
        """Run a command and return its JSON."""
        return json.loads(self.run(*words, "--json"))

    def start(self, *words: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a command whose output goes to a file."""
        command = [str(self.prefix / "bin" / "emmclab"), *words]
        with output.open("wb") as file:
            return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=file, stderr=subprocess.PIPE)

    def files(self) -> list[Path]:
        """Return all files that the wheel installed."""
        ask = "from importlib.metadata import files; print(*(f.locate() for f in files('emmclab')), sep='\\n')"
        return [Path(line).resolve() for line in self.run("-c", ask, program="python").splitlines()]


def expect(holds: bool, problem: str) -> None:
    """Fail if a condition does not hold."""
    if not holds:
        raise SmokeError(problem)


def write_trace(path: Path) -> None:
    """Write a trace of half a minute: bursts of writes of 4 and 16 KB, and some reads."""
    rows = ["arrival_ns,complete_ns,sector,sectors,op"]
    for number in range(REQUESTS):
        at = number * 50_000_000
        kind = "read" if number % 5 == 0 else "write"
        rows.append(f"{at},{at + 2_000_000},{number % 97 * 64},{32 if number % 3 else 8},{kind}")
    path.write_text("\n".join(rows) + "\n", encoding="ascii")


def holders(files: Sequence[Path], folder: Path, prefix: Path) -> list[str]:
    """Return the files that contain the path of a folder or of a file in it, each with the first such path.

    Paths below the prefix are allowed, because installed programs contain the path of their interpreter.
    """
    if folder == folder.parent:
        return []  # Every path is below the root folder.
    named = re.compile(re.escape(os.fsencode(folder)) + rb"(?:/[\w./+-]*|(?=[\"'\s\0]|\Z))")
    files_with_paths = []
    for path in files:
        content = path.read_bytes().replace(os.fsencode(prefix), b"") if path.is_file() else b""
        if (first := named.search(content)) is not None:
            files_with_paths.append(f"{path} ({os.fsdecode(first[0])})")
    return files_with_paths


def check_files(installed: Installed, folders: Sequence[Path]) -> None:
    """Check that everything is below the prefix, and that nothing contains the path of one of the folders."""
    paths = installed.files()
    expect(len(paths) > 100, f"only {len(paths)} files are installed")
    outside = [str(path) for path in paths if not path.is_relative_to(installed.prefix)]
    expect(not outside, f"files outside {installed.prefix}: {outside[:3]}")
    ask = "import emmclab, emmclab._core as core; print(emmclab.__file__, core.__file__, sep='\\n')"
    for line in installed.run("-c", ask, program="python").splitlines():
        expect(Path(line).resolve().is_relative_to(installed.prefix), f"{line} is imported")
    for folder in folders:
        names = holders(paths, folder, installed.prefix)
        expect(not names, f"{len(names)} files contain the path {folder} of the machine that built them: {names[:3]}")


def check_manual(installed: Installed) -> None:
    """Check that the manual pages are where `man` looks for them, and that the notices of crates exist."""
    pages = [*(installed.prefix / "share" / "man" / "man1").glob("emmclab*.1")]
    expect(len(pages) > 30, f"{len(pages)} manual pages below {installed.prefix}")
    notices = installed.prefix / "share" / "doc" / "emmclab" / "NOTICES-OF-CRATES.txt"
    expect(notices.is_file(), f"{notices} is missing")


def check_presets(installed: Installed) -> None:
    """Check that devices, hosts, applications and workloads are part of the program."""
    expect(len(installed.json("devices")) >= 20, "presets of devices are missing")
    expect(len(installed.json("apps", "list")) >= 5, "applications are missing")
    installed.run("explain", "watermark")
    installed.run("synth", "Messaging", "twin.parquet")
    expect(len(installed.json("papers")) >= 4, "papers are missing")


def check_traces(installed: Installed) -> None:
    """Check that a trace can be profiled, shown, converted and simulated."""
    trace = "trace.csv"
    write_trace(installed.folder / trace)
    (profile,) = installed.json("profile", trace)
    expect(profile["requests"] == REQUESTS, f"the profile has {profile['requests']} requests")
    installed.run("profile", trace, "--html", "page.html")
    page = (installed.folder / "page.html").read_text(encoding="utf-8")
    expect("<html" in page and "</html>" in page and "<svg" in page, "the page is incomplete")
    result = installed.json("simulate", trace, "--device", "nexus5")
    expect(result["response"]["mean_response_ms"] > 0, "the simulation has no response time")
    results = installed.json("compare", trace, "--devices", "iiswc15-4ps,iiswc15-hps")
    expect(len(results) == 2, f"{len(results)} devices are compared")
    installed.run("convert", trace, "trace.parquet")
    rows = json.loads(installed.run("query", "select count(*) as n from trace", "--trace", "trace.parquet", "--json"))
    expect(rows[0]["n"] == REQUESTS, f"the query returns {rows}")


def check_apps(installed: Installed) -> None:
    """Check that an application runs in closed loop."""
    result = installed.json("apps", "run", "webbench", "--device", "nexus5")
    result = result[0] if isinstance(result, list) else result
    expect(result["app"]["runtime_ns"] > 0, "the application took no time")


def check_served(installed: Installed) -> None:
    """Check that a served device greets an NBD client, and ends after `emmclab control stop`."""
    place, control = installed.folder / "nbd.sock", installed.folder / "control.sock"
    output = installed.folder / "served.json"
    process = installed.start(
        *("serve", "small-1gb", "--clock", "free", "--nbd", str(place), "--control", str(control), "--json"),
        output=output,
    )
    try:
        end = time.monotonic() + PATIENCE_S
        while not (place.exists() and control.exists()):
            expect(process.poll() is None, f"`emmclab serve` ended with {process.returncode}")
            expect(time.monotonic() < end, "`emmclab serve` creates no socket")
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(place))
            expect(client.recv(8) == b"NBDMAGIC", "this is no NBD server")
        installed.run("control", str(control), "status")
        installed.run("control", str(control), "stop")
        _, message = process.communicate(timeout=PATIENCE_S)
        expect(process.returncode == 0, f"`emmclab serve` ended with {process.returncode}: {message.decode()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=PATIENCE_S)
    served = json.loads(output.read_text(encoding="utf-8"))["live"]["requests"]
    expect(served == 0, f"{served} requests were served")


def main(arguments: list[str]) -> int:
    """Run all steps in a folder that is removed afterwards."""
    if not arguments or not (Path(arguments[0]) / "bin" / "emmclab").exists():
        print(
            "error: there is no bin/emmclab below the prefix\nhint: wheel_smoke.py PREFIX [FOLDER]...", file=sys.stderr
        )
        return 2
    # With and without resolved symbolic links, because the compiler does not resolve them.
    build_folders = map(Path, arguments[1:])
    folders = list(dict.fromkeys(path for folder in build_folders for path in (folder.absolute(), folder.resolve())))
    with tempfile.TemporaryDirectory() as folder:
        installed = Installed(Path(arguments[0]).resolve(), Path(folder).resolve())
        steps = {
            "version": lambda: expect(installed.run("--version").startswith("emmclab "), "no version is printed"),
            "files": lambda: check_files(installed, folders),
            "manual": lambda: check_manual(installed),
            "presets": lambda: check_presets(installed),
            "traces, page, simulation, comparison, query": lambda: check_traces(installed),
            "applications": lambda: check_apps(installed),
            "a served device": lambda: check_served(installed),
        }
        for name, step in steps.items():
            begin = time.monotonic()
            try:
                step()
            except (SmokeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                print(f"FAILED: {name}: {type(error).__name__}: {error}", file=sys.stderr)
                return 1
            print(f"ok: {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
