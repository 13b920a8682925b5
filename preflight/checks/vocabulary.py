"""Checks of the vocabulary: ids, sentinels, size, and that task and model share it."""

import seqio

from common.tables import CheckResult, ok, warning
from preflight.reachability import require_file
from preflight.run_context import RunContext
from t5x.input_pipeline.checks import verify_matching_vocabs
from vocabulary.check import check_vocabulary

_HOW = "make it by `python -m vocabulary.train`, or set VOCABULARY_FILE to one"
# Above these, a vocabulary was made for other texts: a good one of 32,000 pieces or more takes 1.2
# to 1.8 tokens a word in European languages.
_MOST_UNKNOWN, _MOST_TOKENS = 0.005, 2.5


def vocabulary(context: RunContext) -> CheckResult:
    """Check that the model's vocabulary suits T5 and is the task's."""
    model = context.run.model
    own = model.output_vocabulary
    rows = getattr(getattr(model.module, "config", None), "vocab_size", None)
    of_task = context.task.output_features["targets"].vocabulary
    paths = [getattr(v, "sentencepiece_model_file", None) for v in (own, of_task)]
    for path in filter(None, paths):
        require_file(path, context.offline, _HOW)
    for cfg in context.datasets.values():
        verify_matching_vocabs(cfg, model)
    if not paths[0]:
        return ok(f"{type(own).__name__}, {own.vocab_size:,} ids of {rows or 0:,} rows")
    checks = check_vocabulary(paths[0], rows, getattr(own, "extra_ids", 0))
    with_status = lambda status: [f"{c.name}: {c.detail}" for c in checks if c.status == status]
    if failures := with_status("fail"):
        raise ValueError("; ".join(failures))
    if warnings := with_status("warn"):
        return warning("; ".join(warnings))
    return ok(f"{paths[0]}: {checks[-1].detail}, {len(checks)} checks passed")


def unknown_words(context: RunContext) -> CheckResult:
    """Check how well the vocabulary covers the corpus: unknown tokens, tokens a word."""
    own, (texts, ids) = context.require_vocabulary(), context.sample_tokens
    tokens = sum(map(len, ids))
    words = sum(len(text.split()) for text in texts)
    unknown = sum(row.count(own.unk_id) for row in ids) / max(tokens, 1)
    fertility = tokens / max(words, 1)
    figure = f"{unknown:.2%} unknown, {fertility:.2f} tokens a word, in {len(texts)} documents"
    numbers = {"unknown": unknown, "tokens_a_word": fertility}
    to_set = "VOCABULARY_FILE to one made from this corpus"
    if unknown > _MOST_UNKNOWN:
        return warning(f"{figure}: letters or signs are missing", to_set, numbers=numbers)
    # Bytes are meant to be many, and a text without spaces has no words to count.
    if fertility > _MOST_TOKENS and not isinstance(own, seqio.ByteVocabulary):
        to_set = f"{to_set}, or larger"
        return warning(f"{figure}: words are split too much", to_set, numbers=numbers)
    return ok(figure, numbers=numbers)
