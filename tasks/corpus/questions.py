"""What lines of plain text seem to be in place of documents, and the settings that would suit.

    question = about_tables({file: ["1\\tO propoziție mai lungă.", "2\\tAlta.", …]})
    question.why        # Each line has 2 columns, of which column 2 is text
    question.to_set     # set column='2' of the source, or set documents='lines' if each line is …
    question.flags      # give --column=2, or give --documents=lines if each line is a document

Nothing is decided here: a corpus is read as its source says.
"""

import collections
import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tasks.corpus.storage import names
from tasks.corpus.storage.files import CorpusFile

_FEWEST = 10  # lines that are enough to judge a table
_MOST = 0.8  # of the lines have the same columns; others are comments
_LINES_OF_A_PARAGRAPH = (1.5, 40.0)  # mean number of lines, least and most
# Files that seem to be a document each are many and small, and their lines are short.
_MANY_FILES, _SMALL_BYTES, _SHORT_LINE = 20, 64 << 10, 120
# A line between documents: one sign, also several times, that ends no sentence, or a tag.
_SEPARATOR = re.compile(r"([^\w\s.,!?…])(\s*\1)*|<\W?\w+\W?>")
_OFTEN, _OFTENER = 5, 4  # such lines at least, and times as many as of any other line
# Subtitles have a line with two times for each text, or a time before it.
_TIMES = re.compile(r"\d[\d:.,]* *-->")
_TIME_BEFORE = re.compile(r"[\[(]?\d+:\d\d(:\d\d)?([.,]\d+)?[\])]?\s+\D")
_NUMBER_BEFORE = re.compile(r"(\d+)[.):]?\s+\S")
_FEW_TIMES = 0.1  # share of the lines
_LEAVE_OUT = "leave the file out"
_SEVERAL_WORDS = 3
# Letters of scripts without blanks between words: Thai to Khmer, kana, Han, of Yi and further on.
_WITHOUT_BLANKS = re.compile(
    r"[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff\ua000-\ua4cf\U00020000-\U0003ffff]"
)
_FEW_LETTERS = 6  # in such a script, fewer of which are no sentence


class Question(NamedTuple):
    """Why lines seem to be no documents, settings that may be meant, and what else to do.

    Attributes:
      are_text: whether the lines are text all the same, of which a vocabulary can be made.
    """

    why: str
    answers: tuple[Mapping[str, str], ...] = ()
    otherwise: str = ""
    are_text: bool = False

    @property
    def to_set(self) -> str:
        """What to set in the source if this is right, and if it is not."""
        text = lambda answer: " and ".join(f"{name}={value!r}" for name, value in answer.items())
        return self._remedy("set {} of the source", text, "set documents='lines'")

    @property
    def flags(self) -> str:
        """The flags of a command that answer the question."""
        text = lambda answer: " ".join(
            f"--{name}={shlex.quote(value)}" for name, value in answer.items()
        )
        return self._remedy("give {}", text, "give --documents=lines")

    def _remedy(self, setting: str, text: Callable[[Mapping[str, str]], str], lines: str) -> str:
        choices = " or ".join(map(text, self.answers))
        setting = setting.format(choices) if choices else ""
        change = ", and ".join(filter(None, (self.otherwise, setting)))
        return f"{change}, or {lines} if each line is a document"


def about_tables(heads: Mapping[CorpusFile, Sequence[str]]) -> Question | None:
    """Return the question about files of text that are tables, by their first lines, stripped."""
    tables = {file: question for file, lines in heads.items() if (question := _table(lines))}
    if not tables:
        return None
    # A file that has text tells more than a list of words beside it.
    file, question = max(tables.items(), key=lambda item: bool(item[1].answers))
    if len(heads) == 1:
        return question
    name = names.name_of(str(file))
    why = f"{len(tables):,} of {len(heads):,} files are tables or lists, such as {name}: "
    why += question.why[:1].lower() + question.why[1:]
    are_alike = len(tables) == len(heads) and len(set(map(str, tables.values()))) == 1
    otherwise = question.otherwise if are_alike else "name files of one kind by a pattern"
    return Question(why, question.answers, otherwise)


