r"""Report the examples that a classifier gets wrong as one HTML page.

    python -m report.misclassified runs/quality_base      # its last evaluation
    python -m report.misclassified runs/quality_base/inference_eval/quality-1001900.jsonl
    python -m report.misclassified runs/quality_infer/quality-predict.jsonl -o runs/wrong.html

It reads the JSON lines that an evaluation writes to `inference_eval/` or t5x.infer writes, and
groups the wrong examples by class and prediction, the most frequent confusion first.
"""

import collections
import html
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common import arguments, html_page
from common.errors import UserError, guarded
from common.new_files import replace_file
from common.small_files import parse_json

_STYLE = (
    "td,th{text-align:right}"
    "blockquote{margin:.5rem 0;padding:.3rem .8rem;border-left:3px solid var(--line);"
    "white-space:pre-wrap;overflow-wrap:anywhere}"
)
NOTHING = "(nothing)"  # an empty prediction; no class has this name


class Example(NamedTuple):
    """A text, its class, and the predicted class."""

    text: str
    target: str
    prediction: str


def read(lines: Iterable[str]) -> Iterator[Example]:
    """Yield the examples of a file of predictions; raise UserError for any other line."""
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
            example = row.get("inputs") or row["input"]
            text, target = example["inputs_pretokenized"], example["targets_pretokenized"]
            yield Example(text, target.strip(), row["prediction"].strip())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"line {number}",
                why="is not a prediction with its input and target",
                to_set="name a .jsonl file of a run's inference_eval folder, or one written by "
                "t5x.infer",
            ) from error


def page(examples: Sequence[Example], title: str, most: int = 50) -> str:
    """Return a page of the confusion matrix and up to `most` texts of each confusion."""
    counts = collections.Counter((e.target, e.prediction) for e in examples)
    wrong = collections.defaultdict(list)
    for example in examples:
        if example.target != example.prediction:
            wrong[example.target, example.prediction].append(example.text)
    total, right = len(examples), len(examples) - sum(map(len, wrong.values()))
    accuracy = f"{right:,} of {total:,} are right ({right / total if total else 0:.2%})."
    parts = [f"<h1>{html.escape(title)}</h1><p>{accuracy}</p>", _matrix(counts)]
    for (target, prediction), texts in sorted(wrong.items(), key=lambda w: (-len(w[1]), w[0])):
        shortened = f", {most} of them shown" if len(texts) > most else ""
        parts.append(
            f"<h2>{html.escape(target)} taken for {html.escape(prediction or NOTHING)}: "
            f"{len(texts):,}{shortened}</h2>"
        )
        parts += [f"<blockquote>{html.escape(text)}</blockquote>" for text in texts[:most]]
    return html_page.page(title, "".join(parts), _STYLE)


def _matrix(counts: collections.Counter[tuple[str, str]]) -> str:
    targets = sorted({target for target, _ in counts})
    columns = targets + sorted({text for _, text in counts} - set(targets))
    head = "".join(f"<th>{html.escape(name or NOTHING)}</th>" for name in columns)
    rows = "".join(
        f"<tr><th>{html.escape(target)}</th>"
        + "".join(f"<td>{counts[target, name]:,}</td>" for name in columns)
        + "</tr>"
        for target in targets
    )
    return f"<table><tr><th>class \\ predicted</th>{head}</tr>{rows}</table>"


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, and return the exit status."""
    parser = arguments.parser("python -m report.misclassified", __doc__)
    add = parser.add_argument
    about = "a run, or predictions that an evaluation or t5x.infer wrote"
    add("predictions", metavar="RUN|JSONL", type=Path, help=about)
    about = "the page, default runs/misclassified_RUN.html"
    add("-o", "--out", type=arguments.text, metavar="HTML", help=about)
    about = "most texts to show of each confusion, default 50"
    add("--most", type=arguments.integer(0), default=50, help=about)
    values = parser.parse_args(argv)
    name = re.sub(r"\W+", "_", str(values.predictions)).strip("_")
    out = values.out or arguments.result_path(f"misclassified_{name}.html")
    arguments.check_output_file("--out", out)
    path: Path = values.predictions
    if path.is_dir():
        decoded = path / "inference_eval"
        path = max(decoded.glob("*-[0-9]*.jsonl"), key=os.path.getmtime, default=decoded)
    try:
        with path.open(encoding="utf-8") as file:
            examples = list(read(file))
    except UserError as error:
        raise error.at(str(path)) from error
    except (UnicodeError, OSError) as error:
        raise UserError(
            str(path), why=f"cannot be read ({error})", to_set="name a file of predictions"
        ) from error
    replace_file(out, page(examples, str(path), values.most).encode())
    print(f"{out}: {len(examples):,} examples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
