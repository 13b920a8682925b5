"""What it costs to add a language to a model: from scratch, continued, or in the decay alone.

    python benchmarks/add_language.py text --packages DIR --novels DIR --work DIR
    python benchmarks/add_language.py run --work DIR --family t5
    python benchmarks/add_language.py table --png docs/add_a_language.png

`text` makes the corpora: nine old languages from the manual pages and HTML guides of unpacked
Debian packages, and Romanian, the added language, from ELTeC's novels. `run` starts the commands
that a user would start, for each of `runs`:

    base     the old languages at a constant rate; base_end is its decay, the model to compare with
    a        Romanian alone, from scratch, with a vocabulary of its own
    b        base continued on both, half of the examples Romanian, with the old vocabulary
    c        b with as many pieces cut from the vocabulary as learned from Romanian: the same size
    d, cd    base, its rate falling to zero from the first step on both; cd has the vocabulary of c

a, b and c train at a constant rate, and `<run>_<steps>` is a branch whose rate falls to zero over
the last fifth of its steps. Steps of b to cd are counted from the base. `--only` names some of the
runs, such as 'base.*', and `--scale` multiplies the steps of the base. Each checkpoint that is
measured is a line of --results, and is not measured again; a killed run continues from its last
checkpoint.

Bits per byte are measured as by `python -m evaluation`: the words to hide, 15 % in spans of 3, are
drawn in the text with one seed, so that all models are asked for the same bytes. They are the nats
of the hidden spans' pieces and of each span's end, divided by the bytes of the spans and ln 2.
Every vocabulary spells unknown words in bytes, so no unknown word is free. An encoder is told the
number of pieces of each span: the more pieces a vocabulary needs, the more it is told.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import study  # noqa: E402
from evaluation import hidden_text, measures, models  # noqa: E402
from evaluation.guesser import Guesser  # noqa: E402
from t5x.monitoring import program_cache  # noqa: E402
from tasks.text import html_text  # noqa: E402
from tasks.text.normalize import normalize  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "add_language.jsonl"
OLD = ("en", "de", "es", "fr", "it", "nl", "pl", "pt", "ru")  # English first: see `write_text`
NEW = "ro"
HELD_OUT = 16  # one of this many documents is held out
SAMPLE = 3_000_000  # bytes of each language, of which a vocabulary is made
PIECES, ADDED = 8192, 1536  # pieces of every vocabulary, and those learned from Romanian
PASSAGES, MAX_CHARS = 100, 500  # measured passages of each language, and their length
BASE, SCRATCH, CONTINUED, DECAYED = 2160, (300, 750, 1500), (300, 750), (150, 300)  # steps
END = 0.2  # share of the steps in which a rate falls
SAVED = 120  # steps between two checkpoints
RESTORE, RATE = "utils.RestoreCheckpointConfig", "utils.create_learning_rate_scheduler"
FLAGS = {
    "MIXTURE_OR_TASK_MODULE": "add_language_tasks",
    "BATCH_SIZE": 16,
    "train_script.train.train_eval_dataset_cfg": None,
    "train_script.train.run_eval_before_training": False,
    "train_script.train.allow_unpublishable": True,  # nothing here is published
    "utils.SaveCheckpointConfig.save_dataset": True,
    "utils.SaveCheckpointConfig.keep": None,
    f"{RATE}.factors": "constant * linear_warmup",
    f"{RATE}.warmup_steps": 100,
}


@dataclasses.dataclass(frozen=True)
class Family:
    """What differs between the families: a recipe and flags, and how a vocabulary is made."""

    recipe: str
    flags: dict[str, object]
    vocabulary_file: str  # the flag that names it
    objective: str
    made_by: tuple[str, ...]
    suffix: str  # suffix of a vocabulary
    in_run: str  # the vocabulary of a changed run


FAMILIES = {
    "t5": Family(
        "ro_t5x_tiny",
        {"network.T5Config.vocab_size": PIECES, f"{RATE}.base_learning_rate": 0.02},
        "seqio.SentencePieceVocabulary.sentencepiece_model_file",
        "span_corruption",
        ("--byte_fallback",),
        ".model",
        "vocabulary.model",
    ),
    "modernbert": Family(
        "ro_modernbert_base",
        {
            "network.ModernBertConfig.vocab_size": PIECES,
            "network.ModernBertConfig.emb_dim": 128,
            "network.ModernBertConfig.num_heads": 4,
            "network.ModernBertConfig.num_layers": 7,
            "network.ModernBertConfig.mlp_dim": 256,
            "network.ModernBertConfig.dtype": "float32",
            "TASK_FEATURE_LENGTHS": {"inputs": 128, "targets": 128},
            "trainer.Trainer.num_microbatches": None,
            f"{RATE}.base_learning_rate": 0.001,
        },
        "VOCABULARY_FILE",
        "modernbert",
        ("--kind", "byte_bpe", "--special_tokens", "modernbert"),
        "_tokenizer",
        "tokenizer",
    ),
}
TASKS = '''"""Tasks <language>_<vocabulary> and mixtures <languages>_<vocabulary>."""

from tasks import corpora, mixtures
from tasks.corpus.source import CorpusSource

SIZES = {sizes}
for kind, path in {vocabularies}.items():
    for name in (*SIZES, "{new}"):
        source = CorpusSource(f"{text}/{{name}}")
        corpora.add(f"{{name}}_{{kind}}", source, path, "{objective}", cedilla=name == "{new}")
    rates = mixtures.rates_of({{f"{{name}}_{{kind}}": size for name, size in SIZES.items()}}, 2)
    mixtures.add(f"old_{{kind}}", rates)
    mixtures.add(f"both_{{kind}}", {{f"old_{{kind}}": 0.5, f"{new}_{{kind}}": 0.5}})
    mixtures.add(f"new_{{kind}}", {{f"{new}_{{kind}}": 1.0}})
'''


@dataclasses.dataclass(frozen=True)
class Run:
    """A call of the trainer: from step `first` of the run `start` to `last`, counted from the base.

    The examples are of the `old` languages, the `new` one or `both`; the rate falls to zero if the
    run is `cooled`, and is constant otherwise.
    """

    name: str
    languages: str
    vocabulary: str
    start: str | None
    first: int
    last: int
    cooled: bool = False


def branched(name: str, languages: str, vocabulary: str, start: str | None, ends) -> Iterator[Run]:
    """Yield a run at a constant rate, and its cooled branches that end at `ends`."""
    firsts = [round(end * (1 - END)) for end in ends]
    yield Run(name, languages, vocabulary, start, 0, firsts[-1])
    for first, end in zip(firsts, ends, strict=True):
        yield Run(f"{name}_{end}", languages, vocabulary, name, first, end, cooled=True)


def runs(scale: int) -> list[Run]:
    """Return all runs, with `scale` times as many steps of the base."""
    return [
        Run("base", "old", "old", None, -BASE * scale, 0),
        Run("base_end", "old", "old", "base", 0, DECAYED[-1], cooled=True),
        *branched("a", "new", "own", None, SCRATCH),
        *branched("b", "both", "old", "base", CONTINUED),
        *branched("c", "both", "cut", "base", CONTINUED),
        *(Run(f"d_{n}", "both", "old", "base", 0, n, cooled=True) for n in DECAYED),
        *(Run(f"cd_{n}", "both", "cut", "base", 0, n, cooled=True) for n in DECAYED),
    ]


# The text: a folder for each language, with train.jsonl and validation.jsonl.


def language_of(path: str) -> str | None:
    """Return the language of a file of a package, by the first code in its path."""
    if re.search(r"/man/man\d", path):
        return "en"
    code = re.search(rf"[/.]({'|'.join(OLD)})(?:[-_][A-Z]{{2}})?[/.]", path)
    return code and code[1]


def read(path: pathlib.Path) -> str:
    """Return the text of a manual page, set by `man` on lines without end, or of an HTML page."""
    if "/man/" not in str(path):
        return html_text.text_of(path.read_text(errors="ignore"))
    command = ["man", "--nh", "--nj", "-E", "UTF-8", "-l", str(path)]
    settings = os.environ | {"MANWIDTH": "30000", "LC_ALL": "C.UTF-8"}
    page = subprocess.run(command, env=settings, capture_output=True, check=False).stdout
    return "\n".join(page.decode(errors="ignore").splitlines()[1:-1])


def prose(text: str) -> Iterator[str]:
    """Yield the lines of six words or more that are mostly letters."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 6 and sum(map(str.isalpha, line)) > 0.7 * len("".join(words)):
            yield " ".join(words)


