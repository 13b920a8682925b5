"""Metrics of text: by hand, against their libraries, and through seqio's evaluator and loggers."""

import pytest
import sacrebleu
from rouge_score import rouge_scorer

from fakes.refuses import refuses
from tasks import vocabularies
from tasks.jobs import text_metrics
from tasks.jobs.text_metrics import ROUGE, UnicodeTokenizer, rouge, rouge_english, span_f1
from tasks.text import sentence_split

TARGETS = ["The cat sat on the mat. It slept.", "Prices rose by 3 %."]
PREDICTIONS = ["It slept. A cat was sitting on the mat.", "Nothing at all"]


def test_rouge_equals_the_library_called_directly():
    scorer = rouge_scorer.RougeScorer(list(ROUGE), use_stemmer=True)
    lines = lambda text: "\n".join(sentence_split.split(text))
    pairs = zip(TARGETS, PREDICTIONS, strict=True)
    found = [scorer.score(lines(target), lines(given)) for target, given in pairs]
    expected = {name: 50 * sum(each[name].fmeasure for each in found) for name in ROUGE}
    measured = rouge_english(TARGETS, PREDICTIONS)
    assert {name: measured[name] for name in ROUGE} == pytest.approx(expected)
    assert measured["rougeLsum"] > measured["rougeL"]  # sentences in another order


@pytest.mark.parametrize(
    ("target", "other"), [("Мама мыла раму.", "Кот спит дома."), ("Țară, șa, în.", "Vară, ca, un.")]
)
def test_words_of_any_script_are_kept_together(target, other):
    same, none = rouge([target], [target]), rouge([target], [other])
    assert [same[name] for name in ROUGE] == [100] * 4
    assert [none[name] for name in ROUGE] == [0] * 4


def test_vowel_signs_belong_to_their_words():
    assert rouge(["किताब"], ["कोताबी"])["rouge1"] == 0  # the same consonants
    assert rouge(["किताब अच्छी"], ["किताब बुरी"])["rouge1"] == 50
    assert UnicodeTokenizer().tokenize("Țara_2, d'Été: ¿हिन्दी? ไทยดี") == [
        *("țara_2", "d", "été", "हिन्दी", "ไ", "ท", "ย", "ดี"),
    ]


def test_the_mark_that_follows_an_emoji_is_no_word():
    assert UnicodeTokenizer().tokenize("da ❤\ufe0f 1\ufe0f\u20e3") == ["da", "1\ufe0f\u20e3"]
    assert rouge(["da ❤\ufe0f"], ["nu ☀\ufe0f"])["rouge1"] == 0


UNSPACED = {
    "th": ("วันนี้อากาศดีมากและแดดออก", "วันนี้อากาศดีมากและฝนตก"),
    "zh": ("今天天气很好我们去公园", "今天天气很好我们去学校"),
    "ja": ("今日は天気がいいので公園に行く", "今日は天気がいいので学校に行く"),
    "km": ("ថ្ងៃនេះអាកាសធាតុល្អណាស់", "ថ្ងៃនេះអាកាសធាតុល្អមែន"),
    "my": ("ဒီနေ့ရာသီဥတုကောင်းတယ်", "ဒီနေ့ရာသီဥတုဆိုးတယ်"),
    "lo": ("ມື້ນີ້ອາກາດດີຫຼາຍ", "ມື້ນີ້ອາກາດດີແທ້"),
}


@pytest.mark.parametrize("language", UNSPACED)
def test_words_of_scripts_without_blanks_are_their_characters(language):
    """Two texts that differ in one word are more alike than two that share nothing."""
    target, near = UNSPACED[language]
    far = "x" * len(target)
    for name, figure in (("rouge", "rougeLsum"), ("sacrebleu", "sacrebleu"), ("wer", "wer")):
        metric = text_metrics.METRICS[name]
        same, close, other = (metric([target], [text])[figure] for text in (target, near, far))
        assert same < close < other if name == "wer" else same > close > max(other, 20)
    assert rouge([target], [near])["mean_words"] > 5


@pytest.mark.parametrize(
    ("targets", "tokenizer"),
    [
        (["今天天气很好。", "iPhone 很好"], "zh"),
        ([UNSPACED["ja"][0]], "char"),
        (["Ana are 好"], "13a"),
    ],
)
def test_bleu_is_tokenized_as_the_script_of_the_targets_needs(targets, tokenizer):
    signature = text_metrics.sacrebleu(targets, targets)["sacrebleu_signature"]
    assert f"tok:{tokenizer}" in signature.textdata


def test_dots_of_turkish_letters_are_no_difference_of_case():
    assert rouge(["İSTANBUL IŞIK"], ["istanbul ışık"])["rouge2"] == 100


