"""Counts what was read of each task.

    data_metrics(sum_over_hosts(stream.counts(), stream.rows[0]))
    # {"data/records/my_task": 1200.0, …}
    summary("spam", "test", source.record_counts("test"))
    # "Data of spam, split 'test': 18 of 78 records skipped (23.1 %): 13 empty, 5 malformed"

Metrics are summed over all hosts; a summary is one sentence about a task.
"""

from collections.abc import Mapping

import jax
import seqio

from common.source import source_of
from common.tables import counted
from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost.broadcast import gather

_METRICS = {"read": "records"}


def sum_over_hosts(
    counts: Mapping[str, Mapping[str, int]], first_row: int
) -> dict[str, dict[str, int]]:
    """Return the counts of all hosts together; every host must call this at the same time.

    `first_row` is this host's first row in a global batch. Hosts of the same first row share a
    replica of the model and have read the same records, which count once.
    """
    if jax.process_count() == 1 or not any(counts.values()):
        return {task: dict(values) for task, values in counts.items()}
    hosts = dict(gather([first_row, counts])).values()
    # An epoch is complete when it is complete on every host.
    add = lambda task, name: (min if name == "epochs" else sum)(h[task][name] for h in hosts)
    return {task: {name: add(task, name) for name in values} for task, values in counts.items()}


def data_metrics(counts: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Return metrics: `data/records/<task>`, `data/documents/<task>`, `data/skipped_…`, and so on.

    Documents are the records that were not skipped.
    """
    metrics_of_tasks: dict[str, float] = {}
    for task, values in counts.items():
        numbers = {k: count for k, count in values.items() if k not in ("examples", "epochs")}
        metrics = {_METRICS.get(name, name): float(count) for name, count in numbers.items()}
        if "read" in values:
            skipped = sum(_with_prefix("skipped_", values).values())
            metrics["documents"] = float(values["read"] - skipped)
        metrics_of_tasks |= {f"data/{name}/{task}": value for name, value in metrics.items()}
    return metrics_of_tasks


def text_tokens(sums: Mapping[str, float], row_tokens: float | None) -> float:
    """Return how many tokens of the corpus were trained on, from a run's added `step_sums`.

    They are the tokens of all rows but one EOS an example, or `row_tokens` of each row if that is
    known: objectives add sentinels.
    """
    if row_tokens:
        return sums.get("sequences", 0.0) * row_tokens
    add = lambda prefix: sum(n for name, n in sums.items() if name.startswith(prefix))
    return add("non_padding/") - add("examples/")


def summaries(
    cfg: DatasetConfig,
    examples: Mapping[str, int] | None = None,
    truncated: int | None = None,
    epochs: Mapping[str, float] | None = None,
) -> list[str]:
    """Return a summary of each task whose records this process skipped or cut.

    `examples` is the number of examples of each task, where it is known. For a training stream
    `truncated` is the number of examples that were cut to the lengths of `cfg`, and `epochs` are
    those trained on by task; its summaries are complete, also where nothing was skipped.
    """
    lines, is_training = [], truncated is not None
    for task in seqio.get_subtasks(cfg.provider):
        if counts := source_of(task).record_counts(cfg.split):
            number = (examples or {}).get(task.name)
            trained = (epochs or {}).get(task.name)
            lines.append(summary(task.name, cfg.split, counts, number, is_training, trained))
    if truncated:
        cut = f"{truncated:,} of the examples made cut to TASK_FEATURE_LENGTHS"
        lines.append(f"Data of {cfg.provider.name}, split {cfg.split!r}: {cut}")
    share = " (this host's share)" if is_training and jax.process_count() > 1 else ""
    return [f"{line}{share}" for line in lines if line]


def summary(
    task: str,
    split: str,
    counts: Mapping[str, int],
    examples: int | None = None,
    is_complete: bool = False,
    epochs: float | None = None,
) -> str | None:
    """Return skipped, changed and cut records of a split in one line, None if there are none.

    `counts` are those of `Source.record_counts`; `examples` is how many there are, if
    known, since those made may be several times as many. With `is_complete` also report records if
    none was skipped. `epochs` is how often the corpus was trained on, roughly.
    """
    parts, read = [], counts.get("read", 0)
    if reasons := _with_prefix("skipped_", counts):
        n = sum(reasons.values())
        why = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items())
        parts.append(f"{n:,} of {counted(read, 'record')} skipped ({100 * n / read:.1f} %): {why}")
    elif read and is_complete:
        parts.append(f"{counted(read, 'record')} read, none skipped")
    if bad := counts.get("bad_files"):
        parts.append(f"{counted(bad, 'bad file')} skipped")
    parts += [f"{n:,} kept {reason}" for reason, n in _with_prefix("kept_", counts).items()]
    if unknown := counts.get("unknown_pieces"):
        pieces = counts["pieces"]
        percent = 100 * unknown / pieces
        parts.append(f"{unknown:,} of {pieces:,} pieces unknown ({percent:.2f} %)")
    if spelled := counts.get("texts_with_special_tokens"):
        parts.append(f"{counted(spelled, 'text')} with special tokens, ordinary text in training")
    if cut := _with_prefix("cut_", counts):
        total = counts["examples"]
        if examples and total % examples:  # another reader made some of them
            examples = None
        times = total / examples if examples else 1
        share = lambda n: f"{100 * n / total:.1f} %"
        why = ", ".join(f"{round(n / times):,} {name} ({share(n)})" for name, n in cut.items())
        parts.append(f"of {examples or total:,} examples{'' if examples else ' made'} cut: {why}")
    if epochs is not None:
        parts.append(f"trained on for about {counted(epochs, 'epoch', '.2g')}")
    return f"Data of {task}, split {split!r}: {'; '.join(parts)}" if parts else None


def _with_prefix(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(prefix).replace("_", " "): n
        for name, n in counts.items()
        if n and name.startswith(prefix)
    }
