"""Jobs of a language for encoders: the tasks that they register, from rows as the hub has them."""

import json

import pytest
import seqio

from fakes.corpora import forget_jobs
from fakes.paths import ROOT
from tasks import labels, vocabularies
from tasks.languages import downstream, encoder_jobs
from tasks.rows import Rows

VOCABULARY = vocabularies.tokenizer(str(ROOT / "data/ro_mini/wordpiece"))
ROWS = {
    "topic": [{"index_id": 7, "category": "sports", "text": "Echipa a marcat."}],
    "entities": [{"tokens": ["Ion", "pleacă"], "ner_tags": [1, 0], "spans": ["PER: Ion"]}],
    "inference": [
        {"premise": "Ion doarme.", "hypothesis": "Ion visează.", "label": 1},
        {"premise": "Ion doarme.", "hypothesis": "Doarme.", "label": 0},
    ],
    "paraphrase": [{"id": 1, "sentence1": "Ion merge.", "sentence2": "Merge Ion.", "label": 1}],
    "similarity": [{"sentence1": "Ion.", "sentence2": "Ana.", "similarity_score": 2.5}],
}
CORPORA = {downstream.JOBS[job].corpus: job for job in ROWS}
LANGUAGES = {"topic": "ro", "entities": "ro"}


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """Rows of every split that are read from files of the same columns."""

    def of_files(corpus, config, splits, **settings):
        path = tmp_path / f"{CORPORA[corpus]}.jsonl"
        rows = ROWS[CORPORA[corpus]]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Rows(files=dict.fromkeys(splits, str(path)), **settings)

    monkeypatch.setattr(encoder_jobs, "Rows", of_files)
    forget_jobs()
    yield
    forget_jobs()


def examples(task, split):
    return [*task.get_dataset(None, split, shuffle=False).as_numpy_iterator()]


@pytest.mark.parametrize(
    ("job", "text", "label"),
    [
        ("topic", "Echipa a marcat.", "sports"),
        ("entities", "Ion pleacă", "B-PER O"),
        ("inference", "Ion doarme.\tIon visează.", "neutral"),
        ("paraphrase", "Ion merge.\tMerge Ion.", "yes"),
        ("similarity", "Ion.\tAna.", "2.5"),
    ],
)
def test_rows_of_a_job_become_its_examples(job, text, label):
    task = encoder_jobs.add(job, LANGUAGES.get(job, "de"), VOCABULARY)
    assert task.name == job
    example = examples(task, "test")[0]
    assert example["inputs_pretokenized"].decode() == text
    assert example["targets_pretokenized"].decode() == label
    if job != "similarity":
        names = task.output_features["targets"].vocabulary
        ids = example["targets"][example["loss_weights"] > 0]
        assert names.decode(ids.tolist()) == label
    metrics = task.metric_fns[0]([label], [1.0] if job == "similarity" else [label])
    assert encoder_jobs.METRICS[job] in metrics


def test_vectors_are_learned_from_what_follows_and_measured_by_another_task():
    assert encoder_jobs.task("similarity", "de", VOCABULARY) == encoder_jobs.PAIRS
    assert encoder_jobs.task("similarity", "de", VOCABULARY, measured=True) == "similarity"
    learned = seqio.TaskRegistry.get(encoder_jobs.PAIRS)
    texts = [e["inputs_pretokenized"].decode() for e in examples(learned, "train")]
    assert texts == ["Ion doarme.\tDoarme."]
    assert {*seqio.TaskRegistry.get("similarity").splits} == {"validation", "test"}


def test_a_job_is_registered_once_and_again_for_other_settings():
    assert encoder_jobs.task("topic", "ro", VOCABULARY) == "topic"
    first = seqio.TaskRegistry.get("topic")
    encoder_jobs.task("topic", "ro", VOCABULARY)
    assert seqio.TaskRegistry.get("topic") is first
    encoder_jobs.task("topic", "ro", VOCABULARY, length=5)
    changed = seqio.TaskRegistry.get("topic")
    assert len(examples(changed, "test")[0]["inputs"]) == 5
    assert labels.vocabulary("topic").labels == downstream.TOPICS


@pytest.mark.parametrize("job", ["summary", "translation", "chess"])
def test_a_job_that_writes_texts_is_refused_with_those_that_exist(job):
    message = f"cannot do the job '{job}', which writes texts: .* topic, entities, inference,"
    with pytest.raises(ValueError, match=message):
        encoder_jobs.add(job, "ro", VOCABULARY)


def test_a_t5_has_no_vectors():
    with pytest.raises(ValueError, match=r"'similarity' compares vectors of texts, which a T5"):
        downstream.add("similarity", "de", vocabularies.byt5())
    with pytest.raises(ValueError, match=r"STSb, .* has no Romanian .*: it has de, en, es, fr, ru"):
        encoder_jobs.add("similarity", "ro", VOCABULARY)
