"""Public corpora have the addresses, columns and splits of their publishers."""

import collections
import json

import pytest

from fakes.file_server import FileServer
from fakes.refuses import refuses
from tasks.corpus.storage.retry import RetryPolicy
from tasks.languages import public


def test_fineweb2_is_read_by_language_with_its_test_split_for_validation():
    source = public.fineweb2("czech")
    assert (source.name, source.config) == ("HuggingFaceFW/fineweb-2", "ces_Latn")
    assert source.catalog.names(RetryPolicy()) == {"train": "train", "validation": "test"}
    assert source.column.fields == ("text",)
    source = public.fineweb2("abi_Latn")  # which has no test split
    assert source.catalog.names(RetryPolicy()) == {"train": "train", "validation": "train"}
    assert source.shares("train") == {"validation": 0.001}


@pytest.mark.parametrize(
    ("size", "copies"),
    [(1, 1), (2, 2), (4, 3), (5, 5), (99, 5), (100, 8), (999, 8), (1000, 1)],
)
def test_documents_of_fineweb2_are_repeated_as_its_authors_tried(size, copies):
    column = public.fineweb2("ron_Latn", by_cluster=True).column
    assert column.fields == ("text", "minhash_cluster_size")
    assert column.count_copies({"text": "a", "minhash_cluster_size": size}) == copies
    scored = public.fineweb2("ron_Latn", by_cluster=True, least_score=0.9).column
    for score, left in ((0.95, copies), (0.85, 0)):
        row = {"minhash_cluster_size": size, "language_score": score}
        assert scored.count_copies(row) == left


def test_hplt3_is_read_from_its_list_by_quality(tmp_path, monkeypatch):
    names = [f"{quality}_{n}.jsonl" for quality in (10, 9, 5) for n in (1, 2)]
    (tmp_path / "ces_Latn").mkdir()
    for name in names:
        rows = [json.dumps({"text": f"{name} {i}", "id": i}) for i in range(100)]
        (tmp_path / "ces_Latn" / name).write_text("\n".join(rows))
    with FileServer(tmp_path) as server:
        (tmp_path / "ces_Latn.map").write_text(
            "\n".join(f"{server.url}/ces_Latn/{name}" for name in names)
        )
        monkeypatch.setattr(public, "HPLT3_LIST", f"@{server.url}/{{code}}.map")
        monkeypatch.setattr(public, "HELD_OUT", {"validation": 0.1})
        best = public.hplt3("ces_Latn", least_quality=9)
        train, held_out = (
            [x["text"].decode() for x in best.get_dataset(split, seed=1).as_numpy_iterator()]
            for split in ("train", "validation")
        )
        all_files = public.hplt3("ces_Latn").list_files("train")
    assert len(all_files) == 6
    assert not set(train) & set(held_out)
    assert 15 < len(held_out) < 70
    found = collections.Counter(text.split("_")[0] for text in train + held_out)
    assert found == {"10": 200, "9": 200}


def test_documents_of_hplt3_are_repeated_by_the_quality_of_their_file():
    column = public.hplt3("ces_Latn", copies={6: 1, 8: 2, 10: 3}).column
    found = {q: column.for_file(f"https://x/ces_Latn/{q}_1.jsonl.zst") for q in range(6, 11)}
    assert {q: one.count_copies({}) for q, one in found.items()} == {6: 1, 7: 1, 8: 2, 9: 2, 10: 3}
    pattern = public.hplt3("ces_Latn", copies={10: 3, 8: 2}).name
    assert pattern.endswith("ces_Latn.map#8_*|9_*|10_*")
    assert public.hplt3("ces_Latn").column.file_copies == {}
    for quality in (4, 11):
        for settings in ({"copies": {quality: 1}}, {"least_quality": quality}):
            with refuses(value=quality):
                public.hplt3("ces_Latn", **settings)


def test_older_corpora_are_named_by_two_letters():
    assert public.culturax("ces_Latn").config == public.mc4("czech").config == "cs"
    assert public.culturax("norwegian").config == public.mc4("norwegian").config == "no"
    assert (public.culturax("hebrew").config, public.mc4("hebrew").config) == ("he", "iw")
    assert (public.culturax("filipino").config, public.mc4("filipino").config) == ("tl", "fil")
    assert (public.culturax("tl").config, public.mc4("iw").config) == ("tl", "iw")
    assert public.hplt2("ces_Latn").config == "ces_Latn"
    assert public.fulg().column.name == "raw_content"
    for language, name in (("abi_Latn", "Abidji"), ("arz_Arab", "Egyptian Arabic")):
        for make in (public.culturax, public.mc4):
            with refuses(name):
                make(language)


def test_the_best_tenth_of_fineweb2_is_weighted_by_its_score():
    assert len(public.FINEWEB2_HQ) == 20
    source = public.fineweb2_hq("czech")
    assert (source.name, source.config) == ("epfml/FineWeb2-HQ", "ces_Latn")
    assert source.column.fields == ("text",)
    counts = lambda column: [column.count_copies({"quality_score": s}) for s in (0.05, 0.2, 0.9)]
    assert counts(public.fineweb2_hq("cs", least_score=0.1).column) == [0, 1, 1]
    assert counts(public.fineweb2_hq("cs", copies={0.1: 1, 0.5: 3}).column) == [0, 1, 3]
    with refuses("language", "romanian") as refusal:
        public.fineweb2_hq("romanian")
    assert "ces_Latn" in refusal.value.why
    with refuses("least_score", 0.1):
        public.fineweb2_hq("cs", least_score=0.1, copies={0.5: 3})


def test_pdfs_are_named_as_fineweb2_names_languages():
    scored = public.finepdfs("ro", least_score=0.8)
    assert scored.column.fields == ("text", "full_doc_lid_score")
    assert scored.column.count_copies({"full_doc_lid_score": 0.7}) == 0
    for make, name in ((public.finepdfs, "finepdfs"), (public.finepdfs_edu, "finepdfs-edu")):
        assert make("romanian").name == f"HuggingFaceFW/{name}"
        assert make("romanian").config == "ron_Latn"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        *(("ro", "ro"), ("en", "en"), ("czech", "cs"), ("norwegian", "no"), ("nno", "nn")),
        *(("chinese", "zh"), ("arz_Arab", "arz"), ("cebuano", "ceb"), ("filipino", "tl")),
    ],
)
def test_wikipedias_have_codes_of_their_own(language, code):
    source = public.finewiki(language)
    assert (source.name, source.config) == ("HuggingFaceFW/finewiki", code)


def test_a_wikipedia_in_another_script_is_refused():
    with refuses("language", "srp_Latn") as refusal:
        public.finewiki("srp_Latn")
    assert "srp_Cyrl" in refusal.value.why


@pytest.mark.parametrize("name", public.CORPORA)
def test_every_corpus_by_name_has_czech_and_a_split_for_validation(name):
    source = public.CORPORA[name].source("ces_Latn")
    assert "validation" in source.catalog.names(RetryPolicy())
    assert f"| {name} |" in public.__doc__
    assert f"| {public.CORPORA[name].licence} |\n" in public.__doc__
