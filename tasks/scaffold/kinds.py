"""The kinds of models that a recipe from scratch is written for, and their sizes.

    KINDS["modernbert"].sizes["small"].batch      # 256

A kind is a template of recipes, what the template says of it, and a row for each size.
"""

import math
from typing import NamedTuple


class Size(NamedTuple):
    """How a model of one size is trained.

    It suits texts of `tokens` or more. A step reads `batch` rows of `inputs` tokens, each of them
    filled by `row_tokens` of text. `steps` are the fewest and the most, in multiples of `unit`. The
    model is cut into `partitions`, which fit the memory of chips. `includes` are its gin files in
    the templates of T5s; `rate` and `warmup` are of encoders' templates, and `long_inputs` is how
    long the rows of their later phases are.
    """

    tokens: float = math.inf  # such a size is only trained if the user asks for it
    template: str = "pretrain.gin"
    batch: int = 128
    inputs: int = 512
    row_tokens: int = 568
    steps: tuple[int, int] = (10_000, 2_000_000)
    unit: int = 1_000
    most_pieces: int = 64_000
    partitions: int = 1
    includes: tuple[str, ...] = ("{folder}/{size}.gin",)
    rate: float = 0.0
    warmup: float = 0.0  # share of the steps
    long_inputs: int = 0  # 0 for a kind that is not trained in phases


class Kind(NamedTuple):
    """A kind of models: its name in texts, in names of recipes and of tasks, and what they bind.

    `vocabulary_flags` are arguments of `vocabulary.train`, and so are `rare_flags` for a script of
    thousands of characters. `network` are fields of its `configuration`. `gap` hides words of a
    sentence. `folder` holds the gin files of the sizes. A text that is too small is better added to
    the model `multilingual`.
    """

    title: str
    recipe: str
    task: str
    objective: str
    sizes: dict[str, Size]
    multilingual: str
    vocabulary_flags: str = ""
    rare_flags: str = ""
    folder: str = "t5x/examples/t5/t5_1_1"
    configuration: str = "T5Config"
    network: tuple[str, ...] = ()
    gap: str = "[MASK]"
    dropout: float = 0.0

    @property
    def generates(self) -> bool:
        """Whether its models have a decoder."""
        return self.objective == "span_corruption"

    @property
    def package(self) -> str:
        """The package whose `network` has the configuration."""
        return ".".join(self.folder.split("/")[:3])


_T5 = {
    "tiny": Size(
        tokens=0.0,
        template="pretrain_tiny.gin",
        batch=16,
        inputs=128,
        row_tokens=142,
        steps=(300, 2_000),
        unit=100,
        most_pieces=8_192,
        includes=("{folder}/base.gin", "gin/shared/tiny.gin"),
    ),
    "small": Size(tokens=5e7),
    "base": Size(tokens=5e8),
    "large": Size(),
    "xl": Size(partitions=8),
    "xxl": Size(partitions=16),
}
_T5GEMMA2 = {
    name: _T5[name]._replace(includes=Size().includes)
    for name in ("tiny", "small", "base", "large")
}
_ENCODER = Size(template="pretrain_encoder.gin", batch=512, row_tokens=510, warmup=0.048)
# Rates and warm-up as in Liu et al. 2019; those of tiny were measured (gin/ro_bert_tiny.gin).
_BERT = {
    "tiny": _T5["tiny"]._replace(template=_ENCODER.template, row_tokens=126, rate=2e-3, warmup=0.1),
    "small": _ENCODER._replace(tokens=5e7, batch=128, rate=1e-3),
    "base": _ENCODER._replace(tokens=5e8, rate=6e-4),
    "large": _ENCODER._replace(rate=4e-4),
}
# Rates as in Warner et al. 2024, whose first phase reads 1,024 tokens a row too.
_MODERNBERT = {
    "tiny": _BERT["tiny"]._replace(long_inputs=512),
    **{
        name: _BERT[name]._replace(
            batch=_BERT[name].batch // 2,
            inputs=1024,
            row_tokens=1022,
            rate=rate,
            warmup=0.01,
            long_inputs=8192,
        )
        for name, rate in (("small", 1e-3), ("base", 8e-4), ("large", 5e-4))
    },
}
_WORDPIECE, _BYTES = "--kind wordpiece", "--kind byte_bpe"
KINDS = {
    "t5": Kind(
        "T5 1.1",
        "t5x",
        "span_corruption",
        "span_corruption",
        _T5,
        multilingual="google/umt5-small",
        rare_flags="--byte_fallback --character_coverage 0.9995",
        gap="<extra_id_0>",
    ),
    "t5gemma2": Kind(
        "T5Gemma 2",
        "t5gemma2",
        "t5gemma2",
        "span_corruption",
        _T5GEMMA2,
        multilingual="google/umt5-small",
        rare_flags="--byte_fallback --character_coverage 0.9995",
        folder="t5x/examples/t5gemma2",
        configuration="T5Gemma2Config",
        gap="<extra_id_0>",
    ),
    "bert": Kind(
        "BERT",
        "bert",
        "bert",
        "masked_lm",
        _BERT,
        dropout=0.1,
        multilingual="FacebookAI/xlm-roberta-base",
        vocabulary_flags=_WORDPIECE,
        rare_flags="--character_coverage 0.9995",
        configuration="BertConfig",
        network=("next_sentence = False",),
    ),
    "roberta": Kind(
        "RoBERTa",
        "roberta",
        "roberta",
        "masked_lm",
        _BERT,
        dropout=0.1,
        multilingual="FacebookAI/xlm-roberta-base",
        vocabulary_flags=_BYTES,
        configuration="BertConfig",
    ),
    "modernbert": Kind(
        "ModernBERT",
        "modernbert",
        "modernbert",
        "modernbert",
        _MODERNBERT,
        multilingual="jhu-clsp/mmBERT-small",
        vocabulary_flags=f"{_BYTES} --special_tokens modernbert",
        configuration="ModernBertConfig",
    ),
}
