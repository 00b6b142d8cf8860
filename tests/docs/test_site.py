"""The documentation site: built without a warning, whole, and readable from a file in a browser."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headless_browser import IN_BROWSER, OpenedPage
from places import ROOT
from reference_pages.packages import packages

PAGES = ["index", "papers", "methods", "configuration", "architecture", "scaling", "api/index", "api/ngrpo.exploration"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_nothing_of_the_site_comes_from_a_network(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text()
        assert re.findall(r'<(?:script|img|iframe)[^>]* src="?https?:', text) == []
        assert re.findall(r'<link[^>]* href="?https?:[^>]*', text) == []


@pytest.mark.parametrize("old", ["getting_started", "datasets", "verifier", "permissions", "resuming"])
def test_a_page_under_its_earlier_name_leads_to_the_present_one(site: Path, old: str):
    (target,) = re.findall(r'http-equiv="refresh" content="0; url=([^"]+)"', (site / f"{old}.html").read_text())
    assert (site / target).is_file()


def test_every_module_is_documented(site: Path):
    for package in packages():
        text = (site / f"api/{package.name}.html").read_text()
        assert all(f'id="{module.name}"' in text for module in package.modules)


class TestInABrowser:
    pytestmark = IN_BROWSER

    @pytest.mark.parametrize("width", [1280, 390])
    @pytest.mark.parametrize("name", PAGES)
    def test_a_page_opens_without_a_complaint_and_fits(self, browser: Any, site: Path, name: str, width: int):
        with OpenedPage(browser, site / f"{name}.html", width) as opened:
            assert opened.page.locator("h1").first.is_visible()
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert opened.page.evaluate(beyond) <= 0
            blank = "[...document.images].filter(image => !image.complete || !image.naturalWidth).length"
            assert opened.page.evaluate(blank) == 0
            assert opened.complaints == []
            assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.asked)

    def test_the_search_works_without_a_server(self, browser: Any, site: Path):
        with OpenedPage(browser, site / "api/index.html", 1280) as opened:
            opened.page.click("input.md-search__input")
            opened.page.keyboard.type("virtual best")
            opened.page.wait_for_selector(".md-search-result__link", state="attached", timeout=60_000)
            links = [link.get_attribute("href") for link in opened.page.locator(".md-search-result__link").all()]
            assert any("ngrpo.algo.html" in link for link in links)
            assert opened.complaints == []
