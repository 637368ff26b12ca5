"""The bundled workload models follow only from the published tables."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def generate(root: Path, action: str) -> subprocess.CompletedProcess[str]:
    script = root / "presets" / "workloads" / "make.py"
    return subprocess.run([sys.executable, script, action], capture_output=True, text=True, check=False)


def test_the_presets_are_what_the_program_makes_of_the_published_tables() -> None:
    done = generate(ROOT, "check")
    assert done.returncode == 0, done.stdout


def test_a_changed_table_or_model_is_found_and_written_anew(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    table = tmp_path / "presets" / "published" / "iiswc15_table4_timing.csv"
    table.write_text(table.read_text().replace(",3.01,4.09,", ",3.02,4.09,"))
    movie = tmp_path / "presets" / "workloads" / "movie.toml"
    movie.write_text(movie.read_text().replace("no_wait_pct = 23.0", "no_wait_pct = 24.0"))
    done = generate(tmp_path, "check")
    assert done.returncode == 1
    assert "movie.toml, email.toml" in done.stdout
    assert generate(tmp_path, "write").returncode == 0
    assert generate(tmp_path, "check").returncode == 0
    assert movie.read_bytes() == (ROOT / "presets" / "workloads" / "movie.toml").read_bytes()
