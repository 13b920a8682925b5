"""Vocabularies and lengths that do not fit the model are refused."""

import pytest
import seqio

from fakes import tokenizer_files, toy
from t5x.examples.encoder import network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.start.vocabulary import check_feature_lengths, verify_matching_vocabs, vocabulary_size
from tasks import corpora, romanian, vocabularies


def test_vocabularies_must_be_the_models_and_fit_its_embedding():
    verify_matching_vocabs(toy.data(), toy.model())
    with pytest.raises(ValueError, match=r"network.T5Config.vocab_size is 128.* 384"):
        verify_matching_vocabs(toy.data(), toy.model(vocab_size=128))
    other = toy.model()
    other.output_vocabulary = seqio.ByteVocabulary(extra_ids=5)
    with pytest.raises(ValueError, match="output_vocabulary"):
        verify_matching_vocabs(toy.data(), other)


def test_an_unreadable_vocabulary_is_named(tmp_path):
    path = str(tmp_path / "no.model")
    with pytest.raises(ValueError, match="sentencepiece_model_file"):
        vocabulary_size(seqio.SentencePieceVocabulary(path))


@pytest.mark.parametrize("lengths", [None, {"inputs": 16}, {"inputs": 16, "targets": 0}])
def test_lengths_must_be_given(lengths):
    with pytest.raises(ValueError, match="TASK_FEATURE_LENGTHS"):
        check_feature_lengths(toy.data(task_feature_lengths=lengths))
    check_feature_lengths(toy.data())


WORDPIECE = vocabularies.tokenizer(vocabularies.ro_mini_wordpiece)
BERT = network.Bert(network.BertConfig(2048, max_length=128))
ROBERTA = network.Bert(network.BertConfig(2048, max_length=128, type_vocab_size=1))
HEADLESS = network.Bert(network.BertConfig(2048, max_length=128, next_sentence=False))
MODERN = network.ModernBert(network.ModernBertConfig(2048, num_layers=4, max_length=128))


def encoder(module=BERT, vocabulary=WORDPIECE):
    return MaskedLanguageModel(module, vocabulary, vocabulary, None)


def masked(task="ro_mini_bert", length=128):
    return toy.data(
        mixture_or_task_name=task, task_feature_lengths={"inputs": length, "targets": length}
    )


def test_tasks_of_encoders_fit():
    for module in (BERT, ROBERTA, HEADLESS, MODERN):
        verify_matching_vocabs(masked("ro_mini_masked_lm"), encoder(module))
    verify_matching_vocabs(masked(), encoder())


@pytest.mark.parametrize(
    ("cfg", "model", "named"),
    [
        (masked(length=129), encoder(), "network.BertConfig.max_length is 128"),
        (masked(), encoder(HEADLESS), "network.BertConfig.next_sentence"),
        (masked(), encoder(MODERN), "single texts"),
        (masked(), encoder(ROBERTA), "two token types"),
        (masked("ro_mini_span_corruption"), encoder(), "MIXTURE_OR_TASK_NAME"),
        (masked(), toy.model(), "for an encoder"),
        (masked(), encoder(network.Bert(network.BertConfig(1024, max_length=128))), "1024"),
        (masked(), encoder(vocabulary=vocabularies.byt5()), "input_vocabulary"),
    ],
)
def test_what_does_not_fit_an_encoder_is_refused(cfg, model, named):
    with pytest.raises(ValueError, match=named):
        verify_matching_vocabs(cfg, model)


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    folder = tokenizer_files.blanks_bpe(tmp_path, ("<pad>", "<eos>", "<bos>", "<unk>"))
    vocabulary = vocabularies.tokenizer(folder)
    name = "toy_without_mask"
    corpora.add(name, romanian.RO_MINI, vocabulary, "masked_lm")
    try:
        with pytest.raises(ValueError, match="toy_without_mask"):
            verify_matching_vocabs(masked(name), encoder(vocabulary=vocabulary))
    finally:
        seqio.TaskRegistry.remove(name)
