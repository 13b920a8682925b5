"""Romanian pretraining tasks.

| task | text | vocabulary | targets for 128 inputs |
|---|---|---|---|
| ro_span_corruption | hub, FineWeb-2, ron_Latn | own, 64,000 pieces | 29 |
| ro_mt5_span_corruption | the same | mT5's | 29 |
| rlm_span_corruption_stream | hub, dumitrescustefan/rlm (private) | own, 64,000 pieces | 29 |
| rlm_mt5_span_corruption_stream | the same | mT5's | 29 |
| ro_mini_span_corruption | data/ro_mini | its own, 2,048 pieces | 29 |
| ro_mini_no_spaces_span_corruption | the same without spaces | the same | 29 |
| ro_mini_whole_words | data/ro_mini | the same | 29 |
| ro_mini_single_tokens | data/ro_mini | the same | 39 |
| ro_mini_prefix_lm | data/ro_mini | the same | 128 |
| ro_mini_ul2 | data/ro_mini | the same | 73 |
| ro_mini_byt5_span_corruption | data/ro_mini | bytes | 24 |
| ro_mini_masked_lm | data/ro_mini | its WordPiece, 2,048 pieces | 128, of an encoder |
| ro_mini_bert | the same in pairs of sentences | the same | 128, of an encoder |
| ro_masked_lm | hub, FineWeb-2, ron_Latn | own, byte-level BPE | 128, of an encoder |
| ro_modernbert | the same, 30 % hidden | the same, ModernBERT's tokens | 128, of an encoder |
| ro_modernbert_long | the same, 15 % hidden | the same | the same |
| ro_modernbert_best | hub, HPLT 3.0's best, 5 % hidden | the same | the same |
| ro_modernbert_web | hub, FineWeb-2 by cluster, 5 % hidden | the same | the same |
| ro_modernbert_decay | both, in a mixture of 7 to 3 | the same | the same |
| ro_simple_prefix_lm | data/ro_simple | its own, 2,048 pieces | 128 |

ro_modernbert_long and ro_modernbert_decay are the later phases of gin/ro_modernbert_base.gin; each
hides less (mmBERT, Marone et al. 2025, arXiv:2509.06888).
ro_mini_span_corruption_i128_t29 reads examples that `tasks.cache` made of ro_mini_span_corruption,
ro_mini_masked_lm_i128_t128 those of ro_mini_masked_lm.
For targets other than 29, set TASK_FEATURE_LENGTHS = {'inputs': 128, 'targets': ...} together with
MIXTURE_OR_TASK_NAME. Another corpus is one `add` line. The rlm corpus is read with the token in
HF_TOKEN or that saved by `hf auth login`.
"""

import functools

from tasks import corpora, mixtures, vocabularies
from tasks.cache import cached
from tasks.corpus.source import CorpusSource
from tasks.languages import public
from tasks.objectives.masked_lm import MaskedLM
from tasks.objectives.masking import Masking

WEB = public.fineweb2("ron_Latn")
CLUSTERS = public.fineweb2("ron_Latn", by_cluster=True)
BEST = public.hplt3("ron_Latn", least_quality=9)
RLM = CorpusSource("dumitrescustefan/rlm", held_out={"validation": 0.01})
RO_MINI = CorpusSource(
    files={
        "train": vocabularies.resolve("data/ro_mini/train-*.jsonl"),
        "validation": vocabularies.resolve("data/ro_mini/validation.jsonl"),
    }
)
RO_SIMPLE = CorpusSource(vocabularies.resolve("data/ro_simple"))

add = functools.partial(corpora.add, cedilla=True)

add("ro_span_corruption", WEB, vocabularies.ro_model)
add("ro_mt5_span_corruption", WEB, vocabularies.mt5_model)
add("rlm_span_corruption_stream", RLM, vocabularies.ro_model)
add("rlm_mt5_span_corruption_stream", RLM, vocabularies.mt5_model)
add("ro_mini_span_corruption", RO_MINI, vocabularies.ro_mini_model)
add("ro_mini_no_spaces_span_corruption", RO_MINI, vocabularies.ro_mini_model, spaces=False)
add("ro_mini_whole_words", RO_MINI, vocabularies.ro_mini_model, "whole_words")
add("ro_mini_single_tokens", RO_MINI, vocabularies.ro_mini_model, "single_tokens")
add("ro_mini_prefix_lm", RO_MINI, vocabularies.ro_mini_model, "prefix_lm")
add("ro_mini_ul2", RO_MINI, vocabularies.ro_mini_model, "ul2")
add("ro_mini_byt5_span_corruption", RO_MINI, vocabularies.byt5(), "byt5")
add("ro_mini_masked_lm", RO_MINI, vocabularies.ro_mini_wordpiece, "masked_lm")
add("ro_mini_bert", RO_MINI, vocabularies.ro_mini_wordpiece, "bert")
add("ro_masked_lm", WEB, vocabularies.ro_byte_bpe, "masked_lm")
add("ro_modernbert", WEB, vocabularies.ro_modern_bpe, "modernbert")
add("ro_modernbert_long", WEB, vocabularies.ro_modern_bpe, MaskedLM(Masking(0.15)))
add("ro_modernbert_best", BEST, vocabularies.ro_modern_bpe, MaskedLM(Masking(0.05)))
add("ro_modernbert_web", CLUSTERS, vocabularies.ro_modern_bpe, MaskedLM(Masking(0.05)))
mixtures.add("ro_modernbert_decay", {"ro_modernbert_best": 0.7, "ro_modernbert_web": 0.3})
add("ro_simple_prefix_lm", RO_SIMPLE, vocabularies.ro_simple_model, "prefix_lm")
cached.add_pregenerated("ro_mini_span_corruption", {"inputs": 128, "targets": 29})
cached.add_pregenerated("ro_mini_masked_lm", {"inputs": 128, "targets": 128})
