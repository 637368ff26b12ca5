"""Wheel, source archive and container file are complete, small, and work without the sources."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE_S, ROOT, executable, execute, missing
from emmclab import __version__
from emmclab.cli import application
from emmclab.cli.command import walk_commands
from wheel_data import write
from wheel_smoke import holders

VERSIONS = ROOT / "docs" / "project" / "versioning.md"


@cache
def pyproject() -> dict[str, Any]:
    """Return the content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a wheel installs besides the Python package, below a prefix."""
    folder = tmp_path_factory.mktemp("data")
    write(folder)
    return folder


def numbers() -> list[tuple[str, str, str, Path]]:
    """Return format, number, constant and file of each row of the table of versions."""
    row = re.compile(r"^\| ([^|]+) \| ([\d.]+) \| \[`(\w+)`\]\(([^)]+)\)", re.MULTILINE)
    rows = row.findall(VERSIONS.read_text())
    return [(name, number, constant, VERSIONS.parent / path) for name, number, constant, path in rows]


def test_the_numbers_of_files_on_the_page_of_versions_are_those_of_the_code() -> None:
    assert len(numbers()) == 12
    for name, number, constant, path in numbers():
        text = path.read_text()
        match = re.search(rf'\b{constant}\b[^=\n]*=\s*b?"?([^";\n]+)"?;?$', text, re.MULTILINE)
        assert match is not None, f"{name}: no {constant} in {path}"
        number_text = match[1] if constant != "MAGIC" else match[1][-1]
        assert number_text == number, f"{name}: {path} says {number_text}"


def test_every_number_of_a_file_stands_on_the_page_of_versions() -> None:
    """A new version constant needs a row, except constants of formats and protocols of other projects."""
    ours = re.compile(r"^(?:pub(?:\(\w+\))? )?const \w*VERSION: [^=]+= .*$|^_KEPT_AS = ", re.MULTILINE)
    foreign = {"blktrace.rs", "fio.rs", "dm_log_writes.rs", "message.rs"}
    sources = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/emmclab/**/*.py")]
    holders = {path for path in sources if path.name not in foreign and ours.search(path.read_text())}
    assert holders - {path.resolve() for *_, path in numbers()} == set()


def test_metadata_agrees_with_itself_and_with_the_workspace() -> None:
    project = pyproject()["project"]
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert __version__ == cargo["version"]
    assert project["license"] == cargo["license"] == "Apache-2.0"
    least = re.fullmatch(r">=3\.(\d+)", project["requires-python"])
    assert least is not None
    assert f"Programming Language :: Python :: 3.{least[1]}" in project["classifiers"]
    assert pyproject()["tool"]["ruff"]["target-version"] == f"py3{least[1]}"
    features = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]["pyo3"]["features"]
    assert features == [f"abi3-py3{least[1]}"]
    # The metadata has no URLs, because the project is not published anywhere.
    assert "urls" not in project


def test_the_changelog_has_the_version_and_room_for_the_next() -> None:
    headings = re.findall(r"^## \[([^\]]+)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert headings[1][0] == __version__
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for _, day in headings[1:])


def test_every_command_has_a_manual_page_with_its_options_and_examples(data: Path) -> None:
    folder = data / "share" / "man" / "man1"
    assert {path.name for path in folder.iterdir()} == {
        "emmclab.1",
        *(f"emmclab-{words.replace(' ', '-')}.1" for words, _ in walk_commands(application())),
    }
    page = (folder / "emmclab-simulate.1").read_text().replace("\\-", "-")
    assert "\\fB--wrap-addresses\\fP" in page and "\nemmclab simulate trace.txt" in page
    assert "141 closed pipe" in (folder / "emmclab.1").read_text()


def test_man_finds_the_page_of_a_command_beside_the_bin_folder_of_the_path(data: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("man is missing; apt-get install man-db")
    (data / "bin").mkdir(exist_ok=True)
    environment = {
        "PATH": f"{data / 'bin'}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "MANWIDTH": "100",
        "HOME": "/nonexistent",
    }
    command = ["man", "-P", "cat", "emmclab", "simulate"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if "has been minimized" in done.stdout:
        pytest.skip("man is a stand-in on this system")
    assert done.returncode == 0, done.stderr
    assert "EMMCLAB SIMULATE(1)" in done.stdout and re.search(r"--device\S* PRESET\|FILE", done.stdout)


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file with their arguments; continued lines are joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_container_file_copies_what_is_there_and_runs_as_a_user() -> None:
    steps = instructions()
    stages = [rest.split(" AS ")[1] for word, rest in steps if word == "FROM" and " AS " in rest]
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in steps:
        assert word in {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}, word
        if word != "COPY":
            continue
        *sources, _ = [part for part in rest.split() if not part.startswith("--from=")]
        if match := re.search(r"--from=(\S+)", rest):
            assert match[1] in stages
            continue
        for source in sources:
            assert f"!{source}" in sent, f"{source} is not sent to the builder"
            # `make wheel` writes the wheel.
            assert source == "build/wheels/*.whl" or (ROOT / source).is_file(), source
    last = max(place for place, (word, _) in enumerate(steps) if word == "FROM")
    final = dict(steps[last:])
    assert final["USER"] not in ("root", "0") and f"useradd --create-home --uid 1000 {final['USER']}" in final["RUN"]
    assert json.loads(final["ENTRYPOINT"]) == ["emmclab"]
    assert '"$out"' in (ROOT / "scripts" / "wheel.sh").read_text() and "build/wheels" in sent[-1]


def test_the_packages_of_the_container_file_exist_and_have_a_python_that_is_new_enough() -> None:
    # Without package lists, apt finds only the installed packages.
    if shutil.which("apt-cache") is None or not [*Path("/var/lib/apt/lists").glob("*_Packages*")]:
        pytest.skip("apt-cache with lists of packages is missing; apt-get update")
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    bases = {re.split(r"[:\s]", rest)[1] for word, rest in instructions() if word == "FROM"}
    if release is None or bases != {f"{release[1]}-slim"}:
        pytest.skip(f"this is not the release of {', '.join(bases)}")
    installed = [
        name
        for word, rest in instructions()
        if word == "RUN"
        for listed in re.findall(r"--no-install-recommends ([^&]+)", rest)
        for name in listed.split()
    ]
    assert {"python3", "python3-venv"} <= {*installed}
    command = ["apt-cache", "policy", *sorted({*installed})]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    candidates = dict(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (.+)$", output, re.MULTILINE))
    assert [name for name in installed if candidates.get(name, "(none)") == "(none)"] == []
    least = int(pyproject()["project"]["requires-python"].removeprefix(">=3."))
    assert int(candidates["python3"].split(".")[1]) >= least


def image_script(folder: Path, wheel: bool = True, **builders: str) -> str:
    """Return a copy of `scripts/image.sh` in a folder with these builders in `bin`, and with a wheel if asked for."""
    for part in ("scripts", "bin", *(["build/wheels"] if wheel else [])):
        (folder / part).mkdir(parents=True)
    if wheel:
        (folder / "build" / "wheels" / "emmclab-0.1.0-cp311-abi3-linux_x86_64.whl").touch()
    for name, text in builders.items():
        executable(folder / "bin" / name, f"#!/bin/bash\n{text}")
    return shutil.copy(ROOT / "scripts" / "image.sh", folder / "scripts")


@pytest.mark.parametrize("wheel", [False, True], ids=["without a wheel", "without a builder"])
def test_an_image_that_cannot_be_built_is_refused_with_what_to_do(wheel: bool, tmp_path: Path) -> None:
    # A client whose service is not running.
    script = image_script(tmp_path, wheel, docker="exit 1\n")
    programs = tmp_path / "bin"
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name}"))
    error, hint = execute(script, env={"PATH": str(programs)}, status=2).stderr.splitlines()
    assert error.startswith("error: ") and hint.startswith("hint: ")
    assert ("docker" in error) if wheel else ("make wheel" in hint)


def test_an_image_is_built_by_the_first_builder_that_works(tmp_path: Path) -> None:
    builders = {
        name: f'[ "$1" != info ] || exit {code}\necho "{name} $*"\n' for name, code in (("podman", 1), ("docker", 0))
    }
    script = image_script(tmp_path, **builders)
    done = execute(script, env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert done.stdout == "docker build --file Containerfile --tag emmclab .\n"


@pytest.mark.parametrize("tools", [True, False], ids=["with llvm-tools", "without llvm-tools"])
def test_a_build_of_a_wheel_leaves_out_paths_of_its_machine_and_keeps_the_core_of_the_demo(
    tools: bool, tmp_path: Path
) -> None:
    """`scripts/wheel.sh` runs with replacements for its programs, which record their arguments."""
    checkout, home = tmp_path / "a checkout", tmp_path / "home"
    (checkout / "scripts").mkdir(parents=True)
    script = shutil.copy(ROOT / "scripts" / "wheel.sh", checkout / "scripts")
    noted = tmp_path / "noted"
    note = f'#!/bin/bash\nprintf "%s\\n" "$(basename "$0") $*" "$CARGO_ENCODED_RUSTFLAGS" >> {noted}\n'
    packed = 'if [ "$1" = build ]; then mkdir -p "$CARGO_TARGET_DIR" build/wheels; touch build/wheels/a.whl; fi\n'
    make_environment = 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; ln -s "$0" "$3/bin/python"; fi\n'
    programs = {
        checkout / ".venv" / "bin" / "maturin": note + packed,
        checkout / ".venv" / "bin" / "python": note,
        tmp_path / "bin" / "python3": note + make_environment,
        tmp_path / "bin" / "rustc": f"#!/bin/bash\necho {tmp_path / 'sysroot'}\n",
        tmp_path / "bin" / "rustup": "#!/bin/bash\nexit 1\n",
    }
    if tools:
        programs[tmp_path / "sysroot" / "lib" / "rustlib" / "a-host" / "bin" / "llvm-profdata"] = ""
    for path, text in programs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        executable(path, text)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "RUSTUP_HOME": str(tmp_path / "rust up"),
        "RUSTFLAGS": "-C debuginfo=0",
    }
    done = execute(script, env=environment)
    lines = noted.read_text().splitlines()
    (build,) = [line for line in lines if line.startswith("maturin build")]
    flags = lines[lines.index(build) + 1]
    assert ("--pgo" in build, "llvm-tools is missing" in done.stderr) == (tools, not tools)
    mapped = {home / ".cargo": "/cargo", tmp_path / "rust up": "/rustup", checkout: "/emmclab"}
    remapped = [f"--remap-path-prefix={path}={name}" for path, name in mapped.items()]
    assert flags.split("\x1f") == ["-C", "debuginfo=0", *remapped]
    assert sorted(path.name for path in checkout.iterdir()) == [".venv", "build", "scripts"]
    assert sorted(path.name for path in (checkout / "build").iterdir()) == ["wheel-target", "wheels"]
    (smoke,) = [line for line in lines if "wheel_smoke.py" in line]
    assert smoke.endswith(f" . {home} {home / '.cargo'} {tmp_path / 'rust up'}")


def test_a_wheel_whose_core_holds_a_path_of_the_machine_that_built_it_is_refused(tmp_path: Path) -> None:
    home, prefix = tmp_path / "home", tmp_path / "home" / "environment"
    contents = {
        "core.so": f"\0{home}/.cargo/registry/src/a-1.0/src/lib.rs\0",
        "link": f'"{home}"',
        "program": f"#!{prefix}/bin/python",
        "other": f"{home}stead/a.rs {home.parent}",
    }
    files = [tmp_path / name for name in contents]
    for path in files:
        path.write_text(contents[path.name])
    first, second = holders(files, home, prefix)
    assert first == f"{files[0]} ({home}/.cargo/registry/src/a-1.0/src/lib.rs)"
    assert second == f"{files[1]} ({home})"
    assert holders(files, Path("/"), prefix) == []


def test_every_linked_crate_has_its_license_in_the_notices(cargo: str, tmp_path: Path) -> None:
    del cargo
    file = tmp_path / "notices.txt"
    execute(sys.executable, ROOT / "scripts" / "notices.py", file)
    head, *parts = file.read_text().split("=" * 100 + "\n")
    listed = set(re.findall(r"^(\S+ \S+): ", head, flags=re.MULTILINE))
    named = {name for part in parts for name in part.partition("\n")[0].split(", ")}
    assert listed == named and len(listed) > 50
    assert sum(map(len, parts)) > 100_000
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert listed < {f"{package['name']} {package['version']}" for package in lock}
    crates = {name.partition(" ")[0] for name in listed}
    # Linked C code is included; macros, crates for tests only and crates of this project are not.
    assert {"liblzma-sys", "libbz2-rs-sys", "zstd-sys", "parquet", "pyo3", "snap"} <= crates
    assert not {"serde_derive", "proptest", "emmclab-base"} & crates


def test_packing_writes_the_notices(cargo: str, tmp_path: Path) -> None:
    del cargo
    execute(sys.executable, ROOT / "scripts" / "wheel_data.py", tmp_path)
    assert (tmp_path / "share" / "doc" / "emmclab" / "NOTICES-OF-CRATES.txt").stat().st_size > 10_000


#: Maximum size of a wheel in bytes; the core is 33.9 million bytes of it, 11.0 million when compressed.
MOST_BYTES = 14_000_000
MATURIN = Path(sys.executable).with_name("maturin")


def maturin(*words: object) -> None:
    """Run maturin in the project, and require success."""
    # maturin uses the interpreter of this variable, as in setup.sh, so that nothing is recompiled. The core
    # therefore contains paths of this machine; `scripts/wheel.sh` builds a core without them.
    environment = os.environ | {"VIRTUAL_ENV": str(ROOT / ".venv")}
    execute(MATURIN, *words, cwd=ROOT, env=environment, timeout=2 * PATIENCE_S)


@pytest.fixture(scope="module")
def packages(cargo: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and source archive; the core is compiled unless `make demo` has done so."""
    del cargo
    if not MATURIN.exists():
        missing("maturin", "make setup")
    base = tmp_path_factory.getbasetemp()
    # The folder of a worker is in the folder of the session; the first worker packs for all.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packages"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not [*folder.glob("*.whl")]:
            pack(folder)
    return folder


