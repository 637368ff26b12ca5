"""Guides and README match the program: messages, commands, manifests, examples."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, biotracer, emmclab, environment, executable, execute, need_library
from emmclab.cli import application
from emmclab.runtime.optional_libraries import EXTRAS
from emmclab.studies import Study
from emmclab.studies.run import Shard
from pages import follow
from repository import complain, place, tracked

GUIDE = ROOT / "docs/guides/record-your-phone.md"
CUTS_GUIDE = ROOT / "docs/guides/power-cuts.md"
#: Source files with the messages of `emmclab record` and `emmclab top`; another guide covers files of other tools.
RECORDER = (
    "crates/record/src/",
    "python/emmclab/cli/record.py",
    "python/emmclab/cli/top.py",
    "python/emmclab/cli/machine_options.py",
    # Options that exclude each other.
    "python/emmclab/cli/command.py",
    # Durations.
    "python/emmclab/runtime/document.py",
)
#: Matches the beginning of the next message of a row.
NEXT = re.compile(
    r", (?=is |N KB |pages |expected |the format|`header|there |this process|the command has|cannot start)|; "
)
NOT_LIVE = ("trace_dat", "ring_page.rs")
#: Matches a message in the code: of Rust's `Error::new` and helpers, or of Python's errors.
MESSAGE = re.compile(
    r'(?:Error::new\(\s*ErrorClass::\w+,\s*|ConfigError\(\s*)(?:format!\(\s*)?f?"((?:[^"\\\\]|\\\\.)+)"'
)


def _table(guide: Path) -> list[str]:
    """Return the messages in the table of a guide."""
    text = guide.read_text().partition("## What the messages mean")[2]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", text, re.MULTILINE)
    return [row for row in rows if row not in ("message", "---")]


def _pieces(message: str) -> list[str]:
    """Return the fixed parts of a message, without the inserted values."""
    return [piece.strip("` :,;") for piece in re.split(r"\{[^}]*\}|\.\.\.|\bN\b|\bM\b|`COMMAND`", message)]


def _sources() -> dict[Path, str]:
    here = [path for path in tracked(".rs", ".py") if str(path.relative_to(ROOT)).startswith(RECORDER)]
    return {path: path.read_text() for path in here}


def test_each_message_of_the_guide_is_one_of_the_programs() -> None:
    code = " ".join(" ".join(_sources().values()).split())
    faults = []
    for row in _table(GUIDE):
        for message in NEXT.split(row):
            text = message.removeprefix("note: ").removeprefix("`top`: ").removeprefix("the recording ended early: ")
            pieces = [piece for piece in _pieces(text) if len(piece) > 2]
            if not pieces or any(piece not in code for piece in pieces):
                faults.append(f"{place(GUIDE)}: {message}")
    complain(faults, "say what the program says")


def test_each_message_of_the_recorder_is_in_the_guide() -> None:
    guide = GUIDE.read_text()
    faults, languages = [], set()
    for path, text in _sources().items():
        if any(part in str(path) for part in NOT_LIVE):
            continue
        text = text.partition("#[cfg(test)]")[0]
        for match in MESSAGE.finditer(text):
            languages.add(path.suffix)
            piece = max(_pieces(match[1]), key=len)
            if piece not in guide:
                faults.append(f"{place(path, text.count(chr(10), 0, match.start()) + 1)}: {match[1]}")
    assert languages == {".rs", ".py"}, "the pattern no longer finds the messages"
    complain(faults, f"explain it in {place(GUIDE)}")


@pytest.mark.parametrize("page", [CUTS_GUIDE, ROOT / "docs/concepts/power-cuts.md"])
def test_every_option_of_power_cuts_that_a_page_names_is_one_of_the_command(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if not re.match(r" +\$ (?!emmclab)", line)]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
    assert named and named <= options("crash")


@pytest.mark.usefixtures("root")
def test_the_workload_and_the_check_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    notes, check = re.findall(r"```sh\n(.*?)```", CUTS_GUIDE.read_text(), re.DOTALL)
    careless = notes.replace('    sync "note$n" .\n', "")
    assert careless != notes
    for name, text in (("notes.sh", notes), ("careless.sh", careless), ("check.sh", check)):
        executable(tmp_path / name, text)
    few = ("--device", "emmc51-cache", "--cuts", "12", "--states", "device", "--check", tmp_path / "check.sh")
    done = emmclab("crash", *few, "--", tmp_path / "notes.sh", cwd=tmp_path)
    assert done.returncode == 0 and "no acknowledged data was lost" in done.stdout, done.stderr
    done = emmclab("crash", *few, "--", tmp_path / "careless.sh", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert re.search(r"^application: check: note\d+ is lost$", done.stdout, re.MULTILINE)
    (command,) = re.findall(r"the first: emmclab (crash --again \S+)", done.stdout)
    done = emmclab(*command.split(), "--save-image", "state.img", cwd=tmp_path)
    assert done.returncode == 4 and (tmp_path / "state.img").stat().st_size > 0, done.stderr


TEXT = (ROOT / "docs/guides/cluster.md").read_text()


def options(command: str) -> set[str]:
    group: Any = application()
    return {name for param in group.commands[command].params for name in (*param.opts, *param.secondary_opts)}


def test_every_command_of_the_guide_is_one_of_the_program_with_its_options() -> None:
    lines = re.findall(r"emmclab (run|collect|search|report|query)\b([^`\n#]*)", TEXT)
    assert len(lines) > 10
    for command, rest in lines:
        named = {word.partition("=")[0] for word in rest.split() if word.startswith("--")}
        assert named <= options(command), f"{command}{rest}"


def test_the_manifest_is_an_indexed_job_whose_shards_are_those_of_the_study() -> None:
    need_library("yaml")
    import yaml

    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] <= spec["completions"]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["command"] == ["/bin/sh", "-c"]
    (line,) = container["args"]
    shards = set()
    for index in range(spec["completions"]):
        words = shlex.split(line.replace("$((JOB_COMPLETION_INDEX + 1))", str(index + 1)))
        assert words[:3] == ["exec", "emmclab", "run"]
        option_values = dict(zip(words[4::2], words[5::2], strict=True))
        assert set(option_values) <= options("run")
        shards.add(str(Shard.parse(option_values["--shard"])))
        assert option_values["--jobs"] == container["resources"]["requests"]["cpu"]
    assert shards == {f"{number}-of-{spec['completions']}" for number in range(1, spec["completions"] + 1)}


def test_the_slurm_array_runs_every_shard() -> None:
    (last,) = re.findall(r"#SBATCH --array=1-(\d+)", TEXT)
    (of,) = re.findall(r'--shard "\$SLURM_ARRAY_TASK_ID/(\d+)"', TEXT)
    assert last == of


def test_the_section_of_the_guide_is_a_space() -> None:
    section = TEXT[TEXT.index("    [search]\n") : TEXT.index("    emmclab search study.toml")]
    grid = 'name = "x"\ninputs = ["Movie"]\n[[grid]]\nname = "collection"\ndevices = ["small-1gb"]\n'
    study = Study.parse(grid + "\n".join(line[4:] for line in section.splitlines()), "x.toml")
    assert study.search is not None
    assert [part.name for part in study.search.ranges] == ["gc.policy", "capacity.over_provisioning_pct"]


#: Code that runs a program as if some libraries were not installed.
BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def examples() -> list[str]:
    """The Python examples of README, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def beyond_the_lock() -> set[str]:
    """Return the modules of this environment that `requirements.lock` does not contain."""
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    locked_names = {name.lower().replace("_", "-") for name in [*locked, "emmclab", "pip"]}
    return {
        module
        for module, owners in packages_distributions().items()
        if not locked_names & {owner.lower().replace("_", "-") for owner in owners}
    }


