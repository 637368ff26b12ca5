"""The documentation site builds without a warning, and works from files, on a phone, without a network."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from conftest import ROOT, execute, need_library


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with its reference pages. A dead link or a page in no menu is an error."""
    need_library("sphinx", "furo", "myst_parser")
    folder = tmp_path_factory.mktemp("site")
    execute(sys.executable, ROOT / "scripts" / "generate_reference.py")
    options = ("-q", "-W", "--keep-going", "-d", folder / ".doctrees")
    execute(sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder)
    return folder


@contextmanager
def opened(browser: Browser, width: int) -> Iterator[Page]:
    """Open a page; an error in the console, or a request for anything but a file, fails the test."""
    context = browser.new_context(viewport={"width": width, "height": 760})
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda line: faults.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request", lambda sent: None if sent.url.startswith(("file:", "data:")) else faults.append(f"loads {sent.url}")
    )
    page.on("requestfailed", lambda sent: faults.append(f"{sent.url}: not found"))
    yield page
    context.close()
    assert faults == []


def test_a_word_is_found_where_the_site_is_files_only(site: Path, browser: Browser) -> None:
    with opened(browser, 1280) as page:
        page.goto((site / "index.html").as_uri())
        page.fill("input[name=q]", "watermark")
        page.press("input[name=q]", "Enter")
        page.wait_for_selector("ul.search li a")
        links = page.locator("ul.search li a").all_inner_texts()
        assert any("Glossary" in title or "watermark" in title.lower() for title in links), links
        page.locator("ul.search li a", has_text="Glossary").first.click()
        assert "reference/glossary.html" in page.url
        page.locator("text=watermark").first.wait_for(state="attached")


@pytest.mark.slow
def test_every_page_fits_a_phone_and_loads_files_only(site: Path, browser: Browser) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    with opened(browser, 360) as page:
        wide = []
        for path in pages:
            page.goto(path.as_uri())
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > 360:
                wide.append(f"{path.relative_to(site)}: {width}")
        assert wide == []


def test_the_menu_has_every_part_and_options_keep_their_dashes(site: Path) -> None:
    start = (site / "index.html").read_text()
    menu = re.findall(r'<p class="caption"[^>]*><span class="caption-text">([^<]+)</span>', start)
    assert menu == ["Tutorials", "How-to guides", "Concepts", "Papers", "Reference", "Coming from", "The project"]
    pages = {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.html")}
    assert [name for name, text in pages.items() if re.search(r"(?<=[\s>])\u2013[a-z]", text)] == []
    assert "records of the input: lines of a text" in pages["reference/trace-columns.html"]


@pytest.mark.parametrize(
    ("word", "title"),
    [
        ("dropped_reissues", "Columns of a trace"),
        ("gc.idle_free_blocks", "Settings of a device"),
        ("profile_fleet", "Python API"),
        ("--wrap-addresses", "Command line"),
    ],
)
def test_search_finds_columns_settings_and_options(site: Path, browser: Browser, word: str, title: str) -> None:
    with opened(browser, 1280) as page:
        page.goto((site / "search.html").as_uri() + f"?q={word}")
        page.wait_for_selector(f"ul.search li a:has-text('{title}')")


def test_no_page_names_a_thing_of_the_network_that_a_browser_would_load(site: Path) -> None:
    load = re.compile(r"""<(?:script|img|iframe|link rel="(?:stylesheet|preload)")[^>]*(?:src|href)="(?:https?:)?//""")
    assert [str(path) for path in site.rglob("*.html") if load.search(path.read_text())] == []
    styles = [path.read_text() for path in site.rglob("*.css")]
    assert styles and not re.search(r"""url\(\s*["']?(?:https?:)?//|@import""", "".join(styles))
