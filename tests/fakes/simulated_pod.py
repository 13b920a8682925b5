"""A user's clone, its origin and a fake cloud, for calls of launch/tpu.py.

with Pod(folder, workers=2) as pod:
    pod.make()                                             # create and setup
    pod.do("run", "ro", ZONE, "launch/like_t5x.sh")        # what launch/tpu.py prints
"""

import os
import shutil
import signal
import subprocess
import sys
import time

from fakes.gcloud import Cloud
from fakes.paths import ROOT
from fakes.shell import executable, fake_pythons

ZONE = "us-central2-b"
# Behaves like the trainer: worker 0 shows the steps, which all workers take together; it saves and
# exits on SIGTERM, and resumes. A file fail_<worker> in MODEL_DIR, which holds a step and a status,
# makes it fail once; while a file hold has a step, all wait there.
TRAINER = """#!/usr/bin/env bash
set -euo pipefail
me="$TPU_WORKER_ID"
mkdir -p "$MODEL_DIR"
printf '%s\\n' "$@" > "$HOME/flags"
step="$(cat "$MODEL_DIR/checkpoint" 2> /dev/null || echo 0)"
leaving=""
trap 'leaving=yes' TERM
is_behind() {
  local at=0 worker hold=""
  read -r hold 2> /dev/null < "$MODEL_DIR/hold" || hold=""
  if [[ -n "$hold" ]] && ((step >= hold)); then return; fi
  for ((worker = 0; worker < TPU_WORKERS; worker++)); do
    read -r at 2> /dev/null < "$MODEL_DIR/at_$worker" || at=0
    if ((at < step)); then return; fi
  done
  return 1
}
say() { if [[ "$me" == 0 ]]; then echo "$1"; fi; }
while ((step < STEPS)); do
  echo "$step" > "$MODEL_DIR/at_$me"
  sleep 0.05
  while [[ -z "$leaving" ]] && is_behind; do sleep 0.05; done
  ((++step))
  say "step $step/$STEPS  loss 4.614  accuracy 0.3"
  if [[ "$me" == 0 ]]; then echo "$step" > "$MODEL_DIR/checkpoint"; fi
  if [[ -f "$MODEL_DIR/fail_$me" ]]; then
    read -r at code < "$MODEL_DIR/fail_$me"
    if ((step >= at)); then
      rm "$MODEL_DIR/fail_$me"
      echo "Error: something is wrong on worker $me" >&2
      exit "$code"
    fi
  fi
  if [[ -n "$leaving" ]]; then
    echo "Stopped by SIGTERM at step $step; the same command resumes from here."
    exit 0
  fi
done
say "Training is finished."
"""


class Pod:
    """A user's clone, its origin, and a cloud; scripts are called from the clone.

    The origin has the launch scripts and other `packages` of the repository.
    """

    def __init__(self, folder, workers=4, packages=(), worker_environment=None, **settings):
        self.folder, self.run_dir = folder, folder / "run"
        origin, self.clone = folder / "origin", folder / "clone"
        for folder_name in {"launch", "common", *packages}:
            ignored = shutil.ignore_patterns("env", "__pycache__")
            shutil.copytree(ROOT / folder_name, origin / folder_name, ignore=ignored)
        executable(origin / "launch/like_t5x.sh", TRAINER)
        (origin / "requirements").mkdir()
        for name in ("pyproject.toml", "requirements/lock.txt"):
            (origin / name).write_text("one==1\n")
        shutil.copy(ROOT / ".gitignore", origin)
        self.git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(origin)]
        subprocess.run(["git", "init", "-q", "-b", "main", str(origin)], check=True)
        self.commit("first")
        subprocess.run(["git", "clone", "-q", str(origin), str(self.clone)], check=True)
        fake_pythons(folder / "pythons", folder)
        path = f"{folder}/pythons:{os.environ['PATH']}"
        environment = {"PATH": path} | (worker_environment or {})
        self.cloud, self.started = Cloud(folder / "cloud", environment, workers), []
        self.settings = {
            "MODEL_DIR": str(self.run_dir),
            "TPU_PASS": "STEPS",
            "STEPS": "100000",
            "TPU_POLL_SECONDS": "0.4",
            "TPU_BACKOFF_SECONDS": "0",
            **settings,
        }

    def __enter__(self):
        self.cloud.__enter__()
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:  # left by a failed test
                os.killpg(process.pid, signal.SIGKILL)
        self.cloud.__exit__()

    def commit(self, message):
        subprocess.run([*self.git, "add", "-A"], check=True)
        subprocess.run([*self.git, "commit", "-q", "--allow-empty", "-m", message], check=True)

    def head(self):
        command = [*self.git, "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def worker_settings(self, **environment):
        """Change the environment of the workers."""
        self.cloud.change(environment=self.cloud.read("settings")["environment"] | environment)

    def start(self, *words, **settings):
        """Start launch/tpu.py."""
        env = {"HOME": str(self.folder), "LC_ALL": "C.UTF-8"} | self.cloud.environment
        process = subprocess.Popen(
            [sys.executable, str(self.clone / "launch/tpu.py"), *words],
            env=env | self.settings | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def ask(self, *words, typed="", timeout=240, **settings):
        process = self.start(*words, **settings)
        out, err = process.communicate(typed, timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def do(self, *words, **settings):
        """Return the output of a command, which must succeed."""
        process = self.ask(*words, **settings)
        assert process.returncode == 0, process
        return process.stdout

    def make(self, name="ro"):
        """Create and set up a v4-32 slice."""
        self.do("create", name, ZONE, "v4-32")
        self.do("setup", name, ZONE)

    def step(self):
        path = self.run_dir / "checkpoint"
        return int(path.read_text() or 0) if path.exists() else 0

    def hold_at(self, step):
        """Let the run wait at `step`, once it is there, until `release`."""
        self.run_dir.mkdir(exist_ok=True)
        (self.run_dir / "hold").write_text(f"{step}\n")

    def release(self):
        (self.run_dir / "hold").unlink()

    def wait_for_step(self, step):
        self.wait_for(self.step, step)

    def wait_for(self, count, number, seconds=240):
        """Wait until `count` returns `number` or more."""
        end = time.monotonic() + seconds
        while count() < number:
            assert time.monotonic() < end, f"still {count()}"
            time.sleep(0.02)


def flags_of(call):
    """Return {"--zone": "…", …} of a call, without --quiet, which all calls have."""
    flags = [word for word in call if word[:2] == "--" and word != "--quiet"]
    return {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}
