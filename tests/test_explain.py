"""`explain` accepts settings and fields by name, engineers' words, two devices, and stored results."""

import json
from pathlib import Path

import pytest

from conftest import ROOT, assert_refused, emmclab, emmclab_json, emmclab_ok
from emmclab.cli.explain_texts import choices
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_fields
from emmclab.traces.profile_fields import LEDGER_MEANINGS


def test_a_setting_is_explained_by_its_name() -> None:
    ((row,),) = [emmclab_json("explain", "gc.policy")]
    (found,) = [one for one in Device.preset("small-1gb").explain() if one["key"] == "gc.policy"]
    assert (row["key"], row["meaning"], row["allowed"]) == ("gc.policy", found["doc"], found["allowed"])
    shown = emmclab("explain", "gc.policy").stdout
    assert found["doc"][:30] in shown and "--set gc.policy=VALUE" in shown


def test_each_word_of_a_choice_is_explained_with_its_setting() -> None:
    shown = " ".join(emmclab("explain", "cache.lies").stdout.split())
    for word, meaning in choices("cache.lies"):
        assert f"{word}: {meaning}" in shown
    assert len(choices("cache.lies")) >= 5 and choices("cache.size_kb") == []


def test_every_setting_of_a_device_and_every_field_of_a_result_has_an_explanation() -> None:
    from emmclab.cli.explain_texts import find_meanings

    settings = [row["key"] for row in Device.preset("pixel6a").explain() if row["key"] != "about"]
    fields = [field.path for field in result_fields()]
    for key in [one for one in (*settings[::12], *fields[::12]) if one != "name"]:
        assert find_meanings(key), key


def test_a_group_and_a_setting_of_a_layer_are_explained_by_name() -> None:
    keys = {row["key"] for row in emmclab_json("explain", "gc.")}
    assert {"gc.policy", "gc.blocks"} <= keys
    (row,) = emmclab_json("explain", "advil.reserved")
    assert row["kind"] == "setting of a layer" and row["default"] == '"256MB"'


def test_the_ledger_is_explained_as_a_word_as_a_group_and_by_each_of_its_counts(trace: Path) -> None:
    assert emmclab("explain", "ledger").stdout.startswith("ledger: ")
    counts = emmclab_json("profile", trace)[0]["ledger"]
    assert {f"ledger.{count}" for count in counts} < {row["key"] for row in emmclab_json("explain", "ledger.")}
    for count in counts:
        (row,) = emmclab_json("explain", f"ledger.{count}")
        assert row["kind"] == "count of a ledger" and row["meaning"] == LEDGER_MEANINGS[count]


@pytest.mark.parametrize("word", ["lifetime", "wear", "p99", "queue", "EXT_CSD", "fsync", "TBW", "latency", "overload"])
def test_words_that_engineers_ask_are_in_the_glossary(word: str) -> None:
    done = emmclab_ok("explain", word)
    assert ": " in done.stdout


def test_two_devices_show_only_the_settings_in_which_they_differ() -> None:
    found = emmclab_json("explain", "ufs31", "pixel6a")
    rows = {row["key"]: (row["first"], row["second"]) for row in found["differences"]}
    settings = [{row["key"]: row["value"] for row in Device.preset(name).explain()} for name in ("ufs31", "pixel6a")]
    for key in {key for key in {*settings[0], *settings[1]} if not key.startswith(("name", "about", "fitted_to"))}:
        pair = (settings[0].get(key), settings[1].get(key))
        assert (key in rows) == (pair[0] != pair[1])
        assert rows.get(key, pair) == pair
    assert "have the same settings" in emmclab("explain", "ufs31", "ufs31").stdout


def test_a_result_shows_the_settings_that_are_stored_in_it(trace: Path, tmp_path: Path) -> None:
    result = emmclab_json("simulate", trace, "--device", "iiswc15-hps", "--set", "cache.size_kb=512")
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    (found,) = emmclab_json("explain", path)
    assert found["made"]["options"] == result["options"]
    assert found["made"]["provenance"]["settings"] == {"iiswc15-hps": {"cache.size_kb": "512"}}
    shown = emmclab("explain", path).stdout
    assert "provenance.settings.iiswc15-hps.cache.size_kb" in shown and "options.precondition" in shown


def test_a_misspelt_setting_is_refused_with_the_one_that_it_may_mean() -> None:
    assert_refused(emmclab("explain", "gc.polcy"), "`gc.policy`")


def test_only_the_changed_settings_of_a_device_are_listed_on_request(tmp_path: Path) -> None:
    preset = (ROOT / "presets/devices/small-1gb.toml").read_text()
    (tmp_path / "mine.toml").write_text(preset.replace('name = "small-1gb"', 'name = "mine"'))
    every, changed = (emmclab_json("explain", tmp_path / "mine.toml", *more) for more in ((), ("--changed",)))
    assert changed == [row for row in every if row["value"] != row["default"]] and 0 < len(changed) < len(every)
    # A preset may set a value that is also the default.
    preset = emmclab_json("explain", "pixel6a", "--changed")
    assert not {"gc.policy", "gc.mode"} & {row["key"] for row in preset}
    assert all(row["origin"] != "default" for row in preset)
    for words in (("rate",), ("nexus5", "ufs31")):
        done = emmclab("explain", *words, "--changed")
        assert done.returncode == 2 and "--changed" in done.stderr.partition("hint:")[0], done.stderr


def test_when_writes_complete_is_the_same_words_in_a_run_and_in_its_explanation(trace: Path, tmp_path: Path) -> None:
    for device, words in (
        ("emmc51-cache", "in the write buffer, durable ones when programmed"),
        ("nexus5", "when programmed"),
    ):
        result = tmp_path / f"{device}.json"
        done = emmclab("simulate", trace, "--device", device, "--json")
        result.write_text(done.stdout)
        explained = [line.split(maxsplit=1) for line in emmclab("explain", result).stdout.splitlines()]
        assert ["configuration.write_complete", words] in [[part.strip() for part in row] for row in explained]
        # The words are those of the device, also for a trace that does not use the buffer.
        for only in ((), ("--only", "op=read")):
            shown = " ".join(emmclab("simulate", trace, "--device", device, *only).stdout.split())
            assert f"writes complete {words}" in shown
        described = " ".join(emmclab("explain", device).stdout.split())
        assert f"Here: writes complete {words}." in described


def test_an_option_of_any_command_is_explained() -> None:
    found = emmclab_json("explain", "--used")
    assert [row["option"] for row in found] == ["--used"]
    assert {"simulate", "serve"} <= {*found[0]["commands"]}
    assert_refused(emmclab("explain", "--usde"), "no such option: --usde")
    assert "option of a run" in emmclab("explain", "--rate").stdout
