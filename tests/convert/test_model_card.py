import math

import pytest
import yaml

from convert import model_card
from fakes.convert_fakes import FAMILIES

PROOF = {"largest_difference": 2e-6, "largest_logit": 5.3}


def page(gin=None, curves=None, **changes):
    facts = {
        "steps": (300,),
        "family": "t5",
        "parameters": 12345,
        "dtype": "float32",
        "proof": PROOF,
        "tokenizer": True,
        "metadata": {"language": (), "license": None, "datasets": ()},
    }
    files = ("flax_model.msgpack", "model.safetensors")
    record = facts | changes
    sizes = FAMILIES["t5_1_1"]
    return model_card.ModelCard("ro_t5x_tiny", sizes, record, files, gin, curves or {}).text()


def metadata(text):
    front = text.removeprefix("---\n").partition("\n---\n")[0]
    return yaml.safe_load(front)


def test_metadata_hold_the_given_and_measured_facts():
    given = {"language": ("ro",), "license": "cc0-1.0", "datasets": ("user/corpus",)}
    found = metadata(page(metadata=given, curves={"train": [(100, 5.5), (300, 4.25)]}))
    assert found["language"] == ["ro"]
    assert found["license"] == "cc0-1.0"
    assert found["datasets"] == ["user/corpus"]
    (result,) = found["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == 4.25
    assert "step 300" in result["metrics"][0]["name"]


@pytest.mark.parametrize(
    "text", ["no", "1.0", "a: b", "- x", '"', "'", "#x", "{a}", "ă\n---\n", "&"]
)
def test_every_text_of_the_metadata_is_quoted(text):
    given = {"language": (text,), "license": text, "datasets": (text, "user/corpus")}
    curves = {text: [(100, 5.5)], "broken": [(100, math.nan)]}
    found = metadata(page(metadata=given, curves=curves, family=text))
    assert found["language"] == [text]
    assert found["license"] == text
    assert found["datasets"] == [text, "user/corpus"]
    assert found["tags"] == ["t5", "t5x", text]
    (result,) = found["model-index"][0]["results"]
    assert result["dataset"] == {"name": text, "type": text}
    assert result["metrics"] == [{"name": "loss at step 100", "type": "loss", "value": 5.5}]


def test_unknown_metadata_are_left_out():
    found = metadata(page())
    assert not {"language", "license", "datasets", "model-index"} & found.keys()


def test_the_body_says_steps_proof_loss_and_gin():
    text = page(curves={"train": [(100, 5.5), (300, 4.25)]}, gin="TRAIN_STEPS = 300\n")
    assert "after 300 steps" in text
    assert "2.0e-06" in text
    assert "| 100 | 5.5000 |" in text
    assert "TRAIN_STEPS = 300" in text
    assert "the mean of steps 100, 300" in page(steps=(100, 300))
    assert "Rounding the weights" in page(proof=PROOF | {"largest_difference_from_float32": 0.01})
