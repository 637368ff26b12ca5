"""The page of `wear19`: days of writing without pause, and years of applications in use, until a phone is worn out."""

from collections.abc import Mapping

from emmclab.papers.pages import Drawing, PageContent, bars_by_trace
from emmclab.papers.wear19.wear import days_by_device, years_by_application
from emmclab.studies.results import Results


def drawings(results: Results) -> list[Drawing]:
    """Draw the days of each device, and the years of each application."""
    days = [
        {"trace": "SequentialWrite", "device": name, "days": value} for name, value in days_by_device(results).items()
    ]
    years = [
        {"trace": name, "device": "nexus5", "years": value} for name, value in years_by_application(results).items()
    ]
    about = "Even wear, and the erase limits of the class (3,000)."
    return [
        Drawing(
            "days", "Writing without pause", about, days, bars_by_trace(days, "days", "Days", "device"), of_all=True
        ),
        Drawing(
            "years", "Applications in use", about, years, bars_by_trace(years, "years", "Years", "device"), of_all=True
        ),
    ]


def content(results: Results, measured: Mapping[str, str]) -> PageContent:
    """Return the answer, and what limits it."""
    return PageContent(
        answer=f"An application that overwrites its own file without pause wears out a phone in "
        f"{measured['hotos17-days']}; of the applications in use, {measured['mobisys19-apps']}.",
        lead=[
            f"{results.about['about']}: {results.about['cells']:,} runs. The devices have 32 and 64 GB and wear out in "
            "proportion to their capacity; erase limits of real parts are seldom published. Blocks are taken as dead "
            "at their limit, while real ones may last longer or fail earlier."
        ],
    )
