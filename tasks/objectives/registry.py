"""The objectives by name.

| name | hides | targets for 512 inputs |
|---|---|---|
| span_corruption | 15 % in spans of 3 tokens (`tasks.objectives.span_corruption`) | 114 |
| byt5 | 15 % in spans of 20 bytes | 95 |
| whole_words | 15 % in spans of 3 tokens of whole words (`tasks.objectives.whole_words`) | 114 |
| single_tokens | 15 % token by token, at most 80 (`tasks.objectives.single_tokens`) | 155 |
| prefix_lm | the second part of the text (`tasks.objectives.prefix_lm`) | 512 |
| ul2 | by seven denoisers with prefixes, two examples a row (`tasks.objectives.ul2`) | 311 |
| masked_lm | 15 %, complete words, for encoders (`tasks.objectives.masked_lm`) | 512 |
| bert | the same in pairs of sentences with a label | 512 |
| modernbert | 30 % | 512 |

    get_objective("span_corruption").lengths(512)    -> Lengths(tokens=568, targets=114)
    get_objective("ul2").lengths(512, vocabulary)    # the cost of prefixes depends on it
    objective_of("ro_mini_ul2")                      # of a registered task
"""

import functools

import seqio

from common.errors import UserError
from tasks.objectives import masked_lm, prefix_lm, single_tokens, span_corruption, ul2, whole_words
from tasks.objectives.base import Objective
from tasks.task import Task

OBJECTIVES: dict[str, Objective] = {
    "span_corruption": span_corruption.T5_NOISE,
    "byt5": span_corruption.BYT5_NOISE,
    "whole_words": whole_words.WholeWords(),
    "single_tokens": single_tokens.SingleTokens(),
    "prefix_lm": prefix_lm.PrefixLM(),
    "ul2": ul2.UL2,
    "masked_lm": masked_lm.MaskedLM(),
    "bert": masked_lm.BERT,
    "modernbert": masked_lm.MODERNBERT,
}


def get_objective(objective: str | Objective) -> Objective:
    """Return the objective of a name; an objective is returned as it is.

    Raises:
      UserError: the name is unknown.
    """
    if not isinstance(objective, str):
        return objective
    if objective not in OBJECTIVES:
        raise UserError(
            "objective",
            objective,
            f"but must be one of {', '.join(OBJECTIVES)}, or an object such as "
            "tasks.objectives.span_corruption.SpanNoise(0.5, 8)",
        )
    return OBJECTIVES[objective]


def objective_of(task: str | seqio.Task) -> Objective | None:
    """Return the objective of a task that `tasks.corpora` has registered, else None."""
    task = seqio.TaskRegistry.get(task) if isinstance(task, str) else task
    if isinstance(task, Task) and task.made_from:
        return objective_of(task.made_from.task)
    for step in task.preprocessors:
        function = step.func if isinstance(step, functools.partial) else step
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Objective):
            return owner
    return None
