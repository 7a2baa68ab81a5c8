"""Make the pictures in docs/pictures from the demo: its page on a desktop and on a phone in the dark, and parts of it.

Needs Debian's chromium and chromium-driver, and selenium:

    python scripts/screenshots.py
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
PARTS = {
    "how-front": "#front figure.plot",
}
"""The pictures that the page on how it works shows, by the part of the page it is cut from."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def main() -> None:
    """Run the demo and photograph its page."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "arachne", "demo", "-o", "demo", "-q"], cwd=folder, check=True)
        page = (Path(folder) / "demo" / "fix" / "report.html").as_uri()
        browser = open_browser(Path(folder) / "profile")
        try:
            photograph(browser, page, PICTURES / "report-desktop.png", width=1200, height=1500, scheme="light")
            photograph(browser, page, PICTURES / "report-phone.png", width=390, height=1688, scheme="dark")
            for name, selector in PARTS.items():
                photograph(
                    browser, page, PICTURES / f"{name}.png", width=900, height=900, scheme="light", part=selector
                )
        finally:
            browser.quit()


def open_browser(profile: Path) -> Any:
    """A headless browser with a profile of its own."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        sys.exit("error: chromium or chromedriver is not installed: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(driver))


def photograph(
    browser: Any, page: str, path: Path, *, width: int, height: int, scheme: str, part: str | None = None
) -> None:
    """Save the top of a page as a browser of this size shows it, or one element of it."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": part is not None})  # a clip has none either
    browser.get(page)
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", **clip_of(browser, part)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(taken["data"]))
    print(path)


def clip_of(browser: Any, part: str | None) -> dict[str, Any]:
    """Where an element stands on the page, with a margin."""
    if part is None:
        return {}
    browser.execute_async_script(  # pictures that are not drawn yet take no room
        "Promise.allSettled([...document.images].map((one) => one.decode())).then(arguments[0])"
    )
    place = "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
    corner = "return [r.left + scrollX, r.top + scrollY, r.width, r.height]"
    x, y, width, height = browser.execute_script(place + corner, part)
    clip = {"x": x - 8, "y": y - 8, "width": width + 16, "height": height + 16, "scale": 1}
    return {"clip": clip, "captureBeyondViewport": True}


if __name__ == "__main__":
    main()
