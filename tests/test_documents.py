"""Documents mention only things that exist, their maps match the code, and imports follow the order of the rooms."""

import ast
import operator
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import emmclab
from conftest import ROOT
from reference import FOLDER, PAGES, reference
from repository import complain, place, tracked


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a Markdown page's headings, in GitHub's form."""
    text = reference(page.name) if generated(page) else page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in words}


def generated(page: Path) -> bool:
    """Return whether `make docs` writes this page."""
    return page.parent == FOLDER and page.name in PAGES


def test_every_link_of_a_document_leads_to_a_file_and_heading() -> None:
    faults = []
    for page in tracked(".md"):
        # Generated pages are only on the site.
        in_site = page.is_relative_to(ROOT / "docs")
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = target.partition("#")
            if "://" in target:
                continue
            linked_file = (page.parent / name).resolve() if name else page
            exists = in_site if generated(linked_file) else linked_file.exists()
            if not exists or (anchor and linked_file.suffix == ".md" and anchor not in anchors(linked_file)):
                faults.append(f"{place(page)}: {target}")
    complain(faults, "link to an existing file and heading")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_where_reading_begins_it_is_said_that_make_docs_makes_the_reference(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "generated from the code" in text and "`make docs`" in text and "`emmclab explain WORD`" in text
    assert text.index("`make docs`") < (text.find("](reference/") % len(text))


#: Pattern of names of the project's files by extension, and of paths in its folders.
SOURCE = re.compile(r"[\w./-]+\.(?:rs|py)|(?:crates|python|presets|benches|scripts|tests|docs|fuzz)/[\w./-]*")
#: Pattern of a method of a Rust type, or of a function of a Rust module.
RUST_NAME = re.compile(r"(\b[A-Z]\w*|(?<=::)\w+)::(\w+)\b(?!::)")
PYTHON_NAME = re.compile(r"(emmclab|[A-Z]\w+)((?:\.\w+)+)(?:\(.*)?")
#: Pattern of a metadata key of Parquet files.
NO_ATTRIBUTE = "emmclab.schema"


def text_of(page: Path) -> str:
    """Return the text of a page without code blocks, files that the reader writes, and placeholders."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"Write `[^`]+`|`[^`\n]*NAME[^`\n]*`", "", text)


def quoted(page: Path) -> list[str]:
    """Return the texts between backquotes on a page."""
    return re.findall(r"`([^`\n]+)`", text_of(page))


def test_every_path_of_the_repository_that_a_page_names_exists() -> None:
    files = "\n".join(f"/{path.relative_to(ROOT)}" for path in tracked("")) + "\n"
    faults = [
        f"{place(page)}: {name}"
        for page in tracked(".md")
        for name in quoted(page)
        if SOURCE.fullmatch(name) and not (ROOT / name).exists() and ROOT / name != FOLDER and f"/{name}\n" not in files
    ]
    complain(faults, "mention an existing file or folder, by its path or the end of it")


def test_every_rust_function_that_a_page_names_exists() -> None:
    sources = {path: path.read_text() for path in tracked(".rs") if "src" in path.parts}
    faults = []
    for page in tracked(".md"):
        for owner, item in RUST_NAME.findall(text_of(page) if page.name != "CONTRIBUTING.md" else ""):
            impl = r"impl(?:<.*?>)?(?: [\w:<>]+ for)?"
            declared = re.compile(rf"\b(?:struct|enum|trait|{impl}) {owner}\b(?! for)")
            variant = rf"|^\s*{item}\b[,({{ ]" if item[0].isupper() else ""
            holds = re.compile(rf"\bfn {item}\b|^\s*(?:pub )?{item}: {variant}", re.MULTILINE)
            theirs = (
                text
                for path, text in sources.items()
                if owner in (path.stem, path.parent.name) or declared.search(text)
            )
            if not any(holds.search(text) for text in theirs):
                faults.append(f"{place(page)}: {owner}::{item}")
    complain(faults, "mention an existing function, field or variant, by its type or module")


def test_every_python_name_that_a_page_names_exists() -> None:
    faults = []
    for page in tracked(".md"):
        for name in quoted(page):
            match = PYTHON_NAME.fullmatch(name)
            if match is None or name == NO_ATTRIBUTE:
                continue
            owner, path = match.groups()
            if owner != "emmclab" and not hasattr(emmclab, owner):
                continue
            try:
                operator.attrgetter(f"{owner}{path}".removeprefix("emmclab."))(emmclab)
            except AttributeError:
                faults.append(f"{place(page)}: {name}")
    complain(faults, "mention an existing function or class")


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
    required = {f"{folder}/" for folder in folders} | {f"make {target}" for target in targets.split()}
    complain(sorted(required - named), "add a row to the maps of CONTRIBUTING.md")


PACKAGE = ROOT / "python" / "emmclab"
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
ROOMS = [name for name in LAYERS if (PACKAGE / name).is_dir()]
#: Names that every subpackage may import from the package itself; other names must come from subpackages.
OF_THE_PACKAGE = {"_core", "__version__"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_in_a_paragraph_what_it_is_for(room: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    _, _, paragraph = text.partition("\n\n")
    assert paragraph.strip()


def test_rooms_take_of_the_package_only_the_core_and_the_version() -> None:
    faults = [
        f"{place(path)}:{node.lineno}: {alias.name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent != PACKAGE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "emmclab"
        for alias in node.names
        if alias.name not in OF_THE_PACKAGE and alias.name not in LAYERS
    ]
    complain(faults, "import it from the room that declares it")