def pack(folder: Path) -> None:
    """Pack wheel and source archive into a folder, like `scripts/wheel.sh`, but with the core of `make demo`."""
    data = ROOT / "emmclab._core.data"
    try:
        execute(sys.executable, ROOT / "scripts" / "wheel_data.py", data / "data")
        maturin("sdist", "--out", folder)
        maturin("build", "--release", "--locked", "--quiet", "--auditwheel", "check", "--out", folder)
    finally:
        shutil.rmtree(data)


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    (path,) = packages.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the libraries that are installed here."""
    folder = tmp_path_factory.mktemp("installed")
    prefix = folder / "environment"
    venv.create(prefix, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python"), "install", "--quiet"]
    copy = shutil.copy(wheel, folder)
    execute(*pip, "--no-deps", "--no-index", "--no-compile", copy)
    (site,) = prefix.glob("lib/python3*/site-packages")
    # The libraries follow the package of the wheel in the path; their path files are not read, because one of them
    # contains the path of the sources.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return prefix


def test_a_wheel_works_away_from_the_sources(installed: Path) -> None:
    done = execute(sys.executable, ROOT / "scripts" / "wheel_smoke.py", installed, ROOT, timeout=2 * PATIENCE_S)
    assert done.stdout.count("ok: ") == 7


def test_a_wheel_is_for_every_python_and_says_which_system_it_needs(wheel: Path) -> None:
    name = rf"emmclab-{re.escape(__version__)}-cp311-abi3-manylinux_(2_\d+)_\w+\.whl"
    match = re.fullmatch(name, wheel.name)
    assert match is not None, wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        message = message_from_bytes(archive.read(metadata))
        core = archive.read("emmclab/_core.abi3.so")
    assert message["Version"] == __version__ and message["Requires-Python"] == ">=3.11"
    assert message["License-Expression"] == "Apache-2.0"
    # The core requires no newer glibc than the name of the wheel states.
    versions = {tuple(map(int, part.split(b"."))) for part in re.findall(rb"GLIBC_(\d+\.\d+)\x00", core)}
    assert max(versions) <= tuple(map(int, match[1].split("_")))


def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {entry for entry in archive.namelist() if not entry.endswith("/")}
    package = ROOT / "python" / "emmclab"
    members = {
        f"emmclab/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    top = f"emmclab-{__version__}"
    others = {name for name in names - members if not name.startswith((f"{top}.dist-info/", f"{top}.data/data/share/"))}
    assert members <= names
    assert others == {"emmclab/_core.abi3.so"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < MOST_BYTES


def test_a_source_archive_holds_everything_that_the_core_is_made_of(packages: Path, tmp_path: Path) -> None:
    (path,) = packages.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    # Files that the compiler includes, by the path in the source.
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
    # Every manifest is complete: all of its files exist, and no crate is missing.
    environment = os.environ | {"CARGO_TARGET_DIR": str(tmp_path / "target")}
    execute("cargo", "metadata", "--offline", "--format-version", "1", "--no-deps", cwd=folder, env=environment)
    share = folder / "emmclab._core.data" / "data" / "share"
    assert (share / "man" / "man1" / "emmclab.1").is_file()
    assert (share / "doc" / "emmclab" / "NOTICES-OF-CRATES.txt").is_file()
