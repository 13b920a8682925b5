"""A folder of files is a corpus, by whatever names, and what is left out is said."""

import ast
import shlex

import fsspec
import pytest

from fakes.refuses import refuses
from tasks.corpus.catalog import Catalog
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import names as file_names
from tasks.corpus.storage.retry import RetryPolicy
from tasks.rows import Rows


def made(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}\n")
    return str(folder)


def splits(source, folder):
    """Return the files of each split, and what is passed over."""
    name = lambda url: url[len(folder) + 1 :]
    splits = [split for split in source.splits if split != "test"]
    files = {s: [name(file.url) for file in source.list_files(s)] for s in splits}
    return files, {name(url) for url, _ in source.passed_over("train")}


TWO = ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("names", "train", "validation", "beside"),
    [
        (TWO, TWO, None, []),
        (["b/c/a.txt", "b/b.txt"], ["b/b.txt", "b/c/a.txt"], None, []),
        ([*TWO, "README.md", "LICENSE", "notice.txt", "a.sha256"], TWO, None, None),
        ([*TWO, ".hidden.txt", ".git/a.txt", "_tmp/a.txt"], TWO, None, []),
        (["tests.txt", "valid.txt"], ["tests.txt"], ["valid.txt"], []),
        (["git-log.txt", "log.txt", "z.txt"], ["git-log.txt", "z.txt"], None, ["log.txt"]),
        (["a.txt", "ro_dev.txt", "b_Eval.txt"], ["a.txt", "b_Eval.txt"], ["ro_dev.txt"], []),
        (["train/1.txt", "a/dev/1.txt", "0.txt"], ["0.txt", "train/1.txt"], ["a/dev/1.txt"], []),
        (["train.txt", "dev.txt", "test.txt", "c.txt"], ["train.txt"], ["dev.txt"], ["c.txt"]),
        (["train-0.txt", "valid-0.txt", "b/valid.txt"], ["train-0.txt"], ["valid-0.txt"], []),
        (["train-0.txt", "train-1.txt", "b/dev.txt"], ["train-0.txt", "train-1.txt"], None, []),
        (["train-0.txt", "ro_dev.txt"], ["train-0.txt"], ["ro_dev.txt"], []),
        (["Train.txt", "Valid.txt"], ["Train.txt"], ["Valid.txt"], []),
        ([*TWO, "requirements.txt", "words.txt", "stopwords.txt", "vocab.json"], TWO, None, None),
        (["a-words.txt", "in other words.txt"], ["a-words.txt", "in other words.txt"], None, []),
        (["train_words.txt", "train.txt"], ["train.txt", "train_words.txt"], None, []),
        (["1.txt", "training.txt", "trainer_state.json"], ["1.txt", "training.txt"], None, None),
    ],
)  # fmt: skip
def test_a_folder_says_its_splits_by_the_words_of_its_names(
    tmp_path, names, train, validation, beside
):
    folder = made(tmp_path, names)
    rest = set(names) - set(train) - set(validation or ()) if beside is None else set(beside)
    wanted = {"train": train} | ({"validation": validation} if validation else {})
    for source in (CorpusSource(folder), Rows(folder, columns={"inputs": "text"})):
        assert splits(source, folder) == (wanted, rest)
    for files in (folder, [f"{folder}/"]):
        source = CorpusSource(files=dict.fromkeys(wanted, files))
        assert splits(source, folder) == (wanted, rest)


COPIES = ["{} (1).{}", "{} (12).{}", "{}(1).{}", "{} - Copy.{}", "{} - Copy (2).{}", "{} copy.{}"]


@pytest.mark.parametrize("name", [*COPIES, "Copy of {}.{}"])
@pytest.mark.parametrize("first", ["corpus.jsonl", "corpus.txt.gz", "shard-0.parquet", "a (2).txt"])
def test_a_second_copy_is_named_and_left_out(tmp_path, name, first):
    copy = name.format(*first.split(".", 1))
    for file in (first, copy, "b/" + first):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"the same")
    is_in_folder = lambda url: url.rpartition("/")[0] == str(tmp_path)
    pattern = f"{tmp_path}/*.{first.split('.', 1)[1]}"
    for corpus in (str(tmp_path), pattern):
        source = CorpusSource(corpus)
        read = [f.url for f in source.list_files("train") if is_in_folder(f.url)]
        assert read == [f"{tmp_path}/{first}"]
        assert (f"{tmp_path}/{copy}", f"it is a copy of {first!r}") in source.passed_over("train")
    both = [f"{tmp_path}/{file}" for file in (first, copy)]
    assert len(CorpusSource(files={"train": both}).list_files("train")) == 2  # as one says
    (tmp_path / copy).write_bytes(b"another ")
    source = CorpusSource(str(tmp_path))
    assert f"{tmp_path}/{copy}" in [file.url for file in source.list_files("train")]


def test_a_folder_has_the_splits_that_its_file_names_name(tmp_path):
    made(tmp_path, ["a.txt"])
    assert CorpusSource(str(tmp_path)).splits == ("train",)
    made(tmp_path, ["ro_test.txt"])
    assert CorpusSource(str(tmp_path)).splits == ("train", "test")
    named = CorpusSource(str(tmp_path), splits=("train", "validation"))
    assert named.splits == ("train", "validation")
    with refuses(f"corpus {str(tmp_path)!r}") as refusal:
        named.peek("validation")
    assert "held_out={'validation': 0.01}" in refusal.value.to_set