def _table(lines: Sequence[str]) -> Question | None:
    """Return the question about a file whose lines have more than text, or less."""
    filled = [*filter(None, lines)]
    if len(filled) < _FEWEST:
        return None
    share = lambda is_so: sum(map(bool, map(is_so, filled))) / len(filled)
    if share(_TIMES.match) > _FEW_TIMES:
        take_out = "take the text out, grep -vE '^[0-9]+\\s*$|-->' OLD > NEW"
        return Question("Between the lines are times, as of subtitles", (), take_out)
    if share(_TIME_BEFORE.match) > _MOST:
        take_out = "take the text out, sed -E 's/^[^ ]+ +//' OLD > NEW"
        return Question("Each line begins with a time", (), take_out)
    counts = collections.Counter(line.count("\t") for line in filled)
    tabs, n = counts.most_common(1)[0]
    has_paragraphs = len(_paragraphs(lines)) > len(filled) / _LINES_OF_A_PARAGRAPH[1]
    if tabs and n > _MOST * len(filled):
        rows = [line.split("\t") for line in filled if line.count("\t") == tabs]
        return _columns(rows, has_paragraphs)
    numbers = [int(match[1]) for line in filled if (match := _NUMBER_BEFORE.match(line))]
    following = sum(b == a + 1 for a, b in itertools.pairwise(numbers))
    if following > _MOST * len(filled):
        take_out = "take the text out, sed -E 's/^ *[0-9]+[.):]? +//' OLD > NEW"
        return Question("Each line begins with its number", (), take_out)
    is_long = lambda line: _is_running(line) or len(line.split()) > 1
    if not has_paragraphs and share(is_long) < 1 - _MOST and share(_has_letter) > 0.5:
        return Question("Each line is a word", (), _LEAVE_OUT)
    return None


def _columns(rows: Sequence[Sequence[str]], has_paragraphs: bool) -> Question:
    """Return the question about rows of one length."""
    why = f"Each line has {len(rows[0])} columns"
    share = lambda is_so, column: sum(map(is_so, column)) / len(rows)
    columns = {str(i): column for i, column in enumerate(zip(*rows, strict=True), 1)}
    texts = [name for name, column in columns.items() if share(_is_running, column) > 0.5]
    if texts:
        which = f"column{'s' * (len(texts) > 1)} {' and '.join(texts)}"
        why += f", of which {which} {'are' if len(texts) > 1 else 'is'} text"
        return Question(why, tuple({"column": name} for name in texts))
    words = (name for name, column in columns.items() if share(_has_letter, column) > 0.5)
    if has_paragraphs and (word := next(words, "")):
        why += f", and column {word} is a word of a text"
        return Question(why, ({"documents": "paragraphs", "column": word},))
    return Question(f"{why}, none of which is running text", (), _LEAVE_OUT)


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _is_running(text: str) -> bool:
    """Return whether a text has the length of a sentence, also in scripts without blanks."""
    has_words = sum(map(_has_letter, text.split())) >= _SEVERAL_WORDS
    return has_words or len(_WITHOUT_BLANKS.findall(text)) >= _FEW_LETTERS


def about_documents(
    heads: Mapping[CorpusFile, Sequence[str]], listing: Sequence[CorpusFile]
) -> Question | None:
    """Return the question about lines that a line divides, or that are parts of documents."""
    counts = collections.Counter(line for lines in heads.values() for line in lines if line)
    (line, n), (_, other) = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    if n >= max(_OFTEN, _OFTENER * other) and _SEPARATOR.fullmatch(line):
        why = f"The line {line!r} stands at least {n:,} times, as between documents"
        return Question(why, ({"documents": line},), are_text=True)
    paragraphs = [length for lines in heads.values() for length in _paragraphs(lines)]
    if not paragraphs:
        return None
    mean = sum(paragraphs) / len(paragraphs)
    low, high = _LINES_OF_A_PARAGRAPH
    short = np.median([len(line) for lines in heads.values() for line in lines if line])
    small = np.median([file.length or 0 for file in listing]) <= _SMALL_BYTES
    paragraph, whole = {"documents": "paragraphs"}, {"documents": "files"}
    if len(paragraphs) > 2 * len(heads) and low <= mean <= high:
        why = f"Empty lines stand between paragraphs of {mean:.0f} lines"
        return Question(why, (paragraph, whole), are_text=True)
    if len(listing) >= _MANY_FILES and small and short < _SHORT_LINE and mean >= low:
        why = f"Each of the {len(listing):,} files may be one document"
        return Question(why, (whole, paragraph), are_text=True)
    return None


def _paragraphs(lines: Sequence[str]) -> list[int]:
    """Return the number of lines of each paragraph."""
    groups = itertools.groupby(lines, bool)
    return [sum(1 for _ in group) for is_text, group in groups if is_text]
