"""The bindings of gin text are read without running what it names."""

from common.gin_reader import Bindings
from fakes.refuses import refuses

SAVED = """
from __gin__ import dynamic_registration
import __main__ as train_script
import seqio
from t5x.examples.t5 import network

# Macros:
# ==============================================================================
DROPOUT_RATE = 0.0
VOCAB = @seqio.SentencePieceVocabulary()
SIZE/macro.value = 64000

# Parameters for network.T5Config:
network.T5Config:
    dropout_rate = %DROPOUT_RATE
    emb_dim = 768
network.T5Config.mlp_activations = ('gelu', 'linear')
network.T5Config.vocab_size = %SIZE
decode/network.T5Config.emb_dim = 1
seqio.SentencePieceVocabulary.sentencepiece_model_file = \\
    'data/ro.model'
train_script.train.model_dir = '/runs/x'
"""


def test_bindings_of_a_class_with_macros_resolved_and_scopes_left_out():
    assert Bindings.read(SAVED).of("T5Config") == {
        "dropout_rate": 0.0,
        "emb_dim": 768,
        "mlp_activations": ("gelu", "linear"),
        "vocab_size": 64000,
    }


def test_values_are_found_by_argument_and_references_by_name():
    bindings = Bindings.read(SAVED)
    assert bindings.first("sentencepiece_model_file") == "data/ro.model"
    assert bindings.first("absent") is None
    assert bindings.names("SentencePieceVocabulary")
    assert not bindings.names("ByteVocabulary")


def test_a_required_value_counts_as_unbound():
    text = "RATE = %gin.REQUIRED\nnetwork.T5Config:\n  dropout_rate = %RATE\n  emb_dim = 8\n"
    assert Bindings.read(text).of("T5Config") == {"emb_dim": 8}


def test_the_last_binding_wins():
    text = "network.T5Config.emb_dim = 8\nnetwork.T5Config.emb_dim = 16\n"
    assert Bindings.read(text).of("T5Config") == {"emb_dim": 16}


def test_a_path_may_begin_at_home_or_with_file(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ana")
    bindings = Bindings.read("A = '~/x'\nB = ['file:///y', {'z': ('~', '~z', %A)}]\n")
    assert bindings.macro("A") == "/home/ana/x"
    assert bindings.macro("B") == ["/y", {"z": ("/home/ana", "~z", "/home/ana/x")}]


def test_includes_are_followed(tmp_path):
    (tmp_path / "base.gin").write_text("network.T5Config.emb_dim = 8\nD = 1\n")
    recipe = tmp_path / "recipe.gin"
    recipe.write_text("include 'base.gin'\nnetwork.T5Config.num_heads = %D\n")
    fields = Bindings.follow(recipe, [tmp_path]).of("T5Config")
    assert fields == {"emb_dim": 8, "num_heads": 1}
    recipe.write_text("include 'absent.gin'\n")
    with refuses(recipe):
        Bindings.follow(recipe, [tmp_path])


def test_unreadable_gin_is_named():
    with refuses("The macro %ABSENT"):
        Bindings.read("network.T5Config.emb_dim = %ABSENT").of("T5Config")
    with refuses("The run's gin"):
        Bindings.read("this is = = no gin")
    with refuses("A"):
        Bindings.read("A = %B\nB = %A\nnetwork.T5Config.emb_dim = %A").of("T5Config")


def test_runs_of_older_module_layouts_are_read():
    """Modules are only names to the reader; these have moved since."""
    bindings = Bindings.read(
        """
from __gin__ import dynamic_registration
import tasks.caches
import tasks.jobs.diacritics
from t5x import utils
from t5x.examples.t5 import network as old_network
tasks.caches.folders.paths = ['gs://bucket/caches']
tasks.jobs.diacritics.add.languages = ('ro',)
utils.SaveCheckpointConfig.period = 100
old_network.T5Config.emb_dim = 8
old_network.T5Config.vocab_size = 64
models.EncoderDecoderModel.output_vocabulary = @tasks.vocabularies.ByteVocabulary()
"""
    )
    assert bindings.of("T5Config") == {"emb_dim": 8, "vocab_size": 64}
    assert bindings.of("SaveCheckpointConfig") == {"period": 100}
    assert bindings.names("ByteVocabulary")
