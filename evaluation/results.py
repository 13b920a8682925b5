"""Results of evaluation: a JSON file, the table, a page, and what enters a run and its model card.

The file is {"settings": …, "models": [{"name", "step", "parameters", "bytes_per_token",
"measures": {name: [value, standard error, cases]}, …}]}. It is written after each model, so that an
interrupted evaluation continues.
"""

import hashlib
import html
import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from command_line.atomic_file import replace_file
from convert.model_card import result_of
from convert.run.loss_curve import OF_PRETRAINED

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
_NOTES = {
    "bits_per_byte": "Bits a byte: what a byte of held-out text costs a model that sees the rest; "
    "lower is better, and comparable between vocabularies where unknown pieces are few.",
    "filled_in": "Words filled in: the share of hidden words that greedy decoding writes first, "
    "in all and by their rank in the text.",
    "minimal_pairs": "Minimal pairs: how often the right one of two sentences gets more "
    "probability; chance is 50 %.",
}

_BY_MASKS = (
    "By masks: an encoder is given the number of pieces of what is hidden, which a T5 has to "
    "guess, so equal figures are no equal knowledge."
)


def load(path: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the models of a results file, none if there is no file.

    Raises:
      ValueError: it has other settings, or is no results file.
    """
    if not os.path.exists(path):
        return []
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        models, before = found["models"], found["settings"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} holds no results of evaluation: name another file") from error
    if before != json.loads(json.dumps(settings)):
        differing = sorted(k for k in {*before, *settings} if before.get(k) != settings.get(k))
        raise ValueError(
            f"{path} was made with other settings ({', '.join(differing)}), so its figures cannot "
            "stand beside new ones: name another file with --out"
        )
    return models


def save(path: str, settings: Mapping[str, Any], models: list[dict[str, Any]]) -> None:
    """Write a results file atomically."""
    write(path, json.dumps({"settings": settings, "models": models}, indent=1) + "\n")


def write(path: str, text: str) -> None:
    """Write a file atomically, and the folder that it is in."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    replace_file(path, text.encode())


def table(models: Iterable[Mapping[str, Any]]) -> str:
    """Return the results as a Markdown table, with standard errors behind ±."""
    header, rows = _cells(models)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(models: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    models = list(models)
    columns = [c for c in _COLUMNS if any(c[0] in model["measures"] for model in models)]
    rows = []
    for model in models:
        step = "" if model["step"] is None else f", step {model['step']:,}"
        masks = ", by masks" if _by_masks(model) else ""
        row = [f"{model['name']}{step}{masks}", f"{model['parameters'] / 1e6:,.1f} M"]
        row.append(f"{model['bytes_per_token']:.2f}")
        for name, _, form in columns:
            row.append(_cell(model["measures"].get(name), form))
        rows.append(row)
    return ["model", "parameters", "bytes a token", *(c[1] for c in columns)], rows


def _by_masks(model: Mapping[str, Any]) -> bool:
    return model.get("objective") == "masked_lm"


def _cell(measure: list[float] | None, form: str) -> str:
    if measure is None or math.isnan(measure[0]):
        return "–"
    value, error, _ = measure
    return f"{form.format(value)} ± {form.format(error)}" if error else form.format(value)


def page(settings: Mapping[str, Any], models: Iterable[Mapping[str, Any]]) -> str:
    """Return the results as an HTML page that needs no other file."""
    models = list(models)
    header, rows = _cells(models)
    cells = lambda tag, row: "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    shown = {name for model in models for name in model["measures"]}
    texts = [text for name, text in _NOTES.items() if name in shown]
    texts += [_BY_MASKS] if any(_by_masks(model) for model in models) else []
    notes = "\n".join(f"<p>{html.escape(text)}</p>" for text in texts)
    facts = "\n".join(
        f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>" for k, v in settings.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Evaluation</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem }}
body {{ padding: 0 1rem }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse }}
td, th {{ padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ccc }}
td:first-child, th:first-child {{ text-align: left }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem }}
dd {{ margin: 0 }}
</style></head><body>
<h1>Evaluation</h1>
<div><table><thead><tr>{cells("th", header)}</tr></thead>
<tbody>
{body}
</tbody></table></div>
<p>Behind ± is the standard error.</p>
{notes}
<h2>Settings</h2>
<dl>{facts}</dl>
</body></html>
"""


def series(settings: Mapping[str, Any]) -> str:
    """Return the name of a run's figures, which only figures of equal settings share."""
    same = {name: value for name, value in settings.items() if name != "without"}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:6]
    text = re.sub(r"\W+", "_", pathlib.PurePath(settings["text"] or "fineweb2").stem)
    return f"{OF_PRETRAINED[0]}{settings['language']}_{text}_{digest}"


def card(settings: Mapping[str, Any], models: Iterable[Mapping[str, Any]]) -> str:
    """Return lines for a model card: the hub's model-index as its metadata, and the table."""
    models = list(models)
    index = []
    for model in models:
        values = {k: v[0] for k, v in model["measures"].items() if not math.isnan(v[0])}
        entry = result_of(series(settings), model["step"], values)
        index.append({"name": model["name"], "results": [entry]})
    front = yaml.safe_dump({"model-index": index}, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n## Evaluation\n\n{table(models)}\n"


def add_to_run(run: pathlib.Path, task: str, step: int, values: Mapping[str, float]) -> None:
    """Add the figures of a checkpoint to its run, as seqio writes those of a task.

    `python -m report` draws them over the steps, and the converter puts the last ones into the
    model card. Figures of the same step are replaced, others of it are kept, and NaN is
    left out.
    """
    path = run / "inference_eval" / f"{task}-metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = {(row := json.loads(line))["step"]: row for line in lines}
    known = {name: value for name, value in values.items() if not math.isnan(value)}
    found[step] = found.get(step, {"step": step}) | known
    write(str(path), "".join(f"{json.dumps(found[each])}\n" for each in sorted(found)))
