"""The wheel and source archive are complete and small, and work without the sources."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from conftest import PATIENCE_S, ROOT, missing
from emmclab import __version__

#: Maximum size of a wheel in bytes; the core is 33.9 million bytes of it, 11.0 million when compressed.
MOST_BYTES = 14_000_000
MATURIN = Path(sys.executable).with_name("maturin")


def maturin(*words: object) -> None:
    """Run maturin in the project, and require success."""
    done = subprocess.run(
        [str(MATURIN), *map(str, words)],
        cwd=ROOT,
        # maturin uses the interpreter of this variable, as in the set-up, so that nothing is recompiled. The
        # core therefore contains paths of this machine; `scripts/wheel.sh` builds one without.
        env={**os.environ, "VIRTUAL_ENV": str(ROOT / ".venv")},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def packages(cargo: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and source archive; the core is compiled unless `make demo` has done so."""
    del cargo
    if not MATURIN.exists():
        missing("maturin", "make setup")
    base = tmp_path_factory.getbasetemp()
    # Each worker has its own folder in that of the session; the first one to ask packs for all.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packages"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not [*folder.glob("*.whl")]:
            pack(folder)
    return folder


def pack(folder: Path) -> None:
    """Pack both into a folder, like `scripts/wheel.sh`, but with the core of `make demo`."""
    data = ROOT / "emmclab._core.data"
    write_data = [sys.executable, str(ROOT / "scripts" / "wheel_data.py"), str(data / "data")]
    try:
        subprocess.run(write_data, check=True, timeout=PATIENCE_S)
        maturin("sdist", "--out", folder)
        maturin("build", "--release", "--locked", "--quiet", "--auditwheel", "check", "--out", folder)
    finally:
        shutil.rmtree(data)


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    """The wheel."""
    (found,) = packages.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the libraries that are installed here."""
    folder = tmp_path_factory.mktemp("installed")
    prefix = folder / "environment"
    venv.create(prefix, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python"), "install", "--quiet"]
    copy = shutil.copy(wheel, folder)
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", copy], check=True, timeout=PATIENCE_S)
    (site,) = prefix.glob("lib/python3*/site-packages")
    # They come after the wheel's package in the path; their own path files are not read, because one names
    # the sources.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return prefix


def test_a_wheel_works_away_from_the_sources(installed: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "wheel_smoke.py"), str(installed), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok: ") == 7


def test_a_wheel_is_for_every_python_and_says_which_system_it_needs(wheel: Path) -> None:
    name = rf"emmclab-{re.escape(__version__)}-cp311-abi3-manylinux_(2_\d+)_\w+\.whl"
    found = re.fullmatch(name, wheel.name)
    assert found is not None, wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        said = message_from_bytes(archive.read(metadata))
        core = archive.read("emmclab/_core.abi3.so")
    assert said["Version"] == __version__ and said["Requires-Python"] == ">=3.11"
    assert said["License-Expression"] == "Apache-2.0"
    # The core requires no newer glibc than the wheel's name states.
    asked = {tuple(map(int, part.split(b"."))) for part in re.findall(rb"GLIBC_(\d+\.\d+)\x00", core)}
    assert max(asked) <= tuple(map(int, found[1].split("_")))


def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {entry for entry in archive.namelist() if not entry.endswith("/")}
    package = ROOT / "python" / "emmclab"
    kept = {
        f"emmclab/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    top = f"emmclab-{__version__}"
    others = {name for name in names - kept if not name.startswith((f"{top}.dist-info/", f"{top}.data/data/share/"))}
    assert kept <= names
    assert others == {"emmclab/_core.abi3.so"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < MOST_BYTES


def test_a_source_archive_holds_everything_that_the_core_is_made_of(packages: Path, tmp_path: Path) -> None:
    (path,) = packages.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    # Files that are compiled in, by the path that the source gives.
    for source in folder.glob("crates/*/src/**/*.rs"):
        text = source.read_text()
        for name in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', text):
            assert (source.parent / name).is_file(), f"{source}: {name}"
    for kind in ("devices", "apps", "hosts", "workloads", "published"):
        ours = {path.name for path in (ROOT / "presets" / kind).iterdir()}
        assert {path.name for path in (folder / "presets" / kind).iterdir()} == ours, kind
    papers = sorted(path.relative_to(ROOT) for path in ROOT.glob("python/emmclab/papers/*/devices/*.toml"))
    assert papers and [path for path in papers if not (folder / path).is_file()] == []
    assert (folder / "Cargo.lock").read_bytes() == (ROOT / "Cargo.lock").read_bytes()
    # Every manifest is complete: all files that it names exist, and no crate is missing.
    done = subprocess.run(
        ["cargo", "metadata", "--offline", "--format-version", "1", "--no-deps"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")},
    )
    assert done.returncode == 0, done.stderr
    share = folder / "emmclab._core.data" / "data" / "share"
    assert (share / "man" / "man1" / "emmclab.1").is_file()
    assert (share / "doc" / "emmclab" / "NOTICES-OF-CRATES.txt").is_file()
