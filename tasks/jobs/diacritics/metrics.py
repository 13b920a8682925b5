"""Metrics of diacritics restoration, with two baselines that need no model.

    scores(["mâine"], ["maine"], "ro")   # word_accuracy 0.0, letter_accuracy 0.8, recall 0.0, …
    table = frequent_forms(texts, "ro")  # {"Fata": "Fata", "fata": "fața", …}
    frequent(["fata"], table, "ro")      -> ["fața"]

A target's words (runs of letters) are compared with the output's words of the same bare letters at
the same place. A word missing from the output is wrong, with all its letters; surplus words count
against precision. Sentence accuracy and changed letters consider digits, punctuation and spaces
too. Texts are compared in NFKC with single spaces, since SentencePiece writes "km²" as "km2". All
values are in 0..1, and 0 if there is nothing to count.
"""

import collections
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from absl import logging

from tasks.jobs.diacritics.letters import Alphabet, alphabet
from tasks.jobs.text_metrics import spelled

_WORD = re.compile(r"[^\W\d_]+")
WordForms = Mapping[str, str]  # the form of each bare word


def scores(targets: Sequence[str], predictions: Sequence[str], language: str) -> dict[str, float]:
    """Return the metrics of outputs, each in 0..1.

    - word_accuracy
    - letter_accuracy, over all letters
    - ambiguous_accuracy, over the letters that have forms with diacritics
    - precision, recall and f1 of the letters with diacritics
    - sentence_accuracy: the entirely correct texts among those with a word
    - changed_letters: the texts that differ from the input in more than diacritics, be it a letter,
      a digit, a mark or a space
    """
    letters = alphabet(language)
    count: collections.Counter[str] = collections.Counter()
    for target, prediction in zip(targets, predictions, strict=True):
        text, output = spelled(target), spelled(prediction)
        words = _WORD.findall(text)
        count["texts"] += 1
        count["changed"] += letters.bare(text) != letters.bare(output)
        count["sentences"] += bool(words)
        count["right_sentences"] += bool(words) and text == output
        _count(words, _WORD.findall(output), letters, count)
    share = lambda part, whole: count[part] / count[whole] if count[whole] else 0.0
    precision, recall = share("right_marked", "marked"), share("right_marked", "to_mark")
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


def _count(
    target: list[str], output: list[str], letters: Alphabet, count: collections.Counter[str]
) -> None:
    """Add a text's words and letters to `count`."""
    count["words"] += len(target)
    for word in target:
        count["letters"] += len(word)
        count["ambiguous"] += sum(letter in letters.forms for letter in letters.bare(word))
        count["to_mark"] += sum(letter in letters.bases for letter in word)
    for word in output:
        count["marked"] += sum(letter in letters.bases for letter in word)
    for word, output_word in _same_words(target, output, letters):
        count["right_words"] += word == output_word
        for letter, output_letter in zip(word, output_word, strict=True):
            is_right = letter == output_letter
            count["right_letters"] += is_right
            if letters.bare(letter) in letters.forms:
                count["right_ambiguous"] += is_right
                count["right_marked"] += is_right and letter in letters.bases


def _same_words(target: list[str], output: list[str], letters: Alphabet) -> Iterable:
    """Return pairs of words with the same bare letters, in order."""
    bare_target, bare_output = [*map(letters.bare, target)], [*map(letters.bare, output)]
    matcher = difflib.SequenceMatcher(None, bare_target, bare_output, autojunk=False)
    return [
        (target[i + n], output[j + n])
        for i, j, size in matcher.get_matching_blocks()
        for n in range(size)
    ]


def frequent_forms(texts: Iterable[str], language: str) -> dict[str, str]:
    """Return the most frequent form of each bare word, the first in the alphabet of several.

    A word is also listed in small letters, with all its spellings counted together.
    """
    letters = alphabet(language)
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for text in texts:
        for word in _WORD.findall(text):
            for form in {word, letters.lower(word)}:
                counts[letters.bare(form)][form] += 1
    return {
        word: min(forms, key=lambda form: (-forms[form], form)) for word, forms in counts.items()
    }


def frequent(texts: Sequence[str], forms: WordForms, language: str) -> list[str]:
    """Return bare texts with each word in its most frequent form, with the word's capitals."""
    upper = alphabet(language).upper

    def form(match: re.Match) -> str:
        word = match[0]
        if word in forms:
            return forms[word]
        small = forms.get(word.lower(), word)
        if len(small) != len(word):
            return word
        capitals = zip(small, map(str.isupper, word), strict=True)
        return "".join(upper(letter) if is_upper else letter for letter, is_upper in capitals)

    return [_WORD.sub(form, text) for text in texts]


def metric(language: str, forms: Callable[[], WordForms] | None = None) -> Callable:
    """Return a seqio metric function: `scores`, and the word accuracies of two baselines.

    copy_word_accuracy scores the unchanged input; frequent_word_accuracy scores each word's
    most frequent form, as returned by `forms`; if that raises UserError it is omitted.
    """

    def diacritics(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
        bare = [alphabet(language).bare(target) for target in targets]
        baselines = {"copy": bare}
        try:
            # A run calls metrics without texts to learn their names; then nothing is read.
            if forms:
                baselines["frequent"] = frequent(bare, forms() if bare else {}, language)
        except ValueError as error:
            logging.warning("frequent_word_accuracy is not measured: %s", error)
        metrics = scores(targets, predictions, language)
        for name, outputs in baselines.items():
            word_accuracy = scores(targets, outputs, language)["word_accuracy"]
            metrics[f"{name}_word_accuracy"] = word_accuracy
        return metrics

    return diacritics
