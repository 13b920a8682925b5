"""MODEL_DIR: whether it can be written, and what describes the run in it."""

import dataclasses
import functools
import pathlib
import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
import pytest
from sentencepiece import sentencepiece_model_pb2

from convert.run.model_dir import TrainedRun
from fakes import toy
from fakes.paths import ROOT
from fakes.refuses import refuses
from t5x import optimizers
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.examples.t5 import network
from t5x.multihost import broadcast
from t5x.partitioning import PjitPartitioner
from t5x.start import model_dir
from t5x.start.checkpoint import Start
from t5x.train_state import state_specs
from tasks import vocabularies


@pytest.mark.parametrize("folder", ["new/run", "old/run", "old"])
def test_a_check_leaves_nothing(folder, tmp_path):
    (tmp_path / "old").mkdir()
    model_dir.check_writable(str(tmp_path / folder))
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "run")
    with refuses("MODEL_DIR", folder) as refusal:
        model_dir.check_writable(folder)
    assert "\n" not in str(refusal.value)


def test_a_bucket_that_cannot_be_opened_is_refused_at_once():
    with pytest.raises(ValueError, match=r"^MODEL_DIR is 'az://b/run', but .* mount the bucket"):
        model_dir.check_writable("az://b/run")


def test_a_folder_that_hosts_do_not_share_is_refused(tmp_path, monkeypatch):
    """Host 1 of a pod, whose host 0 writes elsewhere."""
    monkeypatch.setattr(broadcast, "broadcast_from_first", lambda _: "what host 0 found")
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with refuses("MODEL_DIR", str(tmp_path)) as refusal:
        model_dir.check_writable(str(tmp_path), seconds=0.0)
    assert "host 1 does not share" in refusal.value.why


def test_a_vocabulary_that_is_the_copy_itself_survives(tmp_path):
    copy = tmp_path / "vocabulary.model"
    copy.write_bytes(b"pieces" * 200_000)
    model = toy.model()
    specs = state_specs(model, PjitPartitioner(2))
    model.output_vocabulary = types.SimpleNamespace(sentencepiece_model_file=str(copy))
    model_dir.write_description(str(tmp_path), model, specs)
    assert copy.read_bytes() == b"pieces" * 200_000


def test_the_tokenizer_of_an_encoder_is_kept(tmp_path):
    model = toy.model()
    specs = state_specs(model, PjitPartitioner(2))
    path = f"{vocabularies.ro_mini_wordpiece()}/tokenizer.json"
    model.input_vocabulary = types.SimpleNamespace(tokenizer_file=path)
    for _ in range(2):
        model_dir.write_description(str(tmp_path), model, specs)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        wanted = pathlib.Path(vocabularies.ro_mini_wordpiece(), name).read_bytes()
        assert (tmp_path / "tokenizer" / name).read_bytes() == wanted


def test_a_run_is_described_by_its_parameters(tmp_path):
    model = toy.shared_model()
    specs = state_specs(model, PjitPartitioner(2))
    model_dir.write_description(str(tmp_path), model, specs)
    lines = (tmp_path / "model-info.txt").read_text().splitlines()
    count = sum(x.size for x in jax.tree.leaves(specs.state.params))
    assert lines[-1] == f"parameters: {count:,}"
    (kernel,) = [line for line in lines if line.startswith("encoder/layers_0/mlp/wi/kernel ")]
    assert "(16, 32)" in kernel
    assert "model" in kernel
    assert not (tmp_path / "vocabulary.model").exists()  # bytes have no file


def describe(folder, tasks):
    model = toy.shared_model()
    model_dir.write_description(str(folder), model, state_specs(model, PjitPartitioner(2)), tasks)


def test_a_run_keeps_its_vocabulary_and_so_does_one_that_goes_on_from_it(tmp_path):
    own = Start(f"{tmp_path}/checkpoint_1", None)
    other = Start(own.path, RestoreCheckpointConfig(own.path))
    embeds_anew = RestoreCheckpointConfig(own.path, assignment_map=[(".*embed.*", None)])
    mine, copy = tmp_path / "mine.model", tmp_path / "vocabulary.model"
    pieces = (ROOT / "data/ro_mini/ro_mini.model").read_bytes()
    mine.write_bytes(pieces)
    model = types.SimpleNamespace(
        input_vocabulary=None,
        output_vocabulary=types.SimpleNamespace(sentencepiece_model_file=str(mine)),
    )
    model_dir.check_vocabulary(own, model)  # of upstream's run there is no copy
    copy.write_bytes(pieces)
    for start in (own, other, Start(None, None)):
        model_dir.check_vocabulary(start, model)
    more = sentencepiece_model_pb2.ModelProto.FromString(pieces)
    more.pieces.add(piece="<extra_id_0>", score=0.0)
    mine.write_bytes(more.SerializeToString())
    model_dir.check_vocabulary(other, model)
    with refuses("MODEL_DIR", str(tmp_path)):
        model_dir.check_vocabulary(own, model)
    mine.write_bytes((ROOT / "data/ro_simple/ro_simple.model").read_bytes())
    for start in (Start(own.path, embeds_anew), Start(None, None)):
        model_dir.check_vocabulary(start, model)
    with refuses("The checkpoint to start from", own.path) as refusal:
        model_dir.check_vocabulary(other, model)
    assert str(copy) in refusal.value.to_set
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer/tokenizer.json").write_text("words")
    (tmp_path / "other.json").write_text("other words")
    encoder = types.SimpleNamespace(
        output_vocabulary=None,
        input_vocabulary=types.SimpleNamespace(tokenizer_file=str(tmp_path / "other.json")),
    )
    for start in (own, other):
        with refuses(value=str(tmp_path) if start.is_own else own.path):
            model_dir.check_vocabulary(start, encoder)


