"""Public corpora of a language, as sources of a task.

    corpora.add("cs", public.fineweb2("ces_Latn"), "vocabularies/cs.model")
    corpora.add("cs_best", public.hplt3("ces_Latn", least_quality=8), "vocabularies/cs.model")
    corpora.add("cs_weighted", public.hplt3("ces_Latn", copies={5: 1, 8: 2, 10: 3}), "…/cs.model")
    mixtures.add("cs_both", {"cs": 3, "cs_best": 1})

| source | corpus | validation | licence |
|---|---|---|---|
| fineweb2 | hub, HuggingFaceFW/fineweb-2 | its split test | ODC-By |
| fineweb2_hq | hub, epfml/FineWeb2-HQ (20 languages) | 0.1 % of the documents, by hash | ODC-By |
| finepdfs | hub, HuggingFaceFW/finepdfs | the same | ODC-By |
| finepdfs_edu | hub, HuggingFaceFW/finepdfs-edu (69 languages) | the same | ODC-By |
| finewiki | hub, HuggingFaceFW/finewiki | the same | CC BY-SA 4.0 and GFDL |
| hplt3 | data.hplt-project.org/three | the same | CC0 |
| hplt2 | hub, HPLT/HPLT2.0_cleaned | the same | CC0 |
| culturax | hub, uonlp/CulturaX (gated) | the same | ODC-By and CC0 |
| mc4 | hub, allenai/c4 | its split validation | ODC-By |
| fulg | hub, faur-ai/fulg (Romanian) | the same | ODC-By |

All take codes as FineWeb-2 has them (see `tasks.languages.table`); HPLT's codes are the same for
most languages, and CulturaX, FineWiki and mC4 also take their own, such as no. Nothing is read
before a run. Held-out documents are never trained on; to read them, all documents before them are
read too.
FineWeb2-HQ is a part of FineWeb-2, and FinePDFs-edu of FinePDFs. A mixture of the first two trains
on what FineWeb2-HQ holds out, since FineWeb-2 holds out other documents. CORPORA has the corpora of
all languages by name. Names and columns of the first five are those of their pages on the hub and
of their authors' programs (github.com/epfml/fineweb2-hq, github.com/huggingface/finepdfs), and were
not compared with the files.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from common.errors import UserError, nearest
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
WIKI_CODES = CULTURAX_CODES | {"eng": "en"}
# Thousands of documents of FineWeb2-HQ (https://huggingface.co/datasets/epfml/FineWeb2-HQ/viewer).
FINEWEB2_HQ = {
    "arb_Arab": 5_560, "ces_Latn": 6_000, "cmn_Hani": 54_200, "dan_Latn": 4_080, "deu_Latn": 43_100,
    "ell_Grek": 4_350, "fas_Arab": 5_110, "fra_Latn": 32_200, "hun_Latn": 4_530, "ind_Latn": 8_910,
    "ita_Latn": 21_200, "jpn_Jpan": 34_200, "nld_Latn": 12_900, "pol_Latn": 13_400,
    "por_Latn": 18_100, "rus_Cyrl": 55_200, "spa_Latn": 40_100, "swe_Latn": 4_380,
    "tur_Latn": 8_580, "vie_Latn": 4_000,
}  # fmt: skip
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


def fineweb2_hq(
    language: str,
    least_score: float | None = None,
    copies: Mapping[float, int] | None = None,
) -> CorpusSource:
    """Return FineWeb2-HQ's documents of a language: the tenth of FineWeb-2 with the best score.

    Args:
      language: see `table.find`.
      least_score: leave out documents with a lower `quality_score`, of 1.
      copies: how often an epoch has a document, by the score from which on: {0.1: 1, 0.5: 3}.

    Raises:
      UserError: there is no such language, it is none of the 20, or both settings are given.
    """
    code = table.find(language).code
    if code not in FINEWEB2_HQ:
        why = f"which FineWeb2-HQ lacks ({code}): it has {', '.join(sorted(FINEWEB2_HQ))}"
        raise UserError("language", language, why, "take fineweb2")
    if copies and least_score is not None:
        why = f"and copies {dict(copies)}, which leave out what is below the lowest score of theirs"
        raise UserError("least_score", least_score, why, "give one")
    steps = copies if least_score is None else {least_score: 1}
    column = Column("text", copies={"quality_score": steps} if steps else None)
    return CorpusSource("epfml/FineWeb2-HQ", code, column=column, held_out=HELD_OUT)


def finepdfs(language: str, least_score: float | None = None) -> CorpusSource:
    """Return FinePDFs' documents of a language, the text of PDF files.

    `least_score` leaves out documents whose language was recognized with less confidence, of 1.

    Raises:
      UserError: there is no such language.
    """
    copies = None if least_score is None else {"full_doc_lid_score": {least_score: 1}}
    column, code = Column("text", copies=copies), table.find(language).code
    return CorpusSource("HuggingFaceFW/finepdfs", code, column=column, held_out=HELD_OUT)


def finepdfs_edu(language: str) -> CorpusSource:
    """Return the documents of FinePDFs that teach most, by their authors' scores."""
    code = table.find(language).code
    return CorpusSource("HuggingFaceFW/finepdfs-edu", code, held_out=HELD_OUT)


