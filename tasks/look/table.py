"""A look at a task as a table: what was found of files, records, texts and pieces, with verdicts.

    for row in rows(figures.look(task, "train")):
        print(row.check, row.verdict, row.figure)

The rows have the same names for every task. What looks wrong is a warning with an example; targets
that the model cannot write are a failure.
"""

import dataclasses

from common.tables import OK, WARNING, CheckResult, counted, data_size, judged
from tasks import vocabularies
from tasks.look import signs
from tasks.look.figures import Look

NAMES = (
    *("files", "records", "characters", "repetition", "scripts", "pieces", "unknown pieces"),
    *("targets", "example"),
)
MOST_UNUSABLE = 0.01  # of the records: those that should be text and are none
MOST_EMPTY = 0.2  # of the records of formats in which an empty one is no empty line
MOST_UNKNOWN = 0.01  # of the pieces
# Above both, a vocabulary was made for other texts: a good one of 32,000 pieces or more takes 1.2
# to 1.8 tokens a word in European languages, and 4 characters a token.
MOST_TOKENS, FEWEST_LETTERS = 2.5, 2.5
# Beyond four epochs a text teaches less and less (Muennighoff et al. 2023, arXiv:2305.16264);
# small sets of pairs are read far more often.
MOST_EPOCHS, MOST_EPOCHS_OF_PAIRS = 4.0, 100.0
_LONGEST_WORD = 12  # characters of a mean word, in scripts that separate words
_LABELS = 5  # shown
_OF_NOTHING = "VOCABULARY_FILE to one made from this corpus"
# Pairs are mostly what a checkpoint is fine-tuned on, whose vocabulary is not free.
_OF_PAIRS = (
    "INITIAL_CHECKPOINT_PATH to a model whose vocabulary has pieces for such text: another one, or "
    f"what `python -m vocabulary.extend` makes of this one (from nothing: {_OF_NOTHING})"
)
_SHOWN = 600  # characters of an example
_UNUSABLE = ("null", "not_text", "not_UTF-8", "malformed")


def rows(found: Look) -> list[CheckResult]:
    """Return a line for each of NAMES."""
    vocabulary = _OF_NOTHING if found.targets is None else _OF_PAIRS
    return [
        _files(found),
        _records(found),
        dataclasses.replace(found.characters, check="characters"),
        dataclasses.replace(found.repetition, check="repetition"),
        _scripts(found, vocabulary),
        _pieces(found, vocabulary),
        _unknown(found, vocabulary),
        _targets(found, vocabulary),
        _example(found),
    ]


def _files(found: Look) -> CheckResult:
    total = sum(found.files.values())
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in found.files.items())
    figure = f"{counted(total, 'file')}: {kinds}" if total else f"{found.corpus} lists no files"
    figure += f", {data_size(found.file_bytes)}" if found.file_bytes else ""
    if seen := found.overview:
        figure += seen.of_documents(found.corpus_documents)
    if len({kind.split()[0] for kind in found.files}) > 1:
        to_set = "`files` of the source to those that are data"
        return judged("files", False, f"{figure}: formats are mixed", to_set, WARNING)
    if found.passed_over:
        names = [f"{url.rsplit('/', 1)[-1]} ({why})" for url, why in found.passed_over[:3]]
        more = len(found.passed_over) - len(names)
        figure += f"; passed over: {', '.join(names)}" + (f" and {more:,} more" if more else "")
    if seen and seen.looks_like:
        return judged("files", False, f"{figure}; {seen.looks_like}", seen.to_set, WARNING)
    return judged("files", True, figure)


