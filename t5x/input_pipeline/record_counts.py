"""What was read of each corpus: of all hosts as metrics, and of this one in a sentence.

data_metrics(of_all_hosts(stream.counts()))   # {"data/records/my_corpus": 1200.0, …}
told("spam", "test", source.each_once("test"))
# "Data of spam, split 'test': of 78 records read 18 left out (23.1 %): 13 empty, 5 malformed"
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import seqio
from jax.experimental import multihost_utils

_NAMES = {"read": "records", "epochs": "epoch"}


def of_all_hosts(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What all hosts have read, from what this one has; every host must ask at the same time."""
    if jax.process_count() == 1 or not any(counts.values()):
        return {corpus: dict(values) for corpus, values in counts.items()}
    names = [(corpus, name) for corpus in sorted(counts) for name in sorted(counts[corpus])]
    mine = np.array([counts[corpus][name] for corpus, name in names], np.float32)
    hosts = np.asarray(multihost_utils.process_allgather(mine))
    whole: dict[str, dict[str, int]] = {}
    for (corpus, name), values in zip(names, hosts.T, strict=True):
        # An epoch is over when it is on every host.
        total = values.min() if name == "epochs" else values.sum()
        whole.setdefault(corpus, {})[name] = int(total)
    return whole


def data_metrics(counts: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Names of metrics of what was read: `data/records/<corpus>`, `data/epoch/<corpus>`, …"""
    return {
        f"data/{_NAMES.get(name, name)}/{corpus}": float(count)
        for corpus, values in counts.items()
        for name, count in values.items()
    }


def lines(
    cfg: Any, examples: Mapping[str, int] | None = None, truncated: int | None = None
) -> list[str]:
    """What `told` tells of each task of a `DatasetConfig`, whose source counts.

    Args:
      cfg: which examples were read by this process.
      examples: of each task, where they are known.
      truncated: for a training stream, which tells of all it has read: its examples that were cut
        to the lengths of `cfg`.
    """
    found, always = [], truncated is not None
    for task in seqio.get_subtasks(cfg.provider):
        if each_once := getattr(task.source, "each_once", None):
            number = (examples or {}).get(task.name)
            found.append(told(task.name, cfg.split, each_once(cfg.split), number, always))
    if truncated:
        cut = f"{truncated:,} of the examples made cut to TASK_FEATURE_LENGTHS"
        found.append(f"Data of {cfg.provider.name}, split {cfg.split!r}: {cut}")
    share = " (this host's share)" if always and jax.process_count() > 1 else ""
    return [f"{line}{share}" for line in found if line]


def told(
    task: str,
    split: str,
    counts: Mapping[str, int],
    examples: int | None = None,
    always: bool = False,
) -> str | None:
    """What was left out and cut of a split, as one line; None if nothing was.

    Args:
      task: its name.
      split: of the task.
      counts: what a source's `each_once` gives: `read`, `skipped_<reason>`, `cut_<feature>` of the
        `examples` made, `epochs`.
      examples: how many there are, where that is known: they may have been made several times.
      always: tells also where nothing was left out, and of epochs.
    """
    parts, read = [], counts.get("read", 0)
    if reasons := _named("skipped_", counts):
        n = sum(reasons.values())
        why = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items())
        parts.append(f"of {read:,} records read {n:,} left out ({100 * n / read:.1f} %): {why}")
    elif read and always:
        parts.append(f"{read:,} records read, none left out")
    if cut := _named("cut_", counts):
        made = counts["examples"]
        if examples and made % examples:  # of another reader's too, which stood in their midst
            examples = None
        times = made / examples if examples else 1
        why = ", ".join(
            f"{round(n / times):,} {name} ({100 * n / made:.1f} %)" for name, n in cut.items()
        )
        parts.append(f"of {examples or made:,} examples{'' if examples else ' made'} cut: {why}")
    if always and counts.get("epochs"):
        parts.append(f"{counts['epochs']:,} epochs, read ahead")
    return f"Data of {task}, split {split!r}: {'; '.join(parts)}" if parts else None


def _named(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(prefix).replace("_", " "): n
        for name, n in counts.items()
        if n and name.startswith(prefix)
    }
