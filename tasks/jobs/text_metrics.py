"""Metrics of generated text, by name, as seqio metric functions.

    functions(("sacrebleu", "chrf"))        # [sacrebleu, chrf]
    chrf(["Ana are mere."], ["Ana are pere."])
    # {"chrf": 63.3, "chrf_signature": Text("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|…")}

| name | measures | by | best |
|---|---|---|---|
| sacrebleu | BLEU, 0..100, with its signature | sacrebleu | 100 |
| chrf | chrF2, 0..100, with its signature | sacrebleu | 100 |
| rouge | ROUGE of words of any script, 0..100, and mean lengths | rouge-score | 100 |
| rouge_english | the same with English stems | rouge-score | 100 |
| exact_match | texts that are right, 0..1 | | 1 |
| cer, wer | wrong characters and words per target's character and word, from 0 up | jiwer | 0 |
| span_f1 | named spans, 0..1, with precision and recall | | 1 |

exact_match, cer, wer and span_f1 compare in NFKC with single spaces: SentencePiece writes "…" as
three dots, and marks of direction as spaces, which no model could avoid. BLEU, chrF and ROUGE
compare the texts as they are, so that their numbers equal the libraries'. ROUGE's words are runs of
letters, digits, underscores and marks such as the vowel signs of Hindi, with a letter or digit
among them; other words are what spaces surround. In scripts without spaces, such as Chinese and
Thai, every character is a word (`tasks.text.words`), for BLEU if most words of the targets are
such. Every function returns the same names if there are no texts.
"""

import collections
import inspect
import itertools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio

from common.errors import UserError, nearest
from tasks.text import sentence_split
from tasks.text.normalize import is_letter
from tasks.text.words import unspaced_share, words

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
SPANS, NO_SPANS = " $$ ", "none"  # "PER: Ion Popescu $$ LOC: Cluj"
# Zero-width space, marks of direction and byte order mark, which SentencePiece makes spaces.
_SPACES = dict.fromkeys(map(ord, "\u200b\u200e\u200f\ufeff"), " ")
Metric = Callable[..., Mapping[str, Any]]


def functions(metrics: Sequence[str | Metric]) -> list[Metric]:
    """Return the metric functions with names in `METRICS`; a function is returned as it is.

    Raises:
      UserError: a name is unknown, a function does not take `targets` and `predictions`, or two
        metrics return a value of the same name.
    """
    if isinstance(metrics, str) or not metrics:
        why = "but must be a list of names, such as ('chrf', 'exact_match')"
        raise UserError("metrics", metrics, why)
    chosen = [_function(metric) for metric in metrics]
    names = collections.Counter(name for function in chosen for name in _names(function))
    if twice := sorted(name for name, count in names.items() if count > 1):
        why = f"has two that return {twice[0]!r}"
        raise UserError("metrics", why=why, to_set="leave one of them out")
    return chosen


def _function(metric: str | Metric) -> Metric:
    if callable(metric):
        parameters = inspect.signature(metric).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty]
        if required != ["targets", "predictions"]:
            raise UserError(
                "metric",
                getattr(metric, "__name__", str(metric)),
                f"which takes {', '.join(required)}, but a metric of text takes `targets` and "
                "`predictions`, and seqio knows it by these names",
                "rename its arguments, or add the task by tasks.pairs.add",
            )
        return metric
    if metric not in METRICS:
        raise UserError(
            "metric",
            metric,
            f"which is unknown{nearest(str(metric), METRICS)}",
            f"name one of {', '.join(METRICS)}, or give a function of targets and predictions",
        )
    return METRICS[metric]


def _names(function: Metric) -> set[str]:
    try:
        return set(function([], []))
    except Exception:  # the user's function may not expect no texts; then its names show later
        return set()


def sacrebleu(
    targets: Sequence[str], predictions: Sequence[str], tokenize: str | None = None
) -> dict[str, Any]:
    """Return corpus BLEU, 0..100, and sacrebleu's signature, which names all settings.

    Args:
      targets: one reference a text.
      predictions: as many.
      tokenize: sacrebleu's tokenizer; None for 13a, or zh or char if most words of the targets are
        Chinese or other characters of scripts without spaces. `bleu_of` sets one for a task.

    Raises:
      UserError: sacrebleu has no such tokenizer, or its packages are not installed.
    """
    from sacrebleu.metrics import BLEU

    tokenize = tokenize or _tokenizer_of(targets)
    try:
        metric = BLEU(tokenize=tokenize, force=True)
    except (KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            "tokenize",
            tokenize,
            f"by which sacrebleu cannot tokenize ({reason}): {sorted(BLEU.TOKENIZERS)} are its "
            "tokenizers, and 13a, char, intl, none and zh need no other package",
        ) from error
    return _corpus_score("sacrebleu", metric, targets, predictions)


def _tokenizer_of(targets: Sequence[str]) -> str:
    characters, chinese = unspaced_share(targets)
    if characters <= 0.5:
        return "13a"
    return "zh" if chinese > 0.9 * characters else "char"


