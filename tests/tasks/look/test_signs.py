"""Each thing that may be wrong with texts is seen in any script, and sound texts raise no alarm."""

import itertools
import json
import random
import textwrap
import unicodedata

import pytest

from common.tables import OK, WARNING
from fakes.paths import ROOT
from tasks.look import signs

SCRIPTS = {  # the first letter of each, and what its letters are counted as
    "a": "Latin",
    "а": "Cyrillic",
    "α": "Greek",
    "ա": "Armenian",
    "ა": "Georgian",
    "א": "Hebrew",
    "ا": "Arabic",
    "अ": "Devanagari",
    "অ": "Bengali",
    "அ": "Tamil",
    "ก": "Thai",
    "ក": "Khmer",
    "가": "Hangul",
    "一": "Han",
    "あ": "Kana",
    "አ": "Ethiopic",
}


def texts_of(first: str, n: int = 120, words: tuple[int, int] = (4, 60)) -> list[str]:
    """Return texts of random words of the letters that follow `first`."""
    chance = random.Random(first)
    following = (chr(ord(first) + i) for i in range(200))
    letters = [*itertools.islice((c for c in following if unicodedata.category(c) in "LoLl"), 24)]
    word = lambda: "".join(chance.choices(letters, k=chance.randint(2, 9)))
    text = lambda: " ".join(word() for _ in range(chance.randint(*words))) + "."
    return [text() for _ in range(n)]


def every(k: int, change):
    """Return what changes every k-th text."""
    return lambda texts: [change(t) if i % k == 0 else t for i, t in enumerate(texts)]


def misread(page):
    """Return what reads the UTF-8 of a text as a code page."""
    one = lambda byte: bytes([byte]).decode(page, "ignore") or chr(byte)
    return lambda text: "".join(map(one, text.encode()))


def wrapped(texts):
    return textwrap.wrap(" ".join(texts), 72)


CHARACTERS = {
    "NUL": every(60, lambda text: "\0".join(text)),
    "U+FFFD": every(20, lambda text: text[:9] + "\ufffd" + text[9:]),
    "control": every(20, lambda text: f"\x93{text}\x94"),
}
REPEATED = {
    "duplicates": lambda texts: texts + texts[:30],
    "begin alike": every(3, lambda text: "Acest site folosește cookie-uri. " + text),
    "of 72 characters": wrapped,
    "of 100 characters": lambda texts: [(t * 9)[:100] for t in texts],
}


@pytest.fixture(params=SCRIPTS, ids=SCRIPTS.get)
def texts(request):
    return texts_of(request.param)


def test_sound_text_of_any_script_raises_no_alarm(texts, request):
    for found in (signs.odd_characters(texts), signs.repetition(texts)):
        assert (found.verdict, found.to_set) == (OK, "")
    name = SCRIPTS[request.node.callspec.params["texts"]]
    assert signs.scripts(texts) == {name: 1.0}


@pytest.mark.parametrize("name", ["ro_mini", "ro_simple"])
def test_real_text_raises_no_alarm(name):
    paths = sorted((ROOT / "data" / name).glob("train*.jsonl"))
    lines = [line for path in paths for line in path.read_text().splitlines()]
    found = [json.loads(line)["text"] for line in lines]
    assert signs.odd_characters(found).verdict == signs.repetition(found).verdict == OK
    assert signs.scripts(found)["Latin"] > 0.99


@pytest.mark.parametrize("said", CHARACTERS)
def test_characters_that_no_author_wrote_are_shown(said, texts):
    found = signs.odd_characters(CHARACTERS[said](texts))
    assert found.verdict == WARNING
    assert said in found.figure
    assert "“" in found.figure
    assert found.to_set
    assert found.figure.isprintable()


@pytest.mark.parametrize("said", REPEATED)
def test_repetition_is_shown(said, texts):
    found = signs.repetition(REPEATED[said](texts))
    assert found.verdict == WARNING
    assert said in found.figure
    assert "“" in found.figure
    assert found.to_set


@pytest.mark.parametrize(
    ("first", "page"),
    [*itertools.product(SCRIPTS, ("latin-1", "cp1252", "cp1250")), ("а", "cp1251")],
)
def test_utf8_that_was_read_as_another_encoding_is_shown(first, page):
    texts = [text.replace("e", "é").replace("s", "ș") for text in texts_of(first)]
    found = signs.odd_characters(every(20, misread(page))(texts))
    assert found.verdict == WARNING
    assert "UTF-8 read as another encoding in 6 of 120" in found.figure


@pytest.mark.parametrize(
    "text", ["CAFÉ”, à la carte, déjà", "ДНІ", "MAÇÃ”, São Paulo é", "È’ così, già", "3 МіБ"]
)
def test_letters_beside_quotes_are_no_mojibake(text):
    assert signs.mojibake(text) == -1


def test_a_few_odd_characters_are_counted_without_an_alarm():
    found = signs.odd_characters([*texts_of("a", 400), "un \ufffd"])
    assert (found.verdict, "U+FFFD in 1 of 401 documents" in found.figure) == (OK, True)


def test_little_text_is_not_judged():
    assert signs.repetition(["Ana are mere.", "Ana are pere."]).verdict == OK
    assert signs.odd_characters([]).verdict == signs.repetition([]).verdict == OK
    assert signs.scripts(["", "123 …"]) == {}


def test_characters_are_named_with_code_points_and_counts():
    counts = {"ş": 12, "\u0301": 1, "☃": 3}
    assert signs.named([*counts], counts, 2) == "ş U+015F × 12, U+0301 × 1 and 1 more"
