import dataclasses
import math

import pytest
import yaml
from markdown_it import MarkdownIt

from convert import card, hub
from fakes.convert_fakes import ENCODERS, FAMILIES, NETWORKS

PROOF = {"largest_difference": 2e-6, "largest_logit": 5.3}


def page(gin=None, curves=None, evaluations=None, sizes=FAMILIES["t5_1_1"], **changes):
    facts = {
        "steps": (300,),
        "family": "t5",
        "parameters": 12345,
        "dtype": "float32",
        "proof": PROOF,
        "tokenizer": True,
        "metadata": {"language": (), "license": None, "datasets": ()},
    }
    files = ["flax_model.msgpack", "model.safetensors"]
    record = facts | changes
    given = (gin or "", curves or {}, evaluations or {})
    return str(card.CardContent("ro_t5x_tiny", sizes, record, files, *given).card())


def metadata(text):
    front = text.removeprefix("---\n").partition("\n---\n")[0]
    return yaml.safe_load(front)


@pytest.mark.parametrize("text", ["no", "1.0", "a: b", "- x", '"', "'", "ă\n---\n", "&"])
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


def test_the_body_says_steps_proof_loss_and_gin():
    text = page(curves={"train": [(100, 5.5), (300, 4.25)]}, gin="TRAIN_STEPS = 300\n")
    assert "after 300 steps" in text
    assert "2.0e-06" in text
    assert "| 100 | 5.5000 |" in text
    assert "TRAIN_STEPS = 300" in text
    assert "the mean of steps 100, 300" in page(steps=(100, 300))
    assert "Rounding the weights" in page(proof=PROOF | {"largest_difference_from_float32": 0.01})


def test_losses_and_metrics_are_no_results_of_a_mean_of_checkpoints():
    measured = {"curves": {"train": [(300, 4.25)]}, "evaluations": {"mails": (300, {"f1": 0.5})}}
    text = page(steps=(100, 300), **measured)
    assert "losses and metrics are of single checkpoints" in text
    assert "model-index" not in metadata(text)
    assert "model-index" in metadata(page(**measured))


def test_the_ids_of_the_tokenizer_are_the_trainers_only_if_they_were_compared():
    assert "ids are the trainer's" in page()
    assert "ids are the trainer's" not in page(proof=None)


def test_the_card_of_a_classifier_says_what_stands_for_each_label():
    text = page(labels={"mails": {"yes | no": "y", "так": "t"}})
    assert "| yes \\| no | y |" in text
    assert "| так | t |" in text
    assert "Labels" not in page()


def test_a_baseline_is_beside_its_metric_and_no_result():
    values = {"accuracy": 0.5, "baseline/accuracy": 0.25, "f1/no": 0.75, "confusion/no/no": 3}
    text = page(evaluations={"mails": (20, values)})
    for row in (
        "| metric | value | baseline |",
        "| accuracy | 0.5 | 0.25 |",
        "| f1/no | 0.75 | – |",
    ):
        assert row in text
    assert "confusion" not in text
    (result,) = metadata(text)["model-index"][0]["results"]
    assert [metric["type"] for metric in result["metrics"]] == ["accuracy", "f1/no"]


def test_evaluations_and_the_picture_are_shown_and_listed():
    values = {"f1": 0.87654, "f1_deviation": 0.02, "seeds": 2}  # of which one is a result
    text = page(curves={"train": [(1, 2.0)]}, evaluations={"diacritics": (2000, values)})
    assert "![Loss](loss.png)" in text
    assert "### diacritics, step 2,000" in text
    for row in ("| f1 | 0.8765 |", "| f1_deviation | 0.02 |", "| seeds | 2 |"):
        assert row in text
    metrics = metadata(text)["model-index"][0]["results"][1]["metrics"]
    assert metrics == [{"name": "f1 at step 2000", "type": "f1", "value": 0.8765}]
    for absent in ("## Evaluation", "These weights print", "![Loss]", "Trained on:"):
        assert absent not in page()
    unknown = {"language", "license", "datasets", "model-index"}
    assert not unknown & metadata(page()).keys()


def test_a_corpus_without_a_licence_is_said():
    licenses = {"user/a": "odc-by", "user/b": hub.NO_LICENSE}
    given = {"language": (), "license": None, "datasets": (*licenses,)}
    body = page(metadata=given | {"dataset_licenses": licenses})
    assert "- [user/a](https://huggingface.co/datasets/user/a): odc-by" in body
    assert "user/b): its page names no licence, so ask its authors" in body


@pytest.mark.parametrize("name", ["t5_1_1", "bert"])
def test_the_code_loads_the_repository_or_the_folder_by_a_task_of_transformers(name):
    from transformers.pipelines import PIPELINE_REGISTRY

    sizes = (FAMILIES | ENCODERS)[name]
    for repository in ("user/ro", None):
        given = {"language": (), "license": None, "datasets": (), "repository": repository}
        text = page(metadata=given, curves={"train": [(1, 2.0)]}, sizes=sizes)
        assert repr(repository or ".") in text.partition("## Use")[2]
        found = metadata(text)
        assert found["pipeline_tag"] in PIPELINE_REGISTRY.get_supported_tasks()
        assert found["model-index"][0]["results"][0]["task"] == {"type": found["pipeline_tag"]}


TEXT = ("text", "text_special")
STRANGE = "a\n# b <script>c</script> [d](javascript:e) | f\n```\n## g"


@pytest.mark.parametrize("sizes", [FAMILIES["t5_1_1"], ENCODERS["bert"]], ids=["t5", "encoder"])
def test_nothing_of_strangers_is_markup(sizes):
    """Names, metrics, licences, gin and examples are shown as they are, whoever wrote them."""

    def kinds(text):
        about = {"repository": text, "dataset_licenses": {text: text}}
        card = page(
            gin=text,
            curves={text: [(1, 2.0)]},
            evaluations={text: (1, {text: 0.5})},
            sizes=sizes,
            family=text,
            dtype=text,
            examples=[(text, text)],
            metadata={"language": (), "license": text, "datasets": (text,)} | about,
        )
        found = MarkdownIt("commonmark").enable("table").parse(card.partition("\n---\n")[2])
        inline = [child for token in found for child in token.children or []]
        return [token.type for token in [*found, *inline] if token.type not in TEXT]

    assert kinds(STRANGE) == kinds("name")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_card_says_what_needs_transformers_5(name):
    """transformers 4 has no T5Gemma 2, and does not scale the logits of an untied umT5."""
    assert ("transformers 5" in page(sizes=NETWORKS[name])) == (name in ("umt5", "t5gemma2"))


def test_a_decoder_deeper_than_its_encoder_is_said_to_have_no_cache():
    deep = dataclasses.replace(FAMILIES["t5_1_1"], num_encoder_layers=1, num_decoder_layers=3)
    assert "use_cache=False" in page(sizes=deep)
    assert "use_cache" not in page()
