"""Sections II-C and III: measures characteristics, figures, combos, and the overhead of the tracer."""

import itertools
import json
import statistics
from importlib.resources import files

from emmclab.papers.measures import Measurement, measure, rate_by_size, share, table
from emmclab.runtime.document import signed
from emmclab.studies.results import Results


@measure
def overhead(_results: Results) -> Measurement:
    """Measure how many requests the tracer adds on ext4, by writing a log of 32 KB for every 300 requests."""
    measured = json.loads(files(__package__).joinpath("tracer-overhead.json").read_text("utf-8"))
    added, on_device = measured["with_flushes"], measured["recorder_added_on_the_device"]
    return Measurement(
        f"{added:.1f} requests per log of {measured['log_kb']} KB, for every {measured['requests_per_log']} recorded; "
        f"`emmclab record` adds {max(measured['recorder_added'], 0):.1f}, or {on_device:.1f} if it records to the "
        "same device",
        {"added": added},
        f"Reads and writes alone, of which the paper's traces consist, are {measured['added_per_log']:.1f}; if the "
        "metadata of each log is written before the next log, "
        f"{measured['metadata_written_at_once']:.1f}. Measured with {measured['logs']} logs (open, append, fsync, "
        f"close) on {measured['file_system']} on a loop device under Linux {measured['kernel']} "
        "(benches/tracer_overhead.py).",
    )


#: Tolerance for limits from a table of the IISWC 2015 paper, in percentage points. The no-wait column of the table is
#: rounded.
_ROUNDING = 0.5
#: Maximum size of a "small request" in Characteristic 2, KB; the first range of Figure 4.
_SMALL = 4
#: Rank correlation from which a correlation is usually called strong.
_STRONG = 0.7


def _throughput(results: Results, op: str, sizes: tuple[int, ...]) -> Measurement:
    apps = [results.profiles[name] for name in results.applications]
    values = {f"rate_{size}": rate_by_size(apps, op, size) for size in sizes}
    figures = {name: rate for name, rate in values.items() if rate is not None}
    steps = [rate_by_size(apps, op, 2.0**power) for power in range(2, sizes[-1].bit_length())]
    rates = [rate for rate in steps if rate is not None]
    figures["climbing"] = sum(b > a for a, b in itertools.pairwise(rates)) / max(len(rates) - 1, 1)
    note = ""
    if any(rate is None for rate in values.values()):
        note = f" No workload has a {op} of exactly {sizes[-1] // 1024} MB."
    for name in results.recorded:
        recorded = [(size, rate_by_size([results.profiles[name]], op, size)) for size in (4, 128)]
        rate_texts = ", ".join(f"{rate:.2f} MB/s at {size} KB" for size, rate in recorded if rate is not None)
        note += f" The recorded {name} has {rate_texts}." if rate_texts else ""
    text = " -> ".join(f"{figures[f'rate_{size}']:.2f}" for size in sizes if f"rate_{size}" in figures)
    return Measurement(f"{text} MB/s", figures, note.strip())


@measure
def read_throughput(results: Results) -> Measurement:
    """Measure the throughput of reads of 4 and 256 KB (Figure 3)."""
    return _throughput(results, "read", (4, 256))


@measure
def write_throughput(results: Results) -> Measurement:
    """Measure the throughput of writes of 4 KB, 256 KB and 16 MB (Figure 3)."""
    return _throughput(results, "write", (4, 256, 16384))


@measure
def writes_prevail(results: Results) -> Measurement:
    """Measure Characteristic 1: writes outnumber reads."""
    shares = results.of(results.applications, "write_requests_pct")
    most = [value for value in shares.values() if value > 50]
    above = sum(value > 90 for value in shares.values())
    return Measurement(
        f"{len(most)} of {len(shares)}; {min(most):.1f} % - {max(most):.1f} %; {above} above 90 %",
        {"count": len(most), "low": min(most), "high": max(most), "above_90": above},
    )


@measure
def small_share(results: Results) -> Measurement:
    """Measure Characteristic 2: many small requests."""
    shares = {name: share(results.profiles[name], "size_distribution", to=4) for name in results.applications}
    inside = {name: value for name, value in shares.items() if 44.9 - _ROUNDING <= value <= 57.4 + _ROUNDING}
    note = ", ".join(
        f"{name} {share(results.profiles[name], 'size_distribution', to=4):.1f} %" for name in results.recorded
    )
    return Measurement(
        f"{len(inside)} of {len(shares)} between {min(inside.values()):.1f} % and {max(inside.values()):.1f} %",
        {"count": len(inside)},
        f"Recorded: {note}." if note else "",
    )


