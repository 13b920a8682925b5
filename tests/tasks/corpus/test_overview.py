"""What was understood of a corpus is counted where that is cheap, and asked about where unsure."""

import gzip
import tarfile

import pytest

import gin
from fakes.corpora import LINES, write
from fakes.file_server import FileServer
from fakes.refuses import refuses
from tasks.corpus import overview as module
from tasks.corpus.overview import overview
from tasks.corpus.source import CorpusSource

WRAPPED = "\n\n".join(["    o linie\nși alta,\nscurtă"] * 8)

DIVIDED = "".join(f"glumă {i}\npe rânduri {i}\n%\n" for i in range(9))


@pytest.mark.parametrize("limit", ["COUNTED_BYTES", "COUNTED_FILES", "COUNTED_RECORDS"])
def test_documents_and_those_held_out_are_counted(tmp_path, monkeypatch, limit):
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES)), held_out={"validation": 0.01})
    found = overview(source, "train")
    held = len([*source.get_dataset("validation", shuffle=False).as_numpy_iterator()])
    assert (len(found.files), found.documents, found.held_out) == (1, 600, {"validation": held})
    for split, said in (("train", f"{held} held out"), ("validation", f"{held} of them")):
        assert said in str(overview(source, split))
    monkeypatch.setattr(module, limit, 0)
    source = CorpusSource(str(tmp_path), held_out={"validation": 0.01})
    assert overview(source, "train").documents is None
    assert "about 12,000 documents" in overview(source, "train").details(12_345.6)
    assert "1% held out" in str(overview(source, "train"))


@pytest.mark.parametrize(
    ("text", "files", "documents", "count", "is_asked"),
    [
        ("o linie\n" * 9, 3, None, 27, False),
        ("o linie\n" * 9, 30, None, 270, True),
        ("o linie lungă " * 30 + "\n", 30, None, 30, False),
        (WRAPPED, 3, None, 72, True),
        (WRAPPED, 3, "lines", 72, False),
        (WRAPPED, 3, "paragraphs", 24, False),
        (WRAPPED, 3, "files", 3, False),
        ("o linie\n\n" * 9, 3, None, 27, False),
        (DIVIDED, 3, None, 81, True),
        (DIVIDED, 3, "%", 27, False),
        (DIVIDED, 3, "lines", 81, False),
        ("o linie\n" * 9 + "…\n" * 99, 3, None, 324, False),
        ("o linie\n---\nalta\n***\n" * 9, 3, None, 108, False),
    ],
)
def test_lines_that_may_be_no_documents_are_asked_about(
    tmp_path, text, files, documents, count, is_asked
):
    for i in range(files):
        (tmp_path / f"{i}.txt").write_text(text)
    found = overview(CorpusSource(str(tmp_path), documents=documents), "train")
    assert found.documents == count
    assert bool(found.question) == is_asked


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("test_of_time.txt", "test"),
        ("uk_dev.txt", "validation"),
        ("dev/0.txt", "validation"),
        ("a.txt", None),
    ],
)
def test_files_that_are_taken_for_another_split_are_named(tmp_path, name, split):
    for each in ("z.txt", name):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("o linie\n")
    found = overview(CorpusSource(str(tmp_path)), "train")
    assert list(found.others) == ([split] if split else [])
    assert (name.rpartition("/")[2] in str(found)) == bool(split)