def test_bleu_and_chrf_are_sacrebleus_with_its_signatures():
    bleu, chrf = (
        text_metrics.METRICS[name](TARGETS, PREDICTIONS) for name in ("sacrebleu", "chrf")
    )
    assert bleu["sacrebleu"] == sacrebleu.corpus_bleu(PREDICTIONS, [TARGETS]).score
    assert chrf["chrf"] == sacrebleu.corpus_chrf(PREDICTIONS, [TARGETS]).score
    assert 0 < bleu["sacrebleu"] < chrf["chrf"] < 100
    version = f"version:{sacrebleu.__version__}"
    found = bleu["sacrebleu_signature"].textdata, chrf["chrf_signature"].textdata
    assert found[0] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert found[1] == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"


def test_bleu_with_another_tokenizer_says_so_in_its_signature():
    target, prediction = ["今天天气很好。"], ["今天天气不好。"]
    found = text_metrics.bleu_of("none")(target, prediction)
    assert "tok:none" in found["sacrebleu_signature"].textdata
    assert found["sacrebleu"] < 10 < text_metrics.sacrebleu(target, prediction)["sacrebleu"]
    with refuses("tokenize", "nix"):
        text_metrics.bleu_of("nix")


def test_errors_are_counted_per_character_and_word_of_all_targets():
    targets, predictions = ["unu doi trei", "abcd"], ["unu do trei patru", "abxd"]
    assert text_metrics.wer(targets, predictions) == {"wer": pytest.approx(3 / 4)}
    assert text_metrics.cer(targets, predictions) == {"cer": pytest.approx((1 + 6 + 1) / 16)}


def test_spelling_that_no_model_can_avoid_is_no_error():
    targets, predictions = ["așa…  și\u00a0gata", "ﬁn"], ["așa... și gata", "Fin"]
    assert text_metrics.exact_match(targets, predictions) == {"exact_match": 0.5}  # case counts
    assert text_metrics.cer(targets[:1], predictions[:1]) == {"cer": 0}
    assert text_metrics.wer(targets[:1], predictions[:1]) == {"wer": 0}


def test_spans_by_hand():
    targets = ["PER: Ion Pop $$ LOC: Cluj $$ LOC: Cluj", "none", "ORG: Banca"]
    predictions = ["LOC:  Cluj $$ PER: Ion", "LOC: Iași", "ORG: Banca $$ ORG: Banca"]
    found = span_f1(targets, predictions)  # right are one Cluj of two and one Banca
    assert found["span_precision"] == pytest.approx(2 / 5)
    assert found["span_recall"] == pytest.approx(2 / 4)
    assert found["span_f1"] == pytest.approx(2 * 2 / (5 + 4))


def test_a_span_without_its_type_is_wrong_and_none_is_no_span():
    assert span_f1(["PER: Ion"], ["Ion"])["span_f1"] == 0
    assert span_f1(["PER: Ion"], ["Ion $$ PER: Ion"])["span_precision"] == 0.5
    assert span_f1(["none", "LOC: Cluj"], ["none", "LOC: Cluj"])["span_f1"] == 1
    assert text_metrics.spans("none $$  $$") == {}


def test_every_metric_has_its_names_and_no_number_for_no_texts():
    for name, metric in text_metrics.METRICS.items():
        none, some = metric([], []), metric(["LOC: a"], ["LOC: a"])
        assert none.keys() == some.keys(), name
        numbers = [value for value in none.values() if isinstance(value, float)]
        assert numbers
        assert set(numbers) == {0.0}, name


def accuracy(targets, predictions):
    return {"exact_match": 1.0}


def of_scores(targets, scores):
    return {}


@pytest.mark.parametrize(
    ("metrics", "setting", "value", "named"),
    [
        (["bleu"], "metric", "bleu", "'sacrebleu'"),
        (["f0"], "metric", "f0", ""),
        ("chrf", "metrics", "chrf", ""),
        ([], "metrics", [], ""),
        (["rouge", "rouge_english"], "metrics", ..., "'mean_target_words'"),
        (["exact_match", accuracy], "metrics", ..., "'exact_match'"),
        ([of_scores], "metric", "of_scores", ""),
    ],
)
def test_metrics_that_do_not_fit_are_refused(metrics, setting, value, named):
    with refuses(setting, value) as refusal:
        text_metrics.functions(metrics)
    assert named in refusal.value.why


@pytest.mark.parametrize("mark", ["\u200b", "\u200e", "\u200f", "\ufeff"])
def test_marks_that_sentencepiece_makes_spaces_cost_nothing(mark):
    """A model whose vocabulary reads them so writes none."""
    tokenizer = vocabularies.sentencepiece(vocabularies.ro_mini_model).tokenizer
    target = f"{mark}Ana are{mark} mere{mark}"
    written = tokenizer.decode(tokenizer.encode(target))
    assert text_metrics.exact_match([target], [written])["exact_match"] == 1
    assert text_metrics.cer([target], [written])["cer"] == 0
    assert text_metrics.span_f1([f"PER: {target}"], [f"PER: {written}"])["span_f1"] == 1
