"""Tables of results for notebooks, for light and dark backgrounds."""

from typing import TYPE_CHECKING

from emmclab.runtime.document import TextTable
from emmclab.runtime.notebook import cell_text, heading_html, milliseconds_text, pairs_html, share_text, table_html

if TYPE_CHECKING:
    from emmclab.simulation.result import Result


def result_html(result: "Result") -> str:
    """Return an HTML table of response times by operation, and of the flash operations of the run."""
    rows = []
    for op, title in (("", "all"), ("read.", "reads"), ("write.", "writes")):
        mean = result.shown(f"response.{op}mean_ms" if op else "response.mean_response_ms")
        p50, p99, most = (result.shown(f"response.{op}{name}") for name in ("p50_ms", "p99_ms", "max_ms"))
        count = result[f"requests.{op.rstrip('.') or 'total'}"]
        rows.append([title, f"{count:,}", *(milliseconds_text(value) for value in (mean, p50, p99, most))])
    amplification = result.fields["write_amplification"]
    facts = [
        ("no wait", share_text(result.fields["requests"]["no_wait_pct"])),
        ("flushes and discards", "–" if (others := result.fields["requests"]["other"]) is None else f"{others:,}"),
        ("flushes and synchronous writes, 99 %", milliseconds_text(result.shown("durable.p99_ms"))),
        ("write amplification", cell_text(amplification["waf"])),
        ("preconditioned", str(result.fields["options"]["precondition"])),
        ("mode", str(result.fields["options"]["mode"])),
    ]
    headings = ["requests of", "count", "mean", "median", "99 %", "longest"]
    title = heading_html("Result", f"{result.fields['trace']} on {result.run_name}")
    return title + table_html(TextTable("Response times", headings, rows)) + pairs_html(facts)
