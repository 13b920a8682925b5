"""Proves that a vocabulary fits T5: its ids, its sentinels, its size, and its Hugging Face twin.

    python -m vocabulary.check ro.model --vocab_size 64000 --corpus 'corpus/*.jsonl'
    python -m vocabulary.check converted_folder
    python -m vocabulary.check google/mt5-base --vocab_size 250112
    python -m vocabulary.check t5.model --extra_ids 100 --vocab_size 32128

Why it matters: span corruption marks the first hidden span by the highest id, the second by the
one below, and so on. Where those ids are not sentinels, ordinary words silently become them.
Two layouts pass: sentinels as the model's last pieces (ours and mT5's, extra_ids 0), and a model
without any, to which seqio adds them (T5's own, extra_ids 100).
"""

import argparse
import sys

import sentencepiece

from vocabulary import proto
from vocabulary.findings import Finding, passed, table

SIZE_MULTIPLE = 128
SPECIAL_IDS = {"pad": 0, "eos": 1, "unk": 2}


def require(path: str, vocab_size: int | None = None, extra_ids: int = 0) -> None:
    """Raises ValueError with every failed check of `check_vocabulary` in one sentence."""
    findings = check_vocabulary(path, vocab_size, extra_ids)
    reasons = [f"{f.check}: {f.figure}" for f in findings if f.verdict == "fail"]
    if reasons:
        raise ValueError(f"the vocabulary {path} does not fit T5: " + "; ".join(reasons))


def check_vocabulary(path: str, vocab_size: int | None = None, extra_ids: int = 0) -> list[Finding]:
    """The checks that need nothing but the model file; they take well under a second.

    Args:
      path: a SentencePiece model, local or on `gs://`.
      vocab_size: rows of the model's embedding (`T5Config.vocab_size`); None checks the
        vocabulary's own size.
      extra_ids: as given to `seqio.SentencePieceVocabulary`: 0 where the sentinels are pieces
        of the model, 100 where seqio adds them behind it.

    Raises ValueError where `path` is no SentencePiece model.
    """
    model = proto.read_model(path)
    return [
        _algorithm(model),
        *_special_ids(model),
        *_sentinels(model, extra_ids),
        _size(len(model.pieces) + extra_ids, vocab_size, extra_ids),
    ]


def _algorithm(model: proto.ModelProto) -> Finding:
    kind = model.trainer_spec.ModelType.Name(model.trainer_spec.model_type).lower()
    reason = "" if kind == "unigram" else ", but T5's Hugging Face tokenizer is unigram only"
    return Finding.of("algorithm", kind == "unigram", kind + reason)


def _special_ids(model: proto.ModelProto) -> list[Finding]:
    spec = model.trainer_spec
    found = {"pad": spec.pad_id, "eos": spec.eos_id, "unk": spec.unk_id}
    findings = []
    for name, wanted in SPECIAL_IDS.items():
        kind = proto.Piece.UNKNOWN if name == "unk" else proto.Piece.CONTROL
        ok = found[name] == wanted and model.pieces[wanted].type == kind
        reason = "" if ok else f", must be {wanted} and of its own type (--{name}_id={wanted})"
        findings.append(Finding.of(f"{name} id", ok, f"{found[name]}{reason}"))
    bos = spec.bos_id
    note = "none" if bos < 0 else f"{bos}, a piece that T5 never uses"
    return [*findings, Finding.of("no bos", bos < 0, note, otherwise="warn")]


def _sentinels(model: proto.ModelProto, extra_ids: int) -> list[Finding]:
    ids = proto.sentinel_ids(model)
    size = len(model.pieces)
    if extra_ids:
        return [_outside(ids, size, extra_ids)]
    count = proto.NUM_SENTINELS
    if not ids:
        reason = f"none in the model: train it with vocabulary.train, or set extra_ids to {count}"
        return [Finding.of("sentinels", False, reason)]
    wanted = {number: size - 1 - number for number in range(count)}
    misplaced = [n for n in wanted if ids.get(n) != wanted[n]]
    if misplaced:
        n = misplaced[0]
        figure = f"<extra_id_{n}> is {ids.get(n, 'missing')}, must be {wanted[n]}"
    else:
        figure = f"ids {size - count:,} to {size - 1:,}, <extra_id_0> is {size - 1:,}"
    bare = [n for n, i in ids.items() if not model.pieces[i].piece.startswith(proto.WORD_START)]
    return [
        Finding.of("sentinels last, descending", not misplaced, figure),
        _sentinels_in_text(model, ids),
        Finding.of(
            "sentinels open a word",
            not bare,
            "▁<extra_id_N>, as in mT5"
            if not bare
            else f"<extra_id_{bare[0]}> lacks the mark ▁: SentencePiece leaves a lone ▁ before it",
            otherwise="warn",
        ),
    ]


