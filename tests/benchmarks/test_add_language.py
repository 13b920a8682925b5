"""Which runs there are, which text is held out, and what is read from the results."""

import json

import pytest

from benchmarks import add_language
from benchmarks.add_language import NEW, OLD, SAVED


@pytest.mark.parametrize("scale", [1, 8])
def test_each_run_starts_from_a_checkpoint_that_its_source_saves(scale):
    runs = {run.name: run for run in add_language.runs(scale)}
    assert len(runs) == len(add_language.runs(scale))
    for run in runs.values():
        if run.start:
            source = runs[run.start]
            counted = add_language.BASE * scale if run.start == "base" else run.first
            assert run.first == source.last or counted % SAVED == 0
            assert source.first < run.first <= source.last
            assert run.languages == source.languages or run.first == 0


def test_whole_documents_are_held_out_and_no_line_of_them_is_trained_on(tmp_path):
    line = "the {} page says {} of a thing and no more".format
    for language in ("en", "de"):
        folder = tmp_path / "packages" / "doc" / language
        folder.mkdir(parents=True)
        for i in range(40):
            unique = line(f"<i>{language}</i>", i)
            page = f"<p>{unique}</p><p>{line('same', i % 3)}</p><p>ls -l</p>"
            (folder / f"page{i}.html").write_text(page)
    novels = tmp_path / "novels"
    novels.mkdir()
    rows = [{"novel": f"N{i // 2}", "text": line("novel's", i)} for i in range(80)]
    (novels / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    add_language.write_text(tmp_path / "packages", novels, tmp_path / "text")
    lines = {}
    for language in ("en", "de", NEW):
        for split in ("train", "validation"):
            path = tmp_path / "text" / language / f"{split}.jsonl"
            texts = [json.loads(row)["text"] for row in path.read_text().splitlines()]
            lines[language, split] = {x for text in texts for x in text.splitlines()}
            assert lines[language, split]
            assert "ls -l" not in lines[language, split]
    assert not lines["en", "train"] & lines["en", "validation"]
    english = lines["en", "train"] | lines["en", "validation"]
    assert not english & (lines["de", "train"] | lines["de", "validation"])
    held_out = {int(text.split()[4]) // 2 for text in lines[NEW, "validation"]}
    assert held_out.isdisjoint(int(text.split()[4]) // 2 for text in lines[NEW, "train"])


def test_the_table_says_how_many_steps_scratch_needs_and_what_the_others_lose():
    line = lambda run, step, new, old: {
        "family": "t5", "scale": 1, "seed": 0, "run": run, "step": step, "cooled": True,
        "bits_per_byte": {NEW: new} | ({} if old is None else dict.fromkeys(OLD, old)),
    }  # fmt: skip
    results = [line("a_300", 300, 4.0, None), line("a_1200", 1200, 3.0, None)]
    results += [line("base_end", 300, 5.0, 2.0), line("cd_300", 300, 3.5, 2.1)]
    results += [line("d_300", 300, 2.5, 1.9)]
    rows = {row.split(" | ")[0].strip("| "): row for row in add_language.table(results)}
    assert "| 600 | +5.0% |" in rows["cd"]
    assert "| above 1,200 | -5.0% |" in rows["d"]
    assert "| below 300 |" in rows["base"]
