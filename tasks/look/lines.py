"""The checks of a corpus. Each is a function that takes a sample and returns a line of the table.

    for row in table(sample.draw(task, "train")):
        print(row.check, row.verdict, row.figure)

`table` runs LINES for a task and CORPUS_LINES for a corpus without one, in their order, and names
each line after its function. If the data looks suspicious, a check warns. Only `targets` can fail:
if the vocabulary lacks pieces for too many targets, it does. `example` shows the first example,
and warns if there is none. To add a check, write its function and add it to LINES.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import seqio

from common.source import labels_of
from common.tables import CheckResult, counted, data_size, fails, first_names, ok, warning
from tasks import vocabularies
from tasks.corpus.records.counts import CODED, EXTRA_COPIES, NOTES, SKIPS
from tasks.corpus.records.formats import contents_of
from tasks.corpus.storage.files import CorpusFile
from tasks.look import overlap, sampling, signs
from tasks.look.sample import Sample, draw
from tasks.look.size import Tokens
from tasks.text.words import unit

MOST_UNUSABLE = 0.01  # share of the records that should be text and are not
MOST_EMPTY = 0.2  # share of empty records, in formats where a record is not a line
MOST_FOREIGN = 0.05  # share of letters in scripts that the vocabulary lacks
MOST_UNKNOWN = 0.01  # share of unknown pieces
FEWEST_OF_A_LABEL = 0.1  # share of the pairs of sentences
MOST_WITHOUT_TARGET = 0.1  # share of the examples
# Above both, a vocabulary was made for other texts: a good one of 32,000 pieces or more takes 1.2
# to 1.8 tokens a word in European languages, and 4 characters a token.
MOST_TOKENS, FEWEST_LETTERS = 2.5, 2.5
# Beyond four epochs a text teaches less and less (Muennighoff et al. 2023, arXiv:2305.16264);
# small sets of pairs are read far more often.
MOST_EPOCHS, MOST_EPOCHS_OF_PAIRS = 4.0, 100.0
_LONGEST_WORD = 12  # characters of a mean word, in scripts that separate words
_MOST_PIECES = 20_000  # sampled to find the scripts of a vocabulary
_OPENED = 64  # files on this machine whose encoding is shown
_PASSED_OVER, _LABELS = 3, 5  # number of each that is named
_EXAMPLE = 600  # characters of an example's feature
_UNUSABLE = ("null", "not_text", "not_UTF-8", "malformed")
_NEW_VOCABULARY = "VOCABULARY_FILE to one made from this corpus"
# Pairs are mostly what a checkpoint is fine-tuned on, whose vocabulary is not free.
_OTHER_MODEL = (
    "set INITIAL_CHECKPOINT_PATH to a model whose vocabulary has pieces for such text: another "
    "one, or what `python -m vocabulary.extend` makes of this one (from nothing: "
    f"{_NEW_VOCABULARY})"
)


def look(
    task: seqio.Task, split: str, lengths: Mapping[str, int] | None = None, pack: bool = True
) -> list[CheckResult]:
    """Return what a sample of a task's corpus shows; raise the errors of `sample.draw`."""
    return table(draw(task, split, lengths=lengths, pack=pack))


def table(sample: Sample) -> list[CheckResult]:
    """Return a result for each of LINES; without a task, for each of CORPUS_LINES."""
    lines = LINES if sample.task else CORPUS_LINES
    return [dataclasses.replace(line(sample), check=_name(line)) for line in lines]


def files(sample: Sample) -> CheckResult:
    """Judge whether the files have one format, and their lines are documents."""
    if (overview := sample.overview) is None:
        return ok(f"{sample.corpus} lists no files")
    formats = ", ".join(f"{n:,} {name}" for name, n in _formats(overview.files).items())
    figure = f"{counted(len(overview.files), 'file')}: {formats}"
    figure += f", {data_size(overview.file_bytes)}" if overview.file_bytes else ""
    figure += overview.details(sample.corpus_documents)
    if len({file.kind for file in overview.files}) > 1:
        to_set = "set `files` of the source to those that are data"
        return warning(f"{figure}: formats are mixed", to_set)
    if others := overview.passed_over:
        names = [f"{url.rsplit('/', 1)[-1]} ({why})" for url, why in others]
        figure += f"; passed over: {first_names(names, _PASSED_OVER)}"
    if question := overview.question:
        return warning(f"{figure}; {question.why}", question.to_set)
    return ok(figure)


def _formats(listing: Sequence[CorpusFile]) -> dict[str, int]:
    """Return the number of files by format, compression and encoding, such as "jsonl gz"."""
    opened = [file for file in listing if not file.remote][:_OPENED]
    encodings = {file: contents_of(file).encoding.replace("utf-8", "") for file in opened}
    words = ((file.kind, file.compression, encodings.get(file, "")) for file in listing)
    return collections.Counter(" ".join(filter(None, parts)) for parts in words)


