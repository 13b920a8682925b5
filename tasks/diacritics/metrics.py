"""How well diacritics are restored, beside two ways that need no model.

    scores(["mâine"], ["maine"], "ro")   # word_accuracy 0.0, letter_accuracy 0.8, recall 0.0, …
    table = frequent_forms(texts, "ro")  # {"Fata": "Fata", "fata": "fața", …}
    frequent(["fata"], table)            -> ["fața"]

A target's words (runs of letters) are held against those of the output that have the same bare
letters at the same place. A word that the output lacks is wrong, with all its letters; what the
output has beside them counts against precision. Sentence accuracy and changed letters see digits,
punctuation and blanks too. All values lie in 0..1; what has nothing to count is 0.
"""

import collections
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from absl import logging

from tasks.diacritics.letters import Alphabet, alphabet

_WORD = re.compile(r"[^\W\d_]+")
Forms = Mapping[str, str]


def scores(targets: Sequence[str], predictions: Sequence[str], language: str) -> dict[str, float]:
    """Returns the metrics of outputs, each in 0..1.

    word_accuracy; letter_accuracy, over all letters; ambiguous_accuracy, over those that may have
    diacritics; precision, recall and f1 of letters with diacritics; sentence_accuracy, texts that
    are right from end to end, of those that have a word; changed_letters, texts that without
    diacritics are not the input, be it by a letter, a digit, a mark or a blank.
    """
    letters, count = alphabet(language), collections.Counter()
    for target, prediction in zip(targets, predictions, strict=True):
        wanted, given = _WORD.findall(target), _WORD.findall(prediction)
        whole = _spelled(target), _spelled(prediction)
        count["texts"] += 1
        count["changed"] += letters.bare(whole[0]) != letters.bare(whole[1])
        count["sentences"] += bool(wanted)
        count["right_sentences"] += bool(wanted) and whole[0] == whole[1]
        _count(wanted, given, letters, count)
    share = lambda a, b: count[a] / count[b] if count[b] else 0.0
    precision, recall = share("found", "marked"), share("found", "to_find")
    both = precision + recall
    return {
        "word_accuracy": share("right_words", "words"),
        "letter_accuracy": share("right_letters", "letters"),
        "ambiguous_accuracy": share("right_ambiguous", "ambiguous"),
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / both if both else 0.0,
        "sentence_accuracy": share("right_sentences", "sentences"),
        "changed_letters": share("changed", "texts"),
    }


def _spelled(text: str) -> str:
    """A text with runs of blanks as one, in NFKC: SentencePiece knows "…" as three dots."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _count(target: list[str], output: list[str], letters: Alphabet, count) -> None:
    """Adds a text's words and letters to `count`."""
    count["words"] += len(target)
    for word in target:
        count["letters"] += len(word)
        count["ambiguous"] += sum(letter in letters.ambiguous for letter in letters.bare(word))
        count["to_find"] += sum(letter in letters.bases for letter in word)
    for word in output:
        count["marked"] += sum(letter in letters.bases for letter in word)
    for wanted, given in _same_words(target, output, letters):
        count["right_words"] += wanted == given
        for a, b in zip(wanted, given, strict=True):
            count["right_letters"] += a == b
            if letters.bare(a) in letters.ambiguous:
                count["right_ambiguous"] += a == b
                count["found"] += a == b and a in letters.bases


def _same_words(target: list[str], output: list[str], letters: Alphabet) -> Iterable:
    """Pairs of words whose bare letters are the same, in order."""
    bare = [letters.bare(word) for word in target], [letters.bare(word) for word in output]
    if bare[0] == bare[1]:
        return zip(target, output, strict=True)
    blocks = difflib.SequenceMatcher(None, *bare, autojunk=False).get_matching_blocks()
    return [(target[a + i], output[b + i]) for a, b, n in blocks for i in range(n)]


def frequent_forms(texts: Iterable[str], language: str) -> dict[str, str]:
    """Returns what each bare word of `texts` mostly is; of equally many the first in the alphabet.

    A word is also listed in small letters, with all its spellings counted together.
    """
    bare = alphabet(language).bare
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for text in texts:
        for word in _WORD.findall(text):
            for form in {word, word.lower()}:
                counts[bare(form)][form] += 1
    return {word: min(found, key=lambda f: (-found[f], f)) for word, found in counts.items()}


def frequent(texts: Sequence[str], forms: Forms) -> list[str]:
    """Returns bare texts with each word in its most frequent form, unknown ones as they are.

    A word that is known in small letters only keeps its capitals.
    """

    def form(match: re.Match) -> str:
        word = match[0]
        if word in forms:
            return forms[word]
        small = forms.get(word.lower(), word)
        if len(small) != len(word):
            return word
        pairs = zip(word, small, strict=True)
        return "".join(s.upper() if w.isupper() else s for w, s in pairs)

    return [_WORD.sub(form, text) for text in texts]


def metric(language: str, forms: Callable[[], Forms] | None = None) -> Callable:
    """Returns a seqio metric function: `scores`, and word accuracies of the two plain ways.

    copy_word_accuracy is that of the input as it is; frequent_word_accuracy that of each word's
    most frequent form, which `forms` is called for; where that raises ValueError it is left out.
    """

    def diacritics(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
        bare = [alphabet(language).bare(target) for target in targets]
        plain = {"copy": bare}
        try:
            # Asked of no texts, as a run asks for the names of metrics, nothing is read.
            plain |= {"frequent": frequent(bare, forms() if bare else {})} if forms else {}
        except ValueError as error:
            logging.warning("frequent_word_accuracy is not measured: %s", error)
        found = scores(targets, predictions, language)
        for name, outputs in plain.items():
            word_accuracy = scores(targets, outputs, language)["word_accuracy"]
            found[f"{name}_word_accuracy"] = word_accuracy
        return found

    return diacritics
