"""The pages of CONTRIBUTING.md, followed to the letter in a copy of the workspace."""

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import ROOT, alone_on_this_machine


@pytest.fixture(scope="module")
def copy(cargo: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the workspace that tests may change."""
    del cargo
    folder = tmp_path_factory.mktemp("copy")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, folder)
    for name in (".cargo", "crates", "presets", "benches", "fuzz/corpus", "python/emmclab/papers"):
        shutil.copytree(ROOT / name, folder / name)
    # What is built here runs for seconds, but an optimized build, as for the release, would take minutes.
    manifest = (folder / "Cargo.toml").read_text()
    for name in ("device", "layers", "replay"):
        assert f"emmclab-{name}.opt-level = 2\n" in manifest
        manifest = manifest.replace(f"emmclab-{name}.opt-level = 2\n", f"emmclab-{name}.opt-level = 1\n")
    (folder / "Cargo.toml").write_text(manifest)
    return folder


def _page(title: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def _blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found, f"the page has no {language} block"
    # They are in items of a list, indented by three spaces.
    return [re.sub(r"(?m)^ {3}", "", text) for text in found]


def _steps(page: str) -> int:
    return len(re.findall(r"^\d\. ", page, re.MULTILINE))


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} places for {old!r}"
    path.write_text(text.replace(old, new))


def _write(path: Path, page: str, language: str = "rust") -> None:
    path.write_text("\n".join(_blocks(page, language)))


def _add_policies(device: Path, victim: str, allocation: str) -> None:
    _write(device / "ftl" / "gc" / "even.rs", victim)
    registry = device / "ftl" / "gc" / "mod.rs"
    _replace(registry, "mod fifo;", "mod even;\nmod fifo;")
    _replace(registry, "    windowed_greedy::POLICY,\n", "    windowed_greedy::POLICY,\n    even::POLICY,\n")

    _write(device / "ftl" / "allocation" / "in_turn.rs", allocation)
    registry = device / "ftl" / "allocation" / "mod.rs"
    _replace(registry, "mod first_free;", "mod first_free;\nmod in_turn;")
    _replace(registry, "use first_free::FirstFree;", "use first_free::FirstFree;\nuse in_turn::InTurn;")
    _replace(
        registry,
        "policies!(FirstFree, AddressStriped, ChunkStriped);",
        "policies!(FirstFree, AddressStriped, ChunkStriped, InTurn);",
    )


def _add_scheme(device: Path, page: str) -> None:
    _write(device / "ftl" / "schemes" / "blocks" / "lone.rs", page)
    registry = device / "ftl" / "schemes" / "blocks" / "mod.rs"
    _replace(registry, "mod io;", "mod io;\nmod lone;")
    _replace(registry, "use io::BlockSchemeIo;", "use io::BlockSchemeIo;\nuse lone::Lone;")
    _replace(registry, "FastScheme, SuperblockScheme);", "FastScheme, SuperblockScheme, Lone);")
    known = device.parent / "tests" / "device" / "mapping_schemes.rs"
    _replace(known, '"superblock"];', '"superblock", "lone"];')


def _add_figure(copy: Path, page: str) -> None:
    field, event, test, result, filled = _blocks(page, "rust")
    counters = copy / "crates" / "device" / "src" / "counters.rs"
    before = "    pub gc_idle_count: u64,\n"
    _replace(counters, before, f"{before}{field}")
    begin = "    fn gc_started(&mut self, event: &GcStarted) {\n"
    _replace(counters, begin, f"{begin}{event}")
    counters.write_text(f"{counters.read_text()}\n{test}")
    group = copy / "crates" / "replay" / "src" / "result" / "ftl.rs"
    _replace(group, "    pub interruptions: u64,\n", f"    pub interruptions: u64,\n{result}")
    _replace(group, "            interruptions: counters", f"{filled}            interruptions: counters")


def _target() -> Path:
    """The folder of the build, shared with the workspace."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def _run(command: list[str], copy: Path) -> str:
    env = os.environ | {"CARGO_TARGET_DIR": str(_target())}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _try(line: str, copy: Path, trace: Path) -> str:
    """Execute a line with `emmclab simulate` (without aging) by the example that drives a device."""
    words = line.replace("trace.txt", str(trace)).split()
    settings = [value for option, value in pairwise(words) if option == "--set"]
    device = words[words.index("--device") + 1]
    # Built with the same options as the tests, so that their dependencies are used again.
    build = "cargo build --locked -p emmclab-replay --example whole_process"
    program = str(_target() / "debug" / "examples" / "whole_process")
    # Another copy of the test suite may build into the same folder.
    with alone_on_this_machine("example"):
        _run(build.split(), copy)
        return _run([program, str(trace), device, *settings], copy)


def test_what_the_pages_say_is_added_to_a_copy_of_the_workspace_works(copy: Path, trace: Path) -> None:
    device = copy / "crates" / "device" / "src"
    six = ["Add a garbage-collection policy", "Add an allocation policy", "Add a mapping scheme"]
    victim, allocation, scheme = map(_page, six)
    assert [_steps(page) for page in (victim, allocation, scheme)] == [6, 6, 6]
    _add_policies(device, victim, allocation)
    _add_scheme(device, scheme)

    preset = _page("Add a device preset")
    _write(copy / "presets" / "devices" / "two-dies.toml", preset, "toml")

    layer = _page("Add a layer")
    layers = copy / "crates" / "layers" / "src"
    _write(layers / "halves.rs", layer)
    _replace(layers / "lib.rs", "mod layer;", "mod halves;\nmod layer;")
    _replace(layers / "registry.rs", "crate::journal::KIND,", "crate::journal::KIND, crate::halves::KIND,")

    figure = _page("Add a figure of a result")
    _add_figure(copy, figure)

    pages = victim + allocation + scheme + preset + layer + figure
    commands = list(dict.fromkeys(re.findall(r"`(cargo test [^`]+)`", pages)))
    assert len(commands) == 8
    for line in commands:
        assert re.search(r"test result: ok. [1-9]", _run([*line.split(), "--locked"], copy)), line
    tries = re.findall(r"Try it:\s+`(emmclab simulate [^`]+)`", victim + allocation + scheme)
    assert len(tries) == 3
    for line in tries:
        assert "400 requests on" in _try(line, copy, trace), line


def test_what_the_page_says_of_a_trace_format_is_read_from_damaged_and_impossible_input(copy: Path) -> None:
    page = _page("Add a trace format")
    reader, sample = _blocks(page, "rust")
    trace = copy / "crates" / "trace"
    formats = trace / "src" / "formats"
    (formats / "oplog.rs").write_text(reader)
    _replace(formats / "mod.rs", "mod parquet;", "mod oplog;\nmod parquet;")
    _replace(formats / "mod.rs", "    &ssdsim::MQSIM,\n", "    &oplog::FORMAT,\n    &ssdsim::MQSIM,\n")
    samples = trace / "tests" / "trace" / "support" / "mod.rs"
    _replace(samples, "pub const SAMPLES: &[Sample] = &[\n", f"pub const SAMPLES: &[Sample] = &[\n{sample}")
    (line,) = re.findall(r"`(cargo test [^`]+)`", page)
    found = re.search(r"test result: ok. (\d+)", _run([*line.split(), "--locked"], copy))
    assert found and int(found[1]) > 50
