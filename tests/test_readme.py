"""README's commands print what it shows; its Python examples run with what `make demo` installs."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from conftest import PATIENCE_S, ROOT, biotracer, environment
from pages import follow
from repository import complain

#: Runs a program as if the named libraries were not installed.
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
    """Return the modules of this environment that `requirements.lock` does not install."""
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    kept = {name.lower().replace("_", "-") for name in [*locked, "emmclab", "pip"]}
    return {
        module
        for module, owners in packages_distributions().items()
        if not kept & {owner.lower().replace("_", "-") for owner in owners}
    }


def run(code: str, folder: Path, blocked: set[str]) -> subprocess.CompletedProcess[str]:
    """Run code next to a trace, without some libraries."""
    (folder / "trace.txt").write_text(biotracer(100))
    program = BLOCKED.format(blocked=blocked) + code
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )


def test_the_first_example_runs_with_what_the_demo_installs(tmp_path: Path) -> None:
    blocked = beyond_the_lock()
    assert blocked >= {"polars", "pandas", "pyarrow", "pytest"}
    done = run(examples()[0], tmp_path, blocked)
    assert done.returncode == 0, done.stderr
    assert "Mean response" in done.stdout


def test_the_examples_run_together_with_the_extra(tmp_path: Path) -> None:
    done = run("".join(examples()), tmp_path, set())
    assert done.returncode == 0, done.stderr


def test_a_missing_library_names_the_line_of_readme_that_brings_it(tmp_path: Path) -> None:
    for call in ("to_polars()", "to_arrow()", "to_pandas()"):
        code = f"import emmclab\ntry:\n    emmclab.read('trace.txt').{call}\n"
        code += "except emmclab.UnsupportedError as error:\n    print(error.hint)"
        done = run(code, tmp_path, beyond_the_lock())
        assert done.stdout == f"run `{sys.executable} -m pip install 'emmclab[dataframes]'`\n", done.stderr
    for page in ("README.md", "docs/guides/python.md", "scripts/generate_reference.py"):
        assert "pip install 'emmclab[dataframes]'" in (ROOT / page).read_text(), page


def test_the_extra_brings_every_library_that_is_imported_with_it() -> None:
    from emmclab.runtime.optional_libraries import EXTRAS

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for library, extra in EXTRAS.items():
        assert any(re.match(rf"{library}\b", line) for line in extras[extra]), library


def test_every_command_of_the_readme_prints_what_the_readme_shows(tmp_path: Path) -> None:
    as_root = os.geteuid() == 0 and Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()
    faults = follow(ROOT / "README.md", tmp_path, as_root=as_root)
    complain(faults, "show what the command prints, or mend the command")