def test_a_run_keeps_its_network(tmp_path):
    """Its arrays have the same names and shapes with all of these settings."""
    own = Start(f"{tmp_path}/checkpoint_1", None)
    other = Start(own.path, RestoreCheckpointConfig(own.path))

    def model_of(**changes):
        sizes = {"vocab_size": 384, "emb_dim": 16, "num_heads": 4, "head_dim": 8, "mlp_dim": 32}
        model = toy.model()
        model.module = network.Transformer(network.T5Config(**sizes | changes))
        return model

    model_dir.check_network(own, model_of())  # an older run says nothing of it
    specs = state_specs(toy.shared_model(), PjitPartitioner(2))
    model_dir.write_description(str(tmp_path), model_of(), specs)
    numerics = {"dtype": jnp.bfloat16, "dropout_rate": 0.0, "remat_policy": "full"}
    model_dir.check_network(own, model_of(**numerics))
    model_dir.check_network(own, types.SimpleNamespace())  # a network without settings
    for name, changes in {
        "head_dim": {"num_heads": 2, "head_dim": 16},
        "mlp_activations": {"mlp_activations": ("gelu",)},
    }.items():
        model_dir.check_network(other, model_of(**changes))  # a run of its own
        with refuses(f"T5Config.{name}"):
            model_dir.check_network(own, model_of(**changes))


def test_functions_of_a_network_are_not_compared(tmp_path):
    """The next process has them at other addresses."""

    @dataclasses.dataclass
    class Config:
        activation: Callable = lambda values: values
        num_heads: int = 4

    def model_of(**settings):
        model = toy.model()
        model.module = types.SimpleNamespace(config=Config(**settings))
        return model

    own = Start(f"{tmp_path}/checkpoint_1", None)
    specs = state_specs(toy.shared_model(), PjitPartitioner(2))
    model_dir.write_description(str(tmp_path), model_of(), specs)
    model_dir.check_network(own, model_of(activation=lambda values: values))
    with refuses("Config.num_heads"):
        model_dir.check_network(own, model_of(num_heads=2))


def test_a_run_keeps_its_classes(tmp_path):
    own = Start(f"{tmp_path}/checkpoint_1", None)
    other = Start(own.path, RestoreCheckpointConfig(own.path))
    task = functools.partial(toy.classifier, "mood")
    unlabelled = toy.classifier("text", {})
    labels = {"good": "g", "bad, or worse": "b"}
    model_dir.check_labels(own, [task(labels)])  # an older run has no such file
    describe(tmp_path, [task(labels), unlabelled])
    for same in ([task(labels)], [unlabelled], [task(dict(reversed(labels.items())))]):
        model_dir.check_labels(own, same)
    for changed in ({"good": "b", "bad, or worse": "g"}, {"good": "g", "bad": "b"}, {"good": "g"}):
        model_dir.check_labels(other, [task(changed)])  # it starts a run of its own
        with refuses("task mood"):
            model_dir.check_labels(own, [unlabelled, task(changed)])


def test_states_of_the_same_names_are_distinguished_by_the_runs_description(tmp_path):
    model, path = toy.model(), f"{tmp_path}/checkpoint_8/"
    unnamed = optimizers.chain([optax.sgd(0.1)])

    def found(optimizer):
        model.optimizer_def = optimizer
        return model_dir.saved_by_another(path, model)

    assert found(optimizers.adamw_scaled()) is None  # without a description
    model.optimizer_def = optimizers.adamw()
    specs = state_specs(model, PjitPartitioner(2))
    model_dir.write_description(str(tmp_path), model, specs)
    assert found(optimizers.adamw(beta2=0.9)) is None
    said = "the saved state is of optimizers.adamw, not of optimizers.adamw_scaled"
    assert found(optimizers.adamw_scaled()) == said
    assert found(unnamed) is None  # an optimizer without a name
    model.optimizer_def = unnamed
    model_dir.write_description(str(tmp_path), model, specs)
    assert found(optimizers.adamw_scaled()) is None
    (tmp_path / "model-info.txt").write_bytes(b"\xff\nparameters: 5\n")  # not ours
    assert found(optimizers.adamw_scaled()) is None


def test_the_labels_of_a_classifier_are_kept_where_a_converter_finds_them(tmp_path):
    run = TrainedRun(str(tmp_path), {})
    describe(tmp_path, [toy.classifier("summaries", {})])
    assert run.labels() == {}
    labels = {"yes, but late": "y", "так": "t"}
    describe(tmp_path, [toy.classifier("mails", labels)])
    assert run.labels() == {"mails": labels}
