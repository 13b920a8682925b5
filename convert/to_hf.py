"""T5X checkpoints to Hugging Face folders: read a tensor, write it to its places, prove the whole.

    convert(run, Job(sizes=sizes, out=Path("runs/tiny_hf")), vocabulary=Vocabulary("ro.model"))

writes `runs/tiny_hf/checkpoint_<step>/` with model.safetensors, flax_model.msgpack, config.json,
generation_config.json, the tokenizer's files, README.md and conversion.json (what was done). No
more than one tensor is in memory at a time, until the proof.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from convert import atomic_output, model_card, t5x_params, weight_map
from convert.formats.flax_msgpack_writer import open_flax
from convert.formats.safetensors_writer import DTYPES, SafetensorsWriter
from convert.model_config import Sizes, generation_config, hugging_face_config, model_type
from convert.proof import verify
from convert.run import loss_curve
from convert.run.model_dir import Run
from convert.run.vocabulary import Vocabulary
from convert.subprocesses import give_back_freed_memory

FORMATS = ("pytorch", "flax")


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make of a run's checkpoints.

    Attributes:
      sizes: the trained network.
      out: the folder that receives `checkpoint_<step>/`.
      vocabulary: None converts weights alone.
      family: t5, mt5 or umt5; by default as the network has it.
      dtype: of the written weights, "float32" or "bfloat16".
      formats: any of `FORMATS`.
      shard_bytes: largest safetensors file.
      average: the mean of that many last checkpoints instead of each one.
      verify: whether the result must be proved.
      apart: whether the proof of small networks too runs in processes of its own, so that jax and
        transformers are never in memory together.
    """

    sizes: Sizes
    out: Path
    vocabulary: Vocabulary | None = None
    family: str | None = None
    dtype: str = "float32"
    formats: tuple[str, ...] = FORMATS
    shard_bytes: int = 5 * 10**9
    average: int = 1
    verify: bool = True
    apart: bool = False
    metadata: model_card.Metadata = dataclasses.field(default_factory=model_card.Metadata)


def check_values(name: str, array: np.ndarray) -> None:
    """Refuses NaN, infinity and nothing but zeros, which is how an array reads whose file is gone.

    Minimum and maximum carry NaN and infinity, and need no second array.

    Raises:
      ValueError: naming the tensor.
    """
    least, most = np.min(array), np.max(array)
    if least == most == 0:
        raise ValueError(
            f"{name} holds nothing but zeros, which no training leaves: its data are missing, so "
            "take another checkpoint."
        )
    if not (np.isfinite(least) and np.isfinite(most)):
        count = int(array.size - np.isfinite(array).sum())
        raise ValueError(
            f"{name} holds {count} values that are NaN or infinite: the run had failed by then, "
            "so take an earlier checkpoint."
        )


def write_weights(
    folder: Path, tree: t5x_params.Tree, wanted: list[weight_map.Tensor], job: Job
) -> None:
    """Writes each tensor of the tree into the files of `job.formats`, reading it once.

    Raises:
      ValueError: for NaN inside, an array that cannot be read, or a full disk.
    """
    by_source = {tensor.source: tensor for tensor in wanted}
    with contextlib.ExitStack() as files:
        torch = flax = None
        if "pytorch" in job.formats:
            shapes = {tensor.target: tensor.torch_shape for tensor in wanted}
            torch = SafetensorsWriter(folder, shapes, job.dtype, job.shard_bytes)
            files.enter_context(torch)
        if "flax" in job.formats:
            shapes = {tensor.flax_path: tensor.flax_shape for tensor in wanted}
            flax = files.enter_context(open_flax(folder / "flax_model.msgpack", shapes, job.dtype))
        for name in tree:  # the tree's order reads a scanned array once
            tensor, array = by_source[name], tree[name].read()
            check_values(name, array)
            if torch:
                torch.write(tensor.target, array, tensor.kind.torch_turns)
            if flax:
                flax.write(tensor.flax_path, array, tensor.kind.flax_turns)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a configuration."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def _request(run: Run, steps: list[int], job: Job) -> dict[str, Any]:
    """What a finished folder must say of itself to be skipped."""
    saved = [int((run.local / f"checkpoint_{step}").stat().st_mtime) for step in steps if run.local]
    return {
        "source": run.folder,
        "steps": steps,
        "saved": saved,  # a run begun anew saves the same steps again
        "dtype": job.dtype,
        "formats": list(job.formats),
        "tokenizer": job.vocabulary is not None,
        "metadata": json.loads(json.dumps(dataclasses.asdict(job.metadata))),
        "sizes": json.loads(json.dumps(dataclasses.asdict(job.sizes))),
    }


