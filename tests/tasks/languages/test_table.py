"""Languages are found by code, tag and name; an unknown one gets the nearest."""

import pytest

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
    ("text", "said"),
    [
        ("ces_Latin", r"'ces_Latin': name it by a code such as .*; the nearest are .*ces_Latn"),
        ("romainan", r"ron_Latn \(Romanian\)"),
        ("", r"no language is called ''.* in English$"),
        ("English", "every language but English, which is FineWeb"),
    ],
)
def test_an_unknown_language_gets_the_nearest(text, said):
    with pytest.raises(ValueError, match=said):
        table.find(text)


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
    with pytest.raises(ValueError, match="no language is called 'no'"):
        table.code_of("no", {})
