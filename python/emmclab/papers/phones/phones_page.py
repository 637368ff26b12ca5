"""The page of the study `phones`: which findings of 2015 still hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from emmclab.errors import EmmclabError
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Tile, tile
from emmclab.pages.plots import Rows
from emmclab.pages.study import provenance
from emmclab.papers.claims import Claim
from emmclab.papers.page_charts import Drawing
from emmclab.papers.phones import figures, sayings
from emmclab.papers.phones.characteristics import characteristics
from emmclab.papers.phones.implications import implications
from emmclab.papers.phones.judging import BADGES, NO, PART, RULE, STILL, Finding, counted, verdicts_of
from emmclab.papers.phones.runs import UFS, in_use, installations, mean_ms, new_devices, on_new, workloads_of
from emmclab.runtime.number_format import significant
from emmclab.studies.results import Results
from emmclab.studies.tables import stop_of
from emmclab.traces.ledger_text import ledger_line

LIMITS = (
    "Applications and installations are models fitted to public traces of one Pixel 6a and one user, one "
    "recording each: four applications are no sample, and a share of them moves in steps of 25 points.",
    "The public traces hold no completions. What waited for what is not known, so they are replayed in open "
    "loop: a phone that is too slow would have slowed the application down.",
    "Presets of UFS are fitted to announcements and a few measurements; `emmclab devices --check` prints how "
    "far they are from them. Times of pages of 4 KB on this flash are assumed, as are sizes of WriteBooster "
    "and erases that blocks endure.",
    "Used devices are filled in order. Months of use would leave holes, which collection has to work around.",
    "Energy, heat and throttling are not modelled.",
)


@dataclass(frozen=True)
class Section:
    """A section of the page: its sentences, and the figures that show them."""

    name: str
    title: str
    link: str
    texts: Sequence[str]
    figures: Sequence[str]


_SECTIONS: tuple[tuple[str, str, str, Callable[[Results], list[str]], tuple[str, ...]], ...] = (
    (
        "responses",
        "What applications wait for",
        "Responses",
        sayings.responses,
        ("p99_response", "where_time_goes"),
    ),
    ("used", "A used device", "Used", sayings.used, ("used_devices", "eager_hibernation")),
    (
        "booster",
        "WriteBooster: gain, cliff and cost",
        "WriteBooster",
        sayings.booster,
        ("booster_cliff", "fill_level", "booster_waf", "booster_life"),
    ),
    (
        "pages",
        "Pages of two sizes on UFS",
        "Pages",
        sayings.pages,
        ("pages_written", "pages_response"),
    ),
    (
        "blocks",
        "File systems with blocks of 16 KB",
        "16 KB blocks",
        sayings.blocks,
        ("blocks_written", "blocks_response"),
    ),
    (
        "reissues",
        "With re-issues and clock jumps, and without",
        "Re-issues",
        sayings.reissues,
        ("suspected_reissues",),
    ),
)


def drawings(results: Results) -> list[Drawing]:
    """Return the figures.

    Raises:
        EmmclabError: the results are incomplete.
    """
    require_whole(results)
    return figures.drawings(results)


def require_whole(results: Results) -> None:
    """Reject incomplete results, because the figures of the page would be incomplete, too.

    Raises:
        EmmclabError: cells are missing, failed, or ended early.
    """
    early = [run for run in results.runs if stop_of(run)]
    for count, what in (
        (results.missing, "have no result"),
        (len(results.failures), "failed"),
        (len(early), "ended early"),
    ):
        if count:
            raise EmmclabError(
                f"phones: {count:,} of {results.about['cells']:,} cells {what}; its page needs all of them",
                kind="failed",
                hint="run it in full: `emmclab run phones`",
            )


def headline(results: Results) -> str:
    """Return the answer in one sentence."""
    parts = []
    for words, found in (
        ("six characteristics", characteristics(results)),
        ("five implications", implications(results)),
    ):
        counts = counted(verdicts_of(found))
        said = [f"{counts[STILL]} still {'holds' if counts[STILL] == 1 else 'hold'}"]
        said += [f"{counts[PART]} in part"] if counts[PART] else []
        said += [f"{counts[NO]} no longer"] if counts[NO] else []
        parts.append(f"of its {words} {', '.join(said)}")
    text = "; ".join(parts)
    return f"Is 2015 still true of the phones of 2022? {text[:1].upper()}{text[1:]}"


def _tiles(results: Results) -> list[Tile]:
    tiles = []
    for words, found in (
        ("Characteristics", characteristics(results)),
        ("Implications", implications(results)),
    ):
        counts = counted(verdicts_of(found))
        text = f"{counts[STILL]} of {sum(counts.values())}"
        tiles.append(
            Tile(f"{words} still true", text, note=f"{counts[PART]} in part, {counts[NO]} no longer")
        )
    app = in_use(results)[0]
    devices = new_devices(results)
    for device in (devices[1], UFS):
        run = on_new(results, device)[app]
        tiles.append(tile(f"{app} on {device}", mean_ms(run), "ms", note="mean response"))
    return tiles


#: Text with mean and 99th percentile in ms, and the mean as the sort key.
_Cell = tuple[str, str, float | None]


def _response_table(results: Results) -> list[tuple[str, list[_Cell]]]:
    """Return the cells of each workload, one for each device."""

    def cell(name: str, device: str) -> _Cell:
        run = on_new(results, device).get(name)
        if run is None:
            return "–", "", None
        return significant(mean_ms(run)), significant(run["response"]["p99_ms"]), mean_ms(run)

    devices = new_devices(results)
    return [(name, [cell(name, device) for device in devices]) for name in workloads_of(results)]


def sections(results: Results) -> list[Section]:
    """Return the sections of the page below the verdicts."""
    return [Section(name, title, link, say(results), names) for name, title, link, say, names in _SECTIONS]


def _lead(results: Results) -> list[str]:
    traces = results.recorded
    recorded = f" Recorded traces beside them: {', '.join(traces)}." if traces else ""
    return [
        f"{len(results.runs):,} simulations: {len(in_use(results))} applications of 2022 and "
        f"{len(installations(results))} installations on {len(new_devices(results))} devices of 128 GB, eMMC "
        "and UFS. The findings of Zhou et al., IISWC 2015, are judged by the paper's own definitions.",
        "The workloads are bundled models, fitted to the public traces of a Pixel 6a with suspected "
        "re-issues dropped and clocks mended; no figure here is of a recorded trace unless it says "
        f"so.{recorded}",
    ]


def render(results: Results, judged: Sequence[Claim] = (), drawn: Sequence[Drawing] | None = None) -> str:
    """Return the page; the same results give the same bytes."""
    del judged  # The page has no claims of its own: it judges the findings of another paper.
    drawn = drawings(results) if drawn is None else drawn
    rows = {drawing.name: drawing.rows for drawing in drawn}
    return assemble(
        "phones/phones.html.j2",
        [drawing.figure for drawing in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        trace_names=results.inputs,
        title=results.about["about"],
        head=Head(
            answer=headline(results),
            lead=_lead(results),
            tiles=_tiles(results),
            picture=drawn[0].name,
        ),
        provenance=provenance(results),
        characteristics=characteristics(results),
        implications=implications(results),
        verdicts={
            "characteristics": verdicts_of(characteristics(results)),
            "implications": verdicts_of(implications(results)),
        },
        badges=BADGES,
        rule=RULE,
        devices=new_devices(results),
        responses=_response_table(results),
        sections=sections(results),
        limits=LIMITS,
        inputs=[
            (name, profile["requests"], ledger_line(profile["ledger"]), profile["header"])
            for name, profile in results.profiles.items()
        ],
    )


class _Told(TypedDict):
    """Findings, and the number of them by verdict."""

    verdicts: dict[int, str]
    findings: list[dict[str, str | int]]


class PhonesFields(TypedDict):
    """The page's content for programs; `figures` are the rows of each figure."""

    digest: str
    answer: str
    rule: str
    characteristics: _Told
    implications: _Told
    sections: dict[str, list[str]]
    figures: dict[str, Rows]
    limits: list[str]


def to_dict(results: Results) -> PhonesFields:
    """Return the page's content for programs: answer, verdicts, sentences of each section, and all rows."""
    require_whole(results)

    def told(found: Sequence[Finding]) -> _Told:
        return {"verdicts": verdicts_of(found), "findings": [one.to_dict() for one in found]}

    return {
        "digest": results.digest,
        "answer": headline(results),
        "rule": RULE,
        "characteristics": told(characteristics(results)),
        "implications": told(implications(results)),
        "sections": {section.name: list(section.texts) for section in sections(results)},
        "figures": {drawing.name: drawing.rows for drawing in drawings(results)},
        "limits": list(LIMITS),
    }
