"""The maps in DESIGN (crates, rooms) and CONTRIBUTING (folders, targets of `make`) agree with the code."""

import re
import tomllib

from conftest import ROOT
from repository import complain, tracked
from test_rooms import ROOMS

DESIGN = (ROOT / "DESIGN.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MANIFESTS = {path.parent.name: tomllib.loads(path.read_text()) for path in ROOT.glob("crates/*/Cargo.toml")}


def test_design_has_each_crate_with_the_sentence_of_its_manifest() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", DESIGN.partition("## Traces")[0], re.MULTILINE))
    assert rows == {name: manifest["package"]["description"] for name, manifest in MANIFESTS.items()}


def test_a_crate_depends_only_on_crates_above_it_in_design() -> None:
    order = re.findall(r"^\| `(\w+)` \|", DESIGN.partition("## Traces")[0], re.MULTILINE)
    faults = [
        f"{name} depends on {other}"
        for name, manifest in MANIFESTS.items()
        for dependency in manifest.get("dependencies", {})
        if dependency.startswith("emmclab-")
        for other in [dependency.removeprefix("emmclab-")]
        if order.index(other) > order.index(name)
    ]
    complain(faults, "move the row of the crate down in DESIGN.md")


def test_design_has_the_rooms_in_the_order_of_the_import_contract() -> None:
    (listed,) = re.findall(
        r"A room imports only rooms to its right in this\s+list[^:]*: (.*?)\.\s\s", DESIGN, re.DOTALL
    )
    assert re.findall(r"`(\w+)`", listed) == ROOMS


def test_contributing_has_every_folder_and_every_target_of_make() -> None:
    named = set(re.findall(r"`([^`\n]+)`", CONTRIBUTING.partition("## Tests")[0]))
    folders = {path.relative_to(ROOT).parts[0] for path in tracked("") if path.parent != ROOT}
    folders |= {f"python/emmclab/{room}" for room in ROOMS}
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wanted = {f"{folder}/" for folder in folders} | {f"make {target}" for target in targets.split()}
    complain(sorted(wanted - named), "add a row to the maps of CONTRIBUTING.md")