WORDS = [f"Rândul {i} spune ceva despre oraș." for i in range(60)]
TOKENS = "\n\n".join("\n".join(f"{word}\tO" for word in text.split()) for text in WORDS)
CODES = [f"{i // 60:02}:{i % 60:02},000" for i in range(61)]
TABLES = {  # text, settings of the source that take its texts, and these
    "numbered": ("".join(f"{i}\t{x}\n" for i, x in enumerate(WORDS)), {"column": "2"}, WORDS),
    "pairs": ("".join(f"{x}\tRow {x}\n" for x in WORDS), {"column": "1"}, WORDS),
    "a word and its tag": (TOKENS, {"documents": "paragraphs", "column": "1"}, WORDS),
    "CoNLL-U": (
        "\n\n".join(
            "# text = x\n" + "\n".join(f"{i}\t{w}\t_\tX" for i, w in enumerate(text.split()))
            for text in WORDS
        ),
        {"documents": "paragraphs", "column": "2"},
        WORDS,
    ),
    "a word": (TOKENS.replace("\tO", ""), {"documents": "paragraphs"}, WORDS),
    "words alone": ("".join(f"{i}\tcuvânt{i}\t{i % 9}\n" for i in range(60)), {}, None),
    "addresses": ("".join(f"{i}\thttps://x.test/{i}\t2024-01-01\n" for i in range(60)), {}, None),
    "a list of words": ("".join(f"cuvânt{i}\n" for i in range(60)), {}, None),
    "a list of packages": ("".join(f"package-{i}==1.{i}\n" for i in range(60)), {}, None),
    "subtitles": (
        "".join(f"{i}\n00:{CODES[i]} --> 00:{CODES[i + 1]}\n{WORDS[i]}\n\n" for i in range(60)),
        {},
        None,
    ),
    "WebVTT": (
        "WEBVTT\n\n"
        + "".join(f"00:{i:02}.0 --> 00:{i:02}.9\n{x}\n\n" for i, x in enumerate(WORDS)),
        {},
        None,
    ),
    "a time before": ("".join(f"[00:{i:02}.00] {x}\n" for i, x in enumerate(WORDS)), {}, None),
    "a number before": ("".join(f"{i}. {x}\n" for i, x in enumerate(WORDS)), {}, None),
    "Chinese": ("".join(f"{i}\t今天天气很好我们去公园\n" for i in range(60)), {"column": "2"}, 60),
}
NO_TABLES = {
    "sentences": "\n".join(WORDS),
    "with numbers": "".join(f"{1900 + i * i} a fost un an bun.\n" for i in range(60)),
    "some tabs": "".join(f"{x}\t{x}\n{x}\n{x}\n" for x in WORDS),
    "Chinese": "今天天气很好我们去公园\n" * 60,
    "a few lines": "a\tb\n" * 5,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_asked_about_with_the_setting_that_takes_its_text(tmp_path, name):
    text, answer, texts = TABLES[name]
    (tmp_path / "a.txt").write_text(text)
    question = overview(CorpusSource(str(tmp_path)), "train").question
    assert (answer in question.answers) if answer else not question.answers
    assert bool(question.otherwise) == (not answer)
    for setting, value in answer.items():
        assert f"{setting}={value!r}" in question.to_set
        assert f"--{setting}={value}" in question.flags
    if answer:
        source = CorpusSource(str(tmp_path), **answer)
        assert overview(source, "train").question is None
        read = [text.decode() for batch in source.texts("train") for (text,) in batch]
        assert read == texts or len(read) == texts
    said = CorpusSource(str(tmp_path), documents="lines")
    assert overview(said, "train").question is None


@pytest.mark.parametrize("name", NO_TABLES)
def test_text_is_no_table(tmp_path, name):
    (tmp_path / "a.txt").write_text(NO_TABLES[name])
    assert overview(CorpusSource(str(tmp_path)), "train").question is None


def test_a_table_is_noticed_wherever_it_lies(tmp_path):
    text, answer, _ = TABLES["numbered"]
    (tmp_path / "a.txt").write_text(text)
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(tmp_path / "a.txt", "a.txt")
    with FileServer(tmp_path) as served:
        for place in (tmp_path / "b.tar", f"{served.url}/a.txt", tmp_path / "a.txt"):
            question = overview(CorpusSource(str(place)), "train").question
            assert question.answers == (answer,), place


def test_files_of_several_kinds_are_asked_about_together(tmp_path):
    for name in ("words alone", "numbered", "addresses"):
        (tmp_path / f"{name}.txt").write_text(TABLES[name][0])
    question = overview(CorpusSource(str(tmp_path)), "train").question
    assert "3 of 3 files" in question.why
    assert "numbered.txt" in question.why
    assert (question.answers, bool(question.otherwise)) == (({"column": "2"},), True)


OTHER_BYTES = {  # by suffix, how a line is written
    "txt": "{}\n",
    "csv": "{}\n",
    "jsonl": '{{"text": "{}"}}\n',
    "txt.gz": "{}\n",
}


@pytest.mark.parametrize("suffix", OTHER_BYTES)
@pytest.mark.parametrize("share", [0.05, 0.4, 0.6, 1.0])
def test_lines_in_another_encoding_are_named_with_a_cure_or_refused(tmp_path, suffix, share):
    texts = ["Рядок про місто і воду" if i < 100 * share else f"row {i}" for i in range(100)]
    lines = ["text\n"] * (suffix == "csv") + [OTHER_BYTES[suffix].format(text) for text in texts]
    data = "".join(lines).encode("cp1251")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    source = CorpusSource(str(tmp_path))
    if share > 0.5:
        for look in (source.peek, lambda split: overview(source, split)):
            with refuses(path) as refusal:
                look("train")
            assert "-f WINDOWS-1251 -t UTF-8" in refusal.value.to_set
        return
    assert source.peek("train")
    found = overview(source, "train")
    assert f"{100 * share:.0f} of 10" in found.not_utf8.why
    assert "-f WINDOWS-1251 -t UTF-8" in str(found)


def test_a_bad_file_is_skipped_where_bad_files_are(tmp_path):
    for i, text in enumerate(["un text\n", "<html><body>"]):
        (tmp_path / f"{i}.jsonl").write_text(text if i else '{"text": "un text"}\n')
    with refuses(tmp_path / "1.jsonl"):
        overview(CorpusSource(str(tmp_path)), "train")
    with gin.unlock_config():
        gin.bind_parameter("tasks.corpus.source.bad_files.skip", True)
    try:
        assert overview(CorpusSource(str(tmp_path)), "train").documents == 1
    finally:
        gin.clear_config()


def test_most_files_in_another_encoding_are_refused_behind_one_that_is_not(tmp_path):
    for i in range(9):
        (tmp_path / f"{i}.txt").write_bytes(("місто\n" * 9).encode("cp1251" if i else "utf-8"))
    source = CorpusSource(str(tmp_path))
    assert source.peek("train")
    with refuses(tmp_path / "1.txt"):
        overview(source, "train")


SEPARATORS = ["%", "%%", "---", "* * *", "=====", "~~~", "#", "<|endoftext|>", "<doc>"]


@pytest.mark.parametrize("line", SEPARATORS)
def test_a_line_between_documents_is_noticed_and_divides_them(tmp_path, line):
    texts = [f"titlul {i}\n\no strofă {i}\n- {i} -\nalta {i}" for i in range(40)]
    for i in range(2):
        between = f"\n {line}\r\n"
        (tmp_path / f"{i}.txt").write_text(between.join([*texts[i * 20 : i * 20 + 20], ""]))
    found = overview(CorpusSource(str(tmp_path)), "train")
    assert found.question.answers == ({"documents": line},)
    assert repr(line) in found.question.why
    assert repr(line) in found.question.to_set
    source = CorpusSource(str(tmp_path), documents=line, held_out={})
    found = overview(source, "train")
    assert (found.documents, found.question) == (40, None)
    assert [text.decode() for batch in source.texts("train") for (text,) in batch] == texts


@pytest.mark.parametrize("documents", ["", "paragraph", "line", " % "])
def test_a_slip_is_no_line_between_documents(documents):
    with refuses("documents"):
        CorpusSource("/data", documents=documents)
