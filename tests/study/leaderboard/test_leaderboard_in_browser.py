"""The published leaderboard in a browser: it opens from a file, and its columns sort by their numbers."""

from typing import Any

from headless_browser import IN_BROWSER, OpenedPage
from places import ROOT

pytestmark = IN_BROWSER

PAGE = ROOT / "docs" / "results" / "index.html"


def test_columns_sort_both_ways_with_empty_cells_last(browser: Any) -> None:
    with OpenedPage(browser, PAGE, 1280) as opened:
        table = opened.page.locator("table").filter(has_text="newly solved").first  # one a setting
        heads = table.locator("th button").all_inner_texts()

        def shown(head: str) -> list[str]:
            at = heads.index(head)
            table.locator("th button").nth(at).click()
            return table.locator(f"tbody td:nth-child({at + 1})").all_inner_texts()

        for head in ("newly solved", "seeds", "tokens"):
            for descending in (True, False):
                *values, last = shown(head)
                numbers = [float(value.split()[0]) for value in values]
                assert numbers == sorted(numbers, reverse=descending)
                assert last == ""
        names = shown("arm")
        assert names == sorted(names, reverse=True)
        assert opened.complaints == []
        assert all(url.startswith("file:") for url in opened.asked)
