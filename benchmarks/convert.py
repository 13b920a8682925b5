"""Time and memory of a conversion, next to the way that loads everything.

  .venv/bin/python benchmarks/convert.py [--size t5_1_1/large] [--folder /tmp/convert_benchmark]
  .venv/bin/python benchmarks/convert.py --size t5_1_1/xl --ways "ours + proof" …

Makes a checkpoint with random weights (kept for the next run), then, each in its own process:

- load everything: read the entire tree, build the model, `save_pretrained`, without proof;
- ours: `convert/convert.sh` writing the same model.safetensors, and a tokenizer;
- ours, with flax_model.msgpack beside it, and with the proof;
- the reverse, `from_hf`, without and with the proof.

Peak memory, sampled every 20 ms, is the private memory of a process and its children (anonymous
pages) and, in brackets, with the files that they map, which the system reclaims at need.
benchmarks/README.md has results.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"
LARGEST_SAVED_AT_ONCE = 2e9  # parameters
EVERYTHING_NAME = "load everything"
EVERYTHING = """
import sys
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from convert import t5x_params, weight_map
from convert.sizes import T5Sizes
from common.gin_reader import Bindings
from pathlib import Path
from t5x.checkpointing.reader import open_checkpoint

run, out = Path(sys.argv[1]), sys.argv[2]
sizes = T5Sizes.from_fields(Bindings.read((run / "config.gin").read_text()).of("T5Config"))
arrays = t5x_params.parameters(open_checkpoint(str(run / "checkpoint_1")))
tree = {name: array.read() for name, array in arrays.items()}
model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**sizes.config()))
state = {}
for tensor in weight_map.tensors(sizes):
    value = tree[tensor.sources[0]]
    value = value.T.copy() if tensor.torch_transposes else value
    state[tensor.target] = torch.from_numpy(value)
head = state.pop("lm_head.weight")
model.load_state_dict(state, strict=False)
model.lm_head.weight = torch.nn.Parameter(head)
model.save_pretrained(out, max_shard_size="5GB")
"""


def random_values(tensor, sizes):
    """Return random float32 values of the scale of T5's initializers (others are chaotic)."""
    import numpy as np

    if len(tensor.shape) == 1:
        return np.ones(tensor.shape, np.float32)
    rng = np.random.default_rng(len(tensor.sources[0]))
    scale = 1.0 if tensor.letters in ("VD", "HR") else tensor.shape[0] ** -0.5
    if "/query/" in tensor.sources[0]:
        scale *= sizes.head_dim**-0.5
    values = rng.standard_normal(tensor.shape, np.float32)
    values *= np.float32(scale)
    return values


