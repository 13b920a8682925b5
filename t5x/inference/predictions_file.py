"""What a run's best evaluation has predicted: `generated_predictions.jsonl`, a line an example.

  publish("runs/summarize_base", ["cnn_dailymail"], 1001000)

Made of the files that `seqio.JSONLogger` leaves in `inference_eval/` of each evaluation. A line:
{"task": …, "step": 1001000, "input": {…}, "target": …, "prediction": …}.
"""

import json
import os
from collections.abc import Iterable

import tensorflow as tf

NAME = "generated_predictions.jsonl"


def publish(folder: str, tasks: Iterable[str], step: int) -> None:
    """Makes the file of the predictions at `step`; leaves it alone where none were logged."""
    logged = [(task, f"{folder}/inference_eval/{task}-{step:06}.jsonl") for task in tasks]
    logged = [(task, path) for task, path in logged if tf.io.gfile.exists(path)]
    if not logged:
        return
    path = os.path.join(folder, NAME)
    with tf.io.gfile.GFile(f"{path}.tmp", "w") as file:
        for task, source in logged:
            with tf.io.gfile.GFile(source) as lines:
                for line in lines:
                    found = {"task": task, "step": step, **json.loads(line)}
                    file.write(json.dumps(found, ensure_ascii=False) + "\n")
    tf.io.gfile.rename(f"{path}.tmp", path, overwrite=True)