@measure
def no_wait(results: Results) -> Measurement:
    """Measure Characteristic 3: most requests are served without waiting."""
    shares = results.of(results.applications, "no_wait_pct")
    low, high = (sum(value >= limit - _ROUNDING for value in shares.values()) for limit in (63, 80))
    above = sum(row["no_wait_pct"] not in ("", None) and float(row["no_wait_pct"]) > 80 for row in _applications())
    return Measurement(
        f"{low} of {len(shares)} reach 63 %, {high} reach 80 %",
        {"low": low, "high": high},
        f"In Table IV {above} applications are above 80 % and Installing is at 80 %, a tenth one only by rounding.",
    )


def _applications() -> list[dict[str, str]]:
    return [row for row in table("iiswc15_table4_timing") if row["kind"] == "individual"]


@measure
def spatial(results: Results) -> Measurement:
    """Measure Characteristic 5: spatial locality."""
    shares = results.of(results.applications, "spatial_locality_pct")
    low, all_below = (sum(value < limit for value in shares.values()) for limit in (30, 48))
    exact = sum(float(row["spatial_locality_pct"]) < 30 for row in _applications())
    return Measurement(
        f"{low} of {len(shares)} below 30 %, {all_below} below 48 %",
        {"low": low, "all": all_below},
        f"In Table IV {exact} are below 30 %.",
    )


@measure
def temporal(results: Results) -> Measurement:
    """Measure Characteristic 5: temporal locality."""
    shares = results.of(results.applications, "temporal_locality_pct")
    inside = sum(30.83 - _ROUNDING <= value <= 52.9 + _ROUNDING for value in shares.values())
    exact = sum(30.83 <= float(row["temporal_locality_pct"]) <= 52.9 for row in _applications())
    return Measurement(f"{inside} of {len(shares)}", {"count": inside}, f"In Table IV {exact} are in this range.")


@measure
def gaps(results: Results) -> Measurement:
    """Measure Characteristic 6: times between arrivals."""
    apps = results.applications
    long = sum(1000 / results.profiles[name]["arrival_rate_per_s"] >= 200 for name in apps)
    over = sum(share(results.profiles[name], "inter_arrival_distribution", above=16) > 20 for name in apps)
    return Measurement(
        f"{long} of {len(apps)} reach 200 ms; in {over} over 20 % exceed 16 ms", {"mean": long, "over": over}
    )


@measure
def small_sizes(results: Results) -> Measurement:
    """Measure in how many applications small requests are the largest range of sizes (Figure 4)."""
    apps = results.applications
    ranges = {
        name: [row for row in results.profiles[name].figure("size_distribution") if row["op"] == "all"] for name in apps
    }
    small = [name for name in apps if max(ranges[name], key=lambda row: row["pct"])["high_kb"] == _SMALL]
    half = sum(share(results.profiles[name], "size_distribution", to=_SMALL) > 50 for name in apps)
    movie = share(results.profiles["Movie"], "size_distribution", above=16, to=64)
    others = ", ".join(name for name in apps if name not in small)
    return Measurement(
        f"up to {_SMALL} KB is the largest range in {len(small)} of {len(apps)}, all but {others}; Movie "
        f"{movie:.1f} % in 16 - 64 KB",
        {"small": len(small), "movie": movie},
        f"In {half} of them more than half of the requests are small.",
    )


@measure
def responses(results: Results) -> Measurement:
    """Measure the distribution of response times (Figure 5)."""
    shares = {
        limit: [share(results.profiles[name], "response_distribution", to=limit) for name in results.applications]
        for limit in (2, 16, 128)
    }
    fast = sum(value > 50 for value in shares[2])
    medians = {limit: statistics.median(values) for limit, values in shares.items()}
    movie = share(results.profiles["Movie"], "response_distribution", above=4, to=8)
    return Measurement(
        f"over half within 2 ms in {fast} of {len(shares[2])} applications; "
        + ", ".join(f"{part:.1f} % within {limit} ms" for limit, part in medians.items())
        + f" (medians); Movie {movie:.1f} % in 4 - 8 ms",
        {"fast": fast, "within_16": medians[16], "within_128": medians[128], "movie": movie},
    )