def _records(found: Look) -> CheckResult:
    read, left_out = found.counts["read"], found.left_out
    figure = f"{counted(found.sampled, 'document')} of {counted(read, 'record')} read"
    said = [f"{n:,} {reason.replace('_', ' ')}" for reason, n in left_out.items()]
    said += [f"{n:,} {name.replace('_', ' ')}" for name, n in found.changed.items()]
    if left_out:
        figure += f", {sum(left_out.values()) / max(read, 1):.1%} without usable text"
    figure += f": {', '.join(said)}" if said else ""
    if labels := found.unknown_labels:
        named = ", ".join(f"{label!r} × {n:,}" for label, n in labels[:_LABELS])
        more = f" and {len(labels) - _LABELS:,} more" if len(labels) > _LABELS else ""
        figure += f"; labels that are no class: {named}{more}"
        to_set = "`labels` or `classes` of the task to all, unless those rows should go"
        return judged("records", False, figure, to_set, WARNING)
    unusable = sum(left_out.get(reason, 0) for reason in _UNUSABLE) > MOST_UNUSABLE * read
    by_lines = any(kind.startswith("text") for kind in found.files)
    empty = not by_lines and left_out.get("empty", 0) > MOST_EMPTY * read
    to_set = "the column of the text, or the files without such records"
    return judged("records", not (unusable or empty), figure, to_set, WARNING)


def _scripts(found: Look, vocabulary: str) -> CheckResult:
    shares = [f"{name} {share:.1%}" for name, share in found.scripts.items() if share >= 0.0005]
    figure = ", ".join(shares) or "no letters"
    if found.foreign:
        figure += f"; the vocabulary has hardly a piece of {' and '.join(found.foreign)}"
        figure += f": {found.foreign_example}"
    return judged("scripts", not found.foreign, figure, vocabulary, WARNING)


def _pieces(found: Look, vocabulary: str) -> CheckResult:
    each = found.letters / max(found.counts["pieces"], 1)
    figure = f"{found.bytes_a_token:.2f} bytes a token, {found.tokens_a_word:.2f} tokens a word"
    has_words = found.letters <= _LONGEST_WORD * found.words and not found.by_bytes
    is_split = has_words and found.tokens_a_word > MOST_TOKENS and each < FEWEST_LETTERS
    figure += ": words are split too much" if is_split else ""
    to_set = f"{vocabulary}, or larger" if vocabulary == _OF_NOTHING else vocabulary
    row = judged("pieces", not is_split, figure, to_set, WARNING)
    size, how = found.corpus_tokens or (None, "")
    numbers = {"corpus_tokens": size, "known": how, "row_tokens": found.row_tokens}
    numbers["most_epochs"] = MOST_EPOCHS if found.targets is None else MOST_EPOCHS_OF_PAIRS
    numbers |= {"tokens_a_word": found.tokens_a_word, "bytes_a_token": found.bytes_a_token}
    return dataclasses.replace(row, numbers=numbers)


def _unknown(found: Look, vocabulary: str) -> CheckResult:
    figure = f"{found.unknown:.2%} of {found.counts['pieces']:,} pieces"
    if found.unknown_characters:
        counts = dict(found.unknown_characters)
        figure += f": {signs.named([*counts], counts)}; {found.unknown_example}"
    return judged("unknown pieces", found.unknown <= MOST_UNKNOWN, figure, vocabulary, WARNING)


def _targets(found: Look, vocabulary: str) -> CheckResult:
    """Judge the targets of a task whose inputs are other texts."""
    if (targets := found.targets) is None:
        return judged("targets", True, "parts of the text itself")
    share = targets.unknown / targets.total
    figure = f"all of {counted(targets.total, 'target')} can be written"
    if targets.unknown:
        figure = f"{share:.1%} of {counted(targets.total, 'target')} cannot be written"
        counts = dict(targets.characters)
        figure += f": {signs.named([*counts], counts)}; {targets.example}"
    to_set = f"{vocabulary}; or tasks.vocabularies.unwritable_targets.most above {share:.3f}"
    return judged("targets", share <= vocabularies.unwritable_targets(), figure, to_set)


def _example(found: Look) -> CheckResult:
    if not found.examples:
        figure = "the sample gives none: its documents are too short"
        return judged("example", False, figure, "TASK_FEATURE_LENGTHS shorter", WARNING)
    texts = {name: " ".join(t for _, t in each) for name, each in found.examples[0].items()}
    shown = [
        f"{name:<7}  {t if len(t) <= _SHOWN else f'{t[:_SHOWN]} …'}" for name, t in texts.items()
    ]
    figure = f"one of {found.examples_made:,} is shown below"
    return CheckResult(OK, figure, text="\n".join(shown), check="example")
