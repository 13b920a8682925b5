"""Measure what pretrained models can do, without fine-tuning them.

    python -m evaluation runs/ro_t5x_base --language ro --every_checkpoint
    python -m evaluation runs/ro_t5x_base google/mt5-small --language ro --out runs/ro.json
    python -m evaluation runs/ro_t5x_base --language ro --text held_out.jsonl --pairs pairs.jsonl

Without --text the documents are FineWeb-2's held-out ones, without --pairs the pairs MultiBLiMP's.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import collections
import hashlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from common import arguments
from common.errors import UserError, guarded
from common.metric_names import BASELINE
from evaluation import hidden_text, measures, minimal_pairs, models, results
from evaluation.guesser import Guesser
from evaluation.ngrams import NgramGuesser
from t5x.monitoring import program_cache
from tasks.languages import table
from tasks.text.normalize import normalize
from tasks.text.words import unit
from vocabulary.corpus import read_documents

MEASURES = ("text", "words", "pairs")
_MOST_CHARS = 2_000  # characters of a passage: 6,000 ids of a byte model, at three bytes each
_HOW_TO_READ = (
    "A model that is no better than the n-grams has learned little of the language. Without any "
    "training it fills in no words and prefers 50% of the right sentences."
)
_NAME_TEXT = "name held-out documents of yours with --text"
_PACKAGES = ("datasets", "flax", "jax", "numpy", "sentencepiece", "tokenizers")


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Measure the models, write and print the results."""
    parser = arguments.parser("python -m evaluation", __doc__)
    add = parser.add_argument
    about = "runs, checkpoints, Hugging Face folders or hub names"
    add("models", nargs="+", type=arguments.text, metavar="MODEL", help=about)
    add("--language", required=True, type=arguments.text, help="a code or a name: ro, ces_Latn")
    add("--text", type=arguments.text, help="held-out documents: JSONL, parquet or text files")
    add("--pairs", type=arguments.text, help='lines of {"good": …, "bad": …}')
    add("--without", nargs="*", choices=MEASURES, default=(), help="what is not measured")
    about = "how the model was trained, default span_corruption"
    add("--objective", choices=models.OBJECTIVES, default=models.SPAN_CORRUPTION, help=about)
    add("--every_checkpoint", action="store_true", help="measure all of a run, not only the newest")
    about = "how many of the held-out text, default 400"
    add("--passages", type=arguments.integer(1), default=400, help=about)
    about = "length of a passage, default 1000"
    add("--max_chars", type=arguments.integer(200), default=1000, help=about)
    add("--seed", type=arguments.integer(0), default=0, help="another one hides other words")
    about = "also write the bits and the bytes of each passage"
    add("--per_passage", action="store_true", help=about)
    about = "where the figures are written, default runs/evaluation.json"
    add("--out", type=arguments.text, metavar="JSON", help=about)
    _evaluate(parser.parse_args(argv))


def _evaluate(flags: argparse.Namespace) -> None:
    flags.out = flags.out or arguments.result_path("evaluation.json")
    arguments.check_output_file("--out", flags.out)
    if flags.max_chars > _MOST_CHARS:
        raise UserError("--max_chars", flags.max_chars, f"but may be at most {_MOST_CHARS}")
    language = _language(flags.language)
    candidates = [m for path in flags.models for m in models.find(path, flags.every_checkpoint)]
    for model in candidates:
        model.objective(flags.objective)  # refuses before anything is measured
    passages, pairs = _read(flags, language)
    settings = _settings(flags, language, passages, pairs)
    baseline = _baseline(flags, passages, pairs)
    rows: list[dict[str, Any]] = []
    for model in candidates:
        guesser = model.load(model.objective(flags.objective))
        figures, costs = _measure(guesser, model.title, flags, passages, pairs)
        rows.append(_result(model, model.objective(flags.objective), passages, figures))
        if flags.per_passage:
            rows[-1]["passages"] = costs
        results.save(flags.out, settings, [*rows, baseline])
        if model.run and model.step is not None:
            values = {name: measure.value for name, measure in figures.items()}
            ngrams = {name: value for name, (value, *_) in baseline["measures"].items()}
            values |= {f"{BASELINE}{name}": ngrams[name] for name in figures if name in ngrams}
            results.add_to_run(model.run, results.series(settings), model.step, values)
    print(results.table([*rows, baseline]))
    print(f"\n{_HOW_TO_READ}")


def _language(name: str) -> table.Language:
    """Return a language of FineWeb-2, or English, which FineWeb-2 lacks."""
    if name.strip().casefold() in table.ENGLISH:
        return table.Language("eng_Latn", "English", "en", "English", 0, 0, 0, 0, 0)
    return table.find(name)


