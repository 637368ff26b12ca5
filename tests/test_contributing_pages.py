"""The pages of CONTRIBUTING.md, followed to the letter in a copy of the workspace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from conftest import ROOT, missing


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the workspace, to be changed."""
    if shutil.which("cargo") is None:
        missing("cargo")
    folder = tmp_path_factory.mktemp("copy")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, folder)
    for name in (".cargo", "crates", "presets", "benches"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def _page(title: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def _block(page: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found, f"the page has no {language} block"
    return textwrap.dedent("   " + found[1])


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} places for {old!r}"
    path.write_text(text.replace(old, new))


def test_a_policy_a_scheme_a_preset_and_a_layer_are_added_as_the_pages_say(copy: Path) -> None:
    device = copy / "crates" / "device" / "src"
    policy = _page("Add a garbage-collection policy")
    (device / "ftl" / "gc" / "first.rs").write_text(_block(policy, "rust"))
    registry = device / "ftl" / "gc" / "mod.rs"
    _replace(registry, "mod fifo;", "mod fifo;\nmod first;")
    _replace(registry, "windowed_greedy::POLICY]", "windowed_greedy::POLICY, first::POLICY]")

    scheme = _page("Add a mapping scheme")
    (device / "ftl" / "blocks" / "lone.rs").write_text(_block(scheme, "rust"))
    schemes = device / "ftl" / "blocks" / "mod.rs"
    _replace(schemes, "mod fast;", "mod fast;\nmod lone;")
    _replace(schemes, "use fast::Fast;", "use fast::Fast;\nuse lone::Lone;")
    _replace(schemes, "Fast, Superblock);", "Fast, Superblock, Lone);")
    words = device / "config" / "settings.rs"
    _replace(words, "    Fast,\n", "    Fast,\n    /// One log block for each plane.\n    Lone,\n")

    preset = _page("Add a device preset")
    (copy / "presets" / "devices" / "two-dies.toml").write_text(_block(preset, "toml"))
    _replace(device / "config" / "presets.rs", '"small-1gb"', '"small-1gb", "two-dies"')

    layer = _page("Add a layer")
    layers = copy / "crates" / "layers" / "src"
    (layers / "halves.rs").write_text(_block(layer, "rust"))
    _replace(layers / "lib.rs", "mod layer;", "mod halves;\nmod layer;")
    _replace(layers / "registry.rs", "crate::ressd::KIND]", "crate::ressd::KIND, crate::halves::KIND]")

    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    command = re.findall(
        r"`(cargo test --release --workspace --exclude emmclab-python --test \w+)`",
        policy + scheme + preset + layer,
    )
    assert len(command) == 4
    for line in command:
        done = subprocess.run(
            [*line.split(), "--locked"],
            cwd=copy,
            env=os.environ | {"CARGO_TARGET_DIR": target},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert re.search(r"test result: ok. [1-9]", done.stdout)
