"""Pages opened in a headless Chromium, with all that they complain of and ask for.

The fixture ``browser`` is in ``tests/conftest.py``; tests that use it are marked with `IN_BROWSER`.
"""

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def launched_browser() -> Iterator[Any]:
    """Runs a headless Chromium; yields playwright's ``Browser``."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield made
        made.close()


class OpenedPage:
    """A page in a window of its own.

    Args:
        browser: playwright's.
        address: a file, or a URL.
        width: of the window, pixels.
        scheme: light | dark.
        ready: selector of what is waited for; None for the page's load event only.

    Attributes:
        page: playwright's ``Page``.
        complaints: errors and warnings of the console, and requests that failed.
        asked: URLs of all requests.
    """

    def __init__(
        self, browser: Any, address: Path | str, width: int = 1280, scheme: str = "light", ready: str | None = None
    ) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address.as_uri() if isinstance(address, Path) else address, wait_until="load")
        if ready is not None:
            self.page.wait_for_selector(ready)

    def __enter__(self) -> "OpenedPage":
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    def picture(self, selector: str) -> Image.Image:
        """Returns a screenshot of the first such element, in grey."""
        return Image.open(io.BytesIO(self.page.locator(selector).first.screenshot())).convert("L")
