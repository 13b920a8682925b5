"""The metrics of diacritics, computed by hand."""

import pytest

from tasks.jobs.diacritics.metrics import frequent, frequent_forms, metric, scores


def test_a_small_example_by_hand():
    # Words: fața|față wrong, vine right, mâine|maine wrong; letters 4 + 4 + 5.
    found = scores(["Fața vine mâine."], ["Față vine maine."], "ro")
    assert found["word_accuracy"] == pytest.approx(1 / 3)
    assert found["letter_accuracy"] == pytest.approx(11 / 13)
    # a ț a, i, â i may have diacritics; of them the last of "fața" and â are wrong.
    assert found["ambiguous_accuracy"] == pytest.approx(4 / 6)
    assert found["precision"] == pytest.approx(1 / 2)  # ț of ț ă
    assert found["recall"] == pytest.approx(1 / 2)  # ț of ț â
    assert found["f1"] == pytest.approx(1 / 2)
    assert found["sentence_accuracy"] == found["changed_letters"] == 0


def test_a_wrong_diacritic_is_neither_found_nor_precise():
    found = scores(["râu"], ["rău"], "ro")
    assert found["changed_letters"] == 0
    assert (found["precision"], found["recall"], found["word_accuracy"]) == (0, 0, 0)
    assert found["letter_accuracy"] == pytest.approx(2 / 3)


def test_a_correct_output_is_correct_in_all_metrics():
    found = scores(["Da, știu…", "Așa."], ["Da, știu...", "Așa."], "ro")
    assert found.pop("changed_letters") == 0  # vocabularies know dots one by one
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize("output", ["mâine, 5 km2", "ma\u0302ine, 5 km²"])
def test_words_are_compared_in_the_spelling_that_sentences_are(output):
    shares = scores(["mâine, 5 km²"], [output], "ro")
    assert shares.pop("changed_letters") == 0
    assert set(shares.values()) == {1.0}


@pytest.mark.parametrize(
    ("target", "output"),
    [
        ("Anul 1999 și", "Anul 2000 și"),
        ("Da, mâine.", "Da mâine!"),
        ("într-un", "într un"),
        ("și așa", "și așa 5"),
        ("și așa", "și, așa"),
    ],
)
def test_characters_outside_of_words_count_in_the_text(target, output):
    found = scores([target], [output], "ro")
    assert (found["word_accuracy"], found["f1"]) == (1, 1)  # which are of words
    assert (found["sentence_accuracy"], found["changed_letters"]) == (0, 1)


def test_blanks_are_one_like_another_and_needed():
    found = scores(["Da,  știu\n", "e o casă"], [" Da, știu", "eo casă"], "ro")
    assert (found["sentence_accuracy"], found["changed_letters"]) == (1 / 2, 1 / 2)


def test_texts_without_words_have_nothing_to_restore_but_can_be_changed():
    assert set(scores([], [], "ro").values()) == {0.0}
    assert set(scores(["", " ", "* * *"], ["", "", "* * *"], "ro").values()) == {0.0}
    found = scores(["", "1999", "și", "așa"], ["x", "2000", "și", "asa"], "ro")
    assert found["word_accuracy"] == found["sentence_accuracy"] == 1 / 2
    assert found["changed_letters"] == 2 / 4


def test_other_letters_cost_their_words_and_no_more():
    found = scores(["unu două trei"], ["unu dou trei și"], "ro")
    assert found["word_accuracy"] == pytest.approx(2 / 3)
    assert found["changed_letters"] == 1
    assert found["precision"] == 0
    assert found["recall"] == 0
    assert scores(["a b"], [""], "ro")["word_accuracy"] == 0


def test_the_most_frequent_form_wins_and_keeps_capitals():
    table = frequent_forms(["și și si Fată fata fata", "ție"], "ro")
    assert table["si"] == "și"
    assert table["fata"] == "fata"  # twice against fată once, small letters counted together
    assert table["Fata"] == "Fată"
    assert frequent(["Si Tie, ba tie 5"], table, "ro") == ["Și Ție, ba ție 5"]
    for text in ("ca că", "că ca"):  # a tie goes to the first in the alphabet
        assert frequent_forms([text], "ro")["ca"] == "ca"


def test_turkish_words_keep_the_dots_of_their_capitals():
    table = frequent_forms(["İstanbul ılık IŞIK"], "tr")
    bare = ["Istanbul ISTANBUL Ilik Isik ISIK isik"]
    assert frequent(bare, table, "tr") == ["İstanbul İSTANBUL Ilık Işık IŞIK ışık"]


def test_the_metric_is_reported_with_its_baselines():
    asked = []
    forms = lambda: asked.append(1) or {"si": "și"}
    diacritics = metric("ro", forms)
    assert not asked  # read when it is first needed
    found = diacritics(["Și si fata"], ["Și si fată"])
    assert found["word_accuracy"] == pytest.approx(2 / 3)
    assert found["copy_word_accuracy"] == pytest.approx(2 / 3)
    assert found["frequent_word_accuracy"] == pytest.approx(2 / 3)  # Și right, și for si wrong

    def unreachable():
        raise ValueError("corpus 'x' cannot be reached")

    left = metric("ro", unreachable)(["Și si fata"], ["Și si fată"])
    assert left == {name: n for name, n in found.items() if name != "frequent_word_accuracy"}
