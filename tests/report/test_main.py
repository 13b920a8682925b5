"""The command writes self-contained pages, and bad input is one sentence."""

import json
import os
import re
import time

import pytest

from fakes import fake_runs
from report import __main__ as entry_point


def test_a_page_is_one_file_with_its_data_in_it(tmp_path, capsys):
    folder, out = fake_runs.complete(tmp_path / "tiny"), tmp_path / "report.html"
    assert entry_point.main([str(folder), "-o", str(out)]) == 0
    text = out.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", text)
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert json.loads(data)["runs"][0]["name"] == "tiny"
    assert re.search(r"report.html: 1 run, [\d.]+ KB$", capsys.readouterr().err, re.M)
    assert list(tmp_path.glob("*.html")) == [out]
    picture = tmp_path / "new/loss.png"
    assert entry_point.main([str(folder), "--png", str(picture)]) == 0
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert list(tmp_path.glob("*.html")) == [out]


def test_a_folder_that_is_named_twice_is_one_run(tmp_path, capsys):
    folder, out = str(fake_runs.complete(tmp_path / "tiny")), str(tmp_path / "report.html")
    entry_point.main([folder, folder, "-o", out])
    assert "report.html: 1 run," in capsys.readouterr().err


def test_a_sentence_with_markup_stays_data(tmp_path):
    events = [{"event": "infill", "step": 1, "sentences": {"</script><b>": "{{script}} </script>"}}]
    folder = fake_runs.run(tmp_path / "r", {}, events)
    entry_point.main([str(folder), "-o", str(tmp_path / "r.html")])
    text = (tmp_path / "r.html").read_text()
    assert "</script><b>" not in text
    assert text.count("{{script}} \\u003c/script>") == 1


def test_watching_rewrites_the_page_until_it_is_stopped(tmp_path, monkeypatch):
    """It may start before the run does. The last page does not reload itself."""
    out, seen = tmp_path / "r.html", []

    def sleep(seconds):
        assert seconds == 5
        seen.append(out.read_text())
        if len(seen) == 1:
            fake_runs.complete(tmp_path / "tiny")
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert entry_point.main([str(tmp_path / "tiny"), "-o", str(out), "--watch", "5"]) == 0
    assert '"charts":[]' in seen[0]
    assert '"reload":5.0' in seen[1]
    assert '"title":"Loss' in seen[1]
    assert '"reload":null' in out.read_text()


def test_without_a_folder_the_newest_run_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as refused:
        entry_point.main([])
    assert refused.value.code == 2
    for name, moment in (("new", 2000), ("old", 1000)):
        folder = fake_runs.complete(tmp_path / "runs" / name)
        os.utime(folder / "events.jsonl", (moment, moment))
    assert entry_point.main([]) == 0
    assert '"name":"new"' in (tmp_path / "runs" / "report_new.html").read_text()
