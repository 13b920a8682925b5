"""A data set that is made by a script is read from the hub's own copy of it."""

import types

import datasets
import pytest

from fakes.refuses import refuses
from tasks.corpus.storage import hub
from tasks.corpus.storage.files import CorpusFile

COMMIT = "0123456789012345678901234567890123456789"
WHERE = f"hf://datasets/user/made@{COMMIT}"


@pytest.fixture(params=["script", "arrow"])
def copied(request, monkeypatch):
    """A function that gives the copy's files; none for no copy."""

    def with_files(*names):
        def load(corpus, config=None, revision=None, data_dir=None):
            config_of = lambda files: types.SimpleNamespace(data_files=files)
            builder = lambda files: types.SimpleNamespace(config=config_of(files))
            if revision not in (hub.PARQUET, COMMIT):
                if request.param == "arrow":
                    return builder({"train": [f"{WHERE}/data.arrow"]})
                raise RuntimeError("Dataset scripts are no longer supported, but found made.py")
            if config:
                raise ValueError(f"BuilderConfig '{config}' not found. Available: ['default']")
            if not names:
                raise datasets.exceptions.DatasetNotFoundError("Revision doesn't exist")
            found = {}
            for name in names:
                if data_dir is None or name.startswith(f"{data_dir}/"):
                    split = name.split("/")[1].removeprefix("partial-")
                    found.setdefault(split, []).append(f"{WHERE}/{name}")
            return builder(found)

        monkeypatch.setattr(datasets, "load_dataset_builder", load)
        hub.find_splits.cache_clear()

    yield with_files
    hub.find_splits.cache_clear()


def test_the_copy_is_read_in_place_of_what_cannot_be_read(copied):
    copied("v1/train/0000.parquet", "v1/train/0001.parquet", "v1/validation/0000.parquet")
    found = hub.find_splits("user/made", None, None)
    assert {split: len(files) for split, files in found.items()} == {"train": 2, "validation": 1}


@pytest.mark.parametrize(
    ("files", "to_set"),
    [
        ((), "give its files by `files`"),
        (("a/train/0000.parquet", "b/train/0000.parquet"), "set `config` to one of ['a', 'b']"),
        (("a/partial-train/0000.parquet",), "give its files by `files`"),
    ],
)
def test_a_copy_that_does_not_do_is_refused_in_a_sentence(copied, files, to_set):
    copied(*files)
    for revision, remedy in ((None, to_set), ("v2", "leave the revision out")):
        with refuses("corpus 'user/made'") as refusal:
            hub.find_splits("user/made", None, revision)
        assert refusal.value.to_set == remedy


@pytest.mark.parametrize("revision", [None, COMMIT])  # a run that resumes pins the copy's commit
def test_one_of_several_configurations_is_taken(copied, revision):
    copied("a/train/0000.parquet", "b/train/0000.parquet")
    (file,) = hub.find_splits("user/made", "b", revision)["train"]
    assert file == CorpusFile(f"{WHERE}/b/train/0000.parquet", "parquet")
    assert hub.commit_of(file.url) == COMMIT


def test_a_gated_data_set_is_named_with_its_page(monkeypatch):
    def load(*_, **__):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'user/c' is a gated dataset on it")

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    hub.find_splits.cache_clear()
    with refuses("corpus 'user/c'") as refusal:
        hub.find_splits("user/c", "ron_Latin", None)
    assert "huggingface.co/datasets/user/c" in refusal.value.to_set
    assert "HF_TOKEN" in refusal.value.to_set
    hub.find_splits.cache_clear()


@pytest.mark.parametrize(
    "setting", [{"filters": [["lang", "==", "ro"]]}, {"sample_by": "paragraph"}]
)
def test_a_card_that_chooses_other_rows_is_refused(monkeypatch, setting):
    config = types.SimpleNamespace(data_files={"train": [f"{WHERE}/a.txt"]}, **setting)
    builder = types.SimpleNamespace(config=config)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: builder)
    hub.find_splits.cache_clear()
    with refuses("corpus 'user/made'") as refusal:
        hub.find_splits("user/made", None, COMMIT)
    assert next(iter(setting)) in refusal.value.why
    hub.find_splits.cache_clear()
