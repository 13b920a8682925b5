"""Encoders guess hidden text piece by piece, and as their networks do."""

import jax
import numpy as np
import pytest
from flax.core import meta

from evaluation import measures, text_encoder
from evaluation.guesser import MASKED_LM, ModelGuesser, masked_examples
from evaluation.hidden_text import HiddenText
from evaluation.minimal_pairs import Pair
from evaluation.scorer import MaskedExample, MaskScorer
from fakes import tokenizer_files
from fakes.encoder_golden import EncoderGolden
from fakes.refuses import refuses
from t5x.examples.encoder import network
from tasks.tokenizer_vocabulary import TokenizerVocabulary

WORDS = ("Copiii", "merg", "la", "școală", "în", "zori", ".")
EXAMPLES = [
    MaskedExample([5, 9, 8, 7, 6], [1, 3], [9, 7]),
    MaskedExample([5, 9, 6], [0], [11]),
    MaskedExample([6, 5, 4, 4, 6], [4, 0, 1], [3, 2, 1]),
]


@pytest.fixture(scope="module")
def vocabulary():
    return TokenizerVocabulary(tokenizer_files.WORDPIECE)


def test_scores_equal_those_of_single_examples():
    golden = EncoderGolden("roberta")
    module, params = golden.module(), golden.params("final")
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, enable_dropout=False))
    guesses = MaskScorer(module, params).score(EXAMPLES)
    for (ids, places, targets), guess in zip(EXAMPLES, guesses, strict=True):
        logits = apply(np.asarray([ids]))
        expected = np.asarray(jax.nn.log_softmax(logits))[0, places]
        log_prob = expected[range(len(places)), targets].sum()
        assert guess.log_prob == pytest.approx(log_prob, rel=1e-4)
        assert guess.is_written == (expected.argmax(-1) == targets).all()


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_spans_are_revealed_from_left_to_right(tmp_path, vocabulary, kind):
    if kind == "byte_bpe":
        vocabulary = TokenizerVocabulary(tokenizer_files.byte_bpe(tmp_path))
    encoder = text_encoder.tokenizer_encoder(vocabulary.tokenizer_file, "here")
    full = [vocabulary.cls_id, *vocabulary.encode(" ".join(WORDS)), vocabulary.sep_id]
    rounds = masked_examples(HiddenText(WORDS, ((0, 1), (3, 5))), encoder)
    assert len(rounds) > 1
    guessed: list[int] = []
    for ids, places, targets in rounds:
        masks = {i for i, each in enumerate(ids) if each == vocabulary.mask_id}
        assert {*places} <= masks
        assert not {*guessed} & masks  # what was guessed is in its place
        assert [each for i, each in enumerate(ids) if i not in masks] == [
            each for i, each in enumerate(full) if i not in masks
        ]
        assert targets == [full[place] for place in places]
        guessed += places
    assert masks == {*places}  # the last round leaves no other
    hidden = [i for i in guessed if full[i] in vocabulary.encode("Copiii școală în")]
    assert sorted(guessed) == sorted({*guessed}) == sorted(hidden)


def unigram(config: network.BertConfig, shares: np.ndarray):
    """Return parameters of a BERT that give each id its share, whatever the text."""
    ids = np.zeros((1, 4), np.int32)
    module = network.Bert(config)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), ids, enable_dropout=False))
    shapes = meta.unbox(shapes["params"])
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    params["mlm_head"]["bias"] += np.log(shares)
    return params


def test_probabilities_of_a_model_whose_answers_are_known(vocabulary):
    """A model in which one word is more probable than all others, wherever it is."""
    size = vocabulary.vocab_size
    sizes = {"emb_dim": 8, "num_heads": 2, "num_layers": 1, "mlp_dim": 8, "max_length": 64}
    config = network.BertConfig(vocab_size=size, **sizes)
    ids = vocabulary.encode("Copiii la")
    frequent, rare = ids[0], ids[-1]
    shares = np.ones(size)
    shares[frequent], shares[rare] = 90, 10
    shares /= shares.sum()
    module = network.Bert(config)
    encoder = text_encoder.tokenizer_encoder(vocabulary.tokenizer_file, "here")
    scorer = MaskScorer(module, unigram(config, shares))
    guesser = ModelGuesser(MASKED_LM, encoder, scorer.score)
    words = ("la", "la", "la", "merg")
    (guess,) = guesser.guess([HiddenText(words, ((1, 3),))])
    assert guess.log_prob == pytest.approx(2 * np.log(shares[rare]), rel=1e-4)
    assert not guess.is_written
    bare = vocabulary.pieces[frequent]
    (guess,) = guesser.guess([HiddenText(("la", bare, "la"), ((1, 2),))])
    assert guess.is_written
    pairs = [Pair(f"la {bare} la", "la la la", ""), Pair("la la", f"{bare} {bare}", "")]
    assert measures.preferred_sentences(pairs, guesser)["minimal_pairs"].value == 0.5


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    folder = tokenizer_files.blanks_bpe(tmp_path, tokens=("<pad>", "<eos>", "<bos>", "<unk>"))
    with refuses("here"):
        text_encoder.tokenizer_encoder(folder, "here")