def records(sample: Sample) -> CheckResult:
    """Judge the records that are no usable text, and labels that are no class."""
    counts, read = sample.counts, sample.counts["read"]
    reasons = {name.removeprefix("skipped_"): counts[name] for name in SKIPS if counts.get(name)}
    changes = [name for name in (*CODED, *NOTES) if name not in SKIPS and counts.get(name)]
    figure = f"{counted(len(sample.documents), 'document')} of {counted(read, 'record')} read"
    if reasons:
        figure += f", {sum(reasons.values()) / max(read, 1):.1%} without usable text"
    numbers = reasons | {name: counts[name] for name in changes}
    details = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in numbers.items())
    figure += f": {details}" if details else ""
    if labels := sample.unknown_labels:
        names = [f"{label!r} × {n:,}" for label, n in labels]
        return warning(
            f"{figure}; labels that are no class: {first_names(names, _LABELS)}",
            "set `labels` or `classes` of the task to all, unless those rows should go",
        )
    unusable = sum(reasons.get(reason, 0) for reason in _UNUSABLE) > MOST_UNUSABLE * read
    # An empty line of plain text is no fault.
    by_lines = sample.overview and any(file.kind == "text" for file in sample.overview.files)
    empty = not by_lines and reasons.get("empty", 0) > MOST_EMPTY * read
    if unusable or empty:
        other_encoding = sample.overview and sample.overview.not_utf8
        to_set = "set the column of the text, or the files without such records"
        return warning(figure, other_encoding.to_set if other_encoding else to_set)
    return ok(figure)


def characters(sample: Sample) -> CheckResult:
    """Judge whether the texts have characters that no author wrote."""
    return signs.odd_characters(_written_texts(sample))


def repetition(sample: Sample) -> CheckResult:
    """Judge whether the texts repeat each other."""
    return signs.repetition(_written_texts(sample))


def _written_texts(sample: Sample) -> list[str]:
    """Return the documents, without the copies that a column requests."""
    texts = ["\n".join(document.values()) for document in sample.documents]
    return [*dict.fromkeys(texts)] if sample.counts.get(EXTRA_COPIES) else texts


def evaluation_sets(sample: Sample) -> CheckResult:
    """Judge whether the texts hold sentences that models are measured on."""
    return overlap.evaluation(_written_texts(sample))


def scripts(sample: Sample) -> CheckResult:
    """Judge whether the vocabulary has pieces of the scripts in the texts."""
    shares = signs.scripts(sample.all_texts)
    named = [f"{name} {share:.1%}" for name, share in shares.items() if share >= 0.0005]
    figure = ", ".join(named) or "no letters"
    frequent = [name for name, share in shares.items() if share >= MOST_FOREIGN]
    foreign = _foreign(frequent, sample.vocabulary) if sample.task else []
    if not foreign:
        return ok(figure)
    letters = ((text, c) for text in sample.all_texts for c in text if signs.script(c) in foreign)
    quote = next(signs.around(text, [c]) for text, c in letters)
    lack = f"the vocabulary has hardly a piece of {' and '.join(foreign)}"
    return warning(f"{figure}; {lack}: {quote}", _other_vocabulary(sample))


