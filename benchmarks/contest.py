"""Recipes at equal FLOP: bits a byte of Romanian novels that none of them has read.

    python -m benchmarks.contest fetch --work /data/contest
    python -m benchmarks.contest run --work /data/contest
    python -m benchmarks.contest table --page docs/contest.md --png docs/contest.png

`fetch` downloads the novels of `benchmarks/novels.sha256`, checks them, and makes the text. `run`
runs the trials of each row of `ROWS`: its rates with the first seed, and the best rate with all
seeds. A trial is the command that a user would start, with as many steps as the FLOP of `--budget`
buy for its recipe; a killed one continues from its last checkpoint. Each finished trial is a line
of --results. Several machines take part if --work and --results are in a folder that they share:
the one that creates WORK/claims/TRIAL runs it. A worker that is killed with -9 leaves its claim;
`--release HOST` takes those of a host away.

The measure is that of `python -m evaluation`, with the same hidden words for all rows.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from benchmarks.kneser_ney import SEPARATOR, KneserNey, NgramGuesser
from common.errors import UserError, guarded
from convert.run.vocabulary import sentencepiece_vocabulary
from evaluation import measures, models, text_encoder, trials
from evaluation.guesser import Guesser
from evaluation.hidden_text import HiddenText, cut_passages, hide_spans
from preflight.aot import recipe_step
from preflight.aot.recipe import Recipe, load
from t5x.monitoring import event_log, flops, program_cache
from tasks import vocabularies
from tasks.objectives import registry
from tasks.text.normalize import normalize

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "contest.jsonl"
CHECKSUMS = ROOT / "benchmarks" / "novels.sha256"  # as sha256sum writes them
COLLECTION = "COST-ELTeC/ELTeC-rom/418e9a9e92ade7656e191e71ccd99abf44e4763d/level1"
ADDRESS = f"https://raw.githubusercontent.com/{COLLECTION}"
TEI = "{http://www.tei-c.org/ns/1.0}"
HELD_OUT = slice(5, None, 10)  # every tenth novel
RECORD_CHARS = 2_000  # of a record of text, at least
PASSAGES, MAX_CHARS = 900, 400  # measured passages, about as long as what is trained on
BATCH, INPUTS, PIECES = 64, 128, 4096
BUDGET = 1.5e13  # FLOP of a trial: about ten minutes of one core
POINTS = 8  # checkpoints of a trial, which make its curve
VOCABULARY = f"novels_{PIECES}.model"  # in benchmarks/, so that all results have the same
TASKS = """from tasks import corpora
from tasks.corpus.source import CorpusSource
for objective in {objectives}:
    source = CorpusSource("{work}/text")
    corpora.add(f"contest_{{objective}}", source, "{vocabulary}", objective, cedilla=True)
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """A recipe and its bindings; without gin files the n-grams, which only count."""

    gin_files: tuple[str, ...] = ()  # the recipe, and files that follow it
    rates: tuple[float, ...] = (0.025, 0.05, 0.1)  # `base_learning_rate` of the trials
    bindings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # by gin name
    objective: str = "span_corruption"
    prefix: str = ""  # a word before a passage that is asked about, as in the examples
    files: tuple[str, ...] = ()  # that the repository would not need without the row
    seeds: tuple[int, ...] = (0, 1, 2)  # at the best rate; the others have the first


