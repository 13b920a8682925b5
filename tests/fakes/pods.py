"""Pods of real processes on this machine: `python -m t5x.train` with a model of a few parameters.

    with Pod(folder, steps=40, processes=2, programs=folder / "programs") as pod:
        pod.wait_for(lambda: pod.saved())
        pod.processes[1].kill()
        statuses, said = pod.ends(within=60)
    pod.losses()                       # {step: its loss}

A pod writes in `folder`/run; a second one on the same folder resumes it.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from fakes.loopback import free_port
from fakes.paths import FAST_COMPILATION, ROOT
from fakes.scalars import scalars
from t5x.checkpointing import layout
from t5x.checkpointing.reader import open_checkpoint

# Of both recipes; what a recipe imports and includes comes before.
_BINDINGS = """
TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 64}
BATCH_SIZE = 8
EVAL_PERIOD = 1000000
train_script.train.train_eval_dataset_cfg = None
train_script.train.run_eval_before_training = False
train_script.train.stats_period = 1
utils.SaveCheckpointConfig.period = 10
"""
SMALL = f"""
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import partitioning
from t5x import utils
from t5x.examples.t5 import network
include 'gin/ro_t5x_tiny.gin'
{_BINDINGS}
network.T5Config.emb_dim = 16
network.T5Config.mlp_dim = 32
network.T5Config.num_heads = 2
network.T5Config.head_dim = 8
network.T5Config.num_encoder_layers = 1
network.T5Config.num_decoder_layers = 1
"""
ENCODER = f"""
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils
from t5x.examples.encoder import network
include 'gin/ro_bert_tiny.gin'
{_BINDINGS}
utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'
utils.create_learning_rate_scheduler.warmup_steps = 10
network.BertConfig.emb_dim = 16
network.BertConfig.mlp_dim = 32
network.BertConfig.num_heads = 2
network.BertConfig.num_layers = 1
"""
# `convert`, if a test has called it in this process, has set EPATH_USE_TF.
DROPPED = ("XLA_FLAGS", "HF_HUB_OFFLINE", "JAX_NUM_CPU_DEVICES", "EPATH_USE_TF")


class Pod:
    """Processes that train together, started when it is made.

    Args:
      folder: receives the run and a log for each process.
      steps: the last step of training.
      processes: the number of processes, with one device each.
      programs: a folder for compiled programs.
      bindings: more lines of gin.
      environment: more variables.
      model_dir: replaces `folder`/run.
      places: the folder that each process works in, if not the repository.
      recipe: the gin file, without `bindings`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        steps: int,
        processes: int = 1,
        programs: pathlib.Path | None = None,
        bindings: str = "",
        environment: dict[str, str] | None = None,
        model_dir: str | None = None,
        places: list[pathlib.Path] | None = None,
        recipe: str = SMALL,
    ):
        self.folder, self.run = folder, folder / "run"
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "small.gin").write_text(recipe + bindings)
        inherited = {key: value for key, value in os.environ.items() if key not in DROPPED}
        self.environment = {
            **inherited,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": FAST_COMPILATION,
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_COMPILATION_CACHE_DIR": str(programs or folder / "programs"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        }
        command = [sys.executable, "-m", "t5x.train", f"--gin_file={folder}/small.gin"]
        command += [f"--gin_search_paths={ROOT}", f"--gin.TRAIN_STEPS={steps}"]
        command.append(f'--gin.MODEL_DIR="{model_dir or self.run}"')
        if processes > 1:
            command.append(f"--coordinator_address=127.0.0.1:{free_port()}")
            command.append(f"--process_count={processes}")
        self.processes = []
        for index, place in enumerate(places or [ROOT] * processes):
            mine = [f"--process_index={index}"] if processes > 1 else []
            with open(self._log(index), "w") as log:
                self.processes.append(
                    subprocess.Popen(
                        command + mine,
                        cwd=place,
                        env=self.environment,
                        stdout=subprocess.DEVNULL,
                        stderr=log,
                        start_new_session=True,  # so that Ctrl-C of the tests does not reach it
                    )
                )

    def _log(self, index: int) -> pathlib.Path:
        return self.folder / f"said_{index}.txt"

    def __enter__(self) -> "Pod":
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self) -> None:
        """Kill all processes with SIGKILL."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def said(self) -> str:
        """Return the output of all processes."""
        return "".join(self._log(index).read_text() for index in range(len(self.processes)))

    def saved(self) -> list[int]:
        """Return the steps of its complete checkpoints."""
        return layout.all_steps(str(self.run))

    def wait_for(self, condition, seconds: float = 300) -> None:
        """Wait until `condition()`; fail if a process ends or it takes too long."""
        end = time.monotonic() + seconds
        while not condition():
            assert all(process.poll() is None for process in self.processes), self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

    def ends(self, within: float = 600) -> list[int]:
        """Wait for all processes and return their statuses."""
        end = time.monotonic() + within
        try:
            return [p.wait(max(0.1, end - time.monotonic())) for p in self.processes]
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {within} s: {self.said()}") from error

    def send(self, index: int, number: signal.Signals) -> None:
        """Send a signal to one process."""
        self.processes[index].send_signal(number)

    def losses(self) -> dict[int, float]:
        """Return the loss of each step, as last written."""
        return losses(self.run)

    def arrays(self) -> dict:
        """Return the arrays of the newest checkpoint."""
        return arrays(self.run)


def losses(run: pathlib.Path) -> dict[int, float]:
    """Return the loss of each step of a run, as last written."""
    return scalars(run / "train")


def arrays(run: pathlib.Path) -> dict:
    """Return the arrays of a run's newest checkpoint by name."""
    stored = open_checkpoint(layout.latest_checkpoint(str(run)))
    return {name: array.read() for name, array in stored.items()}
