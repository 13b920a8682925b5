"""The text that a written task reads.

    text = language_text(table.find("czech"))
    text = language_text(table.find("czech"), corpora="fineweb2,finewiki")
    text = own_text("/data/*.txt", name="uk")
    text.source, text.tokens      # Python that makes its source; about how many tokens it has

It is a language of FineWeb-2 or of several public corpora, or the user's files.
"""

import dataclasses
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from common.errors import UserError
from common.tables import data_size
from tasks.corpus.storage.names import LIST, absolute_path, portable_path
from tasks.languages import table
from tasks.languages.table import FINEWEB2, TOKENS_PER_WORD, Language
from tasks.scaffold.files import check_corpus, quoted
from tasks.scaffold.token_estimate import CHARACTERS, bytes_a_token

BYTES_PER_TOKEN = 4  # roughly
_UNKNOWN_BYTES = 1e9  # assumed size of a corpus of unknown size
_VOCABULARY_DOCUMENTS = 2_000_000  # number of documents that the vocabulary is trained on
# Scripts with thousands of characters, of which rare ones become no pieces.
_LARGE_SCRIPTS = ("Hani", "Hang", "Jpan", "Yiii")
GAP = "<extra_id_0>"  # in place of hidden words
# If a name means several languages, those with this share of the largest one's text count.
_AMBIGUOUS_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class TrainingText:
    """A corpus to write a task for.

    `about` describes it, `module` and `short` name the files, `source`, `best` (its best part, ""
    if nothing tells which that is) and `imports` are Python, `flags` are arguments of
    `vocabulary.train`, `summary` is for the terminal. `text_bytes` and `tokens` are rough; `sample`
    are texts of it, if it is the user's. `sentence` is the beginning of a text with two words
    hidden. `parts` are the sources of a mixture, by the corpus's name; `source` is then the first.
    """

    about: str
    module: str
    short: str
    source: str
    imports: str
    text_bytes: float
    tokens: float
    flags: str = ""
    summary: str = ""
    cedilla: bool = False
    has_large_script: bool = False
    sentence: str = ""
    best: str = ""
    sample: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def tokens_of(self, pieces: int) -> float:
        """Return about how many tokens a vocabulary of so many pieces makes of it."""
        if not self.sample:
            return self.tokens
        return self.text_bytes / bytes_a_token(self.sample, pieces)


# FineWeb-2 has every language but English.
ENGLISH = TrainingText(
    about="English: FineWeb",
    module="english",
    short="eng",
    source='CorpusSource("HuggingFaceFW/fineweb", "sample-10BT", held_out={"validation": 0.001})',
    imports="from tasks.corpus.source import CorpusSource",
    text_bytes=4e10,
    tokens=1e10,
)


def language_named(text: str) -> Language:
    """Return the language that a code or name means.

    Raises:
      UserError: there is none, or it means several of similar size.
    """
    largest, languages = table.find(text), table.languages_called(text)
    least = _AMBIGUOUS_SHARE * largest.text_bytes
    choices = [
        f"{language.code} ({language.name}, {data_size(language.text_bytes)})"
        for language in languages
        if language.text_bytes >= least
    ]
    if largest in languages and len(choices) > 1:
        raise UserError(text, why=f"may be {', '.join(choices)}", to_set="name one by its code")
    return largest


def language_text(
    language: Language, name: str | None = None, corpora: str | None = None
) -> TrainingText:
    """Return FineWeb-2's text of a language, or that of public corpora such as "hplt3,finewiki".

    The files are called `name`, else by the language.

    Raises:
      UserError: there is no such corpus, or it lacks the language.
    """
    words = unicodedata.normalize("NFKD", re.sub(r"\([^)]*\d.*?\)", "", language.name))
    ascii_words = words.encode("ascii", "ignore").decode()
    module = re.sub(r"\W+", "_", ascii_words.lower()).strip("_")
    short = language.tag or language.code.partition("_")[0]
    script = language.code.partition("_")[2]
    if table.find(short) != language:  # a code means its largest language and script
        short = language.code.lower()
        module = f"{module}_{script.lower()}"
    elif table.find(language.name) != language:  # such as Dan, where dan is Danish
        module = f"{module}_{short}"
    # Only Romanian has ș and ț where its texts often have ş and ţ.
    cedilla = language.code == "ron_Latn"
    flags = f"--corpus {FINEWEB2} --config {language.code} --max_documents {_VOCABULARY_DOCUMENTS}"
    flags += " --cedilla" if cedilla else ""
    text = TrainingText(
        about=f"{language.name}: pretraining on FineWeb-2",
        module=name or module,
        short=name or short,
        source=f'public.fineweb2("{language.code}")',
        imports="from tasks.languages import public",
        text_bytes=language.text_bytes,
        tokens=max(language.words, 1) * TOKENS_PER_WORD,
        flags=flags,
        summary=f"{language.name}, {language.code}: {language.documents:,} documents and "
        f"{language.words:,} words in {language.parquet_bytes / 1e9:,.1f} GB of parquet "
        f"({FINEWEB2}, ODC-By)",
        cedilla=cedilla,
        has_large_script=script in _LARGE_SCRIPTS,
        best=f'public.fineweb2("{language.code}", by_cluster=True)',
    )
    return _of_corpora(text, language, corpora) if corpora else text


