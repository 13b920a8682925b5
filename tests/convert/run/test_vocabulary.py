import shutil

import pytest
import seqio

from common.gin_reader import Bindings
from convert.proof.odd_texts import odd_texts
from convert.run import vocabulary as vocabularies
from convert.run.model_dir import TrainedRun
from convert.sizes import T5Sizes
from convert.tokenizer import TrainedVocabulary
from fakes.paths import ROOT
from fakes.refuses import refuses
from fakes.tokenizer_files import words

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"
BYTES = "models.EncoderDecoderModel.output_vocabulary = @seqio.ByteVocabulary()\n"


def run(folder):
    return TrainedRun(str(folder), {})


def test_the_copy_beside_the_run_comes_first(tmp_path):
    gin = Bindings.read("seqio.SentencePieceVocabulary.sentencepiece_model_file = 'absent'")
    (tmp_path / "vocabulary.model").write_bytes(MINI.read_bytes())
    found = vocabularies.vocabulary_of(run(tmp_path), gin)
    assert found == TrainedVocabulary(str(tmp_path / "vocabulary.model"), 0)
    assert found.vocab_size == 2048


def test_a_relative_path_in_the_gin_is_looked_for(tmp_path):
    text = "FILE = '{}'\nseqio.SentencePieceVocabulary.sentencepiece_model_file = %FILE\n"
    gin = Bindings.read(text.format("ro_mini/ro_mini.model"))
    folders = [tmp_path, ROOT / "data"]
    assert vocabularies.vocabulary_of(run(tmp_path), gin, folders=folders).path == str(MINI)
    with refuses("ro_mini/ro_mini.model"):
        vocabularies.vocabulary_of(run(tmp_path), gin, folders=[tmp_path])


@pytest.mark.parametrize("extra_ids", [0, 300])
def test_the_gin_says_how_many_sentinels_are_behind_the_model(tmp_path, outside_model, extra_ids):
    gin = Bindings.read(f"seqio.SentencePieceVocabulary.extra_ids = {extra_ids}\n")
    found = vocabularies.vocabulary_of(run(tmp_path), gin, outside_model)
    seqios = seqio.SentencePieceVocabulary(outside_model, extra_ids=extra_ids)
    assert (found.extra_ids, found.vocab_size) == (seqios.extra_ids, seqios.vocab_size)
    shutil.copyfile(outside_model, tmp_path / "vocabulary.model")
    assert vocabularies.vocabulary_of(run(tmp_path), gin).extra_ids == extra_ids


def test_umt5s_gin_gives_three_hundred_and_a_silent_one_t5s_hundred(tmp_path, outside_model):
    sizes = ROOT / "t5x" / "examples" / "t5"
    for name, number in (("umt5", 300), ("t5_1_1", 100)):
        gin = Bindings.follow(sizes / name / "base.gin", [ROOT])
        assert vocabularies.vocabulary_of(run(tmp_path), gin, outside_model).extra_ids == number
    assert vocabularies.vocabulary_of(run(tmp_path), None, outside_model).extra_ids == 100


def test_none_are_behind_a_model_that_holds_them(tmp_path):
    gin = Bindings.read("seqio.SentencePieceVocabulary.extra_ids = 300\n")
    assert vocabularies.vocabulary_of(run(tmp_path), gin, str(MINI)).extra_ids == 0
    gin = Bindings.read(BYTES + "seqio.ByteVocabulary.extra_ids = 125\n")  # bytes need no file
    assert vocabularies.vocabulary_of(run(tmp_path), gin) == TrainedVocabulary("bytes", 125)


def test_another_vocabulary_than_the_trained_one_is_refused(tmp_path):
    (tmp_path / "vocabulary.model").write_bytes(b"another")
    with refuses("--vocabulary", str(MINI)):
        vocabularies.vocabulary_of(run(tmp_path), None, str(MINI))


@pytest.mark.parametrize(
    ("rows", "fits"), [(2047, False), (2048, True), (2175, True), (2176, False)]
)
def test_the_embedding_may_be_rounded_up_and_nothing_more(rows, fits):
    vocabulary = TrainedVocabulary(str(MINI), 0)
    if fits:
        assert vocabulary.config_ids(T5Sizes(rows)) == {"eos_token_id": 1}
    else:
        with refuses(vocabulary.path):
            vocabulary.config_ids(T5Sizes(rows))


def test_the_trained_vocabulary_is_seqios(outside_model):
    for ours, theirs in (
        (TrainedVocabulary(str(MINI), 0), seqio.SentencePieceVocabulary(str(MINI))),
        (
            TrainedVocabulary(outside_model, 100),
            seqio.SentencePieceVocabulary(outside_model, extra_ids=100),
        ),
        (
            TrainedVocabulary(outside_model, 50),
            seqio.SentencePieceVocabulary(outside_model, extra_ids=50),
        ),
        (TrainedVocabulary("bytes", 125), seqio.ByteVocabulary(extra_ids=125)),
    ):
        for name in ("vocab_size", "extra_ids", "eos_id", "unk_id"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert [ours.encode(text) for text in odd_texts()] == [
            theirs.encode(text) for text in odd_texts()
        ]


def test_another_tokenizer_than_the_trained_one_is_refused(tmp_path):
    """Its ids may fit the embedding, and would be published without a difference."""
    words(tmp_path / "tokenizer")
    other = words(tmp_path / "other", special=("<pad>", "<s>", "</s>", "<mask>"))
    with refuses("--vocabulary", other):
        vocabularies.tokenizer_of(run(tmp_path), other)
    same = words(tmp_path / "same")
    assert vocabularies.tokenizer_of(run(tmp_path), same).path == same


def test_an_encoders_run_has_its_tokenizer_and_one_without_may_be_given_it(tmp_path):
    words(tmp_path / "tokenizer")
    assert vocabularies.tokenizer_of(run(tmp_path)).path == f"{tmp_path}/tokenizer"
    given = f"{tmp_path}/tokenizer"
    assert vocabularies.tokenizer_of(run("elsewhere"), given).path == given
    with refuses("elsewhere/tokenizer"):
        vocabularies.tokenizer_of(run("elsewhere"))