def _settings(flags, language, passages, pairs) -> dict[str, Any]:
    """Return the settings that comparable figures share; texts are told apart by a hash."""
    names = ("objective", "passages", "max_chars", "seed")
    settings = {"language": language.code, "without": sorted(flags.without)}
    settings |= {name: getattr(flags, name) for name in names}
    for name, content in (("text", passages), ("pairs", pairs)):
        path = getattr(flags, name)
        settings[name] = path and pathlib.PurePath(path).name
        settings[f"{name}_sha256"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return settings


def _read(
    flags: argparse.Namespace, language: table.Language
) -> tuple[list[tuple[str, ...]], list[minimal_pairs.Pair]]:
    """Return the passages and the pairs, as the flags name them."""
    normal = lambda text: normalize(text, cedilla=language.tag == "ro")
    passages: list[tuple[str, ...]] = []
    pairs: list[minimal_pairs.Pair] = []
    if not {"text", "words"} <= {*flags.without}:
        texts = map(normal, _documents(flags.text, language))
        passages = list(hidden_text.cut_passages(texts, flags.passages, flags.max_chars))
        if not passages:
            raise UserError(
                "the text", why="has no passage of 20 words or more, separated by blanks"
            )
        if "words" not in flags.without and unit(map(" ".join, passages)) == "character":
            print("No words are hidden: blanks do not separate them.", file=sys.stderr)
    if "pairs" not in flags.without:
        if flags.pairs:
            pairs = minimal_pairs.read_file(flags.pairs)
        else:
            pairs = minimal_pairs.read_hub(language.code.partition("_")[0])
        if not pairs:
            raise UserError(
                flags.pairs or minimal_pairs.MULTIBLIMP,
                why="holds no minimal pair",
                to_set=minimal_pairs.OTHER_PAIRS,
            )
        pairs = [pair._replace(good=normal(pair.good), bad=normal(pair.bad)) for pair in pairs]
    return passages or [tuple(pair.good.split()) for pair in pairs], pairs


def _documents(path: str | None, language: table.Language) -> Iterable[str]:
    if path:
        return read_documents(path)
    if not language.test_documents:
        raise UserError(
            "FineWeb-2", why=f"has no held-out documents of {language.name}", to_set=_NAME_TEXT
        )
    try:
        return read_documents(table.FINEWEB2, config=language.code, split="test")
    except UserError as error:  # its class says whether a retry may succeed
        raise type(error)(why=error.fault, to_set=_NAME_TEXT) from error


def _measure(
    guesser: Guesser, title: str, flags: argparse.Namespace, passages, pairs
) -> tuple[dict[str, measures.Measure], list[list[float]]]:
    """Return the measures of a model, and bits and bytes of each passage; report progress."""
    figures: dict[str, measures.Measure] = {}
    costs: list[list[float]] = []
    if "text" not in flags.without:
        _show(title, f"{len(passages):,} passages")
        texts, bits = measures.passage_bits(passages, guesser, flags.seed)
        figures |= measures.bits_per_byte(texts, bits, guesser)
        costs = [[cost, text.num_bytes] for cost, text in zip(bits, texts, strict=True)]
    if "words" not in flags.without and guesser.fills_in:
        _show(title, f"words of {len(passages):,} passages")
        counts = collections.Counter(itertools.chain.from_iterable(passages))
        figures |= measures.filled_in_words(passages, counts, guesser, flags.seed)
    if pairs:
        _show(title, f"{len(pairs):,} pairs of sentences")
        figures |= measures.preferred_sentences(pairs, guesser)
    return figures, costs


def _show(title: str, what: str) -> None:
    print(f"{title}: {what} …", file=sys.stderr, flush=True)


def _baseline(flags, passages, pairs) -> dict[str, Any]:
    """Return the results of n-grams, as `_result` does."""
    guesser = NgramGuesser(passages, hides_all=flags.objective == models.PREFIX_LM)
    figures, _ = _measure(guesser, "n-grams", flags, passages, pairs)
    text = "".join(itertools.chain.from_iterable(passages))
    return {
        "name": "n-grams of the other passages",
        "path": None,
        "step": None,
        "objective": "n_grams",
        "parameters": len(guesser.counts),
        "bytes_per_token": len(text.encode()) / len(text),
        "measures": {name: list(measure) for name, measure in figures.items()},
        **results.provenance(),
    }


def _result(model, objective, passages, figures) -> dict[str, Any]:
    sample = [" ".join(words) for words in passages[:100]]
    tokens = sum(len(model.encoder.ids_of(text)) for text in sample)
    return {
        "name": model.name,
        "path": model.path,
        "step": model.step,
        "objective": objective,
        "parameters": model.count_parameters(),
        "bytes_per_token": sum(len(text.encode()) for text in sample) / tokens,
        "measures": {name: list(measure) for name, measure in figures.items()},
        **results.provenance(*_PACKAGES),
    }


if __name__ == "__main__":
    program_cache.keep_programs(os.environ)
    main()
