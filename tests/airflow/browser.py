"""A person's browser: the machine's Chromium, without the internet, and a camera.

Playwright's own browsers are not used, so that nothing is downloaded: the tests take the distribution's.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
MISSING = "no `chromium` on the PATH, so nobody has looked at the UI; allowed: install Debian's package chromium"

VIEW = ViewportSize(width=1280, height=800)
LOCAL = "127.0.0.1"
PATIENCE = 60_000
"""Milliseconds for what a page shows by itself; two busy cores need a few thousand."""


@dataclass
class Visitor:
    """A browser's page, the hosts that it asked for something, and where its pictures go."""

    page: Page
    pictures: Path
    hosts: set[str] = field(default_factory=set)

    def asked(self, url: str) -> None:
        """Remember the host of a request; `data:` and `blob:` ask nobody."""
        if host := urlsplit(url).hostname:
            self.hosts.add(host)

    def picture(self, name: str) -> None:
        """Take a picture of what is in view, once fonts and animations have come to rest."""
        self.page.screenshot(path=self.pictures / f"{name}.png", animations="disabled")


@contextmanager
def visiting(url: str, pictures: Path) -> Iterator[Visitor]:
    """A fresh browser without the internet that knows `url` as its home: English, UTC, light, 1280 × 800."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            # As root, and in a container, Chromium has no sandbox. No name is resolved: there is no internet.
            args=["--no-sandbox", f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {LOCAL}"],
        )
        context = browser.new_context(
            base_url=url,
            viewport=VIEW,
            locale="en-GB",
            timezone_id="UTC",
            color_scheme="light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE)
        # What a test expects of a page is waited for by a setting of its own, of five seconds.
        expect.set_options(timeout=PATIENCE)
        visitor = Visitor(context.new_page(), pictures)
        context.on("request", lambda request: visitor.asked(request.url))
        yield visitor
        browser.close()
