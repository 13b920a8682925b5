"""Files of an older tool give the examples that they hold, and damaged ones are refused."""

import json

import numpy as np
import pytest
import seqio

from fakes import tokenizer_files
from fakes.refusals import refused
from tasks import pregenerated, vocabularies

WORDPIECE = vocabularies.tokenizer(tokenizer_files.WORDPIECE)
LENGTHS = {"inputs": 32, "targets": 32}
INSTANCE = {
    "tokens": ["[CLS]", "are", "[MASK]", "de", "[SEP]", "nu", "[SEP]"],
    "segment_ids": [0, 0, 0, 0, 0, 1, 1],
    "is_random_next": True,
    "masked_lm_positions": [2, 3],
    "masked_lm_labels": ["un", "la"],
}


@pytest.fixture
def add():
    names = []

    def register(files, **settings):
        names.append(f"pregenerated_{len(names)}")
        return pregenerated.add(names[-1], files, WORDPIECE, **settings)

    yield register
    for name in names:
        seqio.TaskRegistry.remove(name)


def examples(task, lengths=LENGTHS, **settings):
    settings = {"shuffle": False, "seed": 0, **settings}
    return list(task.get_dataset(lengths, "train", **settings).as_numpy_iterator())


def test_a_line_is_an_example(tmp_path, add):
    (tmp_path / "epoch_0.json").write_text(json.dumps(INSTANCE) + "\n")
    (tmp_path / "epoch_0_metrics.json").write_text('{"num_training_examples": 1}')
    (found,) = examples(add(str(tmp_path)))
    spelled = {
        key: [WORDPIECE.pieces[i] for i in found.pop(key).tolist()] for key in ("inputs", "targets")
    }
    assert spelled["inputs"] == INSTANCE["tokens"]
    assert spelled["targets"] == ["[CLS]", "are", "un", "la", "[SEP]", "nu", "[SEP]"]
    assert {key: value.tolist() for key, value in found.items()} == {
        "loss_weights": [0, 0, 1, 1, 0, 0, 0],
        "type_ids": INSTANCE["segment_ids"],
        "next_sentence_label": [1],
    }
    assert {value.dtype for value in found.values()} == {np.dtype(np.int32)}


def test_a_sample_is_read_as_its_task_made_it(tmp_path, add, capsys):
    out = str(tmp_path / "sample")
    pregenerated.main(["--out", out, "--length", "32", "--epochs", "2", "--examples", "40"])
    assert "[40, 40] examples" in capsys.readouterr().out
    metrics = json.loads((tmp_path / "sample" / "epoch_1_metrics.json").read_text())
    assert metrics == {"num_training_examples": 40, "max_seq_len": 32}
    found = examples(add(out))
    task = seqio.TaskRegistry.get("ro_mini_bert")
    wanted = [
        example
        for seed in (0, 1)
        for example in task.get_dataset(LENGTHS, "train", seed=seed).take(40).as_numpy_iterator()
    ]
    assert len(found) == 80
    for have, want in zip(found, wanted, strict=True):
        assert have.keys() == want.keys()
        for key in want:
            np.testing.assert_array_equal(have[key], want[key])
    shuffled = examples(add(out), shuffle=True)
    in_any_order = lambda rows: sorted(row["inputs"].tobytes() for row in rows)
    assert in_any_order(shuffled) == in_any_order(found)
    assert shuffled[0]["inputs"].tobytes() != found[0]["inputs"].tobytes()


def test_examples_of_one_text_need_no_types(tmp_path, add):
    line = {key: INSTANCE[key] for key in INSTANCE.keys() - {"segment_ids", "is_random_next"}}
    (tmp_path / "epoch_12.json").write_text(json.dumps(line) + "\n")
    (found,) = examples(add(str(tmp_path), pairs=False))
    assert found.keys() == {"inputs", "targets", "loss_weights"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens": ["[CLS]", "[SEP]"]}, "an example has 2 tokens with 7 segment_ids"),
        ({"masked_lm_labels": ["un"]}, "2 masked_lm_positions with 1 masked_lm_labels"),
        ({"masked_lm_labels": ["un", "漢"]}, "has the token '漢', which the vocabulary lacks"),
        ({"masked_lm_positions": [2, 7]}, "7 tokens has masked_lm_positions from 2 to 7"),
    ],
)
def test_an_example_that_cannot_be_is_refused(tmp_path, add, changes, sentence):
    (tmp_path / "epoch_0.json").write_text(json.dumps(INSTANCE | changes) + "\n")
    with pytest.raises(Exception, match=sentence):
        examples(add(str(tmp_path)))


def test_lengths_that_do_not_fit_are_refused(tmp_path, add):
    (tmp_path / "epoch_0.json").write_text(json.dumps(INSTANCE) + "\n")
    task = add(str(tmp_path))
    with pytest.raises(Exception, match=r"has 7 tokens, but .*'inputs'\] is 6: set both lengths"):
        examples(task, {"inputs": 6, "targets": 6})
    with pytest.raises(ValueError, match="set both to 32"):
        examples(task, {"inputs": 32, "targets": 16})


def test_the_command_refuses_a_task_of_t5(tmp_path, capsys):
    with refused(capsys, "^Error: .* has no mask token"):
        pregenerated.main(["--out", str(tmp_path / "x"), "--task", "ro_mini_ul2"])
    assert not (tmp_path / "x").exists()
