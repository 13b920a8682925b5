"""Pieces are complete sentences if possible, never too long, and together all of the text."""

import random
import time

import pytest

from tasks.text import sentence_split

TEXTS = ["", "Un cuvânt", "A venit. „Cine?” El!… Da.\nRând nou fără punct", "x" * 50 + " y. z"]
TEXTS += ["".join(random.Random(seed).choices("aăț .!\n", k=200)) for seed in range(10)]


def sizes(texts):
    return [len(text.encode()) for text in texts]


def test_sentences_end_where_a_reader_ends_them():
    text = "Plouă. „Vii?” Nu, mâine…  La 3.14 km.\nAcasă"
    assert sentence_split.split(text) == ["Plouă.", "„Vii?”", "Nu, mâine…", "La 3.14 km.", "Acasă"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("limit", [4, 7, 12, 40, 1000])
def test_pieces_fit_and_nothing_is_lost(text, limit):
    found = sentence_split.split_to_fit(text, sizes, limit)
    assert all(0 < size <= limit for size in sizes(found))
    assert "".join("".join(found).split()) == "".join(text.split())


def test_as_many_sentences_together_as_fit():
    assert sentence_split.split_to_fit("Aa. Bb. Cc.", sizes, 7) == ["Aa. Bb.", "Cc."]
    assert sentence_split.split_to_fit("Aa. Bb. Cc.", sizes, 6) == ["Aa.", "Bb.", "Cc."]


def test_a_long_sentence_is_cut_between_words_and_a_long_word_between_letters():
    assert sentence_split.split_to_fit("unu doi trei. Da.", sizes, 8) == ["unu doi", "trei.", "Da."]
    assert sentence_split.split_to_fit("abcdefghij", sizes, 6) == ["abc", "def", "ghi", "j"]


@pytest.mark.parametrize("run", ["!", ".", '"', '!"', "! ", "a", " ", "\n", "…”", ".a"])
def test_a_run_of_anything_takes_linear_time(run):
    text = run * 100_000
    began = time.process_time()
    found = sentence_split.split_to_fit(text, sizes, 1000)
    assert time.process_time() - began < 10
    assert "".join("".join(found).split()) == "".join(text.split())
