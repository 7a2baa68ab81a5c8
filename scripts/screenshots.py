"""Make the two pictures of the page in docs/pictures from the demo: desktop, and a phone in the dark.

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


def photograph(browser: Any, page: str, path: Path, *, width: int, height: int, scheme: str) -> None:
    """Save the top of a page as a browser of this size shows it."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page)
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(taken["data"]))
    print(path)


if __name__ == "__main__":
    main()
