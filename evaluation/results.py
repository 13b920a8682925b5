"""Writes results of evaluation: a JSON file, a table, and figures into the run.

The file is {"settings": …, "models": [{"name", "step", "parameters", "bytes_per_token",
"measures": {name: [value, standard error, cases]}, …}]}. It is written after each model. With
--per_passage a model has "passages" too: [bits, bytes] of each one's hidden text.
"""

import datetime
import hashlib
import importlib.metadata
import json
import math
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from common import markdown
from common.arguments import version
from common.new_files import replace_file
from common.small_files import parse_json, parsing, read_text
from convert.run.loss_curve import OF_PRETRAINED, metrics_file

# Columns of the table: the measure, its heading, and how a value is written.
_COLUMNS = (
    ("bits_per_byte", "bits a byte", "{:.3f}"),
    ("filled_in", "words filled in", "{:.1%}"),
    ("filled_in_1_100", "of the 100 most frequent", "{:.1%}"),
    ("filled_in_101_1000", "of the next 900", "{:.1%}"),
    ("filled_in_1001_on", "of the rest", "{:.1%}"),
    ("minimal_pairs", "minimal pairs", "{:.1%}"),
    ("unknown_pieces", "unknown pieces", "{:.2%}"),
)


def provenance(*packages: str) -> dict[str, Any]:
    """Return the versions of this project and of packages, and the date."""
    return {
        "version": version(),
        "versions": {package: importlib.metadata.version(package) for package in packages},
        "date": datetime.date.today().isoformat(),
    }


def save(path: str, settings: Mapping[str, Any], models: list[dict[str, Any]]) -> None:
    """Write a results file atomically."""
    write(path, json.dumps({"settings": settings, "models": models}, indent=1) + "\n")


def write(path: str, text: str) -> None:
    """Write a file atomically, and make its folder."""
    replace_file(path, text.encode())


def table(models: Iterable[Mapping[str, Any]]) -> str:
    """Return the results as a Markdown table, with standard errors after ±."""
    models = list(models)
    columns = [c for c in _COLUMNS if any(c[0] in model["measures"] for model in models)]
    header = ["model", "parameters", "bytes a token", *(c[1] for c in columns)]
    lines = []
    for model in models:
        step = "" if model["step"] is None else f", step {model['step']:,}"
        masks = ", by masks" if model["objective"] == "masked_lm" else ""
        row = [f"{model['name']}{step}{masks}", f"{model['parameters'] / 1e6:,.1f} M"]
        row.append(f"{model['bytes_per_token']:.2f}")
        for name, _, form in columns:
            row.append(_cell(model["measures"].get(name), form))
        lines.append(row)
    return markdown.table(header, lines)


def _cell(measure: list[float] | None, form: str) -> str:
    if measure is None or math.isnan(measure[0]):
        return "–"
    value, error, _ = measure
    return f"{form.format(value)} ± {form.format(error)}" if error else form.format(value)


def series(settings: Mapping[str, Any]) -> str:
    """Return a name for a run's figures; only figures of equal settings share it."""
    same = {name: value for name, value in settings.items() if name != "without"}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:6]
    text = re.sub(r"\W+", "_", pathlib.PurePath(settings["text"] or "fineweb2").stem)
    return f"{OF_PRETRAINED[0]}{settings['language']}_{text}_{digest}"


def add_to_run(run: pathlib.Path, task: str, step: int, values: Mapping[str, float]) -> None:
    """Add the figures of a checkpoint to its run, as seqio writes a task's.

    `python -m report` draws them over the steps, and the converter puts the last ones into the
    model card. Figures of the same name and step are replaced; NaN is left out.
    """
    path = metrics_file(run, task)
    steps = {}
    if path.exists():
        with parsing(path, "remove it"):
            rows = [parse_json(line) for line in read_text(path).splitlines()]
            steps = {int(row["step"]): row for row in rows}
    finite = {name: value for name, value in values.items() if not math.isnan(value)}
    steps[step] = steps.get(step, {"step": step}) | finite
    write(str(path), "".join(f"{json.dumps(steps[number])}\n" for number in sorted(steps)))
