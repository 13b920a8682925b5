"""Write the task, the recipe and the launch script of a language or of your own text.

    python -m tasks.new_language czech --size base
    python -m tasks.new_language --corpus "/data/*.txt" --name uk --size tiny
    python -m tasks.new_language georgian --from google/umt5-small --keep ron,bul,eng

The first writes tasks/czech.py, gin/cs_t5x_base.gin and launch/cs_t5x_base.sh, for FineWeb-2; the
second the same for files of yours. Both print the three commands that follow: they train the
vocabulary, train the model and convert it. A language is a code such as ces_Latn or cs, its English
name, or its own; --name calls its files otherwise. Without --size the amount of text decides. The
files are yours to change; existing ones are kept unless --overwrite is given.

With --from a language is added to a model that exists (`tasks.scaffold.added_language`): a Hugging
Face T5, mT5, umT5, ByT5, XLM-R, RoBERTa or ModernBERT, or a run of your own. --keep names the
languages that stay, whose text is read too (`eng=/data/en/*.txt` for files of yours); the
vocabulary is cut to them. With --keep all no piece is cut. With --decay_only the new language is
read while the learning rate falls, and only the others before.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import dataclasses
import re
import shlex
import unicodedata
from collections.abc import Sequence

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.tables import amount, counted, data_size
from tasks.corpus.storage.names import LIST, given
from tasks.languages import table
from tasks.languages.table import FINEWEB2, TOKENS_PER_WORD, Language
from tasks.scaffold import added_language, starting_model
from tasks.scaffold import files as new_files

# By the size of a model: partitions that fit the memory of chips, steps that are worth a start and
# the most, and the tokens of text from which on the next smaller model is too small for it.
PARTITIONS = {"tiny": 1, "small": 1, "base": 1, "large": 1, "xl": 8, "xxl": 16}
LEAST_TOKENS = {"base": 5e8, "small": 5e7, "tiny": 0.0}
STEPS = {"tiny": (300, 2_000)}
OTHER_STEPS = (10_000, 2_000_000)
# Rows of 512 inputs, which 568 tokens of text fill; 16 rows of 128 inputs, 142 tokens.
TOKENS_PER_STEP = {"tiny": 16 * 142}
OTHER_TOKENS_PER_STEP = 128 * 568
# More repetitions of a corpus teach clearly less than new text (Muennighoff et al. 2023,
# arXiv:2305.16264).
EPOCHS = 4
MOST_EPOCHS = 40  # beyond them, as good as nothing
BYTES_PER_TOKEN = 4  # roughly
PIECES = ((1e9, 64_000), (1e8, 32_000), (5e6, 8_192), (0.0, 2_048))  # by bytes of text
MOST_PIECES = {"tiny": 8_192}
SAMPLE = 2_000_000  # documents that the vocabulary is trained on
# Of scripts with thousands of characters: rare ones are written in bytes.
MANY_CHARACTERS = ("Hani", "Hang", "Jpan", "Yiii")
RARE = " --byte_fallback --character_coverage 0.9995"
CLOSE = 0.05  # of the text of the largest language of a name, from which on a smaller one counts

TASK = '''"""{about}."""

from tasks import corpora
{imports}

corpora.add(
    "{task}",
    {source},
    "{vocabulary}",{cedilla}
)
'''
RECIPE = """\
# T5 1.1 {size} from scratch on {text}, own vocabulary of {pieces:,} pieces.
# Command: bash launch/{recipe}.sh     Cost and loss to expect: not yet measured.
from __gin__ import dynamic_registration
import seqio
import tasks.{module}
from t5x import partitioning
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/{network}.gin'
{shared}include 't5x/configs/runs/pretrain.gin'
include 'gin/shared/run.gin'

MIXTURE_OR_TASK_NAME = '{task}'
{lengths}
TRAIN_STEPS = {steps}
{more}{infill}DROPOUT_RATE = 0.0
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{vocabulary}'
network.T5Config.vocab_size = {pieces}
partitioning.PjitPartitioner.num_partitions = {partitions}
utils.SaveCheckpointConfig:
  period = {period}
  keep = {keep}
  save_dataset = True