def _is_done(folder: Path, request: dict[str, Any], verify: bool) -> bool:
    done = atomic_output.record(folder)
    if done is None or any(done.get(key) != value for key, value in request.items()):
        return False
    return not verify or done["proof"] is not None


def _card(folder: Path, run: Run, steps: list[int], job: Job, facts: dict[str, Any]) -> None:
    home = epath.Path(run.folder)
    curves = loss_curve.loss_curve(home, up_to=steps[-1])
    for path in loss_curve.event_files(home):
        place = folder / "runs" / path.relative_to(home)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    weights = sorted(
        path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".msgpack")
    )
    page = model_card.Card(
        name=run.name,
        steps=tuple(steps),
        family=facts["family"],
        sizes=job.sizes,
        parameters=facts["parameters"],
        dtype=job.dtype,
        proof=facts["proof"],
        files=tuple(weights),
        has_tokenizer=job.vocabulary is not None,
        gin=run.gin(),
        curves=curves,
        metadata=job.metadata,
    )
    (folder / "README.md").write_text(model_card.text(page))


def _folder(steps: list[int], job: Job) -> Path:
    mean = f"_mean_of_{len(steps)}" if len(steps) > 1 else ""
    return job.out / f"checkpoint_{steps[-1]}{mean}"


def convert_one(run: Run, steps: list[int], job: Job) -> Path:
    """Converts one checkpoint, or the mean of several, into `job.out/checkpoint_<last step>…`.

    Raises:
      ValueError: one sentence for whatever is wrong; nothing whole-looking is left behind.
    """
    folder, request = _folder(steps, job), _request(run, steps, job)
    paths = [run.checkpoints[step] for step in steps]
    tree = t5x_params.open_tree(paths)
    sizes = dataclasses.replace(job.sizes, own_relative_bias=t5x_params.own_bias(tree))
    job = dataclasses.replace(job, sizes=sizes)
    family = job.family or model_type(sizes)
    if family == "umt5":  # transformers has never had umT5 in Flax
        job = dataclasses.replace(job, formats=tuple(f for f in job.formats if f != "flax"))
    config = hugging_face_config(sizes, family)
    wanted = weight_map.tensors(sizes)
    weight_map.guard(wanted, sizes, {name: tuple(array.shape) for name, array in tree.items()})
    del tree  # what it keeps of the files would stand beside the proof
    if job.vocabulary:
        job.vocabulary.check(sizes.vocab_size)
    parameters = sum(int(np.prod(tensor.shape)) for tensor in wanted)
    needed = parameters * DTYPES[job.dtype].itemsize * len(job.formats)
    atomic_output.check_ours(folder)
    atomic_output.check_room(job.out, needed + 2**24)
    with atomic_output.staged(folder) as temporary:
        write_weights(temporary, t5x_params.open_tree(paths), wanted, job)
        give_back_freed_memory()
        write_json(temporary / "config.json", config | {"torch_dtype": job.dtype})
        write_json(temporary / "generation_config.json", generation_config())
        if job.vocabulary:
            job.vocabulary.write(temporary)
        facts = {"family": family, "parameters": parameters, "proof": None}
        if job.verify:
            trained = job.vocabulary.trained() if job.vocabulary else None
            facts["proof"] = verify.prove(temporary, paths, sizes, job.dtype, trained, job.apart)
        _card(temporary, run, steps, job, facts)
        atomic_output.write_record(temporary, request | facts)
    return folder


def convert(run: Run, job: Job, say: Callable[[str], None] = print) -> list[Path]:
    """Converts every checkpoint of a run that is not converted yet (or their mean).

    Raises:
      ValueError: see `convert_one`.
    """
    steps = sorted(run.checkpoints)
    if job.average > len(steps):
        raise ValueError(
            f"--average {job.average} needs that many checkpoints; {run.folder} holds {len(steps)}."
        )
    groups = [[step] for step in steps] if job.average == 1 else [steps[-job.average :]]
    folders = []
    for group in groups:
        folder = _folder(group, job)
        if _is_done(folder, _request(run, group, job), job.verify):
            say(f"{folder} is done.")
        else:
            say(f"{' + '.join(f'checkpoint_{step}' for step in group)} -> {folder}")
            convert_one(run, group, job)
        folders.append(folder)
    return folders
