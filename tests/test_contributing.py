"""The steps of CONTRIBUTING.md work in copies of the workspace and of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conftest import COMMAND, PATIENCE_S, PYTHONPATH, ROOT, alone_on_this_machine, environment


@pytest.fixture(scope="module")
def copy(cargo: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the workspace that tests may change."""
    del cargo
    folder = tmp_path_factory.mktemp("copy")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, folder)
    for name in (".cargo", "crates", "presets", "benches", "fuzz", "python/emmclab/papers"):
        shutil.copytree(ROOT / name, folder / name)
    # The programs of this test run for seconds, but an optimized build would take minutes.
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
    """Return the blocks of a page in a language, which is a pattern."""
    matches = re.findall(rf"```(?:{language})\n(.*?)```", page, re.DOTALL)
    assert matches, f"the page has no {language} block"
    # They are in items of a list, indented by three spaces.
    return [re.sub(r"(?m)^ {3}", "", text) for text in matches]


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} places for {old!r}"
    path.write_text(text.replace(old, new))


def _write(path: Path, page: str, language: str = "rust") -> None:
    path.write_text("\n".join(_blocks(page, language)))


def _add_policies(device: Path, victim: str, allocation: str) -> None:
    _write(device / "ftl" / "gc" / "even.rs", victim)
    registry = device / "ftl" / "gc" / "mod.rs"
    _replace(registry, "#[cfg(test)]\nmod tests;", "mod even;\n#[cfg(test)]\nmod tests;")
    _replace(registry, "WINDOWED_GREEDY];", "WINDOWED_GREEDY, even::POLICY];")

    _write(device / "ftl" / "allocation" / "in_turn.rs", allocation)
    registry = device / "ftl" / "allocation" / "mod.rs"
    _replace(registry, "#[cfg(test)]\nmod tests;", "mod in_turn;\n#[cfg(test)]\nmod tests;")
    _replace(registry, "use crate::nand::Nand;", "use crate::nand::Nand;\nuse in_turn::InTurn;")
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
    schemes_file = device.parent / "tests" / "device" / "mapping_schemes.rs"
    _replace(schemes_file, '"superblock"];', '"superblock", "lone"];')


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
    """Return the build folder, which is shared with the workspace."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def _run(command: list[str], copy: Path) -> str:
    env = os.environ | {"CARGO_TARGET_DIR": str(_target())}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _try(line: str, copy: Path, trace: Path) -> str:
    """Execute a line with `emmclab simulate`, without aging, with an example program of the workspace."""
    words = line.replace("trace.txt", str(trace)).split()
    settings = [value for option, value in pairwise(words) if option == "--set"]
    device = words[words.index("--device") + 1]
    # The build has the same options as the tests, so that their dependencies are reused.
    build = "cargo build --locked -p emmclab-replay --example whole_process"
    program = str(_target() / "debug" / "examples" / "whole_process")
    # Another run of the tests may build into the same folder.
    with alone_on_this_machine("example"):
        _run(build.split(), copy)
        return _run([program, str(trace), device, *settings], copy)


def test_what_the_pages_say_is_added_to_a_copy_of_the_workspace_works(copy: Path, trace: Path) -> None:
    device = copy / "crates" / "device" / "src"
    six = ["Add a garbage-collection policy", "Add an allocation policy", "Add a mapping scheme"]
    victim, allocation, scheme = map(_page, six)
    assert [len(re.findall(r"^\d\. ", page, re.MULTILINE)) for page in (victim, allocation, scheme)] == [6, 6, 6]
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
    samples = trace / "tests" / "trace" / "support.rs"
    _replace(samples, "pub const SAMPLES: &[Sample] = &[\n", f"pub const SAMPLES: &[Sample] = &[\n{sample}")
    (line,) = re.findall(r"`(cargo test [^`]+)`", page)
    match = re.search(r"test result: ok. (\d+)", _run([*line.split(), "--locked"], copy))
    assert match and int(match[1]) > 50


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the Python package that tests may change."""
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return tmp_path / "python" / "emmclab"


def insert(path: Path, before: str, text: str) -> None:
    """Insert a text before the only occurrence of `before`."""
    _replace(path, before, text + before)


def run(package: Path, *words: object, command: list[str] = COMMAND, cwd: Path | None = None) -> str:
    """Run a command of the copy; return its output."""
    env = environment() | {"PYTHONPATH": f"{package.parent}:{PYTHONPATH}"}
    usual: dict[str, Any] = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "check": False}
    done = subprocess.run([*command, *map(str, words)], env=env, cwd=cwd, **usual)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_command_is_a_file_and_a_name(package: Path, trace: Path) -> None:
    (file,) = _blocks(_page("Add a command"), "python")
    (package / "cli" / "span.py").write_text(file)
    insert(package / "cli" / "__init__.py", '"fleet"),', '"span", ')
    assert re.fullmatch(r"[\d.]+ s\n", run(package, "span", trace))
    assert "emmclab span trace.txt" in run(package, "span", "--help")
    assert "Print the time from the first to the last arrival" in run(package, "--help")


