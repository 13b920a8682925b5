"""The size of a corpus alone decides how a split is cut; impossible jobs are refused."""

from fakes.cache_jobs import job
from tasks.cache import plan
from tasks.corpus.records import formats
from tasks.corpus.records.contents import Contents
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.files import CorpusFile


class Sized(CorpusSource):
    """A corpus of files with given sizes."""

    def __init__(self, sizes, kind="jsonl"):
        super().__init__(files={"train": "nowhere"})
        self.listed = [CorpusFile(f"{i}", kind, length=n) for i, n in enumerate(sizes)]

    def list_files(self, split, retry_policy=None):
        return self.listed


def test_how_a_split_is_cut_follows_from_its_size(monkeypatch):
    monkeypatch.setattr(plan.files, "size", lambda file: file.length)
    monkeypatch.setattr(formats, "contents_of", lambda file: Contents(file.kind, "utf-8"))
    parts = lambda sizes, part=0, kind="jsonl": plan.count_parts(Sized(sizes, kind), "train", part)
    assert parts([200_000]) == (1, 200_000)
    assert parts([10 << 20]) == (10, 10 << 20)
    assert parts([1 << 30])[0] == 64
    assert parts([1 << 40])[0] == 1 << 14
    assert parts([1 << 30], 1 << 20)[0] == 1 << 10
    assert parts([None, 5]) == (2, 0)
    assert parts([1 << 30, 1 << 30], kind="csv")[0] == 2  # which cannot be cut


def test_parts_and_shards_count_through_splits_and_epochs(tmp_path):
    made = job(tmp_path, lengths=(("inputs", 64), ("targets", 14)), epochs=2)
    parts, cut = plan.parts_of(made), plan.plan_of(made, "validation")
    assert [part.epoch for part in parts] == [0] * cut.parts + [1] * cut.parts
    assert [shard.number for shard in plan.shards_of(made)] == list(range(2 * cut.shards))
