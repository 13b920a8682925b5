"""No run that its dry run accepts fails to convert, and no id differs."""

import functools
import pathlib

import pytest
import seqio
import tensorflow as tf
from transformers import AutoTokenizer

from common.errors import UserError
from convert import publishable, to_hf
from convert.proof import t5x_logits, torch_logits, verify
from convert.proof.same_ids import compare, is_tie
from convert.run import model_dir
from fakes import publishable_cases as cases
from fakes.convert_fakes import arrays, tree, write_run
from tasks import vocabularies


@functools.cache
def logits(network):
    """The trainer's logits of a network of random weights, for all vocabularies."""
    sizes = cases.NETWORKS[network]
    batch = verify.probe_batch(sizes)
    return batch, t5x_logits.trainer_logits(tree(arrays(sizes)), sizes, batch)


def vocabulary_of(case):
    """The vocabulary with which the trainer encodes a corpus."""
    folder = pathlib.Path(case.folder)
    if case.network == "byt5":
        return seqio.ByteVocabulary(case.drawn["extra_ids"])
    if (model := folder / "vocabulary.model").is_file():
        return seqio.SentencePieceVocabulary(str(model), case.drawn["extra_ids"])
    return vocabularies.tokenizer(str(folder / "tokenizer"))


def outcome(seed, folder):
    """Return None for a case that is published with equal ids and logits, else its refusal."""
    case = cases.draw(seed, folder / "run")
    try:
        publishable.check_untrained(folder / "run")
    except UserError as error:
        return case, str(error)
    gin = (folder / "run/config.gin").read_text()
    write_run(folder / "run", cases.NETWORKS[case.network])
    (folder / "run/config.gin").write_text(gin)
    run = model_dir.open_run(str(folder / "run"))
    described = publishable.describe(run)
    options = to_hf.ConversionOptions(
        sizes=described.sizes,
        out=folder / "hf",
        vocabulary=described.vocabulary,
        verify=False,
        formats=("pytorch",),
    )
    (out,) = to_hf.convert(run, options)
    texts = cases.texts(seed)
    compare(described.vocabulary, out, texts)  # also with sentinels, masks, words and pairs
    tokenizer, vocabulary = AutoTokenizer.from_pretrained(out), vocabulary_of(case)
    special = [t for t in texts if any(s in t for s in tokenizer.all_special_tokens)]
    for text in texts:
        if text not in special:
            ours = vocabulary.encode_tf(tf.constant(text)).numpy().tolist()
            theirs = tokenizer(text, add_special_tokens=False).input_ids
            assert theirs == ours or is_tie(theirs, ours, tokenizer.convert_ids_to_tokens), text
    batch, ours = logits(case.network)
    model = torch_logits.load_network(out, described.sizes)
    *_, counted = batch.values()
    theirs = torch_logits.torch_logits(model, described.sizes, batch)
    verify.compare(ours[counted > 0], theirs[counted > 0])
    return case, None


SLOW = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(1000, 1500))


@pytest.mark.parametrize("seed", [*range(40), *SLOW])
def test_a_run_is_refused_before_it_starts_or_published_with_equal_ids_and_logits(seed, tmp_path):
    case, refused = outcome(seed, tmp_path)
    assert "\n" not in (refused or "")
    print(seed, case.network, refused or "published")