def finewiki(language: str) -> CorpusSource:
    """Return FineWiki's articles of a language, or of English, "en".

    Raises:
      UserError: there is no such language, or its Wikipedia is in another script.
    """
    code = table.code_of(language, WIKI_CODES)
    return CorpusSource("HuggingFaceFW/finewiki", code, held_out=HELD_OUT)


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
      UserError: there is no such quality, or a number of copies is no integer from 0.
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
    code = _short_code(language, CULTURAX_CODES)
    return CorpusSource("uonlp/CulturaX", code, held_out=HELD_OUT)


def mc4(language: str) -> CorpusSource:
    """Return mC4's documents of a language.

    Raises:
      UserError: there is no such language, or it has no code of two letters.
    """
    code = _short_code(language, MC4_CODES)
    return CorpusSource("allenai/c4", code, splits=("train", "validation"))


def _short_code(language: str, codes: Mapping[str, str]) -> str:
    code = table.code_of(language, codes)
    if len(code) > 2 and code not in codes.values():
        why = "has no code of two letters, by which this corpus names it"
        raise UserError(table.find(language).name, why=why)
    return code


def fulg() -> CorpusSource:
    """Return the Romanian documents of FuLG."""
    return CorpusSource("faur-ai/fulg", column="raw_content", held_out=HELD_OUT)


class Public(NamedTuple):
    """A function that returns a corpus of a language, and the licence."""

    source: Callable[[str], CorpusSource]
    licence: str


CORPORA = {
    "fineweb2": Public(fineweb2, "ODC-By"),
    "fineweb2_hq": Public(fineweb2_hq, "ODC-By"),
    "finepdfs": Public(finepdfs, "ODC-By"),
    "finepdfs_edu": Public(finepdfs_edu, "ODC-By"),
    "finewiki": Public(finewiki, "CC BY-SA 4.0 and GFDL"),
    "hplt3": Public(hplt3, "CC0"),
    "hplt2": Public(hplt2, "CC0"),
    "culturax": Public(culturax, "ODC-By and CC0"),
    "mc4": Public(mc4, "ODC-By"),
}


def named(corpora: str) -> dict[str, Public]:
    """Return the corpora that a list such as "fineweb2,finewiki" names, in its order.

    Raises:
      UserError: there is no such corpus, or one is named twice.
    """
    names = [name.strip() for name in corpora.split(",")]
    for name in names:
        if name not in CORPORA:
            why = f"which there is not{nearest(name, CORPORA)}"
            raise UserError("corpus", name, why, f"name some of {', '.join(CORPORA)}")
        if names.count(name) > 1:
            raise UserError("corpus", name, "which is named twice", "name it once")
    return {name: CORPORA[name] for name in names}
