"""A copy is complete, verified, continues after an interruption, and streams as the corpus did."""

import dataclasses
import json

import pytest

from fakes.file_server import FileServer
from tasks import mirror, sources
from tasks.io import files, http_files, hub, retry
from tasks.languages import public, table
from tasks.sources import CorpusSource

QUICK = retry.RetryPolicy(limit_s=20, first_s=0.01, longest_s=0.02)
TEXTS = [f"documentul {i}" for i in range(300)]


class Killed(BaseException):
    """The process was killed."""


def kill_in_the_fourth_read(copying, monkeypatch):
    read_range, count = files.read_range, []

    def killed(*args):
        count.append(args)
        if len(count) > 3:
            raise Killed
        return read_range(*args)

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_range", killed)
        with pytest.raises(Killed):
            copying.copy(workers=1)


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    for i in range(3):
        lines = [json.dumps({"text": t}) for t in TEXTS[i * 100 : i * 100 + 100]]
        (folder / f"{i}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "dev.txt").write_text("unu\ndoi\n")
    with FileServer(folder) as server:
        server.folder = folder
        server.patterns = {
            "train": [f"{server.url}/{i}.jsonl" for i in range(3)],
            "validation": f"{server.url}/dev.txt",
        }
        yield server


def source(served):
    return CorpusSource(files=served.patterns, retry_policy=QUICK)


def texts(corpus, split="train"):
    dataset = corpus.get_dataset(split, shuffle=False)
    return [x["text"].decode() for x in dataset.as_numpy_iterator()]


def test_a_copy_streams_what_the_corpus_streams(served, tmp_path):
    served.faults = [503, "cut", 429]
    said = []
    mirror.Mirror(source(served), str(tmp_path / "copy"), said.append).copy(workers=2)
    copy = CorpusSource(str(tmp_path / "copy"))
    assert texts(copy) == TEXTS
    assert texts(copy, "validation") == ["unu", "doi"]
    names = sorted(p.name for p in (tmp_path / "copy").iterdir())
    assert names[:2] == ["mirror.json", "train-00000-of-00003.jsonl"]
    assert len(names) == 5
    assert said[0] == "4 files, 0 of them already copied"


def test_the_same_command_continues_and_fetches_nothing_twice(served, tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "CHUNK_BYTES", 500)
    stopped = mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None)
    kill_in_the_fourth_read(stopped, monkeypatch)
    mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None).copy()
    total = sum(p.stat().st_size for p in served.folder.iterdir())
    assert total <= sum(served.sent.values()) <= total + 30  # a byte a file asks for its length
    before = len(served.asked)
    mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None).copy()
    assert len(served.asked) == before
    assert texts(CorpusSource(str(tmp_path / "copy"))) == TEXTS


def test_a_part_of_a_file_that_has_changed_is_not_continued(served, tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "CHUNK_BYTES", 500)
    path = served.folder / "0.jsonl"
    path.write_bytes(path.read_bytes().replace(b"documentul", b"DOCUMENTUL"))
    stopped = mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None)
    kill_in_the_fourth_read(stopped, monkeypatch)
    path.write_bytes(path.read_bytes().replace(b"DOCUMENTUL", b"documentul"))
    http_files.probe.cache_clear()  # as in a new process
    mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None).copy()
    assert texts(CorpusSource(str(tmp_path / "copy"))) == TEXTS


def test_damage_is_found_and_repaired(served, tmp_path, capsys):
    to = tmp_path / "copy"
    arguments = ["--to", str(to), *(f"--files=train={u}" for u in served.patterns["train"])]
    assert mirror.main(arguments) == 0
    assert "is complete. Read it as CorpusSource(" in capsys.readouterr().out
    victim = to / "train-00001-of-00003.jsonl"
    victim.write_bytes(victim.read_bytes().replace(b"documentul 150", b"documentul 151"))
    assert mirror.main([*arguments, "--check"]) == 1
    assert "train-00001-of-00003.jsonl is missing or damaged" in capsys.readouterr().err
    assert mirror.main(arguments) == 0
    assert mirror.main([*arguments, "--check"]) == 0
    assert texts(CorpusSource(str(to), splits=["train"])) == TEXTS


def test_a_file_that_differs_from_the_hubs_checksum_is_refused(served, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "published_sha256", lambda file: "0" * 64)
    with pytest.raises(ValueError, match=r"SHA-256 .* does not match its server"):
        mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None).copy(workers=1)
    assert not list((tmp_path / "copy").glob("train*"))


def test_a_folder_holds_one_commit(served, tmp_path, monkeypatch):
    mirror.Mirror(source(served), str(tmp_path), lambda _: None).copy()
    notes = json.loads((tmp_path / "mirror.json").read_text())
    (tmp_path / "mirror.json").write_text(json.dumps({**notes, "commit": "a" * 40}))
    with pytest.raises(ValueError, match=r"at commit a{40}, not at None: set --to"):
        mirror.Mirror(source(served), str(tmp_path)).copy()


