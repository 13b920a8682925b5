"""Languages are found by code, tag and name; an unknown one gets the nearest."""

import pytest

from fakes.refuses import refuses
from tasks.languages import table


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *[("ces_Latn", "ces_Latn"), ("CES_latn", "ces_Latn"), ("ces", "ces_Latn")],
        *[("cs", "ces_Latn"), ("czech", "ces_Latn"), (" Czech ", "ces_Latn")],
        *[("zh", "cmn_Hani"), ("ar", "arb_Arab"), ("et", "ekk_Latn"), ("lv", "lvs_Latn")],
        *[("greek", "ell_Grek"), ("norwegian", "nob_Latn"), ("chinese", "cmn_Hani")],
        *[("romanian", "ron_Latn"), ("ron_Cyrl", "ron_Cyrl"), ("serbian", "srp_Cyrl")],
        *[("čeština", "ces_Latn"), ("Українська", "ukr_Cyrl"), ("日本語", "jpn_Jpan")],
    ],
)
def test_a_language_has_several_names(text, code):
    assert table.find(text).code == code


@pytest.mark.parametrize(
    ("text", "similar"), [("ces_Latin", "ces_Latn"), ("romainan", "ron_Latn (Romanian)"), ("", "")]
)
def test_an_unknown_language_gets_the_nearest(text, similar):
    with refuses("language", text) as refusal:
        table.find(text)
    assert similar in refusal.value.why
    assert similar or "nearest" not in refusal.value.why


def test_english_is_another_corpus():
    with refuses("language"):
        table.find("English")


def test_the_figures_are_those_of_the_authors():
    romanian = table.find("ron_Latn")
    assert (romanian.documents, romanian.words) == (58_303_671, 35_017_893_659)
    assert round(romanian.parquet_bytes / 2**30) == 85
    every = table.languages()
    assert len(every) == len({one.code for one in every}) == 1_913
    assert sum(one.text_bytes > 1e9 for one in every) == 104
    assert all(one.documents > 0 and one.text_bytes > 0 for one in every)


def test_a_corpus_may_have_codes_of_its_own():
    others = {"nb": "no", "fil": "tl"}
    asked = ["norwegian", "Filipino", "no", "TL", "czech", "ceb_Latn"]
    found = [table.code_of(text, others) for text in asked]
    assert found == ["no", "tl", "no", "tl", "cs", "ceb"]
    with refuses("language", "no"):
        table.code_of("no", {})
