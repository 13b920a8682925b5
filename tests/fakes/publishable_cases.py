"""Runs that are not trained yet, drawn at random: vocabularies of all kinds, networks and texts."""

import dataclasses
import json
import random
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from convert import publishable, weight_map
from convert.formats.sentencepiece_model import ModelProto, SentencePiece
from convert.run.rewrite import gin_of
from convert.sizes import (
    BertSizes,
    EncoderDecoderSizes,
    ModernBertSizes,
    Sizes,
    T5Gemma2Sizes,
    T5Sizes,
)
from fakes import tokenizer_files
from fakes.small_vocabulary import TEXTS

_NARROW = {"emb_dim": 8, "num_heads": 2, "head_dim": 4, "mlp_dim": 8}
_LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
_GATED = {"mlp_activations": ("gelu", "linear")}
_SHORT = {"emb_dim": 8, "num_heads": 2, "mlp_dim": 12, "max_length": 32}
NETWORKS: dict[str, Sizes] = {
    "t5": T5Sizes(512, **_NARROW, **_LAYERS, logits_via_embedding=True),
    "t5_1_1": T5Sizes(500, **_NARROW, **_LAYERS, **_GATED),  # rows that 128 does not divide
    "mt5": T5Sizes(512, **_NARROW, **_LAYERS, **_GATED, model_type="mt5"),
    "umt5": T5Sizes(512, **_NARROW, **_LAYERS, **_GATED, own_relative_bias=True),
    "byt5": T5Sizes(384, **_NARROW, **_LAYERS, **_GATED),
    "t5gemma2": T5Gemma2Sizes(512, **_NARROW, **_LAYERS, num_kv_heads=1),
    "bert": BertSizes(512, num_layers=1, next_sentence=True, **_SHORT),
    "roberta": BertSizes(512, num_layers=1, position_offset=2, next_sentence=False, **_SHORT),
    "modernbert": ModernBertSizes(512, num_layers=4, local_window=8, **_SHORT),
}
_RULES = (*["nmt_nfkc"] * 5, "nfkc", "nfkc", "nmt_nfkc_cf", "identity", "identity", "own")
_SYMBOLS = ("{", "}", "\n", "\t", "<br>", "[R]", "ana", "▁și", "  ", "é", "👍🏽", "->", "ﬁ")


@dataclasses.dataclass(frozen=True)
class Case:
    """A folder as the trainer describes an untrained run, and what was drawn for it."""

    folder: str
    network: str
    drawn: dict


def draw(seed: int, folder) -> Case:
    """Write the folder of one case; the same for the same seed."""
    rng = random.Random(seed)
    network = [*NETWORKS][seed % len(NETWORKS)]
    sizes, extra = NETWORKS[network], {}
    folder.mkdir(parents=True)
    if network == "byt5":
        drawn = {"extra_ids": rng.choice((100, 125, 0))}
        extra = {"ByteVocabulary": drawn["extra_ids"]}
    elif isinstance(sizes, EncoderDecoderSizes):
        drawn = _sentencepiece(rng, folder / "vocabulary.model")
        extra = {"SentencePieceVocabulary": drawn["extra_ids"]}
    else:
        drawn = _tokenizer(rng, network, folder)
    (folder / "config.gin").write_text(gin_of(sizes, extra))
    shapes = {s: t.shape for t in weight_map.tensors(sizes) for s in t.sources}
    (folder / publishable.SHAPES).write_text(json.dumps(shapes))
    (folder / publishable.TEXTS).write_text(json.dumps({"lines": TEXTS[:20]}))
    return Case(str(folder), network, drawn)