def _foreign(names: Sequence[str], vocabulary: seqio.Vocabulary) -> list[str]:
    """Return the scripts that hardly a piece of the vocabulary is of."""
    if isinstance(vocabulary, seqio.ByteVocabulary):
        return []
    step = -(-vocabulary.vocab_size // _MOST_PIECES)
    pieces = [vocabulary.decode([i]) for i in range(0, vocabulary.vocab_size, step)]
    beginnings = (piece.strip(" #")[:1] for piece in pieces)  # not of "<extra_id_0>" or "[MASK]"
    counts = collections.Counter(map(signs.script, filter(None, beginnings)))
    return [name for name in names if counts[name] < 0.001 * len(pieces)]


def pieces(sample: Sample) -> CheckResult:
    """Judge the length of pieces; in `numbers`, the sizes of corpus and row, see `sizes`."""
    figure = f"{sample.bytes_a_token:.2f} bytes a token, {sample.tokens_a_word:.2f} tokens a "
    figure += unit(sample.all_texts)
    by_bytes = isinstance(sample.vocabulary, seqio.ByteVocabulary)
    has_words = sample.letters <= _LONGEST_WORD * sample.words and not by_bytes
    letters = sample.letters / max(sample.counts["pieces"], 1)
    numbers = sizes(sample.corpus_tokens, sample.row_tokens, "targets" in sample.texts)
    numbers |= {"tokens_a_word": sample.tokens_a_word, "bytes_a_token": sample.bytes_a_token}
    if not has_words or sample.tokens_a_word <= MOST_TOKENS or letters >= FEWEST_LETTERS:
        return ok(figure, numbers=numbers)
    larger = "" if "targets" in sample.texts else ", or larger"
    to_set = f"{_other_vocabulary(sample)}{larger}"
    return warning(f"{figure}: words are split too much", to_set, numbers=numbers)


def sizes(corpus: Tokens | None, row_tokens: float, are_pairs: bool = False) -> dict[str, object]:
    """Return what decides how often a corpus is read, for `t5x.cli.dry_run.epochs`."""
    return {
        "corpus_tokens": corpus.number if corpus else None,
        "known": corpus.source if corpus else "",
        "row_tokens": row_tokens,
        "most_epochs": MOST_EPOCHS_OF_PAIRS if are_pairs else MOST_EPOCHS,
    }


def unknown_pieces(sample: Sample) -> CheckResult:
    """Judge the share of pieces that stand for characters without a piece."""
    counts = sample.counts
    share = counts["unknown_pieces"] / max(counts["pieces"], 1)
    figure = f"{share:.2%} of {counts['pieces']:,} pieces"
    if unknown := unknown_characters(sample.vocabulary, sample.all_texts):
        figure += f": {_quoted(unknown, sample.all_texts)}"
    return ok(figure) if share <= MOST_UNKNOWN else warning(figure, _other_vocabulary(sample))


def targets(sample: Sample) -> CheckResult:
    """Judge whether there are targets, and the vocabulary can write those that are other texts."""
    share = sample.without_target / max(len(sample.examples), 1)
    empty = f"{share:.1%} of {counted(len(sample.examples), 'example')} have none"
    if share > MOST_WITHOUT_TARGET:
        return warning(empty, "give longer documents, or other TASK_FEATURE_LENGTHS")
    if "targets" not in sample.texts:
        return ok(f"parts of the text itself; {empty}")
    vocabulary = sample.vocabulary
    pairs = zip(sample.texts["targets"], sample.ids["targets"], strict=True)
    unwritable = [text for text, ids in pairs if vocabulary.unk_id in ids]
    total = counted(len(sample.documents), "target")
    if not unwritable:
        return ok(f"all of {total} can be written")
    share = len(unwritable) / len(sample.documents)
    unknown = unknown_characters(vocabulary, unwritable)
    figure = f"{share:.1%} of {total} cannot be written: {_quoted(unknown, unwritable)}"
    if share <= vocabularies.unwritable_targets():
        return ok(figure)
    setting = f"tasks.vocabularies.unwritable_targets.most above {share:.3f}"
    return fails(figure, f"{_other_vocabulary(sample)}; or {setting}")


def labels(sample: Sample) -> CheckResult:
    """Judge whether pairs of sentences have both labels; show the shares of a classifier's."""
    assert sample.task is not None
    counts = collections.Counter(sample.pairs_by_label)
    if labels_of(sample.task):
        counts.update(row["targets"] for row in sample.documents)
    shares = {name: n / counts.total() for name, n in counts.most_common()}
    names = [f"{name} {share:.1%}" for name, share in shares.items()]
    figure = first_names(names, _LABELS) or "none"
    if sample.pairs_by_label and min(shares.values()) < FEWEST_OF_A_LABEL:
        return warning(
            figure,
            "give several documents of several sentences each (documents = 'paragraphs' or 'files' "
            "where they are in neighbouring lines), or take the objective 'masked_lm'",
        )
    return ok(figure)


def example(sample: Sample) -> CheckResult:
    """Show the first example."""
    if not sample.examples:
        figure = "the sample gives none: its documents are too short"
        return warning(figure, "set TASK_FEATURE_LENGTHS shorter")
    features = []
    for name, spans in sample.spans(sample.examples[0]).items():
        text = " ".join(text for _, text in spans)
        text = text if len(text) <= _EXAMPLE else f"{text[:_EXAMPLE]} …"
        features.append(f"{name:<7}  {text}")
    return ok(f"one of {len(sample.examples):,} is shown below", text="\n".join(features))


def _other_vocabulary(sample: Sample) -> str:
    return _OTHER_MODEL if "targets" in sample.texts else f"set {_NEW_VOCABULARY}"


def unknown_characters(vocabulary: seqio.Vocabulary, texts: Sequence[str]) -> dict[str, int]:
    """Return how often characters that become the unknown id occur, most frequent first."""
    counts = collections.Counter(c for text in texts for c in text)
    unknown = sampling.uncovered(vocabulary, counts)
    return {c: n for c, n in counts.most_common() if c in unknown}


def _quoted(characters: Mapping[str, int], texts: Sequence[str]) -> str:
    """Return characters with their counts, and the text around one of them."""
    quote = next((signs.around(text, [c]) for c in characters for text in texts if c in text), "")
    return f"{signs.named([*characters], characters)}; {quote}"


CORPUS_LINES: tuple[Callable[[Sample], CheckResult], ...] = (
    files,
    records,
    characters,
    repetition,
    evaluation_sets,
    scripts,
)
LINES = (*CORPUS_LINES, pieces, unknown_pieces, targets, labels, example)


def _name(line: Callable) -> str:
    return line.__name__.replace("_", " ")


NAMES = tuple(map(_name, LINES))