def write_text(packages: pathlib.Path, novels: pathlib.Path, out: pathlib.Path) -> None:
    """Write the text of unpacked Debian packages, and of novels, by language.

    Whole documents are held out, by a hash of the page's or novel's name, so that a page is held
    out in all languages. A line that was seen before, also in English, is left out: manual pages
    share paragraphs, and translations keep what nobody has translated. Those of held-out documents
    come first, so that no line of them is trained on.
    """
    documents: dict[str, list[tuple[str, str]]] = {}
    paths = [path for path in sorted(packages.rglob("*")) if not path.is_symlink()]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for language in OLD:
            of_it = lambda path: language_of(str(path.relative_to(packages))) == language  # noqa: B023
            pages = [p for p in filter(of_it, paths) if "/man/" in str(p) or p.suffix == ".html"]
            names = [re.sub(rf"\.{language}\b.*", "", path.name) for path in pages]
            documents[language] = list(zip(names, pool.map(read, pages), strict=True))
    files = sorted(novels.glob("*.jsonl"))
    parts = [json.loads(x) for path in files for x in path.read_text().splitlines()]
    documents[NEW] = [(part["novel"], part["text"]) for part in parts]
    seen: set[str] = set()
    for (language, pages), split in itertools.product(documents.items(), ("validation", "train")):
        (out / language).mkdir(parents=True, exist_ok=True)
        with (out / language / f"{split}.jsonl").open("w") as file:
            for name, text in pages:
                held_out = zlib.crc32(name.encode()) % HELD_OUT == 0
                lines = [line for line in prose(text) if line not in seen]
                if lines and held_out == (split == "validation"):
                    seen.update(lines)
                    row = {"text": "\n".join(lines)}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")