"""
LENGTHS = "TASK_FEATURE_LENGTHS = {'inputs': 512, 'targets': 114}  # 114: density 0.15, spans of 3"
OF_TINY: dict[str, str | int] = {
    "network": "base",
    "shared": "include 'gin/shared/tiny.gin'\n",
    "lengths": LENGTHS.replace("512", "128").replace("114", "29"),
    "keep": 3,
}
MORE_OF_TINY = """\
BATCH_SIZE = 16
EVAL_PERIOD = {period}
EVAL_STEPS = 3
utils.create_learning_rate_scheduler.base_learning_rate = 0.25
utils.create_learning_rate_scheduler.warmup_steps = 100
"""


@dataclasses.dataclass(frozen=True)
class Text:
    """A corpus to write a recipe for.

    `about` describes it, `module` and `short` name the files, `source` and `imports` are Python,
    `flags` are of `vocabulary.train`. `text_bytes` and `tokens` are rough.
    """

    about: str
    module: str
    short: str
    source: str
    imports: str
    flags: str
    text_bytes: float
    tokens: float
    found: str  # what is known of it, a line
    cedilla: bool = False
    gap: str = ""  # the beginning of a text, with two words hidden


def of_language(language: Language, name: str | None = None) -> Text:
    """Return FineWeb-2's text of a language, whose files `name` names, or the language."""
    words = unicodedata.normalize("NFKD", re.sub(r"\([^)]*\d.*?\)", "", language.name))
    plain = words.encode("ascii", "ignore").decode()
    module = re.sub(r"\W+", "_", plain.lower()).strip("_")
    short = language.tag or language.code.partition("_")[0]
    script = language.code.partition("_")[2]
    if table.find(short) != language:  # a code means its largest language and script
        short = language.code.lower()
        module = f"{module}_{script.lower()}"
    elif table.find(language.name) != language:  # such as Dan, where dan is Danish
        module = f"{module}_{short}"
    # Only Romanian has ș and ț where its texts often have ş and ţ.
    cedilla = language.code == "ron_Latn"
    flags = f"--corpus {FINEWEB2} --config {language.code} --max_documents {SAMPLE}"
    return Text(
        about=f"{language.name}: pretraining on FineWeb-2",
        module=name or module,
        short=name or short,
        source=f'public.fineweb2("{language.code}")',
        imports="from tasks.languages import public",
        flags=flags + " --cedilla" * cedilla + RARE * (script in MANY_CHARACTERS),
        text_bytes=language.text_bytes,
        tokens=max(language.words, 1) * TOKENS_PER_WORD,
        found=f"{language.name}, {language.code}: {language.documents:,} documents and "
        f"{language.words:,} words in {language.parquet_bytes / 1e9:,.1f} GB of parquet "
        f"({FINEWEB2}, ODC-By)",
        cedilla=cedilla,
    )


def of_files(
    corpus: str, name: str, column: str | None = None, documents: str | None = None
) -> Text:
    """Return the text of files, or of a data set of the hub.

    `column` and `documents` are those of a `CorpusSource`.

    Raises:
      UserError: no file matches.
    """
    # TensorFlow comes with them, which takes seconds.
    from tasks.corpus.overview import overview
    from tasks.corpus.source import CorpusSource

    path = given(corpus)
    source = CorpusSource(path, column=column or "text", documents=documents)
    unknown = f"of unknown size, taken as {data_size(PIECES[0][0])} of text"
    found, size, gap = f"{path}: {unknown}", None, ""
    if path.startswith(("/", LIST)) or "://" in path:  # not of the hub, which may not answer
        # This raises the mistakes in one sentence.
        gap = with_gap(source.peek("train", 100))
        seen, size = overview(source, "train"), source.text_bytes("train")
        known = unknown if size is None else f"about {data_size(size)} of text"
        found = f"{path}: {known}, {seen}"
        if seen.looks_like:
            found += f"\n{seen.flags}, with --overwrite"
    text_bytes = PIECES[0][0] if size is None else float(size)
    settings = {"column": column, "documents": documents}
    written = [f"{key}={new_files.quoted(value)}" for key, value in settings.items() if value]
    flags = "".join(f" --{k}={shlex.quote(v)}" for k, v in settings.items() if v)
    return Text(
        about=f"{name}: pretraining on {path}",
        module=name,
        short=name,
        source=f"CorpusSource({', '.join([new_files.quoted(path), *written])})",
        imports="from tasks.corpus.source import CorpusSource",
        flags=f"--corpus {shlex.quote(path)}{flags} --max_documents {SAMPLE}",
        text_bytes=text_bytes,
        tokens=text_bytes / BYTES_PER_TOKEN,
        found=found,
        gap=gap,
    )


def with_gap(texts: Sequence[str]) -> str:
    """Return the first ten words of a text, with two of them hidden, "" if none has so many."""
    beginnings = (text.split()[:10] for text in texts)
    of_words = (words for words in beginnings if len(words) == 10 and max(map(len, words)) < 20)
    words = next(of_words, [])
    return " ".join([*words[:5], "<extra_id_0>", *words[7:]]) if words else ""


def names(text: Text, size: str) -> dict[str, str]:
    """Return the names of a text's `module`, `task`, `recipe` and `vocabulary` file."""
    return {
        "module": text.module,
        "task": f"{text.short}_span_corruption",
        "recipe": f"{text.short}_t5x_{size}",
        "vocabulary": f"vocabularies/{text.short}_{pieces(text, size)}.model",
    }


