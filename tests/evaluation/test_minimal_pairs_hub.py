"""MultiBLiMP is read from the hub: its languages, its pairs, and what to do without either."""

import pytest

from evaluation import minimal_pairs
from fakes.loopback_hub import connected
from tasks.corpus import hub

ROWS = b"""sen\twrong_sen\tphenomenon
Ana are mere.\tAna au mere.\tSV-#
Ei sunt aici.\tEi este aici.\tSV-#
"""


def test_pairs_of_a_language_and_an_unknown_one(tmp_path):
    configs = [f"- config_name: {c}\n  data_files: {c}/data.tsv\n" for c in ("ron", "tur")]
    card = f"---\nconfigs:\n{''.join(configs)}---\n".encode()
    files = {"README.md": card, "ron/data.tsv": ROWS, "tur/data.tsv": ROWS}
    with connected({"jumelet/multiblimp": files}, tmp_path):
        good, other = minimal_pairs.read_hub("ron")
        with pytest.raises(ValueError, match="has no configuration 'xho'") as unknown:
            minimal_pairs.read_hub("xho")
    assert tuple(good) == ("Ana are mere.", "Ana au mere.", "SV-#")
    assert tuple(other) == ("Ei sunt aici.", "Ei este aici.", "SV-#")
    assert "of its 2 the nearest are ron, tur: name a file of pairs" in str(unknown.value)


def test_a_hub_that_does_not_answer_is_one_sentence(monkeypatch):
    def fail(*_):
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(hub, "find_splits", fail)
    monkeypatch.setattr(minimal_pairs, "_RETRY_SECONDS", 0)
    with pytest.raises(ValueError, match=r"no route to the hub.*: name a file of pairs"):
        minimal_pairs.read_hub("ron")
