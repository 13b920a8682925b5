"""The trainer keeps an answer of the converter as long as the converter's version is the same."""

import shutil
import subprocess
import sys
from pathlib import Path

from convert import version


def told(folder):
    command = [sys.executable, "-m", "convert.version"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_another_line_of_the_converter_is_another_version(tmp_path):
    shutil.copytree(Path(version.__file__).parent, tmp_path / "convert")
    before = told(tmp_path)
    assert before.stdout.strip() == version.version()
    with (tmp_path / "convert/proof/same_ids.py").open("a") as file:
        file.write("# another line\n")
    after = told(tmp_path)
    assert (before.returncode, after.returncode) == (0, 0)
    assert before.stdout != after.stdout


def test_a_library_that_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setattr(version, "LIBRARIES", ("sentencepiece", "no_such_library"))
    assert version.main() == 1
    assert "no_such_library" in capsys.readouterr().out
