"""Vocabularies and lengths that do not fit the model are refused."""

import pytest
import seqio

from fakes import tokenizer_files, toy
from fakes.refuses import refuses
from t5x.examples.encoder import network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.start.vocabulary import check_feature_lengths, verify_matching_vocabs, vocabulary_size
from tasks import corpora, romanian, vocabularies


def test_vocabularies_must_be_the_models_and_fit_its_embedding():
    verify_matching_vocabs(toy.data(), toy.model())
    with refuses("network.T5Config.vocab_size", 128):
        verify_matching_vocabs(toy.data(), toy.model(vocab_size=128))
    other = toy.model()
    other.output_vocabulary = seqio.ByteVocabulary(extra_ids=5)
    with refuses(f"task {toy.TASK}"):
        verify_matching_vocabs(toy.data(), other)


def test_an_unreadable_vocabulary_is_named(tmp_path):
    path = str(tmp_path / "no.model")
    with refuses(f"The vocabulary file {path}"):
        vocabulary_size(seqio.SentencePieceVocabulary(path))


@pytest.mark.parametrize("lengths", [None, {"inputs": 16}, {"inputs": 16, "targets": 0}])
def test_lengths_must_be_given(lengths):
    with refuses() as refusal:
        check_feature_lengths(toy.data(task_feature_lengths=lengths))
    assert refusal.value.setting.startswith("TASK_FEATURE_LENGTHS[")
    check_feature_lengths(toy.data())


WORDPIECE = vocabularies.tokenizer(vocabularies.ro_mini_wordpiece)
BERT = network.Bert(network.BertConfig(2048, max_length=128))
ROBERTA = network.Bert(network.BertConfig(2048, max_length=128, type_vocab_size=1))
SMALL = network.Bert(network.BertConfig(1024, max_length=128))
HEADLESS = network.Bert(network.BertConfig(2048, max_length=128, next_sentence=False))
MODERN = network.ModernBert(network.ModernBertConfig(2048, num_layers=4, max_length=128))


T5_TASK = "ro_mini_span_corruption"
BERT_TASK = "task ro_mini_bert"


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
    ("cfg", "model", "setting", "part"),
    [
        (masked(length=129), encoder(), "TASK_FEATURE_LENGTHS['inputs']", "max_length is 128"),
        (masked(), encoder(HEADLESS), BERT_TASK, "network.BertConfig.next_sentence"),
        (masked(), encoder(MODERN), BERT_TASK, "next-sentence"),
        (masked(), encoder(ROBERTA), BERT_TASK, "two token types"),
        (masked(T5_TASK), encoder(), f"task {T5_TASK}", "MIXTURE_OR_TASK_NAME"),
        (masked(), toy.model(), BERT_TASK, "for an encoder"),
        (masked(), encoder(SMALL), "network.BertConfig.vocab_size", "1024"),
        (masked(), encoder(vocabulary=vocabularies.byt5()), BERT_TASK, "input_vocabulary"),
    ],
)
def test_what_does_not_fit_an_encoder_is_refused(cfg, model, setting, part):
    with refuses(setting) as refusal:
        verify_matching_vocabs(cfg, model)
    assert part in str(refusal.value)


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    folder = tokenizer_files.blanks_bpe(tmp_path, ("<pad>", "<eos>", "<bos>", "<unk>"))
    vocabulary = vocabularies.tokenizer(folder)
    name = "toy_without_mask"
    corpora.add(name, romanian.RO_MINI, vocabulary, "masked_lm")
    try:
        with refuses(f"The vocabulary {vocabulary} of task {name}"):
            verify_matching_vocabs(masked(name), encoder(vocabulary=vocabulary))
    finally:
        seqio.TaskRegistry.remove(name)
