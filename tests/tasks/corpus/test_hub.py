"""A data set that is made by a script is read from the hub's own copy of it."""

import types

import datasets
import pytest

from tasks.corpus import hub

WHERE = "hf://datasets/user/made@0123456789012345678901234567890123456789"


@pytest.fixture
def copied(monkeypatch):
    """Gives the copy's files; None for no copy."""

    def with_files(*names):
        def load(corpus, config=None, revision=None, data_dir=None):
            if revision != hub.PARQUET:
                raise RuntimeError("Dataset scripts are no longer supported, but found made.py")
            if not names:
                raise datasets.exceptions.DatasetNotFoundError("Revision doesn't exist")
            found = {}
            for name in names:
                if data_dir is None or name.startswith(f"{data_dir}/"):
                    split = name.split("/")[1].removeprefix("partial-")
                    found.setdefault(split, []).append(f"{WHERE}/{name}")
            builder = types.SimpleNamespace(config=types.SimpleNamespace(data_files=found))
            return builder

        monkeypatch.setattr(datasets, "load_dataset_builder", load)
        monkeypatch.setattr(hub, "_shards", lambda builder, corpus, split, urls: urls)
        hub.load_repository.cache_clear()

    yield with_files
    hub.load_repository.cache_clear()


def test_the_copy_is_read_in_place_of_the_script(copied):
    copied("v1/train/0000.parquet", "v1/train/0001.parquet", "v1/validation/0000.parquet")
    found = hub.load_repository("user/made", None, None).splits
    assert {split: len(files) for split, files in found.items()} == {"train": 2, "validation": 1}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "no copy of it in parquet: give its files"),
        (("a/train/0000.parquet", "b/train/0000.parquet"), r"set `config` to one of \['a', 'b'\]"),
        (("a/partial-train/0000.parquet",), "only its beginning"),
    ],
)
def test_a_copy_that_does_not_do_is_refused_in_a_sentence(copied, files, said):
    copied(*files)
    with pytest.raises(ValueError, match=f"'user/made' is made by a script.*{said}"):
        hub.load_repository("user/made", None, None)


def test_one_of_several_configurations_is_taken(copied):
    copied("a/train/0000.parquet", "b/train/0000.parquet")
    (url,) = hub.load_repository("user/made", "b", None).splits["train"]
    assert url == f"{WHERE}/b/train/0000.parquet"


def test_a_gated_data_set_is_named_with_its_page(monkeypatch):
    def load(*_, **__):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'user/c' is a gated dataset on it")

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    hub.load_repository.cache_clear()
    with pytest.raises(ValueError, match=r"gated.*huggingface.co/datasets/user/c .*HF_TOKEN"):
        hub.load_repository("user/c", "ron_Latin", None)
    hub.load_repository.cache_clear()