def bleu_of(tokenize: str) -> Metric:
    """Return `sacrebleu` with another tokenizer; raise UserError if there is no such."""

    def bleu(targets, predictions):
        return sacrebleu(targets, predictions, tokenize)

    bleu([], [])
    return bleu


def chrf(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, Any]:
    """Return corpus chrF2 (Popović 2015), 0..100, and sacrebleu's signature."""
    from sacrebleu.metrics import CHRF

    return _corpus_score("chrf", CHRF(), targets, predictions)


def _corpus_score(name: str, metric, targets, predictions) -> dict[str, Any]:
    # sacrebleu has no score and no signature of no texts at all.
    result = metric.corpus_score(list(predictions) or [""], [list(targets) or [""]])
    signature = seqio.metrics.Text(metric.get_signature().format())
    return {name: float(result.score), f"{name}_signature": signature}


def exact_match(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return the share of predictions, 0..1, that equal their targets, letter case included."""
    right = sum(spelled(t) == spelled(p) for t, p in zip(targets, predictions, strict=True))
    return {"exact_match": right / max(len(targets), 1)}


def cer(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return insertions, deletions and substitutions per character of the targets."""
    import jiwer

    return {"cer": float(jiwer.cer(*_both(targets, predictions))) if targets else 0.0}


def wer(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return insertions, deletions and substitutions per word of the targets."""
    import jiwer

    spaced = lambda texts: [" ".join(words(text)) for text in texts]
    ours, theirs = map(spaced, _both(targets, predictions))
    return {"wer": float(jiwer.wer(ours, theirs)) if targets else 0.0}


def _both(targets, predictions) -> tuple[list[str], list[str]]:
    return [spelled(text) for text in targets], [spelled(text) for text in predictions]


def spelled(text: str) -> str:
    """Return a text in NFKC with single spaces, also for marks of direction."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_SPACES).split())


class UnicodeTokenizer:
    """Words of any script for the rouge-score library, whose own are of a to z and digits only."""

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text, in lower case without the dots that İ and ı differ by."""
        lower = text.lower().replace("i\u0307", "i").replace("ı", "i")
        runs = ["".join(run) for in_word, run in itertools.groupby(lower, _in_word) if in_word]
        # Marks alone follow an emoji or another sign, as in "❤\ufe0f".
        return [word for run in runs if any(map(str.isalnum, run)) for word in words(run)]


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or is_letter(character)


def rouge(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return mean F-measures of the rouge-score library, 0..100, and mean lengths.

    Words are of any script and compared without stemming. rougeLsum compares sentence by sentence
    (`tasks.text.sentence_split`); mean_words and mean_target_words count `tasks.text.words.words`.
    """
    return _rouge(targets, predictions, use_stemmer=False, tokenizer=UnicodeTokenizer())


def rouge_english(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return the scores of `rouge` for English: words of a to z and digits, with stemming."""
    return _rouge(targets, predictions, use_stemmer=True)


def _rouge(targets, predictions, **settings) -> dict[str, float]:
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(ROUGE, **settings)
    lines = lambda text: "\n".join(sentence_split.split(text))
    results = [
        scorer.score(lines(target), lines(prediction))
        for target, prediction in zip(targets, predictions, strict=True)
    ]
    n = max(len(results), 1)
    return {
        **{name: 100 * sum(result[name].fmeasure for result in results) / n for name in ROUGE},
        "mean_words": sum(len(words(text)) for text in predictions) / n,
        "mean_target_words": sum(len(words(text)) for text in targets) / n,
    }


def span_f1(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return span_precision, span_recall and span_f1, 0..1, over the spans of all texts.

    A text lists its spans, "PER: Ion Popescu $$ LOC: Cluj", or is "none". A predicted span is right
    if its type and text are in the target's list, each as often as it is there; order is free.
    What is no span ("Ion Popescu" without a type) is a wrong one. Xue et al. 2021 count in the same
    way for WikiANN (arXiv:2010.11934), but leave out what has no type, and spans whose text has a
    colon. The place of a span in its sentence does not count, unlike in seqeval's F1, which needs a
    tag for each token of the input.
    """
    right = in_targets = in_predictions = 0
    for target, prediction in zip(targets, predictions, strict=True):
        target_spans, predicted_spans = spans(target), spans(prediction)
        right += (target_spans & predicted_spans).total()
        in_targets += target_spans.total()
        in_predictions += predicted_spans.total()
    total = in_targets + in_predictions
    return {
        "span_precision": right / in_predictions if in_predictions else 0.0,
        "span_recall": right / in_targets if in_targets else 0.0,
        "span_f1": 2 * right / total if total else 0.0,
    }


def spans(text: str) -> collections.Counter[str]:
    """Return how often each span is in a text that lists spans."""
    items = [spelled(item) for item in text.split(SPANS.strip())]
    return collections.Counter(item for item in items if item and item != NO_SPANS)


METRICS: Mapping[str, Metric] = {
    function.__name__: function
    for function in (sacrebleu, chrf, rouge, rouge_english, exact_match, cer, wer, span_f1)
}