# The runs.


class Experiment:
    """The runs of a family, a scale and a seed, in `work`/<family>."""

    def __init__(
        self, work: pathlib.Path, family: str, scale: int, seed: int, results: pathlib.Path
    ):
        self.text, self.shared = work / "text", work / family
        self.folder = self.shared / f"x{scale}"
        self.settings = {"family": family, "scale": scale, "seed": seed}
        self.family, self.scale, self.seed, self.results = FAMILIES[family], scale, seed, results
        self.vocabularies = {
            kind: str(self.shared / f"{kind}{self.family.suffix}") for kind in ("old", "own")
        } | {"cut": str(self.folder / "cut" / self.family.in_run)}

    def call(self, module: str, *arguments: object) -> None:
        """Run `python -m module`."""
        environment = os.environ | {"PYTHONPATH": f"{self.folder}:{ROOT}", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        print(" ".join(command), flush=True)
        subprocess.run(command, cwd=ROOT, env=environment, check=True)

    def write_tasks(self) -> None:
        """Write the module of tasks that the trainer imports."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sizes = {name: (self.text / name / "train.jsonl").stat().st_size for name in OLD}
        settings = {"sizes": sizes, "vocabularies": self.vocabularies, "text": self.text}
        content = TASKS.format(new=NEW, objective=self.family.objective, **settings)
        (self.folder / "add_language_tasks.py").write_text(content)

    def make_vocabulary(self, kind: str) -> None:
        """Train a vocabulary, or change it and the base with it, unless it exists."""
        if os.path.exists(self.vocabularies[kind]):
            return
        if kind != "cut":
            flags = ["--size", PIECES, "--out", self.vocabularies[kind], *self.family.made_by]
            self.call("vocabulary.train", *self.corpus(OLD if kind == "old" else (NEW,)), *flags)
            return
        base, trimmed = (
            self.run_folder("base") / f"checkpoint_{BASE * self.scale}",
            self.folder / "trimmed",
        )
        for command, model, start, languages, size, out in (
            ("trim", self.vocabularies["old"], base, (*OLD, NEW), PIECES - ADDED, trimmed),
            ("extend", trimmed, trimmed, (NEW,), ADDED, self.folder / "cut"),
        ):
            flags = ["--size", size, "--checkpoint", start, "--out", out]
            if not out.exists():
                self.call(f"vocabulary.{command}", model, *self.corpus(languages), *flags)

    def corpus(self, languages: Sequence[str]) -> list[object]:
        """Return the flags that name a sample of the text of some languages."""
        path = self.folder / f"{'_'.join(languages)}.jsonl"
        with path.open("w") as sample:
            for language in languages:
                with (self.text / language / "train.jsonl").open() as file:
                    sample.writelines(file.readlines(SAMPLE))
        return ["--corpus", path, "--cedilla"]

    def run_folder(self, run: str) -> pathlib.Path:
        """Return the folder of a run; all scales and seeds continue the same base."""
        if run == "base":
            return self.shared / "base"
        without_base = run.partition("_")[0] == "a"
        return (self.shared / "x1" if without_base else self.folder) / f"{run}_{self.seed}"

    def train(self, run: Run) -> None:
        """Train a run, or the rest of it."""
        offset = 0 if run.languages == "new" else BASE * self.scale
        last, folder = offset + run.last, self.run_folder(run.name)
        if (folder / f"checkpoint_{last}").exists():
            return
        flags = FLAGS | self.family.flags
        flags |= {"MODEL_DIR": str(folder), "RANDOM_SEED": self.seed, "TRAIN_STEPS": last}
        flags["utils.SaveCheckpointConfig.period"] = SAVED
        flags["MIXTURE_OR_TASK_NAME"] = f"{run.languages}_{run.vocabulary}"
        flags[self.family.vocabulary_file] = self.vocabularies[run.vocabulary]
        if run.start:
            source = next(other for other in runs(self.scale) if other.name == run.start)
            changed = source.vocabulary != run.vocabulary
            start = self.folder / "cut" if changed else self.run_folder(run.start)
            checkpoint = str(start / f"checkpoint_{offset + run.first}")
            if run.cooled:
                flags |= {"COOLDOWN_FROM": checkpoint, "TRAIN_STEPS_RELATIVE": run.last - run.first}
            else:
                flags |= {f"{RESTORE}.path": checkpoint, f"{RESTORE}.mode": "specific"}
        gin = [f"--gin.{name}={value!r}" for name, value in flags.items()]
        self.call("t5x.train", f"--gin_file=gin/{self.family.recipe}.gin", *gin)

    def hidden(self, language: str, guesser: Guesser) -> list[hidden_text.HiddenText]:
        """Return held-out passages of a language, from all over it, with spans hidden."""
        lines = (self.text / language / "validation.jsonl").read_text().splitlines()
        spread = lines[:: max(1, len(lines) // PASSAGES)]
        texts = (normalize(json.loads(x)["text"], cedilla=language == NEW) for x in spread)
        most, rng = math.ceil(PASSAGES / len(spread)), np.random.default_rng(0)
        passages = hidden_text.cut_passages(texts, PASSAGES, MAX_CHARS, most)
        return [guesser.hide(words, rng) for words in passages]

    def measure(self, run: Run) -> None:
        """Add a line to the results for each checkpoint of a run that is to be measured.

        At the end these are all languages that it has seen; on the way there Romanian, at steps
        that double.
        """
        done = {key(line) for line in study.read(self.results)}
        offset = 0 if run.languages == "new" else BASE * self.scale
        for model in models.find(str(self.run_folder(run.name)), every_checkpoint=True):
            step = (model.step or 0) - offset
            doubled = not run.cooled and step >= SAVED and math.log2(step / SAVED).is_integer()
            line = self.settings | {"run": run.name, "step": step}
            line |= {"scale": 1} if run.languages == "new" else {}  # it has no base
            if key(line) in done or not (doubled or step == run.last):
                continue
            guesser = model.load(model.objective(models.SPAN_CORRUPTION))
            all_of_them = step == run.last and run.languages != "new"
            # One call, since texts of like lengths are batched and few shapes compiled.
            texts = {x: self.hidden(x, guesser) for x in ((*OLD, NEW) if all_of_them else (NEW,))}
            guesses = iter(guesser.guess(list(itertools.chain(*texts.values()))))
            line |= {"bits_per_byte": {}, "errors": {}, "unknown_pieces": {}}
            for language, hidden in texts.items():
                bits = [-next(guesses).log_prob / math.log(2) for _ in hidden]
                measured = measures.ratio(bits, [text.num_bytes for text in hidden])
                line["bits_per_byte"][language] = round(measured.value, 4)
                line["errors"][language] = round(measured.error, 4)
                line["unknown_pieces"][language] = guesser.unknown(hidden)[0]
            line |= {"cooled": run.cooled, "parameters": model.count_parameters()}
            study.add(self.results, line)
            print(json.dumps(line), flush=True)


# What the results say.


def key(line: dict) -> tuple:
    """Return what is not measured twice."""
    return tuple(line[name] for name in ("family", "scale", "run", "seed", "step"))


def curve(lines: Sequence[dict], name: str, cooled: bool) -> dict[int, list[float]]:
    """Return Romanian's bits a byte of each seed by steps: of finished models, or on the way."""
    bits: dict[int, list[float]] = collections.defaultdict(list)
    for line in lines:
        if line["run"].partition("_")[0] == name and line["cooled"] == cooled:
            bits[line["step"]].append(line["bits_per_byte"][NEW])
    return dict(sorted(bits.items()))


def lost(lines: Sequence[dict], run: str) -> dict[str, float]:
    """Return by which share each old language's bits a byte are above those of base_end."""
    bits = lambda name, language: statistics.mean(
        line["bits_per_byte"][language] for line in lines if line["run"] == name
    )
    return {language: bits(run, language) / bits("base_end", language) - 1 for language in OLD}


def table(lines: Sequence[dict]) -> Iterator[str]:
    """Yield the rows of the finished models of a family and a scale."""
    yield "| | steps | Romanian | steps of a | others: mean | others: worst |"
    yield "|---|---|---|---|---|---|"
    scratch = {n: statistics.mean(bits) for n, bits in curve(lines, "a", True).items()}
    for name in ("base", "a", "b", "c", "d", "cd"):
        for step, bits in curve(lines, name, True).items():
            needed = study.steps_needed(statistics.mean(bits), scratch)
            times = f"{needed:,.0f}" if needed and math.isfinite(needed) else ""
            times = times or (f"above {max(scratch):,}" if needed else f"below {min(scratch):,}")
            cells = [name, f"{step:,}", study.mean(bits), times, "", ""]
            if name not in ("a", "base"):
                shares = lost(lines, f"{name}_{step}")
                worst = max(shares, key=shares.__getitem__)
                cells[4] = f"{statistics.mean(shares.values()):+.1%}"
                cells[5] = f"{shares[worst]:+.1%} ({worst})"
            yield f"| {' | '.join(cells)} |"


def draw(groups: dict[str, list[dict]], path: pathlib.Path) -> None:
    """Draw Romanian's bits a byte against steps; dots are finished models, dotted is the way."""
    with study.picture(path, len(groups), "bits a byte of held-out Romanian", legend=0) as axes:
        for axis, (title, lines) in zip(axes, groups.items(), strict=True):
            for i, name in enumerate(("a", "b", "c", "d", "cd")):
                for cooled, style in ((False, ":"), (True, "-o")):
                    means = {n: statistics.mean(x) for n, x in curve(lines, name, cooled).items()}
                    label = name if cooled else None
                    axis.plot(means.keys(), means.values(), style, color=f"C{i}", ms=4, label=label)
            axis.set(xlabel="steps", title=title)
            study.set_ticks(axis, sorted({line["step"] for line in lines if line["cooled"]}))


def main(argv: Sequence[str] | None = None) -> None:
    """Make the text, run what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", choices=("text", "run", "table"))
    for name in ("packages", "novels", "work", "png"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--family", choices=FAMILIES, default="t5")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=".*", help="a regular expression of runs' names")
    flags = parser.parse_args(argv)
    if flags.action == "text":
        write_text(flags.packages, flags.novels, flags.work / "text")
    elif flags.action == "run":
        program_cache.keep_programs(os.environ)
        settings = (flags.family, flags.scale, flags.seed, flags.results)
        experiment = Experiment(flags.work.resolve(), *settings)
        experiment.write_tasks()
        for run in runs(flags.scale):
            if re.fullmatch(flags.only, run.name):
                experiment.make_vocabulary(run.vocabulary)
                experiment.train(run)
                experiment.measure(run)
    else:
        results = study.read(flags.results)
        groups: dict[str, list[dict]] = collections.defaultdict(list)
        is_scratch = lambda line: line["run"].partition("_")[0] == "a"
        for line in sorted(results, key=lambda line: (line["family"] != "t5", line["scale"])):
            if not is_scratch(line):  # a line from scratch belongs to every base
                groups[f"{line['family']}, base of {BASE * line['scale']:,}"].append(line)
        for title, lines in groups.items():
            lines += [x for x in results if is_scratch(x) and title.startswith(x["family"])]
        for name, lines in groups.items():
            print(f"\n{name}\n", *table(lines), sep="\n")
        if flags.png:
            draw(groups, flags.png)


if __name__ == "__main__":
    main()
