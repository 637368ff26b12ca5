"""The notices in a wheel: those of every crate that is linked into the core, and of no other."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from conftest import PATIENCE_S, ROOT


def test_every_linked_crate_has_its_license_in_the_notices(cargo: str, tmp_path: Path) -> None:
    del cargo
    file = tmp_path / "notices.txt"
    words = [sys.executable, str(ROOT / "scripts" / "notices.py"), str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    head, *parts = file.read_text().split("=" * 100 + "\n")
    listed = set(re.findall(r"^(\S+ \S+): ", head, flags=re.MULTILINE))
    named = {name for part in parts for name in part.partition("\n")[0].split(", ")}
    assert listed == named and len(listed) > 50
    assert sum(map(len, parts)) > 100_000
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert listed < {f"{package['name']} {package['version']}" for package in lock}
    crates = {name.partition(" ")[0] for name in listed}
    # C code that is linked counts, too; macros, crates for tests only and crates of this project do not.
    assert {"liblzma-sys", "libbz2-rs-sys", "zstd-sys", "parquet", "pyo3", "snap"} <= crates
    assert not {"serde_derive", "proptest", "emmclab-base"} & crates


def test_packing_writes_the_notices(cargo: str, tmp_path: Path) -> None:
    del cargo
    words = [sys.executable, str(ROOT / "scripts" / "wheel_data.py"), str(tmp_path)]
    subprocess.run(words, check=True, timeout=PATIENCE_S)
    assert (tmp_path / "share" / "doc" / "emmclab" / "NOTICES-OF-CRATES.txt").stat().st_size > 10_000
