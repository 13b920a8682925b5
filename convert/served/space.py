"""A folder for a Space of the Hugging Face hub: a Gradio page that tries the converted model."""

import importlib.metadata
import shutil
from pathlib import Path

import yaml

from convert import atomic_output
from convert.served import space_app

GRADIO = "6.31.0"  # the tested version


def write(folder: Path, model: Path, repository: str | None) -> str:
    """Write the Space of a converted `model` folder; return what to do with it.

    It loads `repository` from the hub, or without one the folder beside it, which works on this
    machine only. Raise ValueError if `model` is not a finished conversion, or has no tokenizer.
    """
    record = atomic_output.read_record(model)
    if record is None or not record["tokenizer"]:
        raise ValueError(f"--space needs a tokenizer, which {model} lacks: give --vocabulary.")
    name = record["source"]
    with atomic_output.staged(folder) as temporary:
        shutil.copyfile(space_app.__file__, temporary / "app.py")
        atomic_output.write_json(
            temporary / "space.json",
            {
                "title": name,
                "model": repository or f"../{model.name}",
                "examples": [text for text, _ in record.get("examples", [])],
            },
        )
        front = {"title": name, "sdk": "gradio", "sdk_version": GRADIO, "app_file": "app.py"}
        if repository:
            front["models"] = [repository]
        text = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
        (temporary / "README.md").write_text(f"---\n{text}---\n\nTries {repository or name}.\n")
        needs = [f"{p}=={importlib.metadata.version(p)}" for p in ("transformers", "sentencepiece")]
        torch = importlib.metadata.version("torch").partition("+")[0]
        requirements = [*needs, f"torch=={torch}"]
        (temporary / "requirements.txt").write_text("\n".join(requirements) + "\n")
        atomic_output.write_record(temporary, {"source": name})
    if repository:
        return f"hf upload {repository}-space {folder} --repo-type space   # publishes the page"
    return f"python {folder}/app.py   # needs `python -m pip install gradio=={GRADIO}`"
