"""Compares synthetic workloads with the recordings that replace them, to show how accurate they are."""

from dataclasses import dataclass
from typing import TypedDict

from emmclab.papers.iiswc15.page_size_readings import EIGHT, FOUR, HYBRID, PRIMARY, STRICT, Reading, mean_responses
from emmclab.studies.results import Results, stand_ins
from emmclab.traces.profile import FieldDifference
from emmclab.traces.workload import differences

_READINGS = (STRICT, Reading("both", "programmed", "open"), PRIMARY)


class TwinResponse(TypedDict):
    """Simulated mean responses of a recording and of its synthetic twin, for one reading and device."""

    reading: str
    device: str
    recorded_ms: float
    synthetic_ms: float
    difference_pct: float


@dataclass(frozen=True)
class Twin:
    """A recording and the synthetic workload of the same name; differences in percent of the recording."""

    recorded: str
    synthetic: str
    profile: list[FieldDifference]
    """Fields of Tables III and IV, as `emmclab.traces.workload.differences` gives them."""
    responses: list[TwinResponse]
    """Simulated mean responses in ms by reading and device."""

    gain: tuple[float, float]
    """Percent by which hybrid pages shorten the mean response: recorded, synthetic (Figure 8)."""

    @property
    def worst(self) -> TwinResponse:
        """Return the simulated response that differs most."""
        return max(self.responses, key=lambda row: abs(row["difference_pct"]))


def twins(results: Results) -> list[Twin]:
    """Compare every recorded trace that replaces a workload with that workload."""
    found = []
    for recorded, synthetic in stand_ins(results).items():
        profile = differences(results.profiles[recorded], results.profiles[synthetic])
        responses = _responses(results, recorded, synthetic)
        four, hybrid = (mean_responses(results, PRIMARY, device) for device in (FOUR, HYBRID))
        gain = tuple(100 * (1 - hybrid[name] / four[name]) for name in (recorded, synthetic))
        found.append(Twin(recorded, synthetic, profile, responses, (gain[0], gain[1])))
    return found


def _responses(results: Results, recorded: str, synthetic: str) -> list[TwinResponse]:
    rows: list[TwinResponse] = []
    for reading in _READINGS:
        for device in (FOUR, EIGHT, HYBRID):
            means = mean_responses(results, reading, device)
            real, made = means[recorded], means[synthetic]
            rows.append(
                {
                    "reading": reading.text,
                    "device": device,
                    "recorded_ms": real,
                    "synthetic_ms": made,
                    "difference_pct": 100 * (made / real - 1),
                }
            )
    return rows
