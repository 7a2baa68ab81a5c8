"""The page in a real browser: Debian's chromium, driven by selenium; skipped where either is missing."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arachne.bench.result import Comparison, Contender
from arachne.report.html import render
from arachne.report.searcher_words import describe_searcher
from arachne.results.result import RepairResult

webdriver = pytest.importorskip("selenium.webdriver", reason="the page is not tested: selenium is not installed")

from selenium.webdriver.chrome.service import Service  # noqa: E402  # only once selenium is known to be there
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="the page is not tested: chromium or chromedriver is not installed"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CONTRAST = """
const linear = (x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
const lum = (c) => { const v = c.map((x) => linear(x / 255));
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data]; };
const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c[3] === 255) return c.slice(0, 3); } return rgb(getComputedStyle(document.body).backgroundColor).slice(0, 3); };
const worst = [99, ""];
for (const e of document.querySelectorAll("body *")) {
  const words = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!words || e.closest("svg") || !e.getClientRects().length) continue;
  const [a, b] = [lum(rgb(getComputedStyle(e).color)), lum(ground(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < worst[0]) { worst[0] = ratio; worst[1] = e.outerHTML.slice(0, 120); }
}
return worst;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(page: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(page), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def front_address(front_page: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("front") / "report.html"
    path.write_text(render(front_page), encoding="utf-8")
    return path.as_uri()


def show(browser: Any, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)


def requests(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def test_the_page_opens_without_errors_or_requests(browser: Any, address: str) -> None:
    show(browser, address)
    assert browser.get_log("browser") == []
    asked = requests(browser)
    assert address in asked
    assert [url for url in asked if url != address and not url.startswith("data:")] == []


def test_galleries_show_pictures(browser: Any, address: str) -> None:
    show(browser, address)
    widths = browser.execute_script("return [...document.images].map((i) => i.complete && i.naturalWidth)")
    assert len(widths) > 10
    assert set(widths) == {8}


def test_hostile_names_run_nothing(browser: Any, address: str) -> None:
    show(browser, address)
    assert browser.execute_script("return window.hacked") is None
    headers = [cell.get_attribute("title") for cell in browser.find_elements(By.CSS_SELECTOR, ".confusion thead th")]
    assert "<script>window.hacked = 1</script>" in headers
    assert "49" not in headers


def test_the_matrix_can_be_switched_by_mouse_and_keyboard(browser: Any, address: str) -> None:
    show(browser, address)

    def visible() -> list[str]:
        views = browser.find_elements(By.CSS_SELECTOR, "[data-view]")
        return [view.get_attribute("data-view") for view in views if view.is_displayed()]

    assert visible() == ["confusion:difference"]
    before, after, _ = browser.find_elements(By.CSS_SELECTOR, "[data-toggle] button")
    before.click()
    assert visible() == ["confusion:before"]
    assert before.get_attribute("aria-pressed") == "true"
    after.send_keys(Keys.ENTER)
    assert visible() == ["confusion:after"]
    assert before.get_attribute("aria-pressed") == "false"


def test_the_gallery_can_be_unfolded_and_narrowed_to_the_fault(browser: Any, address: str) -> None:
    show(browser, address)

    def shown_pictures(gallery: str) -> int:
        return sum(card.is_displayed() for card in browser.find_elements(By.CSS_SELECTOR, f"#{gallery} > li"))

    cards = len(browser.find_elements(By.CSS_SELECTOR, "#fixed > li"))
    on_target = len(browser.find_elements(By.CSS_SELECTOR, "#fixed > li[data-target]"))
    assert shown_pictures("fixed") == 18 < cards
    browser.find_element(By.CSS_SELECTOR, "[data-more=fixed]").click()
    assert shown_pictures("fixed") == cards
    box = browser.find_element(By.CSS_SELECTOR, "[data-only-target=fixed]")
    box.send_keys(Keys.SPACE)
    assert shown_pictures("fixed") == on_target < cards
    box.click()
    assert shown_pictures("fixed") == cards


def test_light_and_dark_follow_the_system_and_the_button(browser: Any, address: str) -> None:
    def ground() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    show(browser, address)
    light = ground()
    show(browser, address, dark=True)
    dark = ground()
    assert light != dark
    browser.find_element(By.ID, "theme").click()
    assert ground() == light


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(browser: Any, address: str, dark: bool) -> None:
    show(browser, address, dark=dark)
    browser.execute_script("document.querySelectorAll('.away').forEach((e) => e.classList.remove('away'))")
    ratio, element = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, element


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_runs_over_the_edge(browser: Any, address: str, width: int) -> None:
    show(browser, address, width=width)
    inside = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert inside[0] <= inside[1] == width


def test_a_phone_sees_that_the_matrix_goes_on(browser: Any, address: str) -> None:
    def marks() -> list[bool]:
        view = "document.querySelector('.scroll[data-view=\"confusion:difference\"]')"
        return [
            browser.execute_script(f"return {view}.classList.contains('{name}')") for name in ("wide", "more-right")
        ]

    show(browser, address, width=390, height=844)
    assert marks() == [True, True]
    browser.execute_script("for (const one of document.querySelectorAll('.scroll')) one.scrollLeft = 10000")
    WebDriverWait(browser, 5).until(lambda _: marks() == [True, False])
    show(browser, address, width=1200)
    assert marks() == [False, False]


def test_the_slider_walks_along_the_front(browser: Any, front_address: str, front_page: dict[str, Any]) -> None:
    show(browser, front_address)
    points = front_page["front"]["points"]
    slider = browser.find_element(By.ID, "front-slider")
    slider.send_keys(Keys.HOME)
    for number, point in enumerate(points):
        told = browser.find_element(By.ID, "front-told").text
        assert told.startswith(f"Point {number + 1} of {len(points)}, {describe_searcher(point['made_by'])}")
        assert f"{point['held_out']['repaired']} of {point['held_out']['negatives']} repaired" in told
        assert str(slider.get_attribute("aria-valuetext")).replace("\N{NO-BREAK SPACE}", " ") == told
        shown = [block for block in browser.find_elements(By.CSS_SELECTOR, "[data-front]") if block.is_displayed()]
        assert [block.get_attribute("data-front") for block in shown] == [str(number)]
        for kind in ("fixed", "broken"):
            cards = shown[0].find_elements(By.CSS_SELECTOR, f"[data-kind={kind}] > li")
            expected = 0 if point["chosen"] else min(18, point[f"{kind}_total"])  # those of the patch are shown below
            assert len(cards) == expected
            names = {card.find_element(By.CLASS_NAME, "mono").text for card in cards}
            assert names <= {f"digits/<i>{row}</i>.png" for row in point[kind]}
        slider.send_keys(Keys.ARROW_RIGHT)
    browser.find_element(By.ID, "front-back").click()
    assert browser.find_element(By.ID, "front-told").text.startswith(f"Point {len(points) - 1} of ")
    assert browser.execute_script("return window.hacked") is None
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_front_has_enough_contrast_and_fits_a_phone(browser: Any, front_address: str, dark: bool) -> None:
    show(browser, front_address, width=360, dark=dark)
    browser.execute_script("document.getElementById('front-table').open = true")
    ratio, element = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, element
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


def test_the_front_is_a_table_without_script(browser: Any, front_address: str, front_page: dict[str, Any]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, front_address)
        assert not browser.find_element(By.ID, "front-walk").is_displayed()
        rows = browser.find_elements(By.CSS_SELECTOR, "#front-table tbody tr")
        assert [row.is_displayed() for row in rows] == [True] * len(front_page["front"]["points"])
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.fixture(scope="module")
def comparison_address(with_front: RepairResult, tmp_path_factory: pytest.TempPathFactory) -> str:
    failed = Contender("<b>other</b>", "bl", None, "it could not run here", 0.1)
    comparison = Comparison((Contender("de", "bl", with_front, None, 1.5), failed), 0.02, "reference")
    folder = tmp_path_factory.mktemp("comparison")
    comparison.save(folder)
    return (folder / "compare.html").as_uri()


@pytest.mark.parametrize("dark", [False, True])
def test_a_comparison_opens_reads_and_fits_a_phone(browser: Any, comparison_address: str, dark: bool) -> None:
    show(browser, comparison_address, width=360, dark=dark)
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if url != comparison_address and not url.startswith("data:")] == []
    ratio, element = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, element
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")]
    assert [row.split("\n")[0] for row in rows] == ["de", "<b>other</b>"]
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != ground


def test_the_page_reads_without_script_and_on_paper(browser: Any, address: str, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, address)
        views = browser.find_elements(By.CSS_SELECTOR, "[data-view]")
        assert [view.is_displayed() for view in views] == [True, True, True]
        assert not browser.find_element(By.CSS_SELECTOR, "[data-toggle]").is_displayed()
        printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
