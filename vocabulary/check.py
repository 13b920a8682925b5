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

import pathlib
import sys
import tempfile
from collections.abc import Iterator, Sequence

from common import arguments, tables
from common.embedding import ROW_MULTIPLE, padded_rows
from common.errors import guarded
from common.tables import WARNING, CheckResult, judged, ok, run_check
from convert.formats.sentencepiece_model import (
    BLANK,
    NUM_SENTINELS,
    ModelProto,
    SentencePiece,
    processor,
    read_model,
    sentinel_ids,
)
from vocabulary import corpus, files
from vocabulary.coverage import BESIDE_HELP, coverage

_BY_TRAIN = "make a model by vocabulary.train"
SPECIAL_IDS = {"pad": 0, "eos": 1, "unk": 2}
# What masked sequences need; without "unk" every text must be spelled by bytes.
_ROLES = ("mask", "pad", "cls", "sep")


def check_vocabulary(
    path: str, vocab_size: int | None = None, extra_ids: int = 0
) -> list[CheckResult]:
    """Return the checks that need only the vocabulary's files.

    Checking a SentencePiece model takes well under a second, and loads no TensorFlow.

    Args:
      path: a SentencePiece model or a tokenizer.json, local or on `gs://`.
      vocab_size: the rows of the network's embedding.
      extra_ids: 0 if the sentinels are pieces of the model, 100 if seqio adds them after it.

    Raises:
      UserError: `path` is neither, or cannot be read.
    """
    if folder := files.find_tokenizer(path):
        size, checks = _check_tokenizer(folder)
        return [*checks, _size(size, vocab_size, 0)]
    model = read_model(files.find_model(path))
    size = len(model.pieces) + extra_ids
    return [*_check_sentencepiece(model, extra_ids), _size(size, vocab_size, extra_ids)]


def _check_sentencepiece(model: ModelProto, extra_ids: int) -> Iterator[CheckResult]:
    """Yield the checks of algorithm, special ids and sentinels."""
    spec = model.trainer_spec
    kind = spec.ModelType.Name(spec.model_type).lower()
    reason = "" if kind == "unigram" else ", but T5's Hugging Face tokenizer is unigram only"
    yield judged("algorithm", kind == "unigram", kind + reason, _BY_TRAIN)
    for name, must_be in SPECIAL_IDS.items():
        kind = SentencePiece.UNKNOWN if name == "unk" else SentencePiece.CONTROL
        actual = getattr(spec, f"{name}_id")
        is_right = 0 <= actual < len(model.pieces) and model.pieces[actual].type == kind
        is_right &= name != "pad" or actual == must_be  # the network pads with it
        must = f"set --{name}_id={must_be}, a piece of its own type"
        yield judged(f"{name} id", is_right, str(actual), must)
    note = "none" if spec.bos_id < 0 else f"{spec.bos_id}, a piece that T5 never uses"
    yield judged("no bos", spec.bos_id < 0, note, _BY_TRAIN, otherwise=WARNING)
    yield from _sentinels(model, extra_ids)


def _sentinels(model: ModelProto, extra_ids: int) -> Iterator[CheckResult]:
    ids, size, needed = sentinel_ids(model), len(model.pieces), NUM_SENTINELS
    if extra_ids and ids:
        detail = f"{len(ids)} in the model and {extra_ids} more"
        yield judged("sentinels", False, detail, "set extra_ids to 0")
        return
    if extra_ids:
        place = f"ids {size:,} to {size + extra_ids - 1:,}, after the model, by extra_ids"
        to_set = f"set extra_ids to {needed}, which T5 needs"
        yield judged("sentinels last, descending", extra_ids >= needed, place, to_set)
        return
    if not ids:
        to_set = f"set extra_ids to {needed}, or train the model with vocabulary.train"
        yield judged("sentinels", False, "none in the model", to_set)
        return
    misplaced = [n for n in range(needed) if ids.get(n) != size - 1 - n]
    place = f"ids {size - needed:,} to {size - 1:,}, <extra_id_0> is {size - 1:,}"
    if misplaced:
        n = misplaced[0]
        place = f"<extra_id_{n}> is {ids.get(n, 'missing')}, must be {size - 1 - n}"
    yield judged("sentinels last, descending", not misplaced, place, _BY_TRAIN)
    encode = processor(model).encode
    split = [n for n, i in ids.items() if encode(f"<extra_id_{n}>")[-1:] != [i]]
    in_text = f"each of the {len(ids)} is its own id"
    if split:
        in_text = f"<extra_id_{split[0]}> becomes other ids"
    to_set = f"set user_defined_symbols of SentencePiece, or {_BY_TRAIN}"
    yield judged("sentinels in text", not split, in_text, to_set)
    bare = [n for n, i in ids.items() if not model.pieces[i].piece.startswith(BLANK)]
    mark = "▁<extra_id_N>, as in mT5"
    if bare:
        mark = f"<extra_id_{bare[0]}> lacks the mark ▁: SentencePiece puts a lone ▁ before it"
    yield judged("sentinels start a word", not bare, mark, _BY_TRAIN, otherwise=WARNING)


