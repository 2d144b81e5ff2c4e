"""The report in a real browser: nothing from outside, no errors, no clipped words."""

import pathlib
from collections.abc import Iterator

import pytest

from llmdeploy.document import parse
from llmdeploy.estimate.calibration import Compared, Forecast
from llmdeploy.plan.curves import curves
from llmdeploy.plan.document import Plan
from llmdeploy.plan.report_html import render

from . import chromium

PLANS = sorted((pathlib.Path(__file__).parents[2] / "plans").glob("*/*/plan.yaml"))
CLIPPED = """
(() => {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width)
    wrong.push(`page: ${document.documentElement.scrollWidth} > ${width}`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.textContent.trim()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const element = node.parentElement;
    for (const box of range.getClientRects()) {
      if (box.width === 0) continue;
      let holder = element.closest('svg') || element;
      for (; holder && holder !== document.documentElement; holder = holder.parentElement) {
        const outer = holder.getBoundingClientRect();
        const clips = holder.tagName === 'svg' || getComputedStyle(holder).overflow !== 'visible'
          || holder.tagName === 'SECTION' || holder.tagName === 'MAIN';
        if (clips && (box.left < outer.left - 1 || box.right > outer.right + 1
            || box.top < outer.top - 1 || box.bottom > outer.bottom + 1))
          wrong.push(`${node.textContent.trim().slice(0, 60)} leaves <${holder.tagName}>`);
      }
      if (box.left < -1 || box.right > width + 1)
        wrong.push(`${node.textContent.trim().slice(0, 60)} leaves the page`);
    }
    if (!element.closest('svg') && element.clientWidth > 0
        && element.scrollWidth > element.clientWidth + 1)
      wrong.push(`${node.textContent.trim().slice(0, 60)}: ${element.scrollWidth} px of text`
        + ` in ${element.clientWidth}`);
  }
  for (const svg of document.querySelectorAll('svg')) {
    const words = [...svg.querySelectorAll('text')].map((t) => [t, t.getBoundingClientRect()]);
    words.forEach(([a, x], i) => words.slice(i + 1).forEach(([b, y]) => {
      if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 2
          && y.top < x.bottom - 2)
        wrong.push(`${a.textContent} covers ${b.textContent}`);
    }));
  }
  return wrong;
})()
"""


def _plan(path: pathlib.Path) -> Plan:
    return parse(path.read_text(), Plan, place=str(path))


def _page(plan: Plan) -> str:
    return render(plan, curves(plan))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parts[-3])
def test_the_page_holds_every_figure_and_needs_nothing_from_outside(path: pathlib.Path) -> None:
    plan = _plan(path)
    page = _page(plan)
    assert page == _page(plan)
    for figure in plan.figures:
        assert figure.name.replace("_", " ") in page
    for outside in ("http://", "https://", "<script", '<link rel="stylesheet', "@import", "url("):
        assert outside not in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    """One for all pages: it takes longer to start than to look at one."""
    with chromium.page(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


@pytest.mark.skipif(chromium.program() is None, reason="no chromium: apt-get install chromium")
@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parts[-3])
def test_a_browser_shows_the_page_whole(
    path: pathlib.Path, tmp_path: pathlib.Path, browser: chromium.Page
) -> None:
    file = tmp_path / "report.html"
    file.write_text(_page(_plan(path)), encoding="utf-8")
    errors, requested = len(browser.errors), len(browser.requested)
    browser.open(file)
    for width, dark in ((1280, False), (1280, True), (390, False), (390, True)):
        browser.size(width, dark=dark)
        assert browser.value("document.title").startswith("Plan ")
        assert browser.value(CLIPPED) == []
        if path == PLANS[0]:  # to be looked at; drawing all of them takes longer than all the rest
            browser.picture(tmp_path / f"{width}-{'dark' if dark else 'light'}.png")
    assert browser.pdf().startswith(b"%PDF")
    assert browser.errors[errors:] == []
    fetched = browser.requested[requested:]
    assert fetched
    assert all(url.startswith(("file:", "data:")) for url in fetched)


def _records(count: int) -> list[Forecast]:
    return [
        Forecast(
            schema=1, at_s=float(n), service="chat", release=f"{n:012x}", model="org/model",
            device="cpu", engine="embedded", requests=8,
            compared=(
                Compared(name="output_tokens_per_s", predicted=60.0, measured=50.0 + n),
                Compared(name="ttft_s", predicted=0.4, measured=0.5),
            ),
        )
        for n in range(count)
    ]  # fmt: skip


def test_former_forecasts_are_shown_beside_what_was_measured() -> None:
    plan = _plan(PLANS[0])
    assert "Forecasts against actuals" not in render(plan)
    page = render(plan, records=_records(3))
    assert "Forecasts against actuals" in page
    assert "-17 %" in page
    assert "+25 %" in page
    assert "the median of 3 forecast(s)" in page
    assert render(plan, records=_records(30)).count("output tokens/s</span>") == 20


@pytest.mark.skipif(chromium.program() is None, reason="no chromium: apt-get install chromium")
def test_a_browser_shows_forecasts_whole(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(_plan(PLANS[0]), records=_records(5)), encoding="utf-8")
    with chromium.page(tmp_path / "profile") as page:
        page.open(file)
        for width in (1280, 390):
            page.size(width)
            assert page.value(CLIPPED) == []
    assert page.errors == []


@pytest.mark.skipif(chromium.program() is None, reason="no chromium: apt-get install chromium")
def test_clipped_and_overflowing_words_are_found(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "wrong.html"
    file.write_text(
        '<!doctype html><link rel="icon" href="data:,"><main>'
        '<section style="width: 50px; white-space: nowrap">words that do not fit here</section>'
        '<svg width="60" height="20"><text y="15">longer than its picture</text></svg>'
        '<svg width="90" height="20"><text y="15">one</text><text y="15">two</text></svg>'
        "</main><script>console.error('seen')</script>",
        encoding="utf-8",
    )
    with chromium.page(tmp_path / "profile") as page:
        page.open(file)
        page.size(390)
        wrong = " | ".join(page.value(CLIPPED))
    assert "words that do not fit here leaves <SECTION>" in wrong
    assert "longer than its picture leaves <svg>" in wrong
    assert "one covers two" in wrong
    assert any("seen" in error for error in page.errors)
