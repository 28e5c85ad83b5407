"""Takes a picture of a report, for example for the README.

Run from the project's root: python scripts/screenshot.py report.html docs/images/report.png
Options: --dark, --width 390 (pixels), --height 900 (0 for the whole page), --section maps
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTLED = 1000  # ms, after which videos show their first picture


def main() -> None:
    """Read the command line and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=0)
    parser.add_argument("--section", help="only this part: overview, curves, maps, films, ...")
    chosen = parser.parse_args()
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(
            viewport={"width": chosen.width, "height": chosen.height or 900},
            color_scheme="dark" if chosen.dark else "light",
        )
        page.goto(chosen.report.resolve().as_uri())
        page.wait_for_timeout(SETTLED)
        if chosen.section:
            page.locator(f"#{chosen.section}").screenshot(path=chosen.out)
        else:
            page.screenshot(path=chosen.out, full_page=not chosen.height)
        browser.close()


if __name__ == "__main__":
    main()
