"""What notebooks show: tables for each kind of object, and a guide whose outputs come from this code."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import emmclab
from conftest import ROOT, biotracer
from emmclab.studies import Study
from reference import FOLDER, PAGES, reference

EVIL = '<script>alert("x")</script>'


class Balanced(HTMLParser):
    """Records tags that are not closed, and everything that a notebook must not contain."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        for name, value in attrs:
            assert name == "style", name
            assert "#" not in str(value) and "url" not in str(value), "a colour or file of its own"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(thing: object) -> str:
    """Return the HTML of an object, after checks that it is complete and harmless."""
    html: str = thing._repr_html_()  # type: ignore[attr-defined]
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert not parser.seen & {"script", "style", "img", "link", "iframe"}
    assert len(html) < 20_000
    return html


def test_a_trace_shows_its_origin_and_first_requests(trace: Path) -> None:
    opened = emmclab.read(trace)
    html = shown(opened)
    assert "chat" in html and "biotracer" in html and html.count("<tr>") > 8
    assert "400 seen" not in html
    assert opened.ledger["seen"] == 400
    assert "400 seen" in shown(opened)


def test_a_profile_shows_the_tables_and_findings(trace: Path) -> None:
    html = shown(emmclab.profile(trace))
    assert "Table III" in html and "Table IV" in html and "11 findings" in html and "400 seen" in html


def test_a_result_shows_response_times_with_units(trace: Path) -> None:
    result = emmclab.Device.preset("iiswc15-hps").simulate(emmclab.read(trace))
    html = shown(result)
    assert "chat on iiswc15-hps" in html
    assert re.search(r">[\d.]+ (ms|us)<", html)
    writes_only = emmclab.Device.preset("iiswc15-hps").simulate(emmclab.read(emmclab.bundled()[3]))
    assert "–" in shown(writes_only) or writes_only["requests"]["read"] > 0


def test_a_study_shows_its_grids() -> None:
    html = shown(Study.named("iiswc15"))
    for grid in Study.named("iiswc15").grids:
        assert f">{grid.name}<" in html


def test_foreign_names_are_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    path = folder / "evil.txt"
    path.write_text(biotracer(50))
    trace = emmclab.read(path)
    trace.name = EVIL
    trace.header["note"] = EVIL
    for thing in (trace, trace.profile(), emmclab.Device.preset("iiswc15-hps").simulate(trace)):
        html = shown(thing)
        assert "&lt;script&gt;" in html and "<script" not in html


@pytest.mark.parametrize("path", sorted((ROOT / "docs/guides").glob("*.ipynb")), ids=lambda path: path.name)
def test_the_outputs_of_a_notebook_are_those_of_this_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from notebooks import executed

    assert executed(path) == path.read_text(), "run `make generate`"


def test_the_guide_covers_what_python_offers() -> None:
    notebook = json.loads((ROOT / "docs/guides/python.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    for call in ("emmclab.read", "to_polars", "from_polars", ".simulate(", "capacity=", "run_study", "Study.parse"):
        assert call in code, call
    assert "/work" not in json.dumps(notebook) and "/home" not in json.dumps(notebook)


def test_every_link_of_a_notebook_leads_to_a_file() -> None:
    for path in (ROOT / "docs/guides").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            there = (path.parent / target).resolve()
            assert there.exists() or (there.parent == FOLDER and there.name in PAGES), target


def test_the_reference_has_every_public_name() -> None:
    page = reference("python.md")
    for name in {*set(emmclab.__all__) - {"__version__", "VictimPolicy", "VictimView"}, "Study"}:
        assert re.search(rf"^\.\. auto(class|function):: {name}$", page, re.MULTILINE), name