def _sentencepiece(rng: random.Random, path) -> dict:
    """Write a SentencePiece model of random settings; return them."""
    ids = dict(zip(("eos", "unk", "bos"), rng.sample((1, 2, 3), 3), strict=True))
    inside = rng.choice(("▁<extra_id_{}>", "<extra_id_{}>", ""))
    often = lambda value, other, share=0.85: value if rng.random() < share else other
    settings = {
        "model_type": often("unigram", rng.choice(("bpe", "char", "word"))),
        "vocab_size": rng.randint(340, 380),
        "normalization_rule_name": rng.choice(_RULES),
        "add_dummy_prefix": often(True, False, 0.9),
        "remove_extra_whitespaces": often(True, False, 0.9),
        "treat_whitespace_as_suffix": often(False, True, 0.95),
        "split_by_whitespace": often(True, False),
        "split_by_unicode_script": often(True, False, 0.5),
        "split_by_number": often(True, False, 0.5),
        "split_digits": often(False, True, 0.5),
        "allow_whitespace_only_pieces": often(False, True, 0.7),
        "byte_fallback": often(False, True, 0.7),
        "character_coverage": rng.choice((1.0, 0.9995, 0.98)),
        "user_defined_symbols": rng.sample(_SYMBOLS, rng.choice((0, 0, 1, 3))),
        "control_symbols": rng.sample(("<ctl>", "<sep>"), rng.choice((0, 0, 1))),
        "pad_id": often(0, -1, 0.95),
        **{f"{name}_id": i for name, i in ids.items()},
    }
    if settings["pad_id"] < 0:
        settings |= {"unk_id": 0, "bos_id": 1, "eos_id": 2}
    elif ids["bos"] == 3 and rng.random() < 0.5:
        settings["bos_id"] = -1
    if settings["byte_fallback"]:
        settings["vocab_size"] = 399
        settings["character_coverage"] = 0.98
    rule = dict(settings)
    if settings["normalization_rule_name"] == "own":
        tsv = path.with_suffix(".tsv")
        tsv.write_text("15F\t219\n163\t21B\n" + rng.choice(("", "61 65\tE6\n", "31\t4F 6E 65\n")))
        rule |= {"normalization_rule_tsv": str(tsv)}
        del rule["normalization_rule_name"]
    stem = path.with_suffix("")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(stem),
        minloglevel=3,
        hard_vocab_limit=False,
        **rule,
    )
    stem.with_suffix(".vocab").unlink()
    model = ModelProto.FromString(path.read_bytes())
    for n in reversed(range(100)) if inside else ():
        model.pieces.add(piece=inside.format(n), score=0.0, type=SentencePiece.USER_DEFINED)
    path.write_bytes(model.SerializeToString())
    return settings | {"inside": inside, "extra_ids": 0 if inside else 100}


def _tokenizer(rng: random.Random, network: str, folder) -> dict:
    """Write the tokenizer of an encoder; return what was drawn."""
    out = folder / "tokenizer"
    kind = rng.choice(("wordpiece", "byte_bpe", "unigram", "blanks", "words", "plain"))
    special = ("<s>", "<pad>", "</s>", "<mask>") if network == "roberta" else None
    if kind == "byte_bpe":
        tokenizer_files.byte_bpe(out, {"bert": "modernbert"}.get(network, network))
    elif kind == "wordpiece":
        tokenizer_files.cased(out)
    elif kind == "unigram":
        tokenizer_files.unigram(out)
    elif kind == "blanks":
        tokenizer_files.blanks_bpe(out)
    elif kind == "words":
        tokenizer_files.words(out, *([special] if special else []))
    else:
        _plain(rng, out)
    drawn = {"kind": kind}
    path = out / "tokenizer.json"
    content = json.loads(path.read_text())
    if rng.random() < 0.3:
        drawn["max_length"] = 16  # some published files cut texts
        cut = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
        content["truncation"] = cut
        path.write_text(json.dumps(content))
    return drawn


def _plain(rng: random.Random, out) -> None:
    """Write a BPE or Unigram of random normalization and words, without a configuration."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    is_bpe = rng.random() < 0.5
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>") if is_bpe else models.Unigram())
    made.normalizer = rng.choice((normalizers.NFC(), normalizers.NFKC(), normalizers.Lowercase()))
    made.pre_tokenizer = rng.choice(
        (
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Metaspace(prepend_scheme=rng.choice(("always", "first", "never"))),
            pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.5),
        )
    )
    how = {"vocab_size": 420, "special_tokens": special, "show_progress": False}
    trainer = trainers.BpeTrainer if is_bpe else trainers.UnigramTrainer
    made.train_from_iterator(TEXTS, trainer(**how, **({} if is_bpe else {"unk_token": "<unk>"})))
    out.mkdir()
    made.save(str(out / "tokenizer.json"))


def texts(seed: int, count: int = 40) -> list[str]:
    """Return texts that no table has: words of the corpus, signs, blanks and any characters."""
    rng = random.Random(seed)
    words = [word for text in TEXTS for word in text.split()]
    signs = [chr(c) for c in range(0x300, 0x370)] + list("\u064e\u0651\u093c\u3099\u200d\u200c")
    blanks = [" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u0085", "\u3000", "\r\n", ""]
    any_one = lambda: chr(rng.choice((rng.randrange(1, 0x3000), rng.randrange(0xF900, 0x20000))))
    makers = (
        lambda: rng.choice(words),
        lambda: rng.choice(words).upper(),
        lambda: unicodedata.normalize("NFD", rng.choice(words)),
        lambda: rng.choice("aeiouAEOășﬁ½ｶﾊ각가ᄀは") + "".join(rng.sample(signs, 2)),
        lambda: "".join(any_one() for _ in range(rng.randint(1, 4))),
        lambda: str(rng.randrange(10**6)),
        lambda: rng.choice(("{a: 1}", "<br/>", "[R]", "a▁b", "🙂👍🏽", "....", "x\n\ny")),
    )
    spelled = lambda: rng.choice(makers)() + rng.choice(blanks)
    lines = ["".join(spelled() for _ in range(rng.randint(1, 15))) for _ in range(count)]
    return [text.replace("\ufdd0", "") for text in lines]