def default_size(text: Text) -> str:
    """Return the size of a model that suits so much text, at most base."""
    return next(size for size, least in LEAST_TOKENS.items() if text.tokens >= least)


def pieces(text: Text, size: str) -> int:
    """Return the size of the vocabulary, by how much text there is."""
    wanted = next(number for least, number in PIECES if text.text_bytes >= least)
    return min(wanted, MOST_PIECES.get(size, wanted))


def epochs(text: Text, size: str, steps: int) -> float:
    """Return about how many epochs so many steps are."""
    return steps * TOKENS_PER_STEP.get(size, OTHER_TOKENS_PER_STEP) / max(text.tokens, 1)


def is_too_little(text: Text, size: str) -> bool:
    """Return whether the fewest steps of the smallest model would be too many for the text."""
    return size in STEPS and epochs(text, size, STEPS[size][0]) > MOST_EPOCHS


def train_steps(text: Text, size: str) -> int:
    """Return the steps of about `EPOCHS` epochs, in hundreds or thousands, within limits.

    Of a text that is too little they are those of about `MOST_EPOCHS`.
    """
    least, most = STEPS.get(size, OTHER_STEPS)
    if is_too_little(text, size):
        least = max(int(round(MOST_EPOCHS / epochs(text, size, 1), -2)), 100)
    wanted = round(EPOCHS / epochs(text, size, 1), -2 if size in STEPS else -3)
    return int(min(max(wanted, least), most))


