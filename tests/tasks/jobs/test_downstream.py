"""Jobs of a language: how each data set calls it, and rows of a hub of the same form."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio

from fakes.corpora import forget_jobs
from fakes.loopback_hub import connected
from fakes.refuses import refuses
from tasks import vocabularies
from tasks.jobs import downstream

BYTES = vocabularies.byt5()


@pytest.fixture(autouse=True)
def only_ours():
    """No jobs of gin files that other tests have read."""
    forget_jobs()
    yield
    forget_jobs()


@pytest.mark.parametrize(
    ("job", "languages"),
    [
        ("topic", {"ro": "ron_Latn", "ron_Latn": "ron_Latn", "Romanian": "ron_Latn"}),
        ("topic", {"ron": "ron_Latn", "zh": "zho_Hans", "ace_Arab": "ace_Arab"}),
        ("topic", {"english": "eng_Latn", "et": "est_Latn"}),
        ("entities", {"romanian": "ro", "nb": "no", "als": "als", "en": "en"}),
        ("inference", {"eng_Latn": "en"}),
        ("paraphrase", {"german": "de"}),
        ("summary", {"sr": "serbian_cyrillic", "srp_Latn": "serbian_latin", "en": "english"}),
        ("summary", {"cy": "welsh", "uzbek": "uzbek"}),
        ("translation", {"ro": "ron_Latn"}),
    ],
)
def test_a_language_is_called_as_the_data_set_calls_it(job, languages):
    assert {text: downstream.config(job, text) for text in languages} == languages


@pytest.mark.parametrize(
    ("job", "language", "setting", "value", "offer"),
    [
        ("summary", "ro", "language", "ro", "amharic"),
        ("topic", "ron_Cyrl", "language", "ron_Cyrl", "ron_Latn"),
        ("topic", "romainan", None, ..., "ron_Latn"),
        ("topics", "ro", "job", "topics", "topic, entities"),
    ],
)
def test_a_language_or_job_that_is_not_there_is_refused_with_what_is(
    job, language, setting, value, offer
):
    with refuses(setting, value) as refusal:
        downstream.source(job, language)
    assert offer in str(refusal.value)


def test_the_table_has_as_many_languages_as_the_papers_say():
    counts = {job: len(downstream.configs(job)) for job in downstream.JOBS}
    expected = {"topic": 205, "entities": 176, "inference": 15, "paraphrase": 7, "summary": 45}
    assert counts == {**expected, "translation": 204}


SPLITS = ("train", "validation", "test")
TOPICS = "index_id\tcategory\ttext\n7\tsports\tEchipa a marcat.\n8\tchess\tNu se citește.\n"
NAMES = [
    {"tokens": ["Ion", "e", "la", "Cluj"], "ner_tags": [1, 0, 0, 5], "langs": ["ro"] * 4,
     "spans": ["PER: Ion", "LOC: Cluj"]},
    {"tokens": ["Plouă", "."], "ner_tags": [0, 0], "langs": ["ro"] * 2, "spans": []},
]  # fmt: skip
PAIRS = [
    {"premise": "Der Hund bellt.", "hypothesis": "Ein Tier bellt.", "label": 0},
    {"premise": "Es regnet.", "hypothesis": "Es ist trocken.", "label": 2},
]
SAME = [{"id": 1, "sentence1": "A geht.", "sentence2": "A läuft.", "label": 1}]
NEWS = [{"id": "a", "url": "u", "title": "t", "summary": "Kurz.", "text": "Lang, sehr lang."}]


def parquet(rows):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def repository(config, data, name="{config}/{split}-00000-of-00001.parquet"):
    """Return the files of a data set with `data` in each split of `config`."""
    names = {split: name.format(config=config, split=split) for split in SPLITS}
    paths = "".join(f"  - split: {split}\n    path: {names[split]}\n" for split in SPLITS)
    card = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{paths}---\n"
    return {"README.md": card.encode(), **dict.fromkeys(names.values(), data)}


def test_the_rows_of_every_hub_data_set(tmp_path):
    repositories = {
        "Davlan/sib200": repository("ron_Latn", TOPICS.encode(), "data/{config}/{split}.tsv"),
        "unimelb-nlp/wikiann": repository("ro", parquet(NAMES)),
        "facebook/xnli": repository("de", parquet(PAIRS)),
        "google-research-datasets/paws-x": repository("de", parquet(SAME)),
        "csebuetnlp/xlsum": repository("russian", parquet(NEWS)),
    }
    jobs = {"topic": "ro", "entities": "ro", "inference": "german", "paraphrase": "de"}
    jobs |= {"summary": "ru"}
    found = {}
    with connected(repositories, tmp_path):
        for job, language in jobs.items():
            task = downstream.add(job, language, BYTES)
            first, *others = [task.source.peek_features(split) for split in SPLITS]
            assert others == [first] * 2
            rows = task.get_dataset(None, "test", shuffle=False).as_numpy_iterator()
            found[job] = [
                [row[f"{side}_pretokenized"].decode() for side in ("inputs", "targets")]
                for row in rows
            ]
    assert found == {
        "topic": [
            ["topic: Echipa a marcat.", "sports"],
        ],
        "entities": [
            ["entities: Ion e la Cluj", "PER: Ion $$ LOC: Cluj"],
            ["entities: Plouă .", "none"],
        ],
        "inference": [
            ["inference: premise: Der Hund bellt. hypothesis: Ein Tier bellt.", "entailment"],
            ["inference: premise: Es regnet. hypothesis: Es ist trocken.", "contradiction"],
        ],
        "paraphrase": [["paraphrase: sentence1: A geht. sentence2: A läuft.", "yes"]],
        "summary": [["summary: Lang, sehr lang.", "Kurz."]],
    }


@pytest.mark.parametrize("job", ["topic", "inference", "paraphrase"])
def test_lengths_that_cut_a_class_are_refused(job, tmp_path):
    repositories = {
        "Davlan/sib200": repository("ron_Latn", TOPICS.encode(), "data/{config}/{split}.tsv"),
        "facebook/xnli": repository("de", parquet(PAIRS)),
        "google-research-datasets/paws-x": repository("de", parquet(SAME)),
    }
    longest = {"topic": "science/technology", "inference": "contradiction", "paraphrase": "yes"}
    least = len(longest[job]) + 1
    with connected(repositories, tmp_path):
        task = downstream.add(job, "ro" if job == "topic" else "de", BYTES)
        task.get_dataset({"inputs": 256, "targets": least}, "test")
        with refuses("TASK_FEATURE_LENGTHS['targets']", least - 1) as refusal:
            task.get_dataset({"inputs": 256, "targets": least - 1}, "test")
    assert longest[job] in refusal.value.why
    assert str(least) in refusal.value.to_set


def test_translation_is_two_files_and_flores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, end in (("dev", "dev"), ("devtest", "devtest")):
        (tmp_path / "flores" / folder).mkdir(parents=True)
        for code, text in (("ron_Latn", "un"), ("deu_Latn", "ein")):
            (tmp_path / f"flores/{folder}/{code}.{end}").write_text(f"{text} {end}\n")
    (tmp_path / "a.ro").write_text("doi\n")
    (tmp_path / "a.de").write_text("zwei\n")
    rows = downstream.translation_files("ron_Latn", "german", ("a.ro", "a.de"), "flores")
    found = {s: rows.peek_features(s) for s in rows.splits}
    assert found["train"] == {"inputs": ["doi"], "targets": ["zwei"]}
    assert found["validation"] == {"inputs": ["un dev"], "targets": ["ein dev"]}
    assert found["test"] == {"inputs": ["un devtest"], "targets": ["ein devtest"]}
    with refuses("tasks.jobs.downstream.translation_files.into", "ro"):
        downstream.translation_files("ron_Latn", "ro")


def test_a_recipe_names_the_task_of_its_language_in_the_models_vocabulary():
    assert downstream.task("topic", "ro", BYTES) == "topic"
    task = seqio.TaskRegistry.get("topic")
    assert task.source.name == "Davlan/sib200"
    assert downstream.task("topic", "ro", BYTES) == "topic"
    assert seqio.TaskRegistry.get("topic") is task  # each use of the macro calls it
    other = vocabularies.sentencepiece(vocabularies.ro_mini_model)
    downstream.task("topic", "cs", other)
    changed = seqio.TaskRegistry.get("topic")
    assert changed.output_features["targets"].vocabulary is other
    assert changed.source.config == "ces_Latn"
    assert {"accuracy", "mean_f1", "f1/science/technology"} < set(changed.metric_fns[0]([], []))