def test_a_servers_refusal_is_one_sentence(served, tmp_path, capsys):
    (served.folder / "0.jsonl").unlink()
    arguments = [f"--files=train={served.url}/0.jsonl", "--to", str(tmp_path)]
    with pytest.raises(SystemExit, match="1"):
        mirror.main(arguments)
    assert f"Error: {served.url}/0.jsonl: HTTP Error 404" in capsys.readouterr().err


def test_a_folder_holds_one_corpus(served, tmp_path, capsys):
    mirror.Mirror(source(served), str(tmp_path)).copy()
    with pytest.raises(ValueError, match=r"holds a copy of .* not of 'user/other': set --to"):
        mirror.Mirror(CorpusSource("user/other"), str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        mirror.main(["--files", "a.jsonl", "--to", str(tmp_path)])
    assert "names no split: write --files train=a.jsonl" in capsys.readouterr().err


def test_a_task_of_the_hub_reads_its_copy_where_gin_says_so(served, tmp_path, monkeypatch):
    mirror.Mirror(source(served), str(tmp_path / "copy"), lambda _: None).copy()
    monkeypatch.setattr(sources, "mirrors", lambda: {"user/corpus": str(tmp_path / "copy")})
    assert texts(CorpusSource("user/corpus")) == TEXTS


@pytest.fixture
def hub_of_two(tmp_path, monkeypatch):
    """A corpus of two configurations on the hub, with the splits of FineWeb-2."""

    def load(corpus, config, revision):
        assert corpus == table.FINEWEB2
        found = {}
        for split in ("train", "test"):
            path = tmp_path / "hub" / config / f"{split}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(f"{config} {split}")
            found[split] = files.match_files([str(path)])
        return hub.Repository(found, None)

    monkeypatch.setattr(hub, "load_repository", load)


def test_a_run_reads_its_own_configuration_and_splits(hub_of_two, tmp_path, monkeypatch, capsys):
    to = {config: str(tmp_path / config) for config in ("ces_Latn", "slk_Latn")}
    for config, folder in to.items():
        arguments = ["--corpus", table.FINEWEB2, "--config", config, "--to", folder]
        assert mirror.main(arguments) == 0
        assert mirror.main([*arguments, "--check"]) == 0
    splits = "splits={'train': 'train', 'validation': 'test'}"
    assert f'Read it as CorpusSource("{folder}", {splits}).' in capsys.readouterr().out
    copy = CorpusSource(folder, splits=table.FINEWEB2_SPLITS)
    assert texts(copy, "validation") == ["slk_Latn test"]
    folders = {f"{table.FINEWEB2}/{config}": folder for config, folder in to.items()}
    monkeypatch.setattr(sources, "mirrors", lambda: folders)
    monkeypatch.delattr(hub, "load_repository")
    for name, config in (("czech", "ces_Latn"), ("slovak", "slk_Latn")):
        assert texts(public.fineweb2(name)) == [f"{config} train"]
        assert texts(public.fineweb2(name), "validation") == [f"{config} test"]
    folders.clear()
    folders[table.FINEWEB2] = to["ces_Latn"]
    assert texts(public.fineweb2("czech")) == ["ces_Latn train"]
    with pytest.raises(ValueError, match=r"holds configuration 'ces_Latn' .*, not 'slk_Latn'"):
        texts(public.fineweb2("slovak"))


def test_a_hub_that_does_not_answer_is_not_waited_for_long(tmp_path, monkeypatch, capsys):
    def lost(*_):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(hub, "load_repository", lost)
    monkeypatch.setattr(mirror, "FIRST_ANSWER", dataclasses.replace(QUICK, limit_s=0.1))
    with pytest.raises(SystemExit) as ended:
        mirror.main(["--corpus", "owner/text", "--to", str(tmp_path / "to")])
    assert ended.value.code == 1
    assert "no route to host" in capsys.readouterr().err


@pytest.mark.parametrize("named", [["validation"], ["test"]])
def test_splits_have_our_names_or_those_of_the_corpus(hub_of_two, tmp_path, named):
    arguments = ["--corpus", table.FINEWEB2, "--config", "ces_Latn", "--to", str(tmp_path / "to")]
    assert mirror.main([*arguments, "--splits", *named]) == 0
    found = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert found == ["mirror.json", "test-00000-of-00001.txt"]


def test_a_folder_holds_one_configuration(hub_of_two, tmp_path):
    of = lambda config: CorpusSource(table.FINEWEB2, config, splits=["train"])
    mirror.Mirror(of("ces_Latn"), str(tmp_path / "to"), lambda _: None).copy()
    with pytest.raises(ValueError, match=r"holds configuration 'ces_Latn' .*, not 'slk_Latn': set"):
        mirror.Mirror(of("slk_Latn"), str(tmp_path / "to"))
    # A manifest of an earlier version has no configuration, but the addresses.
    path = tmp_path / "to" / "mirror.json"
    notes = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in notes.items() if k not in ("config", "revision")}))
    other = mirror.Mirror(of("slk_Latn"), str(tmp_path / "to"))
    for use in (other.copy, other.check):
        with pytest.raises(ValueError, match=r"is a copy of .*/ces_Latn/.*, not of .*/slk_Latn/"):
            use()
    mirror.Mirror(of("ces_Latn"), str(tmp_path / "to"), lambda _: None).copy()
    assert json.loads(path.read_text()) == notes