def _of_corpora(text: TrainingText, language: Language, corpora: str) -> TrainingText:
    """Return FineWeb-2's text of a language with the public corpora that `corpora` names instead.

    Its size is FineWeb-2's, of which FineWeb2-HQ has a part; others have none published here.
    """
    from tasks.languages import public  # TensorFlow comes with it, which takes seconds

    named = public.named(corpora)
    sources = {corpus: entry.source(language.code) for corpus, entry in named.items()}
    first = next(iter(sources.values()))
    flags = f"--corpus {shlex.quote(first.name)}" + f" --config {first.config}" * bool(first.config)
    codes = {corpus: f'public.{corpus}("{language.code}")' for corpus in named}
    share = 1.0
    if "fineweb2_hq" in named and "fineweb2" not in named:
        share = 1_000 * public.FINEWEB2_HQ[language.code] / language.documents
    licences = ", ".join(f"{corpus} ({entry.licence})" for corpus, entry in named.items())
    is_known = {"fineweb2", "fineweb2_hq"} & named.keys()
    size = f"{data_size(share * language.text_bytes)} of text"
    size += ", by FineWeb-2's figures" if is_known else ", taken from FineWeb-2's figures"
    return dataclasses.replace(
        text,
        about=f"{language.name}: pretraining on {', '.join(named)}",
        source=next(iter(codes.values())),
        parts=codes if len(codes) > 1 else {},
        best=text.best if "fineweb2" in named else "",
        text_bytes=share * text.text_bytes,
        tokens=share * text.tokens,
        flags=text.flags.replace(f"--corpus {FINEWEB2} --config {language.code}", flags),
        summary=f"{language.name}, {language.code}: {licences}; {size}",
    )


def own_text(
    corpus: str, name: str, column: str | None = None, documents: str | None = None
) -> TrainingText:
    """Return the user's text: files, or a data set of the hub.

    `column` and `documents` are as in `CorpusSource`.

    Raises:
      UserError: no file matches, or the files have no text.
    """
    # TensorFlow comes with them, which takes seconds.
    from tasks.corpus import excerpt
    from tasks.corpus.overview import overview
    from tasks.corpus.source import CorpusSource
    from tasks.corpus.storage.retry import RetryPolicy
    from tasks.look.size import text_size
    from tasks.scaffold import validation

    check_corpus(corpus)
    path = absolute_path(corpus)
    settings = {"column": column, "documents": documents}
    options = {option: value for option, value in settings.items() if value}
    source = CorpusSource(path, **options)  # type: ignore[arg-type]
    size, contents, sentence = None, "", ""
    sample: tuple[str, ...] = ()
    if path.startswith(("/", LIST)) or "://" in path:
        shares = validation.held_out(source)
        source = CorpusSource(path, **options, held_out=shares or None)  # type: ignore[arg-type]
        sentence = sentence_with_gap(source.peek("train", 100))
        size, view = text_size(source, "train"), overview(source, "train")
        sample = tuple(beginning(row["text"] for row in excerpt.documents(source, "train")))
        contents = f", {view}"
        if view.question:
            contents += f"\n{view.question.why}: {view.question.flags}, with --overwrite"
    else:  # a data set of the hub, which may not respond
        answers_soon = RetryPolicy(limit_s=0.0)
        shares = {} if validation.has_validation(source, answers_soon) else validation.USUAL
    text_bytes = _UNKNOWN_BYTES if size is None else size.text_bytes
    amount = f"about {data_size(text_bytes)} of text"
    if size is None:
        amount = f"of unknown size, taken as {data_size(text_bytes)} of text"
    path = portable_path(path)
    arguments = [quoted(path), *(f"{option}={quoted(value)}" for option, value in options.items())]
    arguments += [f"held_out={{{quoted(split)}: {share}}}" for split, share in shares.items()]
    flags = "".join(f" --{option}={shlex.quote(value)}" for option, value in options.items())
    return TrainingText(
        about=f"{name}: pretraining on {path}",
        module=name,
        short=name,
        source=f"CorpusSource({', '.join(arguments)})",
        imports="from tasks.corpus.source import CorpusSource",
        text_bytes=text_bytes,
        tokens=text_bytes / BYTES_PER_TOKEN,
        flags=f"--corpus {shlex.quote(path)}{flags} --max_documents {_VOCABULARY_DOCUMENTS}",
        summary=f"{path}: {amount}{contents}",
        sentence=sentence,
        sample=sample,
    )


def beginning(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts until they have as many characters as an estimate of tokens needs."""
    left = CHARACTERS
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def sentence_with_gap(texts: Iterable[str]) -> str:
    """Return the first ten words of a text with two of them hidden, "" if no text has so many."""
    for text in texts:
        words = text.split()[:10]
        if len(words) == 10 and max(map(len, words)) < 20:
            return " ".join([*words[:5], GAP, *words[7:]])
    return ""