def make_run(run: Path, size: str) -> int:
    """Write `run/checkpoint_1` with random weights once; return its number of parameters.

    It is written as the trainer writes it, or tensor by tensor if that does not fit here, with a
    vocabulary of as many pieces made from the bundled one, or none for bytes.
    """
    import numpy as np

    from common.gin_reader import Bindings
    from convert import t5x_params, weight_map
    from convert.formats import t5x_checkpoint_writer
    from convert.formats.sentencepiece_model import read_model, write_model
    from convert.run import rewrite
    from convert.sizes import T5Sizes
    from t5x.checkpointing.lazy_array import LazyArray, from_numpy
    from t5x.checkpoints import Checkpointer

    path = ROOT / "t5x" / "examples" / "t5" / f"{size}.gin"
    sizes = T5Sizes.from_fields(Bindings.follow(path, [ROOT]).of("T5Config"))
    tensors = weight_map.tensors(sizes)
    parameters = sum(int(np.prod(tensor.shape)) for tensor in tensors)
    if (run / "config.gin").exists():
        return parameters
    step = np.asarray(1, np.int32)
    if parameters < LARGEST_SAVED_AT_ONCE:
        flat = {tensor.sources[0]: random_values(tensor, sizes) for tensor in tensors}
        with Checkpointer(str(run)) as checkpointer:
            target = t5x_params.nested(flat)
            checkpointer.save(1, {"target": target, "state": {"step": step}})
    else:
        lazy = lambda tensor: LazyArray(
            tensor.shape, np.dtype(np.float32), lambda index: random_values(tensor, sizes)[index]
        )
        arrays = {f"target/{tensor.sources[0]}": lazy(tensor) for tensor in tensors}
        t5x_checkpoint_writer.write(run / "checkpoint_1", arrays | {"state/step": from_numpy(step)})
    in_bytes = size.startswith("byt5")
    if not in_bytes:
        pieces = vocabulary_of(read_model(str(MINI)), sizes.vocab_size // 100 * 100)
        write_model(pieces, str(run / "vocabulary.model"))
    (run / "config.gin").write_text(
        rewrite.gin_of(sizes, {"ByteVocabulary": 100} if in_bytes else None)
    )
    return parameters


def vocabulary_of(model, size: int):
    """Return the model's pieces, then pairs of letters up to `size` - 100, then the sentinels."""
    from convert.formats.sentencepiece_model import NUM_SENTINELS, append_sentinels, sentinel_ids

    del model.pieces[len(model.pieces) - len(sentinel_ids(model)) :]
    lowest = min(piece.score for piece in model.pieces)
    for i in range(size - NUM_SENTINELS - len(model.pieces)):
        pair = chr(0x4E00 + i // 512) + chr(0x4E00 + i % 512)
        model.pieces.add(piece=pair, score=lowest - 1)
    append_sentinels(model)
    return model


def memory_of(pid: int) -> tuple[int, int]:
    """Return the private bytes of a process and its children, and with the files they map."""
    import psutil

    private = resident = 0
    try:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            memory = process.memory_info()
            private += memory.rss - file_pages(process.pid)
            resident += memory.rss
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return 0, 0  # ended between two looks
    return private, resident


def file_pages(pid: int) -> int:
    """Return the resident bytes of mapped files (column 3 of statm)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[2]) * os.sysconf("SC_PAGESIZE")


def measure(command: list[str]) -> tuple[float, float, float, float]:
    """Run a command; return seconds, seconds of CPU, and peaks of its own and all memory in MB."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    start, before, peaks = time.perf_counter(), os.times(), [0, 0]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peaks = [max(pair) for pair in zip(peaks, memory_of(process.pid), strict=True)]
        time.sleep(0.02)
    seconds = time.perf_counter() - start
    if process.wait():
        raise SystemExit(f"failed: {' '.join(command)}")
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])  # CPU time of children that have ended
    return seconds, cpu, peaks[0] / 1e6, peaks[1] / 1e6


def ways(run: Path, folder: Path) -> dict[str, list[str]]:
    """Return the commands to measure, by name."""
    out, back = str(folder / "out"), str(folder / "back")
    script = str(ROOT / "convert" / "convert.sh")
    convert = ["bash", script, str(run), "--out", out]
    from_hf = ["bash", script, "from_hf", f"{out}/checkpoint_1", back]
    return {
        EVERYTHING_NAME: [sys.executable, "-c", EVERYTHING, str(run), out],
        "ours": [*convert, "--formats", "pytorch", "--no_verify"],
        "ours + Flax": [*convert, "--no_verify"],
        "ours + proof": [*convert, "--formats", "pytorch"],
        "ours + Flax + proof": convert,
        "back": [*from_hf, "--no_verify"],
        "back + proof": from_hf,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="t5_1_1/large")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/convert_benchmark"))
    parser.add_argument("--ways", nargs="+", help="only these, by name")
    args = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    run = args.folder / args.size.replace("/", "_")
    # In a process of its own, since a command starts as a copy of this one.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        parameters = pool.apply(make_run, (run, args.size))
    print(f"{args.size}: {parameters / 1e6:.0f} M parameters", flush=True)
    base = None
    for name, command in ways(run, args.folder).items():
        if args.ways and name not in args.ways:
            continue
        place = args.folder / ("back" if "from_hf" in command else "out")
        shutil.rmtree(place, ignore_errors=True)
        os.sync()
        seconds, cpu, private, resident = measure(command)
        base = base or (name == EVERYTHING_NAME and (seconds, cpu, private))
        figures = (seconds, cpu, private)
        shares = (
            [f"({a / b:.2f})" for a, b in zip(figures, base, strict=True)] if base else [""] * 3
        )
        print(
            f"{name:20} {seconds:6.1f} s {shares[0]:6} {cpu:6.1f} s of CPU {shares[1]:6} "
            f"{private:6.0f} MB {shares[2]:6}  [{resident:.0f} MB]",
            flush=True,
        )
    for place in ("out", "back"):
        shutil.rmtree(args.folder / place, ignore_errors=True)


if __name__ == "__main__":
    main()
