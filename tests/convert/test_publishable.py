"""No run that its dry run accepts fails to convert, and no id differs."""

import functools
import itertools
import json
import pathlib

import jax
import numpy as np
import pytest
import seqio
import tensorflow as tf
from transformers import AutoTokenizer

from common.errors import UserError
from common.tables import FAILS
from convert import from_hf, publishable, to_hf
from convert.proof import t5x_logits, torch_logits, verify
from convert.proof.same_ids import compare, is_tie
from convert.run import model_dir
from convert.sizes import BertSizes, EncoderDecoderSizes
from convert.t5x_params import nested, open_tree
from fakes import publishable_cases as cases
from fakes import toy
from fakes.convert_fakes import arrays
from t5x import adafactor, models, optimizers
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.checkpoints import Checkpointer
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs, to_disk
from t5x.trainer import Trainer
from tasks import vocabularies

STEPS = 2
IN_SUITE = ("t5_1_1", "bert")  # whose steps are compiled there; each takes seconds


def vocabulary_of(case):
    """The vocabulary with which the trainer encodes a corpus."""
    folder = pathlib.Path(case.folder)
    if case.network == "byt5":
        return seqio.ByteVocabulary(case.drawn["extra_ids"])
    if (model := folder / "vocabulary.model").is_file():
        return seqio.SentencePieceVocabulary(str(model), case.drawn["extra_ids"])
    return vocabularies.tokenizer(str(folder / "tokenizer"))


@functools.cache
def trainer_of(network):
    """A trainer of a network, whose step is compiled once for all vocabularies."""
    sizes = cases.NETWORKS[network]
    module = t5x_logits.module_of(sizes)
    if isinstance(sizes, EncoderDecoderSizes):
        rules = adafactor.standard_logical_factor_rules()
        optimizer = adafactor.Adafactor(decay_rate=0.8, logical_factor_rules=rules)
        model = models.EncoderDecoderModel(module, None, None, optimizer)
    else:
        optimizer = optimizers.adamw(no_decay=("scale", "bias"))
        model = MaskedLanguageModel(module, None, None, optimizer, predicted_share=1.0)
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    key, rate = jax.random.key(0), lambda step: 0.01
    specs = state_specs(model, partitioner)
    return Trainer(model, None, partitioner, specs, key, learning_rate_fn=rate)


@functools.cache
def logits_of(network):
    """The trainer's logits of the probe batch, as a function of its parameters."""
    sizes = cases.NETWORKS[network]
    module, batch = t5x_logits.module_of(sizes), verify.probe_batch(sizes).values()
    return jax.jit(lambda params: module.apply({"params": params}, *batch, enable_dropout=False))


def batch_of(sizes, vocabulary):
    """Two rows of the corpus, as the vocabulary encodes it."""
    probe = verify.probe_batch(sizes)
    ids = list(itertools.chain(*map(vocabulary.encode, cases.TEXTS[:20])))
    rows = lambda name: np.resize(ids, probe[name].shape).astype(np.int32)
    inputs = rows("encoder_input_tokens")
    if isinstance(sizes, EncoderDecoderSizes):
        targets = rows("decoder_target_tokens")
        shifted = np.pad(targets[:, :-1], ((0, 0), (1, 0)))
        given = {"decoder_input_tokens": shifted, "decoder_target_tokens": targets}
        return {"encoder_input_tokens": inputs, **given}
    asked = np.arange(inputs.size).reshape(inputs.shape) % 5 == 0
    found = {
        "encoder_input_tokens": np.where(asked, vocabulary.mask_id, inputs),
        "encoder_target_tokens": inputs,
        "encoder_loss_weights": asked.astype(np.float32),
        "encoder_segment_ids": np.ones_like(inputs),
    }
    is_pair = isinstance(sizes, BertSizes) and sizes.next_sentence
    return found | ({"next_sentence_label": np.zeros((2, 1), np.int32)} if is_pair else {})


def trained(case, folder, steps):
    """Train random parameters with the trainer's steps; save the state, and return it."""
    trainer, sizes = trainer_of(case.network), cases.NETWORKS[case.network]
    state = toy.state(trainer.specs).replace(params=stack_layers(nested(arrays(sizes))))
    trainer.state = jax.device_put(state, trainer.specs.shardings)
    batch = batch_of(sizes, vocabulary_of(case))
    for _ in trainer.training_steps(itertools.repeat(batch), steps):
        pass
    with Checkpointer(str(folder), SaveCheckpointConfig()) as checkpointer:
        checkpointer.save(steps, to_disk(trainer.state, trainer.specs))
    return trainer.state


