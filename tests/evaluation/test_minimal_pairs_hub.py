"""MultiBLiMP is read from the hub: its languages, its pairs, and what to do without either."""

import os
import subprocess
import sys

import pytest

from evaluation import minimal_pairs
from fakes.paths import ROOT
from tasks.io import hub

CHILD = """
import os, sys
from fakes.loopback_hub import LoopbackHub
header = "sen\\twrong_sen\\tphenomenon\\n"
rows = "Ana are mere.\\tAna au mere.\\tSV-#\\nEi sunt aici.\\tEi este aici.\\tSV-#\\n"
configs = "".join(f"  - config_name: {c}\\n    data_files: {c}/data.tsv\\n" for c in ("ron", "tur"))
card = f"---\\nconfigs:\\n{configs}---\\n"
files = {f"{c}/data.tsv": (header + rows).encode() for c in ("ron", "tur")}
hub = LoopbackHub({"jumelet/multiblimp": {"README.md": card.encode(), **files}})
os.environ.update(HF_ENDPOINT=hub.url, HF_HOME=sys.argv[1])
from evaluation import minimal_pairs
for pair in minimal_pairs.read_hub("ron"):
    print(*pair, sep="|")
try:
    minimal_pairs.read_hub("xho")
except ValueError as error:
    print(error)
hub.close()
"""


def test_pairs_of_a_language_and_an_unknown_one(tmp_path):
    unset = ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'tests'}"
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    good, other, unknown = done.stdout.splitlines()
    assert good == "Ana are mere.|Ana au mere.|SV-#"
    assert other == "Ei sunt aici.|Ei este aici.|SV-#"
    has = "has no configuration 'xho'; of its 2 the nearest are ron, tur: name a file of pairs"
    assert has in unknown


def test_a_hub_that_does_not_answer_is_one_sentence(monkeypatch):
    def fail(*_):
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(hub, "load_repository", fail)
    monkeypatch.setattr(minimal_pairs, "_RETRY_SECONDS", 0)
    with pytest.raises(ValueError, match=r"no route to the hub.*: name a file of pairs"):
        minimal_pairs.read_hub("ron")