T5, GEMMA = "gin/ro_t5x_tiny.gin", "gin/ro_t5gemma2_tiny.gin"
ADAFACTOR, MUON = "gin/optimizers/adafactor.gin", "gin/optimizers/muon.gin"
NETWORK, NOISE = "t5x/examples/t5gemma2/network.py", "tasks/objectives/ul2.py"
ONE = {"TASK_FEATURE_LENGTHS": {"inputs": INPUTS, "targets": 124}}
TWO = {"TASK_FEATURE_LENGTHS": {"inputs": 2 * INPUTS, "targets": 153}, "BATCH_SIZE": BATCH // 2}
UL2 = {"objective": "ul2", "prefix": "[R]", "files": (NOISE,)}
ONE_HEAD = {"network.T5Config.num_heads": 1, "network.T5Config.head_dim": 128}
LAYERS = {f"network.T5Config.num_{side}_layers": n for side, n in (("encoder", 6), ("decoder", 3))}
HIGH_RATES = (0.1, 0.2, 0.4)
ROWS = {
    "T5 1.1, Adafactor of the recipe": Row((T5,), (0.25,)),
    "n-grams of 5 pieces": Row((), (0.0,), files=("benchmarks/kneser_ney.py",), seeds=(0,)),
    "T5 1.1, Adafactor to zero": Row((T5, ADAFACTOR)),
    "T5 1.1, Muon": Row((T5, MUON), HIGH_RATES, files=("t5x/optimizers.py",)),
    "T5Gemma 2": Row((GEMMA, ADAFACTOR), HIGH_RATES, files=(NETWORK,)),
    "T5 1.1, one head of 128": Row((T5, ADAFACTOR), bindings=ONE_HEAD),
    "T5 1.1, encoder two thirds": Row((T5, ADAFACTOR), bindings=LAYERS),
    "T5 1.1, UL2, one example a row": Row((T5, ADAFACTOR), bindings=ONE, **UL2),
    "T5 1.1, UL2, two examples a row": Row((T5, ADAFACTOR), bindings=TWO, **UL2),
    "T5Gemma 2, UL2, two examples a row": Row((GEMMA, ADAFACTOR), HIGH_RATES, bindings=TWO, **UL2),
    "T5Gemma 2, UL2, two examples a row, Muon": Row((GEMMA, MUON), HIGH_RATES, bindings=TWO, **UL2),
}


class Trial(NamedTuple):
    """A run of a row."""

    row: str
    rate: float
    seed: int
    budget: float = BUDGET

    @property
    def name(self) -> str:
        """The name of its folder."""
        return trials.name_of(self)


# The text: records of novels that are trained on, and passages of the others.


def fetch(address: str, work: pathlib.Path) -> None:
    """Download the novels that are missing, check all, and make the text."""
    novels = work / "novels"
    novels.mkdir(parents=True, exist_ok=True)
    for digest, name in map(str.split, CHECKSUMS.read_text().splitlines()):
        if not (novels / name).exists():
            with urllib.request.urlopen(f"{address}/{name}", timeout=60) as body:
                (novels / name).write_bytes(body.read())
        if hashlib.sha256((novels / name).read_bytes()).hexdigest() != digest:
            why = f"does not have the checksum of {CHECKSUMS.name}"
            raise UserError(str(novels / name), why=why, to_set="remove it, and fetch again")
    paths = sorted(novels.glob("*.xml"))
    (work / "text").mkdir(exist_ok=True)
    for split, held_out in (("train", False), ("validation", True)):
        with (work / "text" / f"{split}.jsonl").open("w") as file:
            for path in (p for p in paths if (p in paths[HELD_OUT]) == held_out):
                for text in records(path):
                    row = {"novel": path.stem, "text": text}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
    vocabulary = shutil.copy(ROOT / "benchmarks" / VOCABULARY, work)
    objectives = sorted({row.objective for row in ROWS.values()})
    tasks = TASKS.format(objectives=objectives, work=work, vocabulary=vocabulary)
    (work / "contest_tasks.py").write_text(tasks)


def records(novel: pathlib.Path) -> Iterator[str]:
    """Yield the paragraphs, headings and verses of a novel, several in a record."""
    body = ElementTree.parse(novel).getroot().find(f"{TEI}text/{TEI}body")
    lines: list[str] = []
    for element in () if body is None else body.iter():
        if element.tag in (f"{TEI}p", f"{TEI}head", f"{TEI}l"):
            lines.append(" ".join("".join(element.itertext()).split()))
            if sum(map(len, lines)) >= RECORD_CHARS:
                yield "\n".join(lines)
                lines = []
    if any(lines):
        yield "\n".join(lines)


def texts_of(work: pathlib.Path, split: str) -> dict[str, list[str]]:
    """Return the records of each novel of a split, as tasks have them."""
    texts: dict[str, list[str]] = {}
    for line in (work / "text" / f"{split}.jsonl").read_text().splitlines():
        row = json.loads(line)
        texts.setdefault(row["novel"], []).append(normalize(row["text"], cedilla=True))
    return texts


def hidden(work: pathlib.Path) -> list[HiddenText]:
    """Return passages from all over the first seven novels held out, with spans hidden."""
    novels, rng = texts_of(work, "validation").values(), np.random.default_rng(0)
    spread = (t for texts in novels for t in texts[:: len(texts) * len(novels) // PASSAGES or 1])
    passages = cut_passages(spread, PASSAGES, MAX_CHARS, per_document=1)
    return [hide_spans(words, rng) for words in passages]


# One trial.


def call(work: pathlib.Path, module: str, *arguments: object) -> None:
    """Run `python -m module`, which can import the tasks of the contest."""
    environment = os.environ | {"PYTHONPATH": f"{work}:{ROOT}"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def bindings(trial: Trial, work: pathlib.Path, steps: int) -> dict[str, Any]:
    """Return what the command binds after the gin files of the row."""
    row, path = ROWS[trial.row], str(work / VOCABULARY)
    lengths = registry.get_objective(row.objective).lengths
    targets = lengths(INPUTS, vocabularies.sentencepiece(path)).targets
    config = "T5Gemma2Config" if GEMMA in row.gin_files else "T5Config"
    return {
        "MODEL_DIR": str(work / "runs" / trial.name),
        "MIXTURE_OR_TASK_MODULE": "contest_tasks",
        "MIXTURE_OR_TASK_NAME": f"contest_{row.objective}",
        "TASK_FEATURE_LENGTHS": {"inputs": INPUTS, "targets": targets},
        "seqio.SentencePieceVocabulary.sentencepiece_model_file": path,
        f"network.{config}.vocab_size": PIECES,
        "BATCH_SIZE": BATCH,
        "RANDOM_SEED": trial.seed,
        "TRAIN_STEPS": steps,
        "train_script.train.train_eval_dataset_cfg": None,
        "train_script.train.run_eval_before_training": False,
        "utils.SaveCheckpointConfig.period": math.ceil(steps / POINTS),
        "utils.SaveCheckpointConfig.keep": None,
        "utils.create_learning_rate_scheduler.base_learning_rate": trial.rate,
        **row.bindings,
    }


def step_flops(trial: Trial, work: pathlib.Path) -> float:
    """Return the FLOP of a train step of a trial, as the trainer counts them."""
    pairs = tuple(f"{k} = {v!r}" for k, v in bindings(trial, work, steps=1).items())
    run = load(Recipe(ROWS[trial.row].gin_files, pairs, (str(ROOT),)))
    count = flops.batch_flops(run.model, recipe_step.batch_shapes(run))
    assert count, "the FLOP of this network are unknown"
    return count


def bits_per_byte(guesser: Guesser, texts: Sequence[HiddenText], prefix="") -> measures.Measure:
    """Return the bits that a byte of hidden text costs a model that reads `prefix` before it."""
    before = (prefix,) if prefix else ()
    moved = lambda text: tuple((a + len(before), b + len(before)) for a, b in text.spans)
    asked = [HiddenText(before + text.words, moved(text)) for text in texts]
    bits = [-guess.log_prob / math.log(2) for guess in guesser.guess(asked)]
    return measures.ratio(bits, [text.num_bytes for text in texts])


def train(trial: Trial, work: pathlib.Path) -> dict[str, Any]:
    """Train a trial, or the rest of it; return what its checkpoints measure, by FLOP.

    A trial that diverges measures infinity.
    """
    count = step_flops(trial, work)
    values = bindings(trial, work, steps := int(trial.budget / count))
    flags = [f"--gin_file={name}" for name in ROWS[trial.row].gin_files]
    flags += [f"--gin.{name}={value!r}" for name, value in values.items()]
    command = shlex.join(["python", "-m", "t5x.train", *flags]).replace(str(work), "WORK")
    try:
        call(work, "t5x.train", *flags)
    except subprocess.CalledProcessError:
        if not has_diverged(pathlib.Path(values["MODEL_DIR"])):
            raise
        diverged = measures.Measure(math.inf, 0.0, 0)._asdict()
        return diverged | {"curve": [], "steps": steps, "parameters": 0, "command": command}
    texts, curve = hidden(work), []
    for model in models.find(values["MODEL_DIR"], every_checkpoint=True):
        bits = bits_per_byte(model.load(models.SPAN_CORRUPTION), texts, ROWS[trial.row].prefix)
        curve.append([(model.step or 0) * count, bits.value])
    return bits._asdict() | {
        "curve": curve, "steps": steps, "parameters": model.count_parameters(), "command": command
    }  # fmt: skip


def has_diverged(run: pathlib.Path) -> bool:
    """Return whether a run has failed because its loss, gradients or state are not finite."""
    failures = event_log.EventLog(str(run)).events("failed")
    return bool(failures) and failures[-1].get("diverged", False)


def count_ngrams(work: pathlib.Path) -> dict[str, Any]:
    """Return what n-grams of the text that rows are trained on measure."""
    vocabulary = sentencepiece_vocabulary(str(work / VOCABULARY))
    encoder = text_encoder.vocabulary_encoder(vocabulary, "the vocabulary")
    texts = itertools.chain(*texts_of(work, "train").values())
    ids = [np.array([SEPARATOR, *encoder.ids_of(text)]) for text in texts]
    model = KneserNey(np.concatenate(ids), PIECES)
    bits = bits_per_byte(NgramGuesser(encoder, model), hidden(work))
    return bits._asdict() | {"curve": [], "steps": 0, "parameters": model.size, "command": "run"}


def result_of(trial: Trial, work: pathlib.Path) -> dict[str, Any]:
    """Run a trial; return what its line of results has."""
    row, started = ROWS[trial.row], time.monotonic()
    result = train(trial, work) if row.gin_files else count_ngrams(work)
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return result | {
        "seconds": round(time.monotonic() - started),
        "lines": sum(len((ROOT / name).read_text().splitlines()) for name in row.files),
        "commit": subprocess.check_output(commit, cwd=ROOT, text=True).strip(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


# Which trials, by whom, and what they say.


def sweep(name: str, results: Mapping[Trial, dict], budget: float) -> list[list[Trial]]:
    """Return the trials of all rates of a row, and those of all seeds at the best rate by now."""
    rates = [Trial(name, rate, ROWS[name].seeds[0], budget) for rate in ROWS[name].rates]
    best = min(rates, key=lambda t: results[t]["value"] if t in results else math.inf)
    return [rates, [best._replace(seed=seed) for seed in ROWS[name].seeds]]


def next_trials(names: Iterable[str], results: Mapping[Trial, dict], budget: float) -> list[Trial]:
    """Return the trials that can be run now: all rates, then each row's best by one seed more."""
    sweeps = [sweep(name, results, budget) for name in names]
    rates = [trial for rates, _ in sweeps for trial in rates]
    seeds = [trial for rates, seeds in sweeps if results.keys() >= {*rates} for trial in seeds]
    by_seed = sorted(seeds, key=lambda trial: trial.seed)  # so that all rows have about as many
    return [trial for trial in rates + by_seed if trial not in results]


def table(results: Mapping[Trial, dict], budget: float) -> Iterator[str]:
    """Yield the lines of the table; ± is the standard deviation over seeds, inf a divergence."""
    yield "| row | bits a byte | seeds | rate | steps | parameters | lines | commit |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in ROWS:
        rates, seeds = sweep(name, results, budget)
        lines, tried = [results[t] for t in seeds if t in results], sum(t in results for t in rates)
        if not lines:
            yield f"| {name} | not run yet | | | | | | |"
            continue
        values, last = [line["value"] for line in lines], lines[-1]
        has_spread = len(values) > 1 and all(map(math.isfinite, values))
        spread = f" ± {statistics.stdev(values):.3f}" if has_spread else ""
        cells = [name, f"{statistics.mean(values):.3f}{spread}", str(len(values))]
        cells += [f"{last['rate']:g}, {tried} of {len(rates)} tried" if last["rate"] else ""]
        cells += [f"{last[key]:,}" for key in ("steps", "parameters", "lines")]
        yield f"| {' | '.join([*cells, last['commit']])} |"


def draw(results: Mapping[Trial, dict], budget: float, path: pathlib.Path) -> None:
    """Draw bits a byte against FLOP at the best rate, the mean over seeds; n-grams have no FLOP."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="tight")
    axis = figure.subplots()
    for i, name in enumerate(ROWS):
        lines = [results[t] for t in sweep(name, results, budget)[1] if t in results]
        if curves := [line["curve"] for line in lines if line["curve"]]:
            line = "-" if i < 10 else "--"  # there are ten colours
            axis.plot(*np.mean(curves, axis=0).T, f"C{i}{line}o", label=name, ms=3)
        elif lines and math.isfinite(lines[0]["value"]):
            axis.axhline(lines[0]["value"], color=f"C{i}", ls=":", label=name)
    axis.set(xlabel="FLOP", ylabel="bits a byte of held-out novels")
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=100, metadata={"Software": None})


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Fetch the novels, run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", choices=("fetch", "run", "table"))
    parser.add_argument("--work", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--address", default=ADDRESS, help="folder of the novels")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--budget", type=float, default=BUDGET, help="FLOP of a trial")
    parser.add_argument("--only", default="", help="a regular expression of rows' names")
    parser.add_argument("--release", metavar="HOST", help="whose workers have ended")
    parser.add_argument("--page", type=pathlib.Path, help="whose table is replaced")
    parser.add_argument("--png", type=pathlib.Path, help="picture that is drawn")
    flags = parser.parse_args(argv)
    if flags.action != "table" and not flags.work:
        parser.error(f"{flags.action} needs --work")
    if flags.action == "fetch":
        fetch(flags.address, flags.work)
    elif flags.action == "table":
        results = trials.read(flags.results, Trial)
        print(text := "\n".join(table(results, flags.budget)))
        if flags.page:
            page = flags.page.read_text()
            flags.page.write_text(re.sub(r"(?m)^\| row \|.*(\n\|.*)*", text, page))
        if flags.png:
            draw(results, flags.budget, flags.png)
    else:
        program_cache.keep_programs(os.environ)
        sys.path.insert(0, str(flags.work))
        names = [*filter(re.compile(flags.only).search, ROWS)]
        pending = lambda results: next_trials(names, results, flags.budget)
        run = lambda trial: result_of(trial, flags.work)
        clean = lambda trial: shutil.rmtree(flags.work / "runs" / trial.name, ignore_errors=True)
        trials.run_all(Trial, pending, run, clean, flags.work, flags.results, flags.release)


if __name__ == "__main__":
    main()
