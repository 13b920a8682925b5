"""The objectives by name, and the lengths they need.

| name | hides | targets for 512 inputs |
|---|---|---|
| span_corruption | 15 % in spans of 3 tokens (`tasks.objectives.span_corruption`) | 114 |
| byt5 | 15 % in spans of 20 bytes | 95 |
| whole_words | 15 % in spans of 3 tokens of whole words (`tasks.objectives.whole_words`) | 114 |
| single_tokens | 15 % token by token, at most 80 (`tasks.objectives.single_tokens`) | 155 |
| prefix_lm | the second part of the text (`tasks.objectives.prefix_lm`) | 512 |
| ul2 | by seven denoisers with prefixes (`tasks.objectives.ul2`) | 511 |

    lengths("span_corruption", 512)               -> Lengths(tokens=568, targets=114)
    lengths("ul2", 512, vocabulary)               # what prefixes cost depends on the vocabulary
    lengths_of_task("ro_mini_ul2", 128)
    find(words.WholeWords(spans.SpanNoise(0.2, 5)))   # an objective of one's own
"""

import functools
from typing import Protocol, runtime_checkable

import seqio

from tasks.objectives import prefix_lm, single_tokens, span_corruption, ul2, whole_words


@runtime_checkable
class Objective(Protocol):
    """What turns documents into examples."""

    def lengths(
        self, inputs_length: int, vocabulary: seqio.Vocabulary | None = None
    ) -> span_corruption.Lengths:
        """Returns the longest run of text that fills the inputs, and the targets' length."""

    def preprocess(self, dataset, sequence_length, output_features, task: str):
        """The seqio preprocessor; its examples lack EOS. `task` is for error messages."""


OBJECTIVES: dict[str, Objective] = {
    "span_corruption": span_corruption.T5_NOISE,
    "byt5": span_corruption.BYT5_NOISE,
    "whole_words": whole_words.WholeWords(),
    "single_tokens": single_tokens.SingleTokens(),
    "prefix_lm": prefix_lm.PrefixLM(),
    "ul2": ul2.UL2,
}


def find(objective: str | Objective) -> Objective:
    """Returns the objective of that name, or the one given.

    Raises:
      ValueError: there is none of that name.
    """
    if not isinstance(objective, str):
        return objective
    if objective not in OBJECTIVES:
        raise ValueError(
            f"objective is {objective!r}, but must be one of {', '.join(OBJECTIVES)}, or an object "
            "such as tasks.objectives.span_corruption.SpanNoise(0.5, 8)"
        )
    return OBJECTIVES[objective]


def lengths(
    objective: str | Objective, inputs_length: int, vocabulary: seqio.Vocabulary | None = None
) -> span_corruption.Lengths:
    """Returns the longest run and the targets' length for inputs of a length, EOS counted.

    Raises:
      ValueError: the objective is unknown, or the inputs are too short.
    """
    return find(objective).lengths(inputs_length, vocabulary)


def of_task(task: str | seqio.Task) -> Objective | None:
    """Returns the objective of a task that `tasks.corpora` has registered, else None."""
    task = seqio.TaskRegistry.get(task) if isinstance(task, str) else task
    if hasattr(task, "made_from"):
        return of_task(task.made_from[0])
    for step in task.preprocessors:
        function = step.func if isinstance(step, functools.partial) else step
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Objective):
            return owner
    return None


def lengths_of_task(task: str | seqio.Task, inputs_length: int) -> span_corruption.Lengths | None:
    """Returns `lengths` of a task's objective with its vocabulary, None if it has none of ours."""
    task = seqio.TaskRegistry.get(task) if isinstance(task, str) else task
    objective = of_task(task)
    if objective is None:
        return None
    return objective.lengths(inputs_length, task.output_features["targets"].vocabulary)
