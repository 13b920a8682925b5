"""What a run reads is held against the commit that workers get, before anything is started."""

import re
import subprocess

import pytest

from fakes.shell import executable, sentence
from fakes.simulated_pod import ZONE

RUN = ("run", "ro", ZONE, "launch/like_t5x.sh")
RECIPE_RUN = ("run", "ro", ZONE, "launch/mine.sh")


@pytest.fixture
def ready(pair):
    """A pod of two workers that is set up, whose origin takes pushes."""
    pair.make()
    subprocess.run([*pair.git, "config", "receive.denyCurrentBranch", "updateInstead"], check=True)
    for name, value in (("user.name", "a"), ("user.email", "a@b")):
        subprocess.run(["git", "-C", pair.clone, "config", name, value], check=True)
    return pair


def write(pod, name, text="text"):
    path = pod.clone / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def on_workers(pod, name):
    files = [pod.cloud.home("ro", worker) / "origin" / name for worker in (0, 1)]
    return [file.read_text() if file.exists() else None for file in files]


def commands(refusal):
    """Return the commands that a refusal names."""
    return re.search(r" lacks .*?: (git .*); or --send copies", refusal)[1].split(" && ")


def do(pod, command):
    done = subprocess.run(["bash", "-ec", command], cwd=pod.clone, capture_output=True, text=True)
    assert done.returncode == 0, done


def refused(pod, *words):
    """Return the sentence of a run that is refused, before any worker is asked."""
    asked = len(pod.cloud.calls("tpu-vm ssh"))
    process = pod.ask(*words)
    assert process.returncode == 2
    assert len(pod.cloud.calls("tpu-vm ssh")) == asked
    return process.stderr.splitlines()[-1]


def test_a_run_is_refused_until_its_files_are_pushed_by_the_commands_that_it_names(ready):
    write(ready, "vocabularies/uk.model")
    write(ready, "launch/like_t5x.sh", "echo changed\n")
    write(ready, "notes.txt")  # which no run reads
    refusal = refused(ready, *RUN)
    assert (
        f"({ready.head()} of origin) lacks launch/like_t5x.sh, vocabularies/uk.model: " in refusal
    )
    assert refusal == refused(ready, "supervise", *RUN[1:])
    add, save, push = commands(refusal)
    assert add == "git add launch/like_t5x.sh vocabularies/uk.model"
    do(ready, f"{add} && {save}")
    assert commands(refused(ready, *RUN)) == [push] == ["git push"]
    do(ready, push)
    ready.do(*RUN)
    assert on_workers(ready, "vocabularies/uk.model") == ["text", "text"]


def test_what_others_have_pushed_is_no_lack(ready):
    write(ready, "gin/mine.gin")
    do(ready, "git add -A && git commit -qm mine && git push -q")
    (ready.folder / "origin/gin/mine.gin").write_text("theirs")
    ready.commit("theirs")
    ready.do(*RUN)
    assert on_workers(ready, "gin/mine.gin") == ["theirs", "theirs"]
    ready.do("stop", "ro", ZONE)
    write(ready, "tasks/mine.py")
    assert commands(refused(ready, *RUN))[-2:] == ["git pull --rebase", "git push"]


def test_another_branch_is_pushed_to_by_its_name(ready):
    do(ready, "git checkout -q -b mine && git push -q -u origin mine && git checkout -q main")
    write(ready, "tasks/mine.py")
    assert "git push" in commands(refused(ready, *RUN))
    process = ready.ask(*RUN, TPU_BRANCH="mine")
    assert "git push origin HEAD:mine" in commands(process.stderr.splitlines()[-1])


def test_sent_files_lie_over_the_commit_until_the_next_run(ready):
    write(ready, "launch/like_t5x.sh", "echo sent; sleep 0.5\n")
    write(ready, "vocabularies/uk.model", "sent")
    for words in (["--send", *RUN[3:]], [*RUN[3:], "--send", "--gin.A=1"]):
        output = ready.do(*RUN[:3], *words)
        assert f"at commit {ready.head()} with files that are not committed" in output
        assert on_workers(ready, "launch/like_t5x.sh") == ["echo sent; sleep 0.5\n"] * 2
        assert on_workers(ready, "vocabularies/uk.model") == ["sent", "sent"]
        ready.do("stop", "ro", ZONE)
    (ready.folder / "origin/launch/like_t5x.sh").write_text("sleep 0.5\n")
    ready.commit("theirs")
    (ready.clone / "vocabularies/uk.model").unlink()
    do(ready, "git checkout -q . && git pull -q")
    ready.do("setup", "ro", ZONE)
    assert on_workers(ready, "vocabularies/uk.model") == [None, None]
    assert on_workers(ready, "launch/like_t5x.sh") == ["sleep 0.5\n"] * 2