def files(text: Text, size: str) -> dict[str, str]:
    """Return the texts of the files to write, by path from the repository's root."""
    called, steps = names(text, size), train_steps(text, size)
    period = max(steps // 4, 1) if size in STEPS else 10_000
    filled = called | {
        "about": text.about,
        "text": text.about.partition(":")[0] + " text",
        "imports": text.imports,
        "source": text.source,
        "size": size,
        "network": size,
        "shared": "",
        "lengths": LENGTHS,
        "more": MORE_OF_TINY.format(period=period) if size in STEPS else "",
        "pieces": pieces(text, size),
        "steps": steps,
        "period": period,
        "keep": 5,
        "partitions": PARTITIONS[size],
        "cedilla": "\n    cedilla=True," if text.cedilla else "",
        "infill": f"INFILL_SENTENCES = ({text.gap!r},)\n" if text.gap else "",
    }
    filled |= OF_TINY if size in STEPS else {}
    return {
        f"tasks/{called['module']}.py": TASK.format(**filled),
        f"gin/{called['recipe']}.gin": RECIPE.format(**filled),
        f"launch/{called['recipe']}.sh": new_files.SCRIPT.format(**filled),
    }


def report(text: Text, size: str, written: list[str]) -> str:
    """Return what was written, what the corpus holds, and the three commands that follow."""
    called, steps = names(text, size), train_steps(text, size)
    rows = "16 rows of 128" if size in STEPS else "128 rows of 512"
    times = float(f"{epochs(text, size, steps):.2g}")
    suits = default_size(text)
    lines = [
        text.found,
        f"about {amount(text.tokens)} tokens, which suit a model of --size {suits}",
        f"{steps:,} steps of {rows} tokens are about {counted(times, 'epoch', ',.15g')}",
        *(f"wrote {path}" for path in written),
        "",
        "Now train the vocabulary, then the model (first with --dry_run, which checks all), and "
        "convert it:",
        f"  python -m vocabulary.train {text.flags} \\",
        f"    --size {pieces(text, size)} --out {called['vocabulary']}",
        f"  bash launch/{called['recipe']}.sh",
        f"  bash convert/convert.sh runs/{called['recipe']}",
    ]
    if is_too_little(text, size):
        enough = STEPS[size][0] * TOKENS_PER_STEP[size] * BYTES_PER_TOKEN / EPOCHS
        lines[1:3] = [
            f"{data_size(text.text_bytes)} are too little text to learn a language from: the "
            f"smallest recipe suits {data_size(enough)} or more. Its {steps:,} steps read all of "
            f"this text {times:,.15g} times, so that the model learns it by heart. Add text, or "
            "add the language to a model that knows others (--from google/umt5-small --keep eng).",
        ]
    order = list(PARTITIONS)
    if order.index(suits) < min(order.index(size), order.index("base")):
        lines.insert(
            3,
            f"That is little text for {size}: take --size {suits}, continue from mT5 "
            "(gin/ro_mt5x_base.gin shows how), or add other corpora (tasks/languages/public.py)",
        )
    return "\n".join(lines)


def _road(flags: argparse.Namespace, text: Text) -> added_language.Road:
    """Return the road of a language into the model `flags.start`.

    Raises:
      UserError: there is no such model or language.
    """
    if flags.size:
        raise UserError("--size is of a model from nothing, and --from has its own: leave it out")
    model = starting_model.open_model(flags.start)
    keeps_all = flags.keep == "all"
    kept = [_kept(one) for one in flags.keep.split(",")] if not keeps_all else []
    corpora = {text.short: _corpus(text)}
    for each in kept:
        if each.short in (*corpora, "others"):
            raise UserError(
                f"--keep names {each.short!r}, a name that is taken: name each language once, and "
                "not the new one, whose name --name sets"
            )
        corpora[each.short] = each
    name = flags.name or f"{text.short}_{model.short}"
    if flags.decay_only and len(corpora) < 2:
        raise UserError(
            "--decay_only reads the languages that stay before the new one: name them with --keep"
        )
    every = [*corpora.values()]
    return added_language.Road(model, name, every, text.tokens, keeps_all, flags.decay_only)


def _kept(text: str) -> added_language.Corpus:
    """Return the text of a language that stays: a code or name, or name=files."""
    name, is_own, files = text.strip().partition("=")
    if is_own:
        new_files.check_name(name, "--keep")
        return _corpus(of_files(files, name))
    if name.casefold() in table.ENGLISH:
        source, imports = added_language.ENGLISH, "from tasks.corpus.source import CorpusSource"
        return added_language.Corpus("eng", source, imports)
    return _corpus(of_language(_one(name)))


def _corpus(text: Text) -> added_language.Corpus:
    return added_language.Corpus(text.short, text.source, text.imports, text.cedilla)


def _one(text: str) -> Language:
    """Return the language that a code or name means; raise UserError where it means several."""
    language, found = table.find(text), table.named(text)
    close = [one for one in found if one.text_bytes >= CLOSE * language.text_bytes]
    if language in found and len(close) > 1:
        which = ", ".join(f"{o.code} ({o.name}, {data_size(o.text_bytes)})" for o in close)
        raise UserError(f"{text} may be {which}: name one by its code")
    return language


@guarded
def main(argv: list[str] | None = None) -> None:
    """Write the files of a language, or of text of the user's."""
    parser = arguments.parser("python -m tasks.new_language", __doc__)
    add = parser.add_argument
    about = "a code (ces_Latn, cs) or a name (czech, čeština), for FineWeb-2"
    add("language", nargs="?", type=arguments.text, help=about)
    about = "your text instead: a folder, files, @ and a list, or a hub name"
    add("--corpus", type=arguments.text, help=about)
    about = "the column of --corpus with the text, or a template: '{title} {body}'"
    add("--column", type=arguments.text, help=about)
    about = "what a document is in plain text: lines (the default), paragraphs, files, or the line "
    about += "that stands between documents, such as '%%'"
    add("--documents", type=arguments.text, help=about)
    about = "what the files are called, such as uk; default by the language"
    add("--name", type=arguments.text, help=about)
    add("--size", choices=PARTITIONS, help="of the model; default by the amount of text")
    about = "add the language to this model: a hub name, a folder or a run"
    add("--from", dest="start", metavar="MODEL", type=arguments.text, help=about)
    about = "with --from: the languages that stay, such as ron,bul,eng; or all"
    add("--keep", type=arguments.text, help=about)
    about = "with --from: read the new language only while the rate falls"
    add("--decay_only", action="store_true", help=about)
    add("--overwrite", action="store_true", help="replace the files if they exist")
    flags: argparse.Namespace = parser.parse_args(argv)
    if (flags.language is None) == (flags.corpus is None):
        raise UserError("name a language, such as czech, or give --corpus with text of yours")
    if (flags.column or flags.documents) and not flags.corpus:
        raise UserError("--column and --documents are of text of yours: give --corpus too")
    if flags.corpus and not flags.name:
        raise UserError("--corpus needs a --name: --corpus '/data/*.txt' --name uk")
    if flags.name:
        new_files.check_name(flags.name, "--name")
    if flags.corpus:
        text = of_files(flags.corpus, flags.name, flags.column, flags.documents)
    else:
        text = of_language(_one(flags.language), flags.name)
    if bool(flags.start) != bool(flags.keep) or flags.decay_only > bool(flags.start):
        raise UserError("--from and --keep go together: --from google/umt5-small --keep ron,bul")
    if flags.start:
        road = _road(flags, text)
        print(text.found)
        print(road.report(new_files.write(road.files(), ROOT, flags.overwrite)))
        return
    size = flags.size or default_size(text)
    print(report(text, size, new_files.write(files(text, size), ROOT, flags.overwrite)))


if __name__ == "__main__":
    main()