def same_text(case, out, texts):
    """Hold the ids of texts, as the pipeline encodes them, against the folder's."""
    tokenizer, vocabulary = AutoTokenizer.from_pretrained(out), vocabulary_of(case)
    for text in texts:
        if not any(special in text for special in tokenizer.all_special_tokens):
            ours = vocabulary.encode_tf(tf.constant(text)).numpy().tolist()
            theirs = tokenizer(text, add_special_tokens=False).input_ids
            assert theirs == ours or is_tie(theirs, ours, tokenizer.convert_ids_to_tokens), text


def same_logits(case, out, sizes, state):
    """Hold the logits of PyTorch against the trainer's."""
    batch, ours = verify.probe_batch(sizes), logits_of(case.network)(state.params)
    theirs = torch_logits.torch_logits(torch_logits.load_network(out, sizes), sizes, batch)
    *_, counted = batch.values()
    ours = t5x_logits.joined(ours)
    verify.compare(ours[counted > 0], theirs[counted > 0])


def same_run(run, out, back, vocabulary, texts):
    """Hold a run that is made of the folder against the one that it was made of."""
    path = from_hf.write_checkpoint(out, back, verify_logits=False)
    before, after = open_tree([*run.checkpoints.values()]), open_tree([path])
    assert before.keys() == after.keys()
    run_is_gemma = "decoder/layers_0/post_mlp_layer_norm/scale" in before
    for name, array in before.items():
        if run_is_gemma and name.endswith("norm/scale"):  # published less 1
            np.testing.assert_allclose(after[name].read(), array.read(), rtol=0, atol=2.0**-22)
            continue
        is_last_norm = name == "decoder/decoder_norm/scale"  # which a umT5's head is scaled by
        np.testing.assert_array_max_ulp(after[name].read(), array.read(), maxulp=int(is_last_norm))
    again = publishable.describe(model_dir.open_run(str(back))).vocabulary
    if hasattr(vocabulary, "extra_ids"):
        assert again.fingerprint() == vocabulary.fingerprint()
    else:
        plain = lambda own: own.load().encode_batch(texts, add_special_tokens=False)
        encode = lambda own: [each.ids for each in plain(own)]
        assert encode(again) == encode(vocabulary)


def outcome(seed, folder, steps):
    """Return None for a case that is published with equal ids and logits, else its refusal."""
    case = cases.draw(seed, folder / "run")
    try:
        publishable.check_untrained(folder / "run")
    except UserError as error:
        return case, str(error)
    state = trained(case, folder / "run", steps if steps or case.network not in IN_SUITE else STEPS)
    run = model_dir.open_run(str(folder / "run"))
    sizes, _, vocabulary = publishable.describe(run)
    how = {"sizes": sizes, "out": folder / "hf", "vocabulary": vocabulary, "verify": False}
    (out,) = to_hf.convert(run, to_hf.ConversionOptions(**how, formats=("pytorch",)))
    texts = cases.texts(seed)
    compare(vocabulary, out, texts)  # also with sentinels, masks, words and pairs
    same_text(case, out, texts)
    same_logits(case, out, sizes, state)
    same_run(run, out, folder / "back", vocabulary, texts)
    return case, None


SLOW = (pytest.param(seed, STEPS, marks=pytest.mark.slow) for seed in range(1000, 1500))


@pytest.mark.parametrize(("seed", "steps"), [*((seed, 0) for seed in range(24)), *SLOW])
def test_a_run_is_refused_before_it_starts_or_published_with_equal_ids_and_logits(
    seed, steps, tmp_path
):
    case, refused = outcome(seed, tmp_path, steps)
    assert "\n" not in (refused or "")
    print(seed, case.network, refused or "published")


def test_whatever_would_end_the_conversion_refuses_the_run(tmp_path, capsys):
    """Also what no check foresees."""
    cases.draw(4, tmp_path / "run")
    (tmp_path / "run" / publishable.SHAPES).write_text('{"kernel": 5}')
    assert publishable.main([str(tmp_path / "run")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["verdict"], "--allow_unpublishable" in result["to_set"]) == (FAILS, True)