@pytest.mark.slow
def test_an_option_of_a_run_is_declared_and_has_an_effect(package: Path, trace: Path, tmp_path: Path) -> None:
    (declaration,) = _blocks(_page("Add an option of a run"), "python")
    insert(package / "simulation" / "run_options.py", "    images: Annotated[\n", textwrap.indent(declaration, "    "))
    insert(
        package / "simulation" / "device.py",
        '        aging = parse_precondition(values["precondition"])\n',
        '        traces = traces * values["copies"]\n',
    )
    done = run(package, "simulate", trace, "--device", "nexus5", "--copies", "2", "--mode", "open")
    assert "800" in done
    assert "--copies" in run(package, "compare", "--help")
    assert "Number of copies of the traces that run together." in run(package, "explain", "copies")
    # A result contains the option if it is set, and a comparison of results lists it.
    results = [tmp_path / name for name in ("one.json", "two.json")]
    for count, result in enumerate(results, 1):
        on = ("--device", "nexus5", "--mode", "open", "--copies", count)
        result.write_text(run(package, "simulate", trace, *on, "--json"))
    assert [json.loads(file.read_text())["options"].get("copies") for file in results] == [None, 2]
    assert re.search(r"copies +\D+ 2\b", run(package, "explain", *results, "--one-at-a-time"))
    study = tmp_path / "small.toml"
    study.write_text(
        f'name = "small"\ninputs = ["{trace}"]\n[[grid]]\nname = "g"\ndevices = ["nexus5"]\ncopies = 3\n'
        f'modes = ["open"]\n[[grid]]\nname = "h"\ndevices = ["nexus5"]\nmodes = ["open"]\n'
        "axes = { copies = [1, 2] }\n"
    )
    run(package, "run", study, "--results", tmp_path / "results")
    query = ("query", "select requests_total from runs", "--csv", "--results", tmp_path / "results")
    assert run(package, *query).split() == ["requests_total", "1200", "400", "800"]


@pytest.mark.slow
def test_a_paper_is_a_folder(package: Path, tmp_path: Path) -> None:
    folder = package / "papers" / "queues26"
    folder.mkdir()
    for text in _blocks(_page("Add a paper, a study or a claim"), "toml|python"):
        name = re.match(r"\W+ (\S+)", text)
        assert name
        (folder / name[1]).write_text(text)
    assert len(list(folder.iterdir())) == 5
    assert "queues26" in run(package, "papers")
    page = tmp_path / "page.html"
    results = ("--results", tmp_path / "results")
    run(package, "reproduce", "queues26", "--html", page, *results)
    assert re.search(r"At least \d+ % do not wait\.", page.read_text())
    assert "Requests without a wait" in page.read_text()
    (claim,) = json.loads(run(package, "claims", "--paper", "queues26", "--json", *results))
    assert claim["verdict"] == tomllib.loads((folder / "claims.toml").read_text())["claim"][0]["expected"]


def test_an_option_of_crash_is_a_field_and_its_effect(package: Path) -> None:
    declaration, effect = _blocks(_page("Add an option of crash or serve"), "python")
    explore = package / "crash" / "explore.py"
    insert(explore, "    recovery_cuts: Annotated[", f"    {declaration}")
    insert(explore, "        self.core()\n", textwrap.indent(effect, " " * 8))
    assert "--least-cuts" in run(package, "crash", "--help-all")
    with pytest.raises(AssertionError, match="error: 5 cuts are too few"):
        words = ("--device", "emmc51-cache", "--workload", "files", "--cuts", 5)
        run(package, "crash", *words, "--check", "files", "--least-cuts", 10)


@pytest.mark.slow
def test_a_declared_figure_is_in_every_output(package: Path, trace: Path, tmp_path: Path) -> None:
    (path,) = _blocks(_page("Add a figure of a result"), "text")
    # The row that `make generate` writes for the field.
    declared = {"path": "gc.moved_units", "unit": "map unit", "label": "Units moved", "digits": 0, "better": "lower"}
    declared["about"] = "valid map units in the blocks that were collected for space"
    insert(package / "data" / "result-fields.json", '{"path": "gc.busy_s"', f"{json.dumps(declared)},\n")
    insert(package / "simulation" / "result_text.py", '        "energy.total_mj",\n', path)
    insert(package / "pages" / "simulation.py", '        "gc.interruptions",\n', path)
    # The field is added here, because the core, which fills it, is not built in this test.
    counted = '        result["gc"]["moved_units"] = 31_000 * len(traces)\n'
    insert(package / "simulation" / "device.py", '        return Result({"trace"', counted)
    label, about = declared["label"], declared["about"]

    page, results = tmp_path / "page.html", [tmp_path / name for name in ("one.json", "two.json")]
    on = ("--device", "nexus5", "--mode", "open")
    assert re.search(rf"{label} +31,000\b", run(package, "simulate", trace, *on, "--html", page))
    assert f">{label}" in page.read_text() and ">31,000</td>" in page.read_text()
    for count, result in enumerate(results, 1):
        result.write_text(run(package, "simulate", *[trace] * count, *on, "--json"))
    assert about in run(package, "explain", declared["path"])
    different = json.loads(run(package, "explain", *results, "--json"))["figures"]
    (moved,) = [figure for figure in different if figure["path"] == declared["path"]]
    assert (moved["first"], moved["second"], moved["unit"]) == (31_000, 62_000, "map unit")

    study = tmp_path / "small.toml"
    study.write_text(
        f'name = "small"\ninputs = ["{trace}"]\n[[grid]]\nname = "g"\ndevices = ["nexus5"]\n'
        'modes = ["open"]\n[search]\n[[search.setting]]\nname = "gc.policy"\nchoices = ["greedy", "fifo"]\n'
    )
    stored = ("--results", tmp_path / "results")
    run(package, "run", study, *stored)
    answer = run(package, "query", "select gc_moved_units from runs", "--csv", *stored)
    assert answer.split() == ["gc_moved_units", "31000"]
    found = run(package, "search", study, "--minimize", "gc_moved_units", "--budget", 1, *stored)
    assert "gc_moved_units 31,000" in found
    line = "import generate_reference; print(generate_reference.result_page())"
    page_text = run(package, "-c", line, command=[sys.executable], cwd=ROOT / "scripts")
    assert f"| `{declared['path']}` | map unit | {about} | {label} | lower | `gc_moved_units` |" in page_text
