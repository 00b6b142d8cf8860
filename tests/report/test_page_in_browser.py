"""The page in a real browser: nothing blank, nothing loaded, nothing run that the model wrote."""

from pathlib import Path
from typing import Any

import pytest
from headless_browser import IN_BROWSER, OpenedPage
from made_run import HOSTILE, METHODS, write_run
from PIL import ImageStat

from ngrpo.report.page import write_page

pytestmark = IN_BROWSER
CHARTS = ["learning", "pass-at-k", "problems", "length", "entropy", "timing"]
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(write_run(tmp_path_factory.mktemp("run")))


def opened_report(browser: Any, report: Path, width: int = 1280, scheme: str = "light") -> OpenedPage:
    """Opens a report and waits for its last chart."""
    return OpenedPage(browser, report, width, scheme, ready="#timing .main-svg")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_nothing_is_blank_nor_complained_of_nor_loaded(browser: Any, report: Path, width: int, scheme: str):
    with opened_report(browser, report, width, scheme) as opened:
        for chart in CHARTS:
            picture = opened.picture(f"#{chart}")
            assert ImageStat.Stat(picture).stddev[0] > 3, chart
            # The middle too, where there are no labels of axes.
            w, h = picture.size
            assert len(set(picture.crop((w // 4, h // 4, 3 * w // 4, 3 * h // 4)).tobytes())) > 3, chart
        ground = opened.picture("#learning").getpixel((2, 2))
        assert (ground < 60) if scheme == "dark" else (ground > 200)
        assert opened.complaints == []
        assert opened.asked == [report.as_uri()]


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_at_the_side(browser: Any, report: Path, width: int):
    with opened_report(browser, report, width) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        right_edges = (
            "[...document.querySelectorAll('section, article, form, select')].map(n => n.getBoundingClientRect().right)"
        )
        assert max(opened.page.evaluate(right_edges)) <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Any, report: Path, scheme: str):
    """WCAG's 4.5 for ink, quiet text and the strongest tint."""
    with opened_report(browser, report, scheme=scheme) as opened:
        pairs = [("--ink", "--card"), ("--quiet", "--card"), ("--ink", "--page"), ("--accent", "--page")]
        for ink, ground in pairs:
            assert contrast(opened, f"var({ink})", f"var({ground})") >= 4.5, (ink, ground)
        assert contrast(opened, "var(--ink)", "color-mix(in srgb, var(--heat) 60%, var(--card))") >= 4.5


def contrast(opened: OpenedPage, one: str, other: str) -> float:
    high, low = sorted((luminance(opened, one), luminance(opened, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(opened: OpenedPage, colour: str) -> float:
    channels = opened.page.evaluate(
        """colour => {
            const probe = document.body.appendChild(document.createElement("div"));
            probe.style.backgroundColor = colour;
            const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
            const context = canvas.getContext("2d");
            context.fillStyle = getComputedStyle(probe).backgroundColor;
            context.fillRect(0, 0, 1, 1);
            probe.remove();
            return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        colour,
    )
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_the_model_wrote_is_shown_and_inert(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        assert opened.page.evaluate("window.pwned") is None
        text = opened.page.locator("#groups").inner_text()
        for wrote in (*HOSTILE[:4], "\u241b]0;pwned\u2407\u241b[31m", "<U+202E>detrevni"):
            assert wrote in text
        assert opened.page.locator("h1").inner_text().startswith(f"algo={METHODS['algo']}")
        assert opened.page.locator("main img").count() == 0
        # Ours and no other: two of data, plotly, charts and browser.
        assert opened.page.locator("script").count() == 5
        assert opened.complaints == []
        opened.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.pwned = 5'}))"
        )
        assert opened.page.evaluate("window.pwned") is None
        assert "Content Security Policy" in " ".join(opened.complaints)


def test_hovering_shows_neighbours_and_weights(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        opened.page.locator(".token.mixed").first.hover()
        shown = opened.page.locator("#detail")
        assert shown.locator(".weight span").all_inner_texts() == ["0.700", "0.200", "0.100"]
        names = [name.strip() for name in shown.locator(".weight code").all_inner_texts()]
        assert names == ["seven", HOSTILE[0], "\u241b]0;pwned\u2407\u241b[31m"]
        assert "token 3 of 5, log-prob -1.00 nats (36.8 %), entropy 1.50 nats" in shown.inner_text()
        opened.page.mouse.move(0, 0)
        assert not shown.is_visible()
        assert opened.complaints == []


def test_a_tap_shows_the_same_inside_a_phones_screen(browser: Any, report: Path):
    with opened_report(browser, report, width=390) as opened:
        opened.page.locator(".token.mixed").first.click()
        box = opened.page.locator("#detail").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert "0.700" in opened.page.locator("#detail").inner_text()


def test_the_keyboard_reaches_every_token(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        page, detail = opened.page, opened.page.locator("#detail")
        page.locator("#mixing").focus()
        page.keyboard.press("Tab")
        assert "token 3 of 5" in detail.inner_text()
        assert page.evaluate("document.activeElement.className") == "token mixed shown"
        for key, place in (("ArrowLeft", 2), ("Home", 1), ("m", 3), ("ArrowRight", 4), ("End", 5), ("ArrowRight", 5)):
            page.keyboard.press(key)
            assert f"token {place} of 5" in detail.inner_text(), key
        page.keyboard.press("Escape")
        assert not detail.is_visible()
        page.keyboard.press("Tab")  # one stop a response
        assert f"token 1 of {len(HOSTILE)}" in detail.inner_text()


def test_tokens_are_tinted_by_log_prob_or_entropy(browser: Any, report: Path):
    """The first response has log-probs 0, -0.5 ... of 5 nats for the full tint of 60 %, entropies 3, 2.25 ... of 3."""
    with opened_report(browser, report) as opened:
        page = opened.page
        tints = "tokens => tokens.map(token => token.style.getPropertyValue('--tint'))"
        first = page.locator("#groups .response").first.locator(".token")
        ground = "getComputedStyle(document.querySelector('.token')).backgroundColor"
        legend = page.locator(".tints")
        assert first.evaluate_all(tints) == ["0.0%", "6.0%", "12.0%", "18.0%", "24.0%"]
        assert "5+ nats" in legend.inner_text()
        assert "log-prob under the policy that wrote the token" in legend.inner_text()
        untinted = page.evaluate(ground)
        page.locator("#tint").focus()
        page.keyboard.press("ArrowDown")
        assert page.locator("#tint").input_value() == "entropies"
        assert first.evaluate_all(tints) == ["60.0%", "45.0%", "30.0%", "15.0%", "0.0%"]
        assert "3+ nats" in legend.inner_text()
        assert "entropy of the policy" in legend.inner_text()
        assert page.evaluate(ground) != untinted
        page.locator("#verdict").select_option("wrong")  # what is shown anew is tinted alike
        assert first.evaluate_all(tints)[0] == "60.0%"
        assert opened.complaints == []


def test_filters(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        page, count = opened.page, opened.page.locator("#count")
        assert count.inner_text() == "4 of 4 rollouts"
        page.locator("#verdict").select_option("wrong")
        assert count.inner_text() == "2 of 4 rollouts"
        page.locator("#verdict").select_option("all")
        page.locator("#least").fill("0.5")
        assert count.inner_text() == "1 of 4 rollouts"
        page.locator("#least").fill("")
        page.locator("#most").fill("0")
        assert count.inner_text() == "2 of 4 rollouts"
        page.locator("#mixing").select_option("some")
        assert count.inner_text() == "1 of 4 rollouts"
        assert page.locator(".response").count() == 1
        assert page.locator("#iteration option").all_inner_texts() == ["1", "12"]
        page.locator("#iteration").select_option("0")
        assert count.inner_text() == "1 of 4 rollouts"


def test_charts_follow_a_change_of_the_theme(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        light = opened.picture("#entropy").getpixel((2, 2))
        opened.page.emulate_media(color_scheme="dark")
        opened.page.wait_for_timeout(300)
        assert opened.picture("#entropy").getpixel((2, 2)) < 60 < light