def _sentinels_in_text(model: proto.ModelProto, ids: dict[int, int]) -> Finding:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    for number, i in ids.items():
        found = processor.encode(f"<extra_id_{number}>")
        if found[-1:] != [i]:
            figure = f"<extra_id_{number}> becomes {found}, not {i}: make it user-defined"
            return Finding("sentinels in text", "fail", figure)
    return Finding("sentinels in text", "ok", f"each of the {len(ids)} is its own id")


def _outside(ids: dict[int, int], size: int, extra_ids: int) -> Finding:
    if ids:
        reason = f"{len(ids)} in the model and {extra_ids} more by extra_ids: set extra_ids to 0"
        return Finding.of("sentinels", False, reason)
    figure = f"ids {size:,} to {size + extra_ids - 1:,}, behind the model, by extra_ids"
    enough = extra_ids >= proto.NUM_SENTINELS
    if not enough:
        figure += f"; T5 asks for {proto.NUM_SENTINELS}"
    return Finding.of("sentinels last, descending", enough, figure)


def _size(size: int, vocab_size: int | None, extra_ids: int) -> Finding:
    padded = -(-size // SIZE_MULTIPLE) * SIZE_MULTIPLE
    figure = f"{size:,}" + (f" with {extra_ids} extra ids" if extra_ids else "")
    if vocab_size is None:
        reason = "" if size == padded else f" is no multiple of {SIZE_MULTIPLE}: give --vocab_size"
        return Finding.of("size", size == padded, figure + (f"{reason} {padded}" if reason else ""))
    figure += f" of vocab_size {vocab_size:,}"
    if size > vocab_size:
        figure += f": set vocab_size to {padded}, or ids above it have no embedding"
    elif vocab_size % SIZE_MULTIPLE:
        figure += f", which is no multiple of {SIZE_MULTIPLE}: set vocab_size to {padded}"
    elif vocab_size - size >= SIZE_MULTIPLE:
        figure += f": {vocab_size - size:,} rows are never used; is it the right vocabulary?"
        return Finding("size", "warn", figure)
    return Finding.of("size", size <= vocab_size and vocab_size % SIZE_MULTIPLE == 0, figure)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m vocabulary.check", description="Check a vocabulary for T5."
    )
    add = parser.add_argument
    add("model", help="SentencePiece file, converted folder, or Hugging Face hub name")
    add("--vocab_size", type=int, help="T5Config.vocab_size of the model that uses it")
    add("--extra_ids", type=int, default=0, help="100 where seqio adds the sentinels (T5's own)")
    add("--corpus", help="compare ids on this text: glob of files or hub name")
    add("--column", default="text")
    add("--config")
    add("--split", default="train")
    add("--max_documents", type=int, default=2000)
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> list[Finding]:
    """All the checks that `args` ask for."""
    from vocabulary.equality import check_equal_ids, sample_texts

    path = proto.find_model(args.model)
    findings = check_vocabulary(path, args.vocab_size, args.extra_ids)
    texts = sample_texts(path)
    if args.corpus:
        from vocabulary import corpus

        documents = corpus.read_documents(
            args.corpus,
            column=args.column,
            config=args.config,
            split=args.split,
            max_documents=args.max_documents,
        )
        texts += [document for document in documents if isinstance(document, str)]
    return [*findings, check_equal_ids(args.model, texts, args.extra_ids)]


def main(argv: list[str] | None = None) -> None:
    """The command; exit code 1 where a check fails."""
    try:
        findings = run(_arguments(argv))
    except ValueError as error:
        sys.exit(f"vocabulary.check: {error}")
    print(table(findings))
    if not passed(findings):
        sys.exit(1)


if __name__ == "__main__":
    main()
