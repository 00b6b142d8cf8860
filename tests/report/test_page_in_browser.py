"""The page in a real browser: nothing blank, nothing loaded, nothing run that the model wrote."""

from pathlib import Path
from typing import Any

import pytest
from headless_browser import IN_BROWSER, OpenedPage
from made_run import HOSTILE, METHODS, description, write_run
from PIL import ImageStat

from ngrpo.report.page import write_page
from ngrpo.report.run_store import RunStore

pytestmark = IN_BROWSER
CHARTS = [
    "learning", "pass-at-k", "pass-over-training", "problems", "mixed-share", "cosine", "anchor-weight",
    "reward-by-mixing", "entropy", "schedule", "learned", "clip", "ratio", "mismatch", "grad-norm", "length", "timing",
]  # fmt: skip
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(write_run(tmp_path_factory.mktemp("run")))


def opened_report(browser: Any, report: Path, width: int = 1280, scheme: str = "light") -> OpenedPage:
    """Opens a report and waits for its last chart."""
    return OpenedPage(browser, report, width, scheme, ready="#timing canvas")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_nothing_is_blank_nor_complained_of_nor_loaded(browser: Any, report: Path, width: int, scheme: str):
    with opened_report(browser, report, width, scheme) as opened:
        for chart in CHARTS:
            picture = opened.picture(f"#{chart}")
            assert ImageStat.Stat(picture).stddev[0] > 3, chart
            # Between the axes too: on a flat line of one colour there are its edges.
            w, h = picture.size
            assert len(set(picture.crop((w // 4, h // 8, 3 * w // 4, 5 * h // 8)).tobytes())) > 2, chart
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
        assert contrast(opened, "var(--ink)", "var(--notice)") >= 4.5
        for number in range(1, 9):  # 3 is what WCAG asks of graphics
            assert contrast(opened, f"var(--series-{number})", "var(--card)") >= 3, number


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
        # Ours and no other: two of data, the plotting library, charts, browser and the look for newer pages.
        assert opened.page.locator("script").count() == 6
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


def legend(opened: OpenedPage, chart: str) -> dict[str, str]:
    """Returns the value that stands at each name in the legend of a chart."""
    rows = opened.page.locator(f"#{chart} .u-series:not(.bound)")
    return {row.locator(".u-label").inner_text(): row.locator(".u-value").inner_text() for row in rows.all()}


def test_legends_name_the_values_at_the_pointer_and_else_the_last(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        assert legend(opened, "learning") == {
            "iterations": "12", "reward, training": "0.917", "Mean@1, held out": "0.8",
        }  # fmt: skip
        plot = opened.page.locator("#learning .u-over")
        plot.scroll_into_view_if_needed()
        width = plot.bounding_box()["width"]
        plot.hover(position={"x": width / 12 * 4, "y": 40})
        found = legend(opened, "learning")
        assert found["iterations"] == "4"
        assert found["reward, training"] == "0.25"
        assert found["Mean@1, held out"] == "0.55"  # the nearest evaluation, at 6
        assert legend(opened, "entropy")["iterations"] == "4"  # charts over iterations are read together
        opened.page.mouse.move(1, 1)
        assert legend(opened, "learning")["iterations"] == "12"
        assert opened.complaints == []


def test_charts_are_read_with_the_keyboard(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        page, said = opened.page, opened.page.locator("#said")
        page.locator("#learning").focus()
        page.keyboard.press("Home")
        assert said.inner_text() == "iterations 0: reward, training none, Mean@1, held out 0.3"
        page.keyboard.press("ArrowRight")
        assert said.inner_text() == "iterations 1: reward, training 0, Mean@1, held out none"
        page.keyboard.press("End")
        assert "iterations 12: reward, training 0.9167" in said.inner_text()
        page.locator("#problems").focus()
        page.keyboard.press("End")
        assert said.inner_text() == "iterations 12: 3 problems, mean 67 %"
        page.locator("#learning .u-series th").nth(1).focus()
        page.keyboard.press("Enter")
        assert page.locator("#learning .u-series.u-off").count() == 1
        assert opened.complaints == []


def test_a_grid_tells_the_problem_under_the_pointer(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        plot = opened.page.locator("#problems .u-over")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        plot.hover(position={"x": box["width"] * 5 / 6, "y": box["height"] / 2})
        assert opened.page.locator("#problems .readout").inner_text() == "problem 1, iterations 12: 100 %"


def test_it_opens_in_two_seconds(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        loaded = "performance.timing.loadEventEnd - performance.timing.navigationStart"
        assert min(opened.page.evaluate(loaded), *(reloaded(opened, loaded) for _ in range(2))) < 2000


def reloaded(opened: OpenedPage, expression: str) -> float:
    opened.page.reload(wait_until="load")
    return float(opened.page.evaluate(expression))


def test_paper_is_white(browser: Any, report: Path):
    with opened_report(browser, report, scheme="dark") as opened:
        opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert opened.picture("#entropy").getpixel((2, 2)) > 200
        opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert opened.picture("#entropy").getpixel((2, 2)) < 60
        assert opened.page.pdf(format="A4")[:5] == b"%PDF-"
        assert opened.complaints == []


def test_an_open_page_offers_to_load_a_newer_one(browser: Any, tmp_path: Path):
    run = write_run(tmp_path, planned=40)
    with opened_report(browser, write_page(run)) as opened:
        look = "document.dispatchEvent(new Event('visibilitychange'))"  # else every few seconds
        offer = opened.page.locator("#newer")
        opened.page.evaluate(look)
        opened.page.wait_for_timeout(300)
        assert not offer.is_visible()
        first = opened.page.locator("html").get_attribute("data-version")
        write_page(run)
        opened.page.evaluate(look)
        offer.wait_for(state="visible")
        opened.page.get_by_role("button", name="Reload").click()
        opened.page.wait_for_selector("#timing canvas")
        assert opened.page.locator("html").get_attribute("data-version") != first
        assert not offer.is_visible()
        assert opened.complaints == []


def test_a_page_of_a_run_that_has_ended_looks_for_nothing(browser: Any, report: Path):
    with opened_report(browser, report) as opened:
        opened.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        opened.page.wait_for_timeout(300)
        assert opened.asked == [report.as_uri()]


def test_a_run_that_has_just_begun(browser: Any, tmp_path: Path):
    RunStore(tmp_path).describe(description())
    with OpenedPage(browser, write_page(tmp_path)) as opened:
        assert "No iteration is finished yet." in opened.page.locator("main").inner_text()
        assert opened.complaints == []
