"""The profile of a trace: tables, figures and findings."""

from pathlib import Path
from typing import TypedDict

from emmclab.core_types import ClockJumpRow, Finding, ReissueSummary
from emmclab.runtime.document import FigureDifference, Row, size, write_page
from emmclab.runtime.field_mapping import FieldMapping
from emmclab.traces.fsync_text import Fsync
from emmclab.traces.journal import Journal
from emmclab.traces.notebook import profile_html
from emmclab.traces.profile_fields import JUMP_FIELDS, KEY_FIELDS, TABLES, jump_cells, ledger_line


class Estimate(TypedDict):
    """A figure that is an estimate because the profile was computed in parts; an unknown error is None."""

    figure: str
    why: str
    error_pct: float | None


class FieldDifference(FigureDifference):
    """A field of two profiles, and its difference."""

    table: str
    field: str


class Text(str):
    """Text that an interactive interpreter displays without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Profile(FieldMapping):
    """Result of one pass over a trace; a mapping of the fields that `emmclab profile --json` prints.

    >>> import emmclab
    >>> profile = emmclab.profile(emmclab.bundled()[0])
    >>> list(profile)[0]
    'name'
    """

    def __repr__(self) -> str:
        return f"<Profile {self.name!r}: {self['requests']:,} requests, {size(self['data_size_kb'] * 1024)}>"

    @property
    def name(self) -> str:
        """The name of the trace."""
        return str(self["name"])

    @property
    def findings(self) -> list[Finding]:
        """The six characteristics and five implications of the IISWC 2015 paper, and whether the trace shows each.

        >>> import emmclab
        >>> [finding.id for finding in emmclab.profile(emmclab.bundled()[0]).findings][0]
        'characteristic-1'
        """
        return list(map(Finding, self["findings"]))

    @property
    def clock_jumps(self) -> list[ClockJumpRow]:
        """Places where the clock jumps or the recording paused: direction, time_s, request, length_s, mended.

        >>> import emmclab
        >>> emmclab.profile(emmclab.bundled()[0]).clock_jumps
        []
        """
        return list(map(ClockJumpRow, self["clock_jumps"]))

    @property
    def reissues(self) -> ReissueSummary | None:
        """Suspected re-issues, and the figures with and without them; None if the trace cannot show re-issues.

        >>> import emmclab
        >>> emmclab.profile(emmclab.bundled()[0]).reissues.reissued
        0
        """
        reissues = self["reissues"]
        return None if reissues is None else ReissueSummary(reissues)

    @property
    def journal(self) -> Journal | None:
        """The cost of journaling; None if the trace has no notes on its blocks and shows no journal by its addresses.

        >>> import emmclab
        >>> emmclab.profile(emmclab.bundled()[0]).journal["found"][0]["file_system"]
        'ext4'
        """
        fields = self["journal"]
        return None if fields is None else Journal(fields)

    @property
    def fsync(self) -> Fsync | None:
        """The parts of the time that processes wait for durability; None unless profiled with `fsync=True`.

        >>> import emmclab
        >>> emmclab.profile(emmclab.bundled()[0]).fsync is None
        True
        """
        fields = self.get("fsync")
        return None if fields is None else Fsync(fields)

    @property
    def devices(self) -> list[Row]:
        """The devices of the trace, by number of requests: the rows of the figure `device_share`.

        >>> import emmclab
        >>> len(emmclab.profile(emmclab.bundled()[0]).devices)
        1
        """
        return list(self["figures"].get("device_share", []))

    def _jump_lines(self) -> list[str]:
        rows = [[field.heading for field in JUMP_FIELDS], *map(jump_cells, self.clock_jumps)]
        lines = ["  ".join(f"{cell:>12}" for cell in row) for row in rows]
        if without := self["key_figures_without_jumps"]:
            lines.append("Without them")
            width = max(len(field.heading) for field in KEY_FIELDS)
            lines += [f"  {field.heading:<{width}}  {field.text(without[field.name]):>12}" for field in KEY_FIELDS]
        return lines

    def figure(self, name: str) -> list[Row]:
        """Return the rows of a figure by its name; `list(profile["figures"])` lists them.

        >>> import emmclab
        >>> profile = emmclab.profile(emmclab.bundled()[0])
        >>> list(profile.figure("size_distribution")[0])[:2]
        ['op', 'bin']
        """
        return list(self["figures"][name])

    def table(self) -> Text:
        """Return Tables III and IV as text.

        >>> import emmclab
        >>> "Mean response" in emmclab.profile(emmclab.bundled()[0]).table()
        True
        """
        width = max(len(field.heading) for _, fields in TABLES for field in fields)
        lines = [f"{self.name}: {ledger_line(self['ledger'])}"]
        for title, fields in TABLES:
            lines += [title, *(f"  {field.heading:<{width}}  {field.text(self[field.name]):>12}" for field in fields)]
        if self.clock_jumps:
            lines += ["Clock jumps or pauses of the recording", *(f"  {line}" for line in self._jump_lines())]
        return Text("\n".join(lines))

    def write_html(self, path: str | Path) -> None:
        """Write the report page: one HTML file that needs no network.

        >>> import emmclab, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = pathlib.Path(folder, "page.html")
        ...     emmclab.profile(emmclab.bundled()[0]).write_html(page)
        ...     page.stat().st_size < 3_000_000
        True
        """
        write_page("profile", self, path)

    def _repr_html_(self) -> str:
        return profile_html(self)
