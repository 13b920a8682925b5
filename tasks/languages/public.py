"""Public corpora of a language, as sources of a task.

    corpora.add("cs", public.fineweb2("ces_Latn"), "vocabularies/cs.model")
    corpora.add("cs_best", public.hplt3("ces_Latn", least_quality=8), "vocabularies/cs.model")
    corpora.add("cs_weighted", public.hplt3("ces_Latn", copies={5: 1, 8: 2, 10: 3}), "…/cs.model")
    mixtures.add("cs_both", {"cs": 3, "cs_best": 1})

| source | corpus | validation | licence |
|---|---|---|---|
| fineweb2 | hub, HuggingFaceFW/fineweb-2 | its split test | ODC-By |
| hplt3 | data.hplt-project.org/three | 0.1 % of the documents, by hash | CC0 |
| hplt2 | hub, HPLT/HPLT2.0_cleaned | the same | CC0 |
| culturax | hub, uonlp/CulturaX (gated) | the same | ODC-By and CC0 |
| mc4 | hub, allenai/c4 | its split validation | ODC-By |
| fulg | hub, faur-ai/fulg (Romanian) | 0.1 % of the documents, by hash | ODC-By |

All take codes as FineWeb-2 has them (see `tasks.languages.table`); HPLT's codes are the same for
most languages, and CulturaX and mC4 also take their own, such as no or iw. Nothing is read before a
run. Held-out documents are never trained on; to read them, all documents before them are read too.
"""

from collections.abc import Mapping

from common.errors import UserError
from tasks.corpus.records.documents import Column
from tasks.corpus.source import CorpusSource
from tasks.languages import table
from tasks.languages.table import FINEWEB2, FINEWEB2_SPLITS, Language

HELD_OUT = {"validation": 0.001}
# How often to use a document of FineWeb-2, by the size of its cluster of near-duplicates; only one
# of a cluster is kept. Its authors tried these numbers (README of the data set).
CLUSTER_COPIES: dict[str, dict[float, int]] = {
    "minhash_cluster_size": {1: 1, 2: 2, 3: 3, 5: 5, 100: 8, 1000: 1}
}
# Configurations that are called otherwise than `table.Language.tag`.
MC4_CODES = {"nb": "no", "he": "iw", "fil": "fil", "ceb": "ceb", "haw": "haw", "pbt": "ps"}
CULTURAX_CODES = {"nb": "no", "fil": "tl", "pbt": "ps"}
HPLT3_LIST = "@https://data.hplt-project.org/three/sorted/{code}.map"
HPLT3_QUALITY = (5, 10)  # the least and the highest quality of a file


def fineweb2(
    language: str, by_cluster: bool = False, least_score: float | None = None
) -> CorpusSource:
    """Return FineWeb-2's documents of a language (a code, a tag or a name).

    Args:
      language: see `table.find`.
      by_cluster: use a document up to 8 times, by the number of its near-duplicates on the web.
      least_score: leave out documents whose language was recognized with less confidence, of 1.

    Raises:
      UserError: there is no such language.
    """
    entry = table.find(language)
    copies = dict(CLUSTER_COPIES) if by_cluster else {}
    if least_score is not None:
        copies["language_score"] = {least_score: 1}
    column = Column("text", copies=copies)
    if not entry.test_documents:
        return CorpusSource(FINEWEB2, entry.code, column=column, held_out=HELD_OUT)
    return CorpusSource(FINEWEB2, entry.code, column=column, splits=FINEWEB2_SPLITS)


def fineweb2_language(source: CorpusSource) -> Language | None:
    """Return the language of a source of FineWeb-2, None for other corpora."""
    if source.name != FINEWEB2:
        return None
    matches = (language for language in table.languages() if language.code == source.config)
    return next(matches, None)


def hplt3(
    code: str, least_quality: int | None = None, copies: Mapping[int, int] | None = None
) -> CorpusSource:
    """Return HPLT 3.0's documents of a language from its own server.

    Args:
      code: of HPLT, such as ces_Latn.
      least_quality: use only files of this quality (of its authors' score) or higher, 5 to 10; by
        default the lowest of `copies`, else 5.
      copies: how often an epoch has a document, by the quality from which on: {5: 1, 8: 2, 10: 3}.

    Raises:
      UserError: there is no such quality, or a number of copies is no integer above 0.
    """
    lowest, highest = HPLT3_QUALITY
    steps = dict(sorted((copies or {}).items()))
    settings = [("a quality of copies", quality) for quality in steps]
    least_quality = min(steps, default=lowest) if least_quality is None else least_quality
    for name, quality in (*settings, ("least_quality", least_quality)):
        if not lowest <= quality <= highest:
            raise UserError(name, quality, f"but must be {lowest} to {highest}")
    qualities = range(least_quality, highest + 1)
    pattern = "|".join(f"{quality}_*" for quality in qualities)
    file_copies = {
        f"{quality}_*": next((n for q, n in reversed(steps.items()) if q <= quality), 1)
        for quality in qualities
        if steps
    }
    column = Column("text", file_copies=file_copies)
    files = {"train": f"{HPLT3_LIST.format(code=code)}#{pattern}"}
    return CorpusSource(files=files, column=column, held_out=HELD_OUT)


def hplt2(code: str) -> CorpusSource:
    """Return HPLT 2.0's cleaned documents of a language."""
    return CorpusSource("HPLT/HPLT2.0_cleaned", code, held_out=HELD_OUT)


def culturax(language: str) -> CorpusSource:
    """Return CulturaX's documents of a language; its conditions must be accepted on the hub.

    Raises:
      UserError: there is no such language, or it has no code of two letters.
    """
    return CorpusSource("uonlp/CulturaX", _config(language, CULTURAX_CODES), held_out=HELD_OUT)


def mc4(language: str) -> CorpusSource:
    """Return mC4's documents of a language.

    Raises:
      UserError: there is no such language, or it has no code of two letters.
    """
    splits = ("train", "validation")
    return CorpusSource("allenai/c4", _config(language, MC4_CODES), splits=splits)


def fulg() -> CorpusSource:
    """Return the Romanian documents of FuLG."""
    return CorpusSource("faur-ai/fulg", column="raw_content", held_out=HELD_OUT)


def _config(language: str, codes: Mapping[str, str]) -> str:
    code = table.code_of(language, codes)
    if len(code) > 2 and code not in codes.values():
        why = "has no code of two letters, by which this corpus names it"
        raise UserError(table.find(language).name, why=why)
    return code
