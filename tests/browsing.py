"""Pages in the browser."""

from pathlib import Path

from playwright.sync_api import Browser, Page, Route

from conftest import PATIENCE_S


class Visit:
    """A page in the browser, with its console messages and its requests."""

    def __init__(self, browser: Browser, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        self.page.set_default_timeout(1_000 * PATIENCE_S)
        self.words: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.words.append(message.text))
        self.page.on("pageerror", lambda error: self.words.append(str(error)))
        self.page.route("**/*", self._answer)
        self.page.goto(path.as_uri())

    def _answer(self, route: Route) -> None:
        if not route.request.url.startswith(("file:", "blob:", "data:")):
            self.requests.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    def draw_all(self) -> int:
        """Scroll every chart into view; return the number of charts.

        While a chart is drawn, the content below it moves, so that a click may miss.
        """
        charts = self.page.locator(".chart")
        for number in range(charts.count()):
            charts.nth(number).scroll_into_view_if_needed()
            charts.nth(number).locator("svg").first.wait_for()
        return charts.count()

    def cut_on_paper(self, a4_px: int = 718) -> list[str]:
        """Lay out the page for paper of this width; return the tables that are too wide."""
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.set_viewport_size({"width": a4_px, "height": 1000})
        self.page.emulate_media(media="print")
        cut: list[str] = self.page.locator("table").evaluate_all(
            f"all => all.filter(t => t.offsetParent && t.getBoundingClientRect().right > {a4_px})"
            ".map(t => t.closest('[aria-label]').ariaLabel)"
        )
        return cut


#: Window widths of a desktop, a tablet or half a desktop, and a phone.
WIDTHS = (1280, 820, 390)


#: Height of a phone's screen, in which the first screen of a page has to show figures.
PHONE_PX = 844


#: Returns the elements that are wider than the page or their chart, and the charts without a mark.
OVERFLOW = """() => {
  const right = document.documentElement.clientWidth + 1;
  const out = [];
  if (document.documentElement.scrollWidth > right) out.push(`page ${document.documentElement.scrollWidth}`);
  // On a phone, tables are cards; on wider screens they may scroll.
  for (const cell of right < 400 ? document.querySelectorAll('.folds tbody td, .folds tbody th') : [])
    if (cell.getBoundingClientRect().right > right) out.push(`finding ${cell.textContent}`);
  for (const chart of document.querySelectorAll('.chart')) {
    if (!chart.querySelector('svg path[d], svg line')) out.push(`${chart.id}: empty`);
    const edge = chart.getBoundingClientRect().right + 1;
    for (const part of chart.querySelectorAll('svg, .role-legend, .role-axis-title, .role-axis-label text'))
      if (part.getBoundingClientRect().right > edge) out.push(`${chart.id}: ${part.textContent}`);
  }
  return out;
}"""


def _settled(visit: Visit) -> None:
    """Wait until every chart has the theme and the width of the page."""
    visit.draw_all()
    visit.page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].every(c => c.dataset.settled === c.dataset.drawn)"
    )


def _axe(visit: Visit, axe: str) -> str:
    result = visit.page.evaluate(f"{axe}; axe.run({{resultTypes: ['violations']}})")
    lines = [(rule["id"], [node["target"] for node in rule["nodes"]][:5]) for rule in result["violations"]]
    return "\n".join(map(str, lines))


def check_fit(browser: Browser, path: Path, axe: str) -> None:
    """Fail if a page does not fit a width or theme, logs messages, loads resources, or is not accessible."""
    visit = Visit(browser, path, width=WIDTHS[0])
    for number, width in enumerate(WIDTHS):
        visit.page.set_viewport_size({"width": width, "height": PHONE_PX})
        if number:
            visit.page.click("#theme")
        _settled(visit)
        assert visit.page.evaluate(OVERFLOW) == [], width
    assert _axe(visit, axe) == "", "on a phone, light"
    visit.page.evaluate("document.querySelectorAll('details:not(.data)').forEach(fold => { fold.open = true; })")
    visit.page.set_viewport_size({"width": WIDTHS[0], "height": PHONE_PX})
    visit.page.click("#theme")
    _settled(visit)
    assert _axe(visit, axe) == "", "on a screen, dark, unfolded"
    assert visit.cut_on_paper() == []
    assert visit.words == []
    assert visit.requests == []
    visit.page.close()
