"""No text, file or command line shows a token or the secret part of an address."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.secrets import is_signed, public, split_login
from fakes.file_server import FileServer
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks import new_job, new_language
from tasks.corpus.storage import http_files
from tasks.look import __main__ as look
from vocabulary import check, extend, train, trim

MINI = ROOT / "data/ro_mini"
MODEL = str(MINI / "ro_mini.model")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:word@a.org/b.jsonl", "https://a.org/b.jsonl"),
        ("s3://me:wo@rd@a.org/b.jsonl", "s3://a.org/b.jsonl"),
        ("https://a.org/b.jsonl?X-Amz-Signature=word", "https://a.org/b.jsonl?…"),
        ("https://a.org/b.jsonl?word", "https://a.org/b.jsonl?…"),
        ("https://a.org/b.jsonl?raw&key=word", "https://a.org/b.jsonl?…"),
        ("('https://a.org/b.jsonl?word', 404)", "('https://a.org/b.jsonl?…', 404)"),
        ("/b.jsonl?key=word is 404", "/b.jsonl?… is 404"),
        ("https://a.org/x?project=p&key=word", "https://a.org/x?…"),
        ("https://a.org/x?project=my-12 then retry", "https://a.org/x?project=my-12 then retry"),
        ("hf_wordwordwordwordword is used", "hf_… is used"),
        ("ghp_wordwordwordwordword is used", "ghp_… is used"),
        ("github_pat_wordword_wordwordwordword", "github_pat_…"),
        ("glpat-wordword-wordwordwordword", "glpat-…"),
    ],
)
def test_no_secret_is_left(text, shown):
    assert public(text) == shown
    assert "wo" not in public(text)


@pytest.mark.parametrize(
    "text", ["gs://a/part-?.jsonl", "Is it https://a.org? Yes.", "me@a.org", "Unde? = 5"]
)
def test_what_is_no_secret_is_kept(text):
    assert public(text) == text


@pytest.mark.parametrize(
    ("address", "without", "login"),
    [
        ("https://me:word@a.org/b/c.git", "https://a.org/b/c.git", "https://me:word@a.org"),
        ("https://word@a.org:8/b", "https://a.org:8/b", "https://word:@a.org:8"),
        ("https://a.org/b@c", "https://a.org/b@c", ""),
        ("git@a.org:b/c.git", "git@a.org:b/c.git", ""),
        ("ssh://git@a.org/b", "ssh://git@a.org/b", ""),
        ("/data/me@home", "/data/me@home", ""),
    ],
)
def test_an_address_is_parted_from_its_login(address, without, login):
    assert split_login(address) == (without, login)


@pytest.mark.parametrize(
    ("query", "is_secret"),
    [
        ("?X-Amz-Credential=a", True),
        ("?se=2026&sig=a", True),
        ("?Expires=1&Signature=a", True),
        ("?access_token=a", True),
        ("?download=true", False),
        ("?author=me&keyword=tokens", False),
        ("", False),
    ],
)
def test_a_signed_address_is_recognized_by_its_query(query, is_secret):
    assert is_signed(f"@https://a.org/b.jsonl{query}") == is_secret


@pytest.fixture
def signed(tmp_path, monkeypatch):
    """A signed address of a corpus; the current folder is empty."""
    (tmp_path / "served").mkdir()
    (tmp_path / "here").mkdir()
    shutil.copy(MINI / "validation.jsonl", tmp_path / "served/a.jsonl")
    monkeypatch.chdir(tmp_path / "here")
    with FileServer(tmp_path / "served") as server:
        yield f"{server.url}/a.jsonl?Signature=hemlig&Key-Pair-Id=hemlig2"


def places_of_secrets(printed):
    """Return where the secret is: in files and their names here, or in what is printed."""
    # Python compiles the user's own task, which has the address.
    files = [path for path in Path().rglob("*") if path.is_file() and path.suffix != ".pyc"]
    places = [path for path in files if b"hemlig" in path.read_bytes() or "hemlig" in str(path)]
    return [*places, *["printed"] * ("hemlig" in printed)]


COMMANDS = {
    "train": (train.main, "--corpus URL --size 512 --out a.model"),
    "wordpiece": (train.main, "--kind wordpiece --corpus URL --size 512 --out a"),
    "check": (check.main, f"{MODEL} --corpus URL"),
    "trim": (trim.main, f"{MODEL} --corpus URL --size 1024 --out a.model"),
    "extend": (extend.main, f"{MODEL} --corpus URL --size 20 --out a.model"),
    "look": (look.main, "URL --documents 20"),
    "look at nothing": (look.main, "URL --documents 20 --split nothing"),
    "look, with a word too many": (look.main, "x.txt URL"),
    "new_language": (new_language.main, "--corpus URL --name zz"),
    "new_job": (new_job.main, "zz --rows URL --inputs text --targets text --from x"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_a_signature(command, signed, capfd):
    main, words = COMMANDS[command]
    with contextlib.suppress(SystemExit):
        main(words.replace("URL", signed).split())
    printed = "".join(capfd.readouterr())
    assert printed
    assert not places_of_secrets(printed)


TASK = """
from tasks import corpora
from tasks.corpus.source import CorpusSource
source = CorpusSource("URL", held_out={"validation": 0.1})
corpora.add("signed_span", source, "data/ro_mini/ro_mini.model")
"""
TRAIN = """-m t5x.train --gin_file=gin/ro_t5x_tiny.gin --gin.MIXTURE_OR_TASK_NAME='signed_span'
--gin.MIXTURE_OR_TASK_MODULE='signed_task' --gin.TRAIN_STEPS=2 --gin.EVAL_PERIOD=2
--gin.utils.SaveCheckpointConfig.period=2 --gin.EVAL_STEPS=1 --gin.MODEL_DIR='HERE/run'"""
ON_TASKS = {
    "vocabulary.check": f"-m vocabulary.check {MODEL} --task signed_span --module signed_task",
    "tasks.look": "-m tasks.look signed_span --module signed_task --documents 20",
    "tasks.cache": "-m tasks.cache --task signed_span --module signed_task --out HERE/cache "
    "--splits=validation --shards=1 --direct_running_mode in_memory",
    "preflight": TRAIN.replace("t5x.train", "preflight") + " --slice v4-8 --offline",
    "dry run": f"{TRAIN} --dry_run",
    "t5x.train": TRAIN,
}


@pytest.mark.slow
@pytest.mark.parametrize("command", ON_TASKS)
def test_no_command_on_a_task_shows_a_signature(command, signed):
    Path("signed_task.py").write_text(TASK.replace("URL", signed))
    words = ON_TASKS[command].replace("HERE", os.getcwd()).split()
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.getcwd()}", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    Path("signed_task.py").unlink()
    assert done.returncode == 0, done.stderr
    assert not places_of_secrets(done.stdout + done.stderr)


@pytest.mark.parametrize("beginning", ["", "@"])
def test_files_for_a_repository_hold_no_signed_address(beginning):
    address = f"{beginning}https://a.org/b.jsonl?Signature=hemlig"
    for write in (new_language.kept_text, new_job.open_rows):
        with refuses(f"{beginning}https://a.org/b.jsonl?…"):
            write(*([f"zz={address}"] if write is new_language.kept_text else [address, *"abcd"]))


@pytest.mark.parametrize("login", ["me:word", "word"])
def test_a_login_in_an_address_is_refused_at_once(login):
    with refuses("https://a.org/b.jsonl"):
        http_files.probe(f"https://{login}@a.org/b.jsonl")
