"""Romanian pretraining tasks.

| task | text | vocabulary |
|---|---|---|
| rlm_span_corruption_stream | hub, dumitrescustefan/rlm (private) | own, 64,000 pieces |
| rlm_mt5_span_corruption_stream | the same | mT5's |
| ro_mini_span_corruption | data/ro_mini | its own, 2,048 pieces |
| ro_mini_no_spaces_span_corruption | the same without spaces | the same |
| ro_mini_prefix_lm | data/ro_mini | the same |
| ro_mini_byt5_span_corruption | data/ro_mini | bytes |

Another corpus is one `add_span_corruption` line. The rlm corpus is read with the token in HF_TOKEN
or the one that `hf auth login` saved.
"""

import functools

from tasks import spans, vocabularies
from tasks.corpora import add_prefix_lm, add_span_corruption
from tasks.sources import CorpusSource

RLM = CorpusSource("dumitrescustefan/rlm")
RO_MINI = CorpusSource(
    files={
        "train": vocabularies.resolve("data/ro_mini/train-*.jsonl"),
        "validation": vocabularies.resolve("data/ro_mini/validation.jsonl"),
    }
)
BYTE_NOISE = spans.SpanNoise(density=0.15, mean_span=20.0)

add = functools.partial(add_span_corruption, cedilla=True)

add("rlm_span_corruption_stream", RLM, vocabularies.ro_model)
add("rlm_mt5_span_corruption_stream", RLM, vocabularies.mt5_model)
add("ro_mini_span_corruption", RO_MINI, vocabularies.ro_mini_model)
add("ro_mini_no_spaces_span_corruption", RO_MINI, vocabularies.ro_mini_model, spaces=False)
add("ro_mini_byt5_span_corruption", RO_MINI, vocabularies.byt5(), BYTE_NOISE)
add_prefix_lm("ro_mini_prefix_lm", RO_MINI, vocabularies.ro_mini_model, cedilla=True)
