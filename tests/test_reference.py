"""Reference pages and glossary describe everything that the program accepts; the site is built without a warning."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from conftest import ROOT, assert_refused, emmclab, emmclab_json, emmclab_ok, execute, need_library
from emmclab import ConfigError, bundled, read
from emmclab.cli.glossary import NOT_MODELLED, define, glossary, words
from emmclab.pages.crash import BROKEN_PROMISES
from emmclab.real_devices.durability.log import FINDINGS, WEAKNESSES
from emmclab.runtime.persistence_contract import persistence_contract
from emmclab.simulation.device import Device
from generate_reference import limits_page
from reference import reference

#: Settings that must be set together with a setting of a policy.
NEEDS = {
    **{f"slc.{key}": {"slc.mode": "cache", "slc.blocks": 8} for key in ("fold_after_us", "read_us")},
    **{f"slc.{key}": {"slc.mode": "cache", "slc.blocks": 8} for key in ("program_us", "erase_us")},
    "gc.choices": {"gc.policy": "d_choices"},
    "gc.seed": {"gc.policy": "d_choices"},
    "gc.window": {"gc.policy": "windowed_greedy"},
    "mapping.cached_entries": {"mapping.scheme": "dftl"},
    **{f"mapping.{key}": {"mapping.scheme": "dftl"} for key in ("hpb_pages", "lookup_ns", "lookup_nj")},
    **{f"mapping.{key}": {"mapping.scheme": "leaftl"} for key in ("map_cache_kb", "gamma", "compact_after")},
    **{f"mapping.{key}": {"mapping.scheme": "rqftl"} for key in ("index_pct", "whole_page")},
    "mapping.cached_maps": {"mapping.scheme": "superblock"},
    "mapping.log_blocks": {"mapping.scheme": "superblock"},
    "mapping.superblock_blocks": {"mapping.scheme": "superblock"},
    "mapping.superblock_log_blocks": {"mapping.scheme": "superblock"},
}


def settings() -> dict[str, list[str]]:
    """Return the rows of the page of settings, by key."""
    text = reference("settings.md")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row for row in rows}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Device:
    path = tmp_path_factory.mktemp("device") / "device.toml"
    path.write_text("[[geometry.block_groups]]\npage_kb = 4\nblocks = 512\npages_per_block = 64\n")
    return Device.file(path)


def test_every_setting_of_a_device_is_on_the_page_with_what_it_allows() -> None:
    page = settings()
    for name in ("emmc51-cache", "ufs40", "nexus5"):
        for row in Device.preset(name).explain():
            key = re.sub(r"^fitted_to\.0$", "fitted_to", re.sub(r"\.\d+", ".0", row["key"]))
            assert key in page and page[key][3], key


def test_no_number_beyond_the_range_of_the_page_is_accepted(plain: Device) -> None:
    count = 0
    for key, row in settings().items():
        if not (bounds := re.fullmatch(r"([\d,]+) to ([\d,]+)", row[3])) or key.startswith("power.wake_q"):
            continue
        least, most = (int(bound.replace(",", "")) for bound in bounds.groups())
        for value in (least - 1, most + 1):
            with pytest.raises(ConfigError, match=re.escape(key)):
                plain.set(NEEDS.get(key, {}) | {key: value})
        count += 1
    assert count > 60


def test_a_word_that_the_page_does_not_list_is_refused_with_those_that_it_does(plain: Device) -> None:
    words = {key: row[3] for key, row in settings().items() if re.fullmatch(r"[a-z_]+, .*[a-z_]", row[3])}
    assert len(words) > 15
    for key, allowed in words.items():
        with pytest.raises(ConfigError) as caught:
            plain.set({key: "no-such-word"})
        if allowed != "true, false":
            first = allowed.split(", ")[0]
            assert first in f"{caught.value}", key


def test_every_preset_is_on_the_page_of_devices() -> None:
    page = reference("devices.md")
    folders = ("presets/devices", "python/emmclab/papers/*/devices")
    files = {path.stem for folder in folders for path in Path(ROOT).glob(f"{folder}/*.toml")}
    assert files == set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))


def test_every_count_of_the_ledger_is_defined_on_the_page_of_columns() -> None:
    page = reference("trace-columns.md").partition("## Ledger")[2]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    counts = set(read(bundled()[0]).ledger)
    assert {row[0].strip("`") for row in rows} == counts
    assert [row[0] for row in rows if len(row) != 3 or row[2] == row[1]] == []


def test_no_spelling_stands_for_two_terms() -> None:
    spellings = [word.casefold().replace("-", " ") for word in words()]
    twice = {word for word in spellings if spellings.count(word) > 1}
    assert twice == set()


@pytest.mark.parametrize(
    ("word", "term"),
    [
        ("watermark", "watermark"),
        ("WAF", "write amplification"),
        ("2-way", "way"),
        ("CMT", "mapping cache"),
        ("f2fs_ckpt", "f2fs"),
        ("ext4", "JBD2"),
        ("Read-Modify-Write", "read-modify-write"),
        ("read_modify_write", "read-modify-write"),
        ("pSLC", "SLC mode"),
        ("enhanced area", "enhanced area"),
        ("retention", "retention"),
        ("temperature", "temperature"),
        ("read disturb", "read disturb"),
        ("BER", "bit error"),
        ("boot partitions", "boot partition"),
        *(("rpmb", "RPMB"), ("mmcblk0rpmb", "RPMB"), ("DWPD", "DWPD"), ("drive writes per day", "DWPD")),
        *(("readdisturb", "read disturb"), ("error correction", "bit error"), ("ECCs", "bit error")),
        *(("temperatures", "temperature"), ("pslc-mode", "SLC mode"), ("enhanced areas", "enhanced area")),
        *(("data-retention", "retention"), ("TBW", "lifetime"), ("boot0", "boot partition")),
    ],
)
def test_explain_prints_the_definition_of_a_word(word: str, term: str) -> None:
    done = emmclab_ok("explain", word)
    definition = define(word)
    assert definition is not None and definition.term == term
    assert done.stdout.startswith(term) and definition.text[:30] in " ".join(done.stdout.split())
    assert emmclab_json("explain", word)[0]["term"] == term


def test_explain_prints_the_glossary_that_the_reference_page_holds() -> None:
    page = reference("glossary.md")
    listed = emmclab_json("explain", "--glossary")
    assert [entry["term"] for entry in listed] == [term.term for term in glossary()]
    assert all(f"**{entry['term']}**" in page for entry in listed)


def test_each_finding_lie_and_test_of_the_contract_exists_and_each_lie_breaks_a_clause() -> None:
    clauses = persistence_contract()
    assert [clause.number for clause in clauses] == [f"C{number}" for number in range(1, len(clauses) + 1)]
    lies = {*settings()["cache.lies"][3].split(", ")} - {"none"}
    assert lies and {lie for clause in clauses for lie in clause.lies} == lies
    of_devices = {f"crash:{promise}" for level, promise in BROKEN_PROMISES if level == "device"}
    of_real_devices = {f"durability:{finding}" for finding in FINDINGS if finding not in WEAKNESSES}
    assert {finding for clause in clauses for finding in clause.findings} == of_devices | of_real_devices
    for clause in clauses:
        assert clause.standards and clause.tests
        for test in clause.tests:
            file, _, name = test.partition("::")
            assert f"fn {name}(" in (ROOT / file).read_text(encoding="utf-8"), test
    assert "CMD23 bit 31" in emmclab_ok("explain", "c4").stdout


def test_the_page_of_limits_is_what_the_glossary_declares() -> None:
    page = (ROOT / "docs/concepts/limits.md").read_text(encoding="utf-8")
    assert page == limits_page(), "scripts/generate_reference.py writes it anew"
    limited = [term for term in glossary() if term.does]
    assert {term.term for term in limited} > {"retention", "read disturb", "temperature", "bit error", "RPMB"}
    for term in limited:
        assert "](" not in term.text and term.does.partition("[")[0] in term.text


def test_no_two_terms_share_a_spelling() -> None:
    for term in glossary():
        assert [define(word) for word in (term.term, *term.also)] == [term] * (1 + len(term.also)), term.term


def test_what_the_model_does_not_have_is_said_by_its_word_and_as_a_setting() -> None:
    for term in (entry for entry in glossary() if entry.topic == NOT_MODELLED):
        assert term.text.startswith("Not modelled: a simulated device ")
    done = emmclab("simulate", "gone.csv", "--device", "small-1gb", "--set", "nand.temperature=1")
    assert done.returncode == 2 and "nand" in done.stderr
    assert "hint: temperature: Not modelled" in done.stderr and "did you mean" not in done.stderr


def test_no_word_is_proposed_that_was_not_meant() -> None:
    for word in ("refrigerator", "floppy disk", "boathouse", "nand"):
        done = emmclab("explain", word)
        assert done.returncode == 2 and "did you mean" not in done.stderr, word


def test_what_is_no_word_no_device_and_no_file_is_refused_with_what_it_may_mean() -> None:
    for word, near in (("watermrk", "`watermark`"), ("nexus55", "`nexus5`"), ("zzzz", "`emmclab devices`")):
        assert_refused(emmclab("explain", word), "neither a file, nor a device, nor a word", near)
    assert_refused(emmclab("explain"), "--glossary")


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
