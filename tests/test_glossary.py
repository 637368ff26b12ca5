"""The glossary: one meaning for each word, found by every spelling, printed by `emmclab explain`."""

import pytest

from conftest import assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.cli.glossary import NOT_MODELLED, define, glossary, words
from reference import reference


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
        ("rpmb", "RPMB"),
    ],
)
def test_explain_prints_the_definition_of_a_word(word: str, term: str) -> None:
    done = emmclab_ok("explain", word)
    found = define(word)
    assert found is not None and found.term == term
    assert done.stdout.startswith(term) and found.means[:30] in " ".join(done.stdout.split())
    assert emmclab_json("explain", word)[0]["term"] == term


def test_explain_prints_the_glossary_that_the_reference_page_holds() -> None:
    page = reference("glossary.md")
    listed = emmclab_json("explain", "--glossary")
    assert [entry["term"] for entry in listed] == [term.term for term in glossary()]
    assert all(f"**{entry['term']}**" in page for entry in listed)


def test_what_the_model_does_not_have_is_said_by_its_word_and_as_a_setting() -> None:
    for term in (one for one in glossary() if one.topic == NOT_MODELLED):
        assert term.means.startswith("Not modelled")
    done = emmclab("simulate", "gone.csv", "--device", "small-1gb", "--set", "nand.retention=1")
    assert done.returncode == 2 and "nand" in done.stderr
    assert "hint: retention: Not modelled" in done.stderr and "did you mean" not in done.stderr


def test_no_word_is_proposed_that_was_not_meant() -> None:
    for word in ("refrigerator", "floppy disk", "boathouse", "nand"):
        done = emmclab("explain", word)
        assert done.returncode == 2 and "did you mean" not in done.stderr, word


def test_what_is_no_word_no_device_and_no_file_is_refused_with_what_it_may_mean() -> None:
    for word, near in (("watermrk", "`watermark`"), ("nexus55", "`nexus5`"), ("zzzz", "`emmclab devices`")):
        assert_refused(emmclab("explain", word), "neither a file, nor a device, nor a word", near)
    assert_refused(emmclab("explain"), "--glossary")
