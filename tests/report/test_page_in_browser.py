"""The page in a real browser: its text, keys, pointer and layout."""

import re

import pytest

from common.new_files import replace_file
from fakes import fake_runs
from fakes.browser import CHROMIUM, Browser
from report import __main__ as entry_point
from report import page
from report.run_data import Folder, load

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH")


@pytest.fixture(scope="module")
def browser():
    with Browser() as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Paths of pages of one run, two runs and a broken one, as addresses."""
    folder = tmp_path_factory.mktemp("pages")
    tiny, other = (
        fake_runs.complete(folder / "tiny"),
        fake_runs.complete(folder / "other", loss=9.0),
    )
    broken = folder / "broken"
    fake_runs.event_file(broken / "train/events.out.tfevents.1", [("loss", 1, 5.0)], b"x" * 50)
    made = {}
    odd = fake_runs.run(
        folder / "odd", {}, [{"event": "start", "step": 0}, {"event": "constructor", "seconds": 9}]
    )
    shown = {"one": [tiny], "two": [tiny, other], "broken": [broken], "odd": [odd]}
    for name, runs in shown.items():
        path = folder / f"{name}.html"
        entry_point.main([*map(str, runs), "-o", str(path)])
        made[name] = path.as_uri()
    return made


@pytest.fixture
def opened(browser, pages):
    """Opens a page; whatever happens, there are no console errors and no network requests."""

    def open_page(name, **settings):
        browser.run("try { sessionStorage.clear() } catch {}")
        browser.open(pages[name], **settings)
        return browser

    browser.complaints.clear(), browser.requests.clear()
    yield open_page
    assert browser.complaints == []
    assert {url.split(":")[0] for url in browser.requests} <= {"file", "data", "about"}


def text(browser, selector="body"):
    return re.sub(r"\s+", " ", browser.run(f"document.querySelector({selector!r}).innerText"))


def legend(browser, chart=0):
    return text(browser, f".charts figure:nth-of-type({chart + 1}) .legend")


def test_a_run_has_all_sections(opened):
    browser = opened("one")
    said = text(browser)
    for part in (
        *("Loss, nats a token", "Accuracy", "Learning rate", "Tokens per second", "MFU"),
        *("Waiting for data", "Timeline", "Sentences filled in", "Metrics of tasks", "Data seen"),
        *("Configuration", "1,000 of 1,000 (100 %)", "4 × TPU v4", "1 restart", "2 more metrics"),
        "1 restart, 1 stall, 45 s in all",
    ):
        assert part in said, part
    assert legend(browser) == "training 2.727 validation, my_task 2.977 expected 2.5"
    assert browser.run("document.title") == "tiny: training report"
    assert "TRAIN_STEPS 500 1000" in text(browser, "#configuration")
    assert "my_corpus 10,000" in text(browser, "#data-seen")
    assert "500 0.25 1,000 0.75" in text(browser, "#metrics-of-tasks")
    assert "1,000 Merg la școală <b> azi." in text(browser, "#sentences-filled-in")


def test_the_pointer_shows_values(opened):
    browser = opened("one")
    drawing = "document.querySelector('.charts svg').getBoundingClientRect()"
    box = browser.run(f"(({{x, y, width, height}}) => [x, y, width, height])({drawing})")
    browser.point(box[0] + 54, box[1] + box[3] / 2)
    assert text(browser, ".charts figcaption").endswith("at step 100")
    assert legend(browser).startswith("training 6 validation, my_task 6.25")
    browser.point(1, 1)
    assert text(browser, ".charts figcaption").endswith("last")


def test_keys_move_along_a_curve_and_are_spoken(opened):
    browser = opened("one")
    browser.run("document.querySelector('.charts figure').focus()")
    for key, step in (("Home", 100), ("ArrowRight", 200), ("End", 1000), ("ArrowLeft", 900)):
        browser.press(key)
        assert text(browser, ".charts figcaption").endswith(f"at step {step:,}")
    spoken = browser.run("document.querySelector('.charts figure [aria-live]').textContent")
    assert spoken.startswith("step 900: training 2.8, validation, my_task 3.05")
    browser.press("Escape")
    assert text(browser, ".charts figcaption").endswith("last")
    browser.run("document.querySelectorAll('.charts figure')[1].focus()")
    browser.press("Home")  # where validation has no value yet
    assert legend(browser, 1) == "training 5.00 % validation, my_task –"


def test_keys_move_along_the_timeline(opened):
    browser = opened("one")
    browser.run("document.querySelector('#timeline figure').focus()")
    browser.press("ArrowRight")
    assert "training" in text(browser, "#timeline figure p")
    browser.press("End")
    assert text(browser, "#timeline figure p").startswith("end, at step 1,000")
    browser.run("document.querySelector('#timeline details').open = true")
    assert "stall" in text(browser, "#timeline details")
    assert browser.run("document.querySelectorAll('#timeline rect').length") == 11


def choose(browser, control, value):
    kind = "checked" if isinstance(value, bool) else "value"
    value = str(value).lower() if isinstance(value, bool) else repr(value)
    browser.run(
        f"(() => {{ const c = document.getElementById('{control}'); c.{kind} = {value};"
        " c.dispatchEvent(new Event('input')); })()"
    )


def test_curves_over_hours_smoothed_and_logarithmic(opened):
    browser = opened("one")
    paths = "document.querySelectorAll('#main > .charts figure:first-child path').length"
    before = browser.run("document.querySelector('.charts path').getAttribute('d')")
    assert browser.run(paths) == 3
    choose(browser, "smooth", "0.9")
    assert browser.run(paths) == 6  # each beside its raw curve
    choose(browser, "smooth", "0")
    choose(browser, "log", True)
    assert browser.run("document.querySelector('.charts path').getAttribute('d')") != before
    choose(browser, "log", False)
    choose(browser, "x", "hours")
    browser.run("document.querySelector('.charts figure').focus()")
    browser.press("End")
    assert text(browser, ".charts figcaption").endswith("at 0.2778 hours")


def test_runs_are_drawn_over_each_other_and_can_be_hidden(opened):
    browser = opened("two")
    assert "tiny, training 2.727" in legend(browser)
    assert "other, training 2.818" in legend(browser)
    browser.run("document.querySelectorAll('#runs input')[1].click()")
    assert "other" not in legend(browser)
    # The old document remains for a moment after the reload starts: it must not count as ready.
    browser.run("delete document.documentElement.dataset.ready; location.reload()")
    browser.wait("document.documentElement?.dataset.ready === 'true'")
    browser.wait("document.querySelector('.charts .legend')?.innerText")
    assert "other" not in legend(browser)  # the choice is kept
    assert "tiny, training 2.727" in legend(browser)


def luminance(browser):
    color = browser.run("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


def test_the_theme_is_the_system_s_or_the_chosen_one(opened):
    browser = opened("one", dark=True)
    assert luminance(browser) < 60
    choose(browser, "look", "light")
    assert luminance(browser) > 200
    browser = opened("one")
    assert luminance(browser) > 200
    choose(browser, "look", "dark")
    assert luminance(browser) < 60


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("name", ["two", "broken"])
def test_it_fits_a_phone(opened, width, name):
    browser = opened(name, width=width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelector('.charts svg').clientWidth") > width * 0.3


def test_one_point_has_one_mark_and_a_broken_file_is_named(opened):
    browser = opened("broken")  # its only loss is that of step 1
    marks = 'document.querySelector(".charts figure").querySelectorAll("text.axis")'
    below = f'[...{marks}].filter((e) => e.getAttribute("text-anchor") === "middle")'
    assert browser.run(f"{below}.map((e) => e.textContent)") == ["1"]
    assert "50 of" in text(browser, "#could-not-be-read")
    assert legend(browser) == "training 5"


def test_an_open_page_follows_its_run(browser, tmp_path):
    folder, path = tmp_path / "grows", tmp_path / "page.html"
    fake_runs.run(folder, {"train": {"loss": [(1, 5.0)]}})
    html = lambda: page.html([load(Folder(str(folder)))], 0.0, reload=0.2)
    show = lambda: replace_file(str(path), html().encode())
    show()
    browser.open(path.as_uri())
    assert legend(browser) == "training 5"
    choose(browser, "log", True)
    fake_runs.run(folder, {"train": {"loss": [(1, 5.0), (2, 4.0)]}})
    show()
    browser.wait("document.querySelector('.charts .legend')?.innerText.includes('4')")
    assert browser.run("document.getElementById('log').checked")  # as it was


def test_an_event_of_any_name_is_drawn(opened):
    browser = opened("odd")
    assert browser.run("document.querySelectorAll('figure rect').length") == 2
    assert "constructor" in browser.run("document.querySelector('figure svg').textContent")