@pytest.fixture
def recipe(ready):
    """Return a function that sets what preflight.files says of the recipe `mine`, all pushed."""
    write(ready, "gin/mine.gin")
    write(ready, "launch/mine.sh", "sleep 0.1\n")
    do(ready, "git add -A && git commit -qm mine && git push -q")

    def says(lines):
        script = f"#!/bin/sh\necho $* > asked\nprintf '%b' '{lines}'\n"
        executable(ready.clone / ".venv/bin/python", script)

    says("gin/mine.gin\\t\\n")
    return says


def test_of_a_known_recipe_only_its_files_count(ready, recipe):
    write(ready, "tasks/other.py")
    write(ready, "launch/other.sh")
    ready.do(*RECIPE_RUN, "--gin.A=1", "--roll_call_seconds=9")
    asked = (ready.clone / "asked").read_text()
    assert asked == "-m preflight.files --gin_file=gin/mine.gin --gin.A=1 --roll_call_seconds=9\n"
    ready.do("stop", "ro", ZONE)
    ready.do("run", "ro", ZONE, "launch/train.sh", "mine", PYTHON="")  # by name
    recipe("gin/mine.gin\\t\\ntasks/other.py\\t\\n")
    assert "lacks tasks/other.py: git add tasks/other.py" in refused(ready, *RECIPE_RUN)


def test_a_folder_counts_with_all_its_files(ready, recipe):
    recipe("vocabularies/bert\\tVOCABULARY_FILE\\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        write(ready, "vocabularies/x")
        write(ready, f"vocabularies/bert/{name}")
    both = "vocabularies/bert/tokenizer.json vocabularies/bert/tokenizer_config.json"
    assert f"git add {both}" in commands(refused(ready, *RECIPE_RUN))


def test_a_vocabulary_that_is_nowhere_names_how_it_is_made(ready, recipe):
    recipe("vocabularies/uk.model\\tVOCABULARY_FILE\\n")
    refusal = refused(ready, *RECIPE_RUN, "--send")
    assert "vocabularies/uk.model does not exist" in refusal
    assert "python -m vocabulary.train, or set VOCABULARY_FILE to one at gs://…" in refusal


def test_an_ignored_file_is_added_by_force_and_a_large_one_belongs_in_a_bucket(ready, recipe):
    recipe("runs/start/vocabulary.model\\tVOCABULARY_FILE\\n")
    (ready.clone / "runs").mkdir()
    write(ready, "runs/start/vocabulary.model")
    add, *_ = commands(refused(ready, *RECIPE_RUN))
    assert add == "git add -f runs/start/vocabulary.model"
    with (ready.clone / "runs/start/vocabulary.model").open("wb") as file:
        file.truncate(60_000_000)
    assert "too large for a commit: copy it to a bucket" in refused(ready, *RECIPE_RUN)


def test_a_file_outside_the_clone_gives_a_warning(ready, recipe, tmp_path):
    (tmp_path / "texts.txt").write_text("text")
    recipe(f"{tmp_path}/texts.txt\\tthe task mine\\n")
    process = ready.ask(*RECIPE_RUN)
    assert process.returncode == 0, process
    assert f"warning: the run reads {tmp_path}/texts.txt, which workers have only" in process.stderr


def test_a_recipe_that_cannot_be_read_is_refused_with_its_sentence(ready, recipe):
    script = "#!/bin/sh\necho 'Error: gin/mine.gin:3: no module tasks.mine.' >&2\nexit 2\n"
    executable(ready.clone / ".venv/bin/python", script)
    assert "gin/mine.gin:3: no module tasks.mine." in refused(ready, *RECIPE_RUN)


def test_the_command_looks_without_a_slice(ready):
    look = ["python3", "launch/commit.py", "launch/like_t5x.sh"]
    ask = lambda: subprocess.run(look, cwd=ready.clone, capture_output=True, text=True)
    assert ask().stdout == "The last push has what the run reads.\n"
    write(ready, "tasks/mine.py")
    assert "lacks tasks/mine.py: git add tasks/mine.py" in sentence(ask())
    write(ready, "tasks/mine.py")
    subprocess.run(
        ["git", "-C", ready.clone, "remote", "set-url", "origin", "/nowhere"], check=True
    )
    assert "git fetch failed: fatal: '/nowhere' does not appear to be" in sentence(ask())