@measure
def size_decides(results: Results) -> Measurement:
    """Measure whether the size of a request determines its response time (Section III-C)."""
    all_correlations = results.of(results.applications, "size_response_correlation")
    correlations = {name: value for name, value in all_correlations.items() if value is not None}
    low, high = (pick(correlations, key=lambda name: correlations[name]) for pick in (min, max))
    strong = sum(value >= _STRONG for value in correlations.values())
    return Measurement(
        f"median {signed(statistics.median(correlations.values()), 2)}, {signed(correlations[low], 2)} ({low}) to "
        f"{signed(correlations[high], 2)} ({high}); {strong} of {len(correlations)} at least {_STRONG}",
        {"median": statistics.median(correlations.values())},
        "Spearman's rank correlation of size and response time of each request, by trace.",
    )


@measure
def movie_gaps(results: Results) -> Measurement:
    """Measure the times between arrivals of requests for Movie (Figure 6)."""
    movie = share(results.profiles["Movie"], "inter_arrival_distribution", to=1)
    return Measurement(f"{movie:.1f} % within 1 ms", {"share": movie})


@measure
def combo_gaps(results: Results) -> Measurement:
    """Measure the times between arrivals of requests for combos (Figure 7)."""
    combos = results.combos
    means = [1000 / results.profiles[name]["arrival_rate_per_s"] for name in combos]
    over = [name for name in combos if share(results.profiles[name], "inter_arrival_distribution", above=4) > 20]
    return Measurement(
        f"{min(means):.1f} - {max(means):.1f} ms; over 20 % exceed 4 ms in {len(over)} of {len(combos)}",
        {
            "low": min(means),
            "high": max(means),
            "over": len(over),
            "but_music_fb": float(set(combos) - set(over) == {"Music/FB"}),
        },
    )


@measure
def combo_rate(results: Results) -> Measurement:
    """Compare the access rate of Music and Facebook together with the rates of each alone (Section III-D)."""
    rate = results.of(["Music/FB", "Music", "Facebook"], "access_rate_kb_per_s")
    alone = rate["Music"] + rate["Facebook"]
    return Measurement(
        f"{rate['Music/FB']:.2f} against {alone:.2f} KB/s", {"together": rate["Music/FB"], "alone": alone}
    )


#: Applications by their abbreviations in the names of combos (applications that run together).
_PARTS = {"FB": "Facebook", "Msg": "Messaging", "WB": "WebBrowsing"}


def _parts(combo: str) -> list[str]:
    return [_PARTS.get(part, part) for part in combo.split("/")]


@measure
def combo_all(results: Results) -> Measurement:
    """Compare arrival and access rates of two applications at once with the sums of both alone (III-D)."""
    above: dict[str, list[str]] = {}
    for kind, field in (("arrival", "arrival_rate_per_s"), ("access", "access_rate_kb_per_s")):
        rates = results.of(results.inputs, field)
        above[kind] = [combo for combo in results.combos if rates[combo] > sum(rates[part] for part in _parts(combo))]
    return Measurement(
        f"arrival rate above the sum in {len(above['arrival'])} of {len(results.combos)} "
        f"({', '.join(above['arrival']) or 'none'}), access rate in {len(above['access'])} "
        f"({', '.join(above['access']) or 'none'})",
        {kind: len(names) for kind, names in above.items()},
    )


@measure
def combo_response(results: Results) -> Measurement:
    """Compare the mean response time of Music and WebBrowsing run together with the times alone (Section III-D)."""
    mean_ms = results.of(["Music/WB", "Music", "WebBrowsing"], "mean_response_ms")
    together, music, browsing = mean_ms.values()
    return Measurement(
        f"{together:.2f} ms; {music:.2f} and {browsing:.2f} ms alone",
        {"together": together, "music": music, "browsing": browsing},
    )


@measure
def localities(results: Results) -> Measurement:
    """Measure temporal and spatial locality, from which the paper concludes Implication 4."""
    temporal = sum(value < 40 for value in results.of(results.applications, "temporal_locality_pct").values())
    spatial_ = sum(value < 30 for value in results.of(results.applications, "spatial_locality_pct").values())
    return Measurement(
        f"temporal locality below 40 % in {temporal} of {len(results.applications)}, spatial below 30 % in {spatial_}",
        {"temporal": temporal, "spatial": spatial_},
    )
