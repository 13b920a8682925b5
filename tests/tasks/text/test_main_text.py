"""Of a web page its article is used, the same whenever it is asked."""

import pytest

from command_line import extras
from tasks.text.main_text import main_text

ARTICLE = "<h1>Povestea</h1><p>Ana are mere și pere în grădină.</p><p>Ion are nuci.</p>"
PAGE = (
    "<html><head><title>T</title><script>var x = 1</script></head><body>"
    "<nav><ul><li><a href='/'>Acasă</a><li><a href='/c'>Contact</a></ul></nav>"
    f"<article>{ARTICLE}</article><footer>Copyright <a href='x'>Termeni</a></footer></body></html>"
)


def test_navigation_scripts_and_footers_are_left_out():
    expected = "Povestea\nAna are mere și pere în grădină.\nIon are nuci."
    assert main_text(PAGE) == expected
    assert main_text(PAGE) == expected, "nothing is remembered"


@pytest.mark.parametrize(
    "page",
    ["", "<", "<html></html>", "\0<p>a</p>", "<div>" * 3_000, "{}" * 10_000],
)
def test_a_page_without_a_main_text_has_none(page):
    assert main_text(page) is None


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"trafilatura is not installed.*setup\.sh --clean"):
        main_text(PAGE)