def _check_tokenizer(folder: str) -> tuple[int, list[CheckResult]]:
    """Return the number of ids of an encoder's tokenizer, and its checks."""
    from tasks.tokenizer_vocabulary import TokenizerVocabulary  # with TensorFlow

    vocabulary = TokenizerVocabulary(folder)
    roles, size = vocabulary.roles, vocabulary.vocab_size
    checks = [judged("algorithm", True, type(vocabulary.tokenizer.model).__name__)]
    for role in _ROLES:
        detail = f"{roles[role]}, {vocabulary.pieces[roles[role]]}" if role in roles else "none"
        to_set = f"set {role}_token in tokenizer_config.json, which masked_lm needs"
        checks.append(judged(f"{role} id", role in roles, detail, to_set))
    ids = [roles[role] for role in _ROLES if role in roles]
    same = len(ids) != len({*ids})
    detail = "two of mask, pad, cls and sep are one token" if same else "each its own"
    to_set = "set a token of its own for each in tokenizer_config.json"
    checks.append(judged("distinct ids", not same, detail, to_set))
    starts = int(vocabulary.word_starts().sum())
    has_starts = len(vocabulary.special_ids) < starts < size
    detail = f"{starts:,} of {size:,} pieces"
    detail += "" if has_starts else ": whole words cannot be masked"
    to_set = "take an objective that masks no whole words"
    checks.append(judged("begin a word", has_starts, detail, to_set, otherwise=WARNING))
    return size, checks


def _size(size: int, vocab_size: int | None, extra_ids: int) -> CheckResult:
    padded, rows = padded_rows(size), vocab_size or size
    detail = f"{size:,}" + (f" with {extra_ids} extra ids" if extra_ids else "")
    detail += f" of vocab_size {vocab_size:,}" if vocab_size else ""
    to_set = f"set vocab_size to {padded}"
    if size > rows:
        return judged("size", False, f"{detail}: ids above it have no embedding", to_set)
    if rows % ROW_MULTIPLE:
        return judged("size", False, f"{detail}, not a multiple of {ROW_MULTIPLE}", to_set)
    unused = f"{detail}: {rows - size:,} rows are never used"
    is_full = rows - size < ROW_MULTIPLE
    to_set += ", or take the vocabulary that the network was made for"
    return judged("size", is_full, detail if is_full else unused, to_set, otherwise=WARNING)


def same_ids(path: str, texts: Sequence[str], extra_ids: int = 0) -> CheckResult:
    """Check that the tokenizer which the converter writes gives the ids of training on all texts.

    `path` is a SentencePiece model, a run's folder, or a folder or hub name with Hugging Face
    files. The odd texts of `convert.proof.odd_texts` are added, and each text is also compared with
    sentinels or masks between its words.
    """
    from convert.proof import odd_texts
    from convert.proof.same_ids import compare
    from convert.tokenizer import TokenizerFolder, TrainedVocabulary, Vocabulary

    vocabulary: Vocabulary
    if encoder := files.find_tokenizer(path):
        vocabulary = TokenizerFolder(encoder)
    else:
        vocabulary = TrainedVocabulary(files.find_model(path), extra_ids)

    def compared() -> CheckResult:
        with tempfile.TemporaryDirectory() as name:
            vocabulary.publish(pathlib.Path(name))
            compared_ids = compare(vocabulary, pathlib.Path(name), [*odd_texts.odd_texts(), *texts])
            return ok(str(compared_ids))

    return run_check("equal ids", compared)


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Print all checks, and return the status; the corpus is read last."""
    parser = arguments.parser("python -m vocabulary.check", __doc__)
    add = parser.add_argument
    add("model", type=arguments.text, help=corpus.MODEL_HELP)
    about = "network.T5Config.vocab_size of the recipe, default that of the file"
    add("--vocab_size", type=arguments.integer(1), help=about)
    about = "100 if seqio adds the sentinels, as with T5's own vocabulary; default 0"
    add("--extra_ids", type=arguments.integer(0), default=0, help=about)
    add("--beside", type=arguments.text, help=BESIDE_HELP)
    corpus.add_arguments(parser, required=False, max_documents=2000)
    args = parser.parse_args(argv)
    path = files.download(args.model)
    checks = check_vocabulary(path, args.vocab_size, args.extra_ids)
    texts = corpus.read_texts(args) if args.corpus or args.task else []
    checks.append(same_ids(path, texts, args.extra_ids))
    return tables.show([*checks, *coverage(path, texts, args.beside)])


if __name__ == "__main__":
    sys.exit(main())
