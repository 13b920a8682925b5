"""Vocabularies and lengths that do not fit the model are refused."""

import pytest
import seqio

from fakes import tokenizer_files, toy
from t5x.examples.encoder import network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.input_pipeline import checks
from tasks import corpora, romanian, vocabularies


def test_vocabularies_must_be_the_models_and_fit_its_embedding():
    checks.verify_matching_vocabs(toy.data(), toy.model())
    with pytest.raises(ValueError, match=r"259 ids but network.T5Config.vocab_size is 128.* 384"):
        checks.verify_matching_vocabs(toy.data(), toy.model(vocab_size=128))
    other = toy.model()
    other.output_vocabulary = seqio.ByteVocabulary(extra_ids=5)
    with pytest.raises(ValueError, match=r"toy_copy encodes 'targets' .*output_vocabulary"):
        checks.verify_matching_vocabs(toy.data(), other)


def test_an_unreadable_vocabulary_is_named(tmp_path):
    path = str(tmp_path / "no.model")
    with pytest.raises(ValueError, match=r"no.model cannot be read .*sentencepiece_model_file"):
        checks.vocabulary_size(seqio.SentencePieceVocabulary(path))


@pytest.mark.parametrize("lengths", [None, {"inputs": 16}, {"inputs": 16, "targets": 0}])
def test_lengths_must_be_given(lengths):
    with pytest.raises(ValueError, match=r"TASK_FEATURE_LENGTHS\['(inputs|targets)'\] is (None|0)"):
        checks.check_feature_lengths(toy.data(task_feature_lengths=lengths))
    checks.check_feature_lengths(toy.data())


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
        checks.verify_matching_vocabs(masked("ro_mini_masked_lm"), encoder(module))
    checks.verify_matching_vocabs(masked(), encoder())


@pytest.mark.parametrize(
    ("cfg", "model", "sentence"),
    [
        (masked(length=129), encoder(), r"\['inputs'\] is 129, but network.BertConfig.max_length is"
         r" 128, and later tokens have no position; lower the former"),
        (masked(), encoder(HEADLESS), r"Task ro_mini_bert has next-sentence labels, but .* no head"
         r".*; set network.BertConfig.next_sentence to True, or choose a task of single texts\.$"),
        (masked(), encoder(MODERN), r"no head that predicts them; choose a task of single"),
        (masked(), encoder(ROBERTA), r"two token types, but the network knows 1; choose a task of"),
        (masked("ro_mini_span_corruption"), encoder(), r"inputs and targets of a T5, but the model "
         r"is an encoder.* MIXTURE_OR_TASK_NAME to a task of an objective such as masked_lm"),
        (masked(), toy.model(), r"masks tokens for an encoder, but the model is a"),
        (masked(), encoder(network.Bert(network.BertConfig(1024, max_length=128))),
         r"2048 ids but network.BertConfig.vocab_size is 1024, .*; set it to 2048"),
        (masked(), encoder(vocabulary=vocabularies.byt5()),
         r"but MaskedLanguageModel.input_vocabulary is"),
    ],
)  # fmt: skip
def test_what_does_not_fit_an_encoder_is_refused(cfg, model, sentence):
    with pytest.raises(ValueError, match=sentence):
        checks.verify_matching_vocabs(cfg, model)


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    folder = tokenizer_files.blanks_bpe(tmp_path, ("<pad>", "<eos>", "<bos>", "<unk>"))
    vocabulary = vocabularies.tokenizer(folder)
    name = "toy_without_mask"
    corpora.add(name, romanian.RO_MINI, vocabulary, "masked_lm")
    try:
        with pytest.raises(ValueError, match=r"of task toy_without_mask has no mask token, which"):
            checks.verify_matching_vocabs(masked(name), encoder(vocabulary=vocabulary))
    finally:
        seqio.TaskRegistry.remove(name)
