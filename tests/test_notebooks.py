"""Notebooks: tables for each kind of object, and a guide whose outputs match the code."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import emmclab
from conftest import ROOT, biotracer
from emmclab.studies import Study
from reference import reference

EVIL = '<script>alert("x")</script>'


class Balanced(HTMLParser):
    """Collects tags that are not closed, and content that a notebook must not have."""

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


def html_of(thing: object) -> str:
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
    html = html_of(opened)
    assert "chat" in html and "biotracer" in html and html.count("<tr>") > 8
    assert "400 seen" not in html
    assert opened.ledger["seen"] == 400
    assert "400 seen" in html_of(opened)


def test_a_profile_shows_the_tables_and_findings(trace: Path) -> None:
    html = html_of(emmclab.profile(trace))
    assert "Table III" in html and "Table IV" in html and "11 findings" in html and "400 seen" in html


def test_a_result_shows_response_times_with_units(trace: Path) -> None:
    result = emmclab.Device.preset("iiswc15-hps").simulate(emmclab.read(trace))
    html = html_of(result)
    assert "chat on iiswc15-hps" in html
    assert "Mean, ms" in html and f">{result['response.max_ms']:,.3f}<" in html
    writes_only = emmclab.Device.preset("iiswc15-hps").simulate(emmclab.read(emmclab.bundled()[3]))
    assert "–" in html_of(writes_only) or writes_only["requests"]["read"] > 0


def test_a_comparison_shows_its_tables_and_its_answer(trace: Path) -> None:
    devices = [emmclab.Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    html = html_of(emmclab.compare([emmclab.read(trace)], devices))
    assert "mean response, change against the first device" in html and "iiswc15-hps" in html and "fast" in html


def test_a_study_shows_its_grids() -> None:
    html = html_of(Study.named("iiswc15"))
    for grid in Study.named("iiswc15").grids:
        assert f">{grid.name}<" in html


def test_foreign_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "evil.txt"
    path.write_text(biotracer(50))
    trace = emmclab.read(path)
    trace.name = EVIL
    trace.header["note"] = EVIL
    for thing in (trace, trace.profile(), emmclab.Device.preset("iiswc15-hps").simulate(trace)):
        html = html_of(thing)
        assert "&lt;script&gt;" in html and "<script" not in html


def test_the_outputs_of_the_guide_are_those_of_this_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from python_guide import outputs as blocks

    for block in blocks((ROOT / "docs/guides/python.md").read_text()):
        assert block.told == block.text or (block.html and block.told is None) or not block.text


def test_the_guide_covers_what_python_offers() -> None:
    code = (ROOT / "docs/guides/python.md").read_text()
    for call in ("emmclab.read", "to_polars", "from_polars", ".simulate(", "capacity=", "run_study", "Study.parse"):
        assert call in code, call


def test_the_reference_has_every_public_name() -> None:
    page = reference("python.md")
    for name in {*set(emmclab.__all__) - {"__version__", "VictimPolicy", "VictimView"}, "Study"}:
        assert re.search(rf"^\.\. auto(class|function):: {name}$", page, re.MULTILINE), name