def test_a_bucket_is_read_like_a_folder():
    store = fsspec.filesystem("memory")
    for name in ("a.txt", "b/c.txt", ".x.txt", "dev/0.txt", "README.md"):
        store.pipe(f"/uk/ours/{name}", b"text\n")
    source = CorpusSource("memory://uk/ours")
    names = lambda split: [f.url.rpartition("/ours/")[2] for f in source.list_files(split)]
    assert (names("train"), names("validation")) == (["a.txt", "b/c.txt"], ["dev/0.txt"])
    assert [url.rpartition("/")[2] for url, _ in source.passed_over("train")] == ["README.md"]


def test_a_list_in_a_bucket_is_no_folder():
    store = fsspec.filesystem("memory")
    for name, data in (("a.txt", b"text\n"), ("all.map", b"a.txt\n")):
        store.pipe(f"/listed/{name}", data)
    assert CorpusSource(files={"train": "@memory://listed/all.map"}).peek("train") == ["text"]


def test_links_are_followed_once(tmp_path):
    folder, theirs = made(tmp_path / "ours", TWO), made(tmp_path / "theirs", ["c.txt"])
    links = {"back": folder, "also": tmp_path, ".no": theirs, "more": theirs, "same": theirs}
    for name, to in links.items():
        (tmp_path / "ours" / name).symlink_to(to)
    listed = [file.url for file in CorpusSource(folder).list_files("train")]
    assert sorted(url.rpartition("/")[2] for url in listed) == [*TWO, "c.txt"]


def test_a_split_may_have_a_folder_of_its_own(tmp_path):
    for name in ("one", "two"):
        made(tmp_path / name, TWO)
    source = CorpusSource(files={"train": f"{tmp_path}/one", "validation": f"{tmp_path}/two"})
    assert [file.url for file in source.list_files("validation")] == [
        f"{tmp_path}/two/{name}" for name in TWO
    ]
    made(tmp_path / "two", ["valid.txt"])
    source = CorpusSource(files=dict.fromkeys(("train", "validation"), f"{tmp_path}/two"))
    found = {s: {file.url for file in source.list_files(s)} for s in source.splits}
    assert found["validation"] == {f"{tmp_path}/two/valid.txt"}
    assert not found["train"] & found["validation"]


@pytest.mark.parametrize(
    ("names", "file", "to_set"),
    [
        (["a.txt", "b.csv"], "a.txt", "files="),
        (["a.txt", "b.zip"], "b.zip", "unzip"),
        (["a.txt", "a.txt.gz"], "a.txt", "delete one"),
        (["README.txt"], "", "files="),
        (["dev.txt"], "", "files="),
        (["README.txt", "a.odt"], "a.odt", ".txt"),
        (["AA/wiki_00"], "AA/wiki_00", ".txt"),
        ([], "*", ""),
    ],
)
def test_what_may_be_data_and_is_not_read_is_refused_by_name(tmp_path, names, file, to_set):
    with refuses(str(tmp_path / file)) as refusal:
        CorpusSource(made(tmp_path, names)).list_files("train")
    assert to_set in refusal.value.to_set


@pytest.mark.parametrize("suffix", ["zip", "7z", "lz4", "arrow", "feather", "xlsx", "pdf", "docx"])
@pytest.mark.parametrize("name", ["a", "my corpus", "l'été", 'say "a"', "a$HOME`ls`", "мова", "-a"])
def test_a_shell_takes_the_command_that_converts_a_file(suffix, name):
    path = f"/data/{name}.{suffix}"
    words = shlex.split(file_names.not_read(path).to_set.partition(", ")[2])
    if words[:2] != ["python", "-c"]:
        assert path in words
        return
    texts = [node.value for node in ast.walk(ast.parse(words[2])) if isinstance(node, ast.Constant)]
    assert path in texts


def test_a_file_is_not_taken_for_a_folder(tmp_path):
    made(tmp_path, ["poems"])
    with refuses(f"{tmp_path}/poems"):
        CorpusSource(f"{tmp_path}/poems").list_files("train")


@pytest.mark.parametrize("what", ["*", "*.txt", "a.txt", "list"])
def test_files_are_a_corpus_too(tmp_path, what):
    made(tmp_path, ["a.txt"])
    if what == "list":
        (tmp_path / "all.map").write_text("a.txt\n")
    corpus = f"@{tmp_path}/all.map" if what == "list" else f"{tmp_path}/{what}"
    assert CorpusSource(corpus).peek("train") == ["text of a.txt"]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"splits": ["train"]}, ["train"]),
        ({"held_out": {"test": 0.1}}, ["train", "test"]),
        ({"splits": {"train": "a", "dev": "b"}}, ["train", "dev"]),
        ({"files": {"train": "a"}}, ["train"]),
        ({"files": {"train": "a", "dev": "b"}}, ["train", "dev"]),
        ({"files": {"train": "a"}, "held_out": {}}, ["train"]),
        ({"files": {"test": "a"}}, ["test"]),
        ({"files": dict, "splits": ["test"]}, ["test"]),
    ],
)
def test_the_settings_say_which_splits_there_are(settings, names):
    corpus = None if "files" in settings else "/data"
    shares = settings.pop("held_out", None)
    catalog = Catalog(corpus, shares=shares, **settings)
    assert catalog.knows_splits
    assert [*catalog.names(RetryPolicy())] == names
