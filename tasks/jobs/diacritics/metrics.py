"""Metrics of diacritics restoration, with two baselines that need no model.

    scores(["mâine"], ["maine"], "ro")   # word_accuracy 0.0, letter_accuracy 0.8, recall 0.0, …
    table = frequent_forms(texts, "ro")  # {"Fata": "Fata", "fata": "fața", …}
    frequent(["fata"], table)            -> ["fața"]

A target's words (runs of letters) are compared with the output's words of the same bare letters at
the same place. A word missing from the output is wrong, with all its letters; surplus words count
against precision. Sentence accuracy and changed letters consider digits, punctuation and spaces
too. All values are in 0..1, and 0 if there is nothing to count.
"""

import collections
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from absl import logging

from tasks.jobs.diacritics.letters import Alphabet, alphabet
from tasks.jobs.text_metrics import spelled

_WORD = re.compile(r"[^\W\d_]+")
WordForms = Mapping[str, str]


def scores(targets: Sequence[str], predictions: Sequence[str], language: str) -> dict[str, float]:
    """Return the metrics of outputs, each in 0..1.

    word_accuracy; letter_accuracy, over all letters; ambiguous_accuracy, over letters that have
    forms with diacritics; precision, recall and f1 of letters with diacritics; sentence_accuracy,
    the entirely correct texts among those with a word; changed_letters, the texts that differ from
    the input in more than diacritics, be it a letter, a digit, a mark or a space.
    """
    letters = alphabet(language)
    count: collections.Counter[str] = collections.Counter()
    for target, prediction in zip(targets, predictions, strict=True):
        wanted, given = _WORD.findall(target), _WORD.findall(prediction)
        texts = spelled(target), spelled(prediction)
        count["texts"] += 1
        count["changed"] += letters.bare(texts[0]) != letters.bare(texts[1])
        count["sentences"] += bool(wanted)
        count["right_sentences"] += bool(wanted) and texts[0] == texts[1]
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


def _count(target: list[str], output: list[str], letters: Alphabet, count) -> None:
    """Add a text's words and letters to `count`."""
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
    """Return pairs of words with the same bare letters, in order."""
    bare = [letters.bare(word) for word in target], [letters.bare(word) for word in output]
    if bare[0] == bare[1]:
        return zip(target, output, strict=True)
    blocks = difflib.SequenceMatcher(None, *bare, autojunk=False).get_matching_blocks()
    return [(target[a + i], output[b + i]) for a, b, n in blocks for i in range(n)]


def frequent_forms(texts: Iterable[str], language: str) -> dict[str, str]:
    """Return the most frequent form of each bare word; of ties the first in the alphabet.

    A word is also listed in small letters, with all its spellings counted together.
    """
    bare = alphabet(language).bare
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for text in texts:
        for word in _WORD.findall(text):
            for form in {word, word.lower()}:
                counts[bare(form)][form] += 1
    return {word: min(found, key=lambda f: (-found[f], f)) for word, found in counts.items()}


def frequent(texts: Sequence[str], forms: WordForms) -> list[str]:
    """Return bare texts with each word in its most frequent form, with the word's capitals."""

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


def metric(language: str, forms: Callable[[], WordForms] | None = None) -> Callable:
    """Return a seqio metric function: `scores`, and the word accuracies of two baselines.

    copy_word_accuracy scores the unchanged input; frequent_word_accuracy scores each word's
    most frequent form, as returned by `forms`; if that raises UserError it is omitted.
    """

    def diacritics(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
        bare = [alphabet(language).bare(target) for target in targets]
        plain = {"copy": bare}
        try:
            # A run calls metrics without texts to learn their names; then nothing is read.
            plain |= {"frequent": frequent(bare, forms() if bare else {})} if forms else {}
        except ValueError as error:
            logging.warning("frequent_word_accuracy is not measured: %s", error)
        found = scores(targets, predictions, language)
        for name, outputs in plain.items():
            word_accuracy = scores(targets, outputs, language)["word_accuracy"]
            found[f"{name}_word_accuracy"] = word_accuracy
        return found

    return diacritics
