"""Check a vocabulary: its ids, sentinels or mask, size, and its Hugging Face tokenizer.

    python -m vocabulary.check ro.model --vocab_size 64000 --corpus 'corpus/*.jsonl'
    python -m vocabulary.check converted_folder
    python -m vocabulary.check google/mt5-base --vocab_size 250112
    python -m vocabulary.check t5.model --extra_ids 100 --vocab_size 32128
    python -m vocabulary.check my_bert --vocab_size 32000     # a tokenizer.json, of an encoder

Span corruption marks the first hidden span by the highest id, the second by the one below, and so
on. If those ids are not sentinels, ordinary words silently take their role. Two layouts pass:
sentinels as the model's last pieces (mT5's and our own, extra_ids 0), and a model without
sentinels, to which seqio adds them (T5's own, extra_ids 100).
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse

from common import arguments
from tasks.text.normalize import normalize
from vocabulary import cli
from vocabulary import sentencepiece_model as spm
from vocabulary.check_results import VocabularyCheck
from vocabulary.coverage import BESIDE_HELP, coverage
from vocabulary.tokenization_equality import check_equal_ids
from vocabulary.tokenizer_checks import check_texts, check_tokenizer, find_tokenizer

SPECIAL_IDS = {"pad": 0, "eos": 1, "unk": 2}


def check_vocabulary(
    path: str, vocab_size: int | None = None, extra_ids: int = 0
) -> list[VocabularyCheck]:
    """Run the checks that need only the model file; they take well under a second.

    `path` is local or on `gs://`; `vocab_size` is `T5Config.vocab_size`, the rows of the embedding;
    `extra_ids` is 0 if the sentinels are pieces of the model, 100 if seqio adds them behind it.
    Raises ValueError if `path` is not a SentencePiece model.
    """
    model = spm.read_model(path)
    kind = model.trainer_spec.ModelType.Name(model.trainer_spec.model_type).lower()
    reason = "" if kind == "unigram" else ", but T5's Hugging Face tokenizer is unigram only"
    return [
        VocabularyCheck.of("algorithm", kind == "unigram", kind + reason),
        *_special_ids(model),
        *_sentinels(model, extra_ids),
        _size(len(model.pieces) + extra_ids, vocab_size, extra_ids),
    ]


def check_any(
    path: str, vocab_size: int | None = None, extra_ids: int = 0
) -> list[VocabularyCheck]:
    """Run the checks that need only the files, of a SentencePiece model or a tokenizer.json."""
    folder = find_tokenizer(path)
    if folder is None:
        return check_vocabulary(spm.find_model(path), vocab_size, extra_ids)
    size, checks = check_tokenizer(folder)
    return [*checks, _size(size, vocab_size, 0)]


def _special_ids(model: spm.ModelProto) -> list[VocabularyCheck]:
    spec = model.trainer_spec
    checks = []
    for name, wanted in SPECIAL_IDS.items():
        kind = spm.SentencePiece.UNKNOWN if name == "unk" else spm.SentencePiece.CONTROL
        found = getattr(spec, f"{name}_id")
        ok = found == wanted and model.pieces[wanted].type == kind
        reason = "" if ok else f", must be {wanted} and have its own type (--{name}_id={wanted})"
        checks.append(VocabularyCheck.of(f"{name} id", ok, f"{found}{reason}"))
    note = "none" if spec.bos_id < 0 else f"{spec.bos_id}, a piece that T5 never uses"
    return [*checks, VocabularyCheck.of("no bos", spec.bos_id < 0, note, otherwise="warn")]


def _sentinels(model: spm.ModelProto, extra_ids: int) -> list[VocabularyCheck]:
    ids, size, needed = spm.sentinel_ids(model), len(model.pieces), spm.NUM_SENTINELS
    if extra_ids:
        name, detail = "sentinels last, descending", f"ids {size:,} to {size + extra_ids - 1:,}"
        detail += f", behind the model, by extra_ids; T5 needs {needed}"
        if ids:
            name = "sentinels"
            detail = f"{len(ids)} in the model and {extra_ids} more: set extra_ids to 0"
        return [VocabularyCheck.of(name, not ids and extra_ids >= needed, detail)]
    if not ids:
        how = f"none in the model: train it with vocabulary.train, or set extra_ids to {needed}"
        return [VocabularyCheck("sentinels", "fail", how)]
    misplaced = [n for n in range(needed) if ids.get(n) != size - 1 - n]
    place = f"ids {size - needed:,} to {size - 1:,}, <extra_id_0> is {size - 1:,}"
    if misplaced:
        n = misplaced[0]
        place = f"<extra_id_{n}> is {ids.get(n, 'missing')}, must be {size - 1 - n}"
    encode = spm.processor(model).encode
    split = [n for n, i in ids.items() if encode(f"<extra_id_{n}>")[-1:] != [i]]
    in_text = f"each of the {len(ids)} is its own id"
    if split:
        in_text = f"<extra_id_{split[0]}> becomes other ids: make it user-defined"
    bare = [n for n, i in ids.items() if not model.pieces[i].piece.startswith(spm.WORD_START)]
    mark = "▁<extra_id_N>, as in mT5"
    if bare:
        mark = f"<extra_id_{bare[0]}> lacks the mark ▁: SentencePiece puts a lone ▁ before it"
    return [
        VocabularyCheck.of("sentinels last, descending", not misplaced, place),
        VocabularyCheck.of("sentinels in text", not split, in_text),
        VocabularyCheck.of("sentinels start a word", not bare, mark, otherwise="warn"),
    ]


def _size(size: int, vocab_size: int | None, extra_ids: int) -> VocabularyCheck:
    padded, rows = spm.round_up(size), vocab_size or size
    detail = f"{size:,}" + (f" with {extra_ids} extra ids" if extra_ids else "")
    detail += f" of vocab_size {vocab_size:,}" if vocab_size else ""
    if size > rows:
        detail += f": set vocab_size to {padded}, or ids above it have no embedding"
    elif rows % spm.SIZE_MULTIPLE:
        detail += f", not a multiple of {spm.SIZE_MULTIPLE}: set vocab_size to {padded}"
    elif rows - size >= spm.SIZE_MULTIPLE:
        detail += f": {rows - size:,} rows are never used; is it the right vocabulary?"
        return VocabularyCheck("size", "warn", detail)
    return VocabularyCheck.of("size", size <= rows and rows % spm.SIZE_MULTIPLE == 0, detail)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=arguments.text, help=cli.MODEL_HELP)
    about = "T5Config.vocab_size of the model that uses it"
    add("--vocab_size", type=arguments.integer(1), help=about)
    about = "100 if seqio adds the sentinels (T5's own)"
    add("--extra_ids", type=arguments.integer(0), default=0, help=about)
    add("--beside", type=arguments.text, help=BESIDE_HELP)
    cli.add_corpus_arguments(parser, required=False, max_documents=2000)


def run(args: argparse.Namespace) -> list[VocabularyCheck]:
    """Run all checks, those that need seqio and transformers too; the corpus is read last."""
    path = spm.download(args.model)
    checks = check_any(path, args.vocab_size, args.extra_ids)
    texts = list(cli.read_documents(args)) if args.corpus else []
    if args.cedilla:
        texts = [normalize(text, cedilla=True, nfc=False, whitespace=False) for text in texts]
    if folder := find_tokenizer(path):
        return [*checks, *check_texts(folder, texts)]
    covered = coverage(spm.find_model(path), texts, args.beside)
    texts = [*spm.sample_texts(spm.read_model(spm.find_model(path))), *texts]
    return [*checks, check_equal_ids(path, texts, args.extra_ids), *covered]


main = cli.command("check", "Check a vocabulary.", _add_arguments, run)

if __name__ == "__main__":
    main()