def run(code: str, folder: Path, blocked: set[str]) -> subprocess.CompletedProcess[str]:
    """Run code in a folder with a trace, without some libraries."""
    (folder / "trace.txt").write_text(biotracer(100))
    program = BLOCKED.format(blocked=blocked) + code
    return execute(sys.executable, "-c", program, cwd=folder, env=environment())


def test_the_first_example_runs_with_what_the_demo_installs(tmp_path: Path) -> None:
    blocked = beyond_the_lock()
    assert blocked >= {"polars", "pandas", "pyarrow", "pytest"}
    assert "Mean response" in run(examples()[0], tmp_path, blocked).stdout


def test_the_examples_run_together_with_the_extra(tmp_path: Path) -> None:
    run("".join(examples()), tmp_path, set())


def test_a_missing_library_names_the_line_of_readme_that_brings_it(tmp_path: Path) -> None:
    for call in ("to_polars()", "to_arrow()", "to_pandas()"):
        code = f"import emmclab\ntry:\n    emmclab.read('trace.txt').{call}\n"
        code += "except emmclab.UnsupportedError as error:\n    print(error.hint)"
        done = run(code, tmp_path, beyond_the_lock())
        assert done.stdout == f"run `{sys.executable} -m pip install 'emmclab[dataframes]'`\n", done.stderr
    for page in ("README.md", "docs/guides/python.md", "scripts/generate_reference.py"):
        assert "pip install 'emmclab[dataframes]'" in (ROOT / page).read_text(), page


def test_the_extra_brings_every_library_that_is_imported_with_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for library, extra in EXTRAS.items():
        assert any(re.match(rf"{library}\b", line) for line in extras[extra]), library


def test_every_command_of_the_readme_prints_what_the_readme_shows(tmp_path: Path) -> None:
    as_root = os.geteuid() == 0 and Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()
    faults = follow(ROOT / "README.md", tmp_path, as_root=as_root)
    complain(faults, "show what the command prints, or mend the command")
