"""Values that every command must refuse: one sentence that names the setting, and a status.

BAD_VALUES[0]  # BadValue("preflight", ("--slice", "v4-7"), "--slice v4-7", ("slice", "v4-7"))

In arguments `{folder}` is an empty folder, and `{files}` one with the files of
`refusals.write_files`. A row refuses the last thing in it; where the message must have another
word, the row ends with `-> word`, and where the status is not 2 but 1, with `-> 1 word`.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence

from fakes.paths import MINI


@dataclasses.dataclass(frozen=True)
class BadValue:
    """A command, its arguments, how a user writes the bad one, and how the command must end."""

    command: str
    arguments: tuple[str, ...]
    value: str
    named: tuple[str, ...]  # one of which the message must have
    status: int = 2

    def filled(self, folder: pathlib.Path, files: pathlib.Path) -> list[str]:
        """Return the arguments with the places in them."""
        places = {"{folder}": str(folder), "{files}": str(files)}
        words = list(self.arguments)
        for mark, path in places.items():
            words = [argument.replace(mark, path) for argument in words]
        return words


def _end(text: str, named: str) -> tuple[str, str, int]:
    """Cut ` -> 1 word` off a row; return the rest, the word, by default `named`, and the status."""
    rest, _, end = text.partition(" -> ")
    status, _, word = end.rpartition(" ")
    return rest, word or named, int(status or 2)


def gin_rows(command: str, base: Sequence[str], text: str) -> Iterator[BadValue]:
    """Yield a row for each value of the lines `NAME = value | another`."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, values = line.split(" = ", 1)
        for end in values.split(" | "):
            value, named, status = _end(end, re.split(r"[/.]", name)[-1])
            arguments = (*base, f"--gin.{name}={value}")
            yield BadValue(command, arguments, f"{name} = {value}", (named,), status)


def flag_rows(command: str, base: Sequence[str], text: str) -> Iterator[BadValue]:
    """Yield a row for each end of the lines `BEGINNING | end | another`; "" is an empty word."""
    for line in filter(None, map(str.strip, text.splitlines())):
        beginning, *ends = line.split(" | ")
        for row_text in [f"{beginning} {end}" for end in ends] or [beginning]:
            row, named, status = _end(row_text, "")
            words = tuple("" if word == '""' else word for word in row.split())
            flag = next((word for word in words[::-1] if word[:1] == "-"), words[-1])
            plain = [re.sub(r"^--?(gin\.)?|=.*|\{.*?\}/?", "", w) for w in (flag, words[-1])]
            names = (named,) if named else tuple(filter(None, plain))
            yield BadValue(command, (*base, *words), row, names, status)


TINY = ("--gin_file=gin/ro_t5x_tiny.gin",)
TRAIN = (*TINY, "--gin.MODEL_DIR='{folder}/run'")
EVAL = (*TINY, "--gin_file=t5x/configs/runs/eval.gin", "--gin.MIXTURE_OR_TASK_NAME='toy_copy'")
EVAL += ("--gin.MIXTURE_OR_TASK_SPLIT='validation'", "--gin.VOCABULARY=@seqio.ByteVocabulary()")
EVAL += ("--gin.CHECKPOINT_PATH='{files}/absent'", "--gin.EVAL_OUTPUT_DIR='{folder}/out'")
INFER = (*TINY, "--gin_file=t5x/configs/runs/infer.gin", "--gin.MIXTURE_OR_TASK_SPLIT='validation'")
INFER += ("--gin.CHECKPOINT_PATH='{files}/absent'", "--gin.INFER_OUTPUT_DIR='{folder}/out'")
PRECOMPILE = ("--gin_file=t5x/configs/runs/precompile.gin", *TRAIN)

RUN_SETTINGS = """
BATCH_SIZE = '16' | 16.5 | None | True | 0 | -16 | [16] | {} | %BATCH_SIZE | sixteen
BATCH_SIZE = 1000000000 | 1048576
RANDOM_SEED = 'a' | 1.5 | [1] | -1 | 4294967296 | 18446744073709551616
TRAIN_STEPS = '300' | 1.5 | -1 | None | %TRAIN_STEPS | [%TRAIN_STEPS] | %NOTHING -> NOTHING
EVAL_STEPS = 0 | -1 | '3' | None | 1000000000
EVAL_PERIOD = -1 | 'a' | 2.5
DROPOUT_RATE = 2.0 | -0.1 | 1.0 | 1e400 | 1e-320 | 'a' | None | True | [0.1]
TASK_FEATURE_LENGTHS = None | 5 | 'x' | [128, 29] | {} | {'inputs': 0, 'targets': 29}
TASK_FEATURE_LENGTHS = {'inputs': 128, 'targets': -29} | {'inputs': '128', 'targets': 29}
TASK_FEATURE_LENGTHS = {'inputs': 128} | {1: 128, 2: 29}
TASK_FEATURE_LENGTHS = {'inputs': 128, 'targets': 29, 'nothing': 3} -> nothing
TASK_FEATURE_LENGTHS = {'inputs': 1000000000, 'targets': 1000000000}
TASK_FEATURE_LENGTHS = {'inputs': 1048576, 'targets': 1048576}
MIXTURE_OR_TASK_NAME = 'nosuch' | '' | 5 | None
MIXTURE_OR_TASK_MODULE = 'nosuch' | 5 | '.relative' | 'os'
MODEL_DIR = '' | 5 | None | '{folder}/a\\nb' | '/proc/nothing/run' | '{files}/text.txt/run'
USE_CACHED_TASKS = 'yes' | 1
SHUFFLE_TRAIN_EXAMPLES = 'yes'
USE_HARDWARE_RNG = 'no'
WRITERS = ('nosuch',) | 'tensorboard' | 5
INFILL_SENTENCES = ('no gap',) | 'Un <extra_id_0>.' | (5,)
INFILL_PERIOD = 0 | -1 | 'a'
EXPECTED_LOSS = {'a': 1} | {0: 'x'} | 5 | [8.15] | {-5: 1.0}
RetryPolicy.limit_s = -1 | 'x'
gin.macro.value = 5
macro.value = 5
OPTIMIZER = 5 | 'adam' | None | @adafactor.Adafactor | @adafactor.Nothing()
OPTIMIZER = @trainer.Trainer() | @network.T5Config()
MODEL = 5 | None | @models.EncoderDecoderModel | @network.T5Config()
VOCABULARY = 5
Z_LOSS = -1 | 'x'
LABEL_SMOOTHING = 1.5 | 'x'
LOSS_NORMALIZING_FACTOR = 'x' | 0
NOSUCH = 1
network.T5Config.nosuch = 1
network.T5Config.emb_dim = 0 | '128' | 1.5 | 2147483648 | 1048576
network.T5Config.num_heads = 0 | -4 | 100000
network.T5Config.head_dim = 0 | 1000000
network.T5Config.mlp_dim = 0 | None | 1000000000
network.T5Config.vocab_size = 0 | 100 | '2048' | 2147483648
network.T5Config.dtype = 'float99' | 5 | 'int32' | 'float8_e4m3fn' | 'float64' | 'complex64'
network.T5Config.num_encoder_layers = 0 | 1000000
network.T5Config.num_decoder_layers = -1 | 'all' | 1000000
network.T5Config.mlp_activations = ('nosuch',) | () | 'relu' | 5
network.T5Config.remat_policy = 'some' | 5
network.T5Config.attention = 'some'
network.T5Config.logits_via_embedding = 'no'
partitioning.PjitPartitioner.num_partitions = 0 | -1 | 3 | 'all'
partitioning.PjitPartitioner.model_parallel_submesh = (0, 1, 1, 1) | 5
partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 3) -> num_partitions
partitioning.PjitPartitioner.backend = 'nosuch' | 5
partitioning.PjitPartitioner.params_on_devices = False
partitioning.PjitPartitioner.logical_axis_rules = 5 | [('batch',)] | [('batch', 'data')]
partitioning.standard_logical_axis_rules.activation_partitioning_dims = 3
partitioning.standard_logical_axis_rules.parameter_partitioning_dims = 'x'
trainer.Trainer.num_microbatches = -1 | 'x' | 1.5 | 3
trainer.Trainer.xla_options = {'xla_nosuch': True} -> xla_nosuch
trainer.Trainer.bad_steps = 'ignore' | 5
trainer.Trainer.learning_rate_fn = 5 | None
utils.SaveCheckpointConfig.period = 0 | -1 | '100'
utils.SaveCheckpointConfig.keep = 0 | 'all'
utils.SaveCheckpointConfig.dtype = 'float99' | 5
utils.SaveCheckpointConfig.timeout = 0 | 'never'
utils.SaveCheckpointConfig.when_failed = 'ignore'
utils.SaveCheckpointConfig.keep_best = 1
utils.SaveCheckpointConfig.metric = 'loss'
utils.SaveCheckpointConfig.mode = 'most'
utils.SaveCheckpointConfig.checkpoint_steps = 5 | ['a'] | [-1]
utils.SaveCheckpointConfig.save_dataset = 'yes'
utils.RestoreCheckpointConfig.path = 5 | [5] | '{files}/absent'
utils.RestoreCheckpointConfig.mode = 'newest'
utils.RestoreCheckpointConfig.dtype = 'float99'
utils.RestoreCheckpointConfig.assignment_map = 5 | [('(', 'a')] | [('a',)]
utils.RestoreCheckpointConfig.strict = 'no'
utils.create_learning_rate_scheduler.factors = 'nosuch' | '' | 5
utils.create_learning_rate_scheduler.base_learning_rate = -1.0 | 'x'
utils.create_learning_rate_scheduler.warmup_steps = -5 | 0 | 'x' | 1000000000
utils.create_learning_rate_scheduler.step_offset = -1
utils.create_learning_rate_scheduler.min_learning_rate = -1e-3
adafactor.Adafactor.decay_rate = 0.0 | 'x'
adafactor.Adafactor.beta1 = 2.0 | -0.5
adafactor.Adafactor.clipping_threshold = 0
adafactor.Adafactor.epsilon1 = -1e-30
adafactor.Adafactor.weight_decay_rate = -0.1
adafactor.Adafactor.dtype_momentum = 'float99'
adafactor.Adafactor.logical_factor_rules = 5
adafactor.Adafactor.factored = 'yes'
adafactor.Adafactor.multiply_by_parameter_scale = 'yes'
train_script.train.stats_period = -1
train_script.train.relative_steps = -1
train_script.train.actions = 5 | {'NOSUCH': []} | {'TRAIN_EVAL': 5}
train_script.train.checkpoint_cfg = 5
train_script.train.partitioner = 5 | @partitioning.PjitPartitioner
train_script.train.trainer_cls = 5
train_script.train.train_dataset_cfg = None | 'ro'
train_script.train.watch = 5
train_script.train.run_eval_before_training = 'yes'
train_script.train.model_dirs = 'x'
train_script.trian.model_dir = 'x'
train/utils.DatasetConfig.split = 'nosuch' | '' | 5
train/utils.DatasetConfig.pack = 'yes'
train/utils.DatasetConfig.use_custom_packing_ops = True
train_eval/utils.DatasetConfig.seed = 'x'
train_eval/utils.DatasetConfig.batch_size = -1
train_eval/utils.DatasetConfig.batch_size = 1000000000
trian/utils.DatasetConfig.batch_size = 8 -> trian
seqio.SentencePieceVocabulary.extra_ids = 1000000000 | -1
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{files}/absent.model'
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{files}/text.txt' | '{files}/empty.txt'
"""

RUN_FLAGS = """
word
5
--dry_run=maybe
--dry_runs
--no_such_flag=5
--gin.
--gin.=5
--gin.TRAIN_STEPS
--gin.TRAIN_STEPS=
--gin.TRAIN_STEPS=five
--gin_bindings=TRAIN_STEPS -> TRAIN_STEPS
--gin_file=absent.gin
--gin_file=gin
--gin_file=data/ro_mini/ro_mini.model -> ro_mini.model
--gin_file={files}/self.gin -> self.gin
--gin_file={files}/a.gin -> a.gin
--gin_file={files}/broken.gin -> broken.gin
--process_count=2
--process_count=x
--process_index=0.5
--process_count=-1
--process_count=0
--process_index=-1
--seqio_additional_cache_dirs={folder}/absent
--coordinator_address=127.0.0.1:99999 --process_count=2 --process_index=0 -> coordinator_address
--coordinator_address=nowhere --process_count=2 --process_index=0 -> coordinator_address
--roll_call_seconds=soon
--roll_call_seconds=1e400
--roll_call_seconds=-1
--interrupted_status=x
--interrupted_status=999
--interrupted_status=-1
"""

EVAL_SETTINGS = """
CHECKPOINT_PATH = '' | 5 | [] | None | '{files}/text.txt' -> 1 text.txt
EVAL_OUTPUT_DIR = '' | None | '{files}/text.txt/out' -> text.txt/out
BATCH_SIZE = 0
eval_script.evaluate.length_buckets = 0
eval_script.evaluate.fallback_init_rng = 'x'
MIXTURE_OR_TASK_SPLIT = 'nosuch' -> split
utils.RestoreCheckpointConfig.mode = 'some'
"""

INFER_SETTINGS = """
CHECKPOINT_PATH = 5 | '{files}/absent/checkpoint_1' -> absent/checkpoint_1
INFER_MODE = 'guess' | 5
INFER_OUTPUT_DIR = ''
infer_script.infer.checkpoint_period = 0 | 'x'
infer_script.infer.shard_id = 1 | -1
infer_script.infer.num_shards = 0
infer_script.infer.input_file = '{files}/absent.txt' | '' | '{files}/empty.txt'
infer_script.infer.input_file = '{files}/random.jsonl' -> random.jsonl
infer_script.infer.length_buckets = 0
models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 0
models.EncoderDecoderModel.decode_fn = 5
decoding.beam_search.alpha = 'x'
decoding.temperature_sample.temperature = -1.0
decoding.temperature_sample.topp = 2.0
decoding.temperature_sample.topk = -1
"""

PRECOMPILE_SETTINGS = """
MODEL_DIR = ''
BATCH_SIZE = '16'
DROPOUT_RATE = 2.0
train_script.precompile.length_buckets = 0
train_script.precompile.random_seed = 'x'
train_script.precompile.infer_modes = 5
network.T5Config.emb_dim = 0
"""

COMMANDS = {
    "preflight": """
        --slice | v4-7 | "" | v4-8 word | v4-8 --ofline
        --offline -> --slice
        --slice v4-8 --json | {folder} | {folder}/absent/x.json | "" | {files}/text.txt/x.json
        --slice v4-8 | --cache {files}/text.txt | --gin.BATCH_SIZE
        --slice v4-8 --gin_file | absent.gin -> 1 absent.gin | {files}/self.gin -> 1 self.gin
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin | --gin.BATCH_SIZE='16' -> 1 BATCH_SIZE
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.DROPOUT_RATE=2.0 -> 1 DROPOUT_RATE
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.OPTIMIZER=5 -> 1 OPTIMIZER
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.network.T5Config.emb_dim=0 -> 1 emb_dim
    """,
    "convert": """
        {files}/absent
        {files}/text.txt
        {folder}
        ""
        {files} | --average 0 | --average -1 | --average x | --dtype float99 | --formats nosuch
        {files} | --model_type nosuch | --out "" | --out {files}/text.txt | --out /proc/nothing
        {files} | --vocabulary "" | --config "" | --nosuch | word
        from_hf {files} -> out
        from_hf | {files}/absent {folder}/out -> absent | {files} {folder}/out -> config.json
        from_hf {files} {files}/text.txt
        from_hf {files} {folder}/out --step | -1 | x
    """,
    "convert.generate": """
        {files}/absent Un_<extra_id_0>. -> absent
        {files} <extra_id_0><extra_id_0>
        {files} -> texts
        {files} | "" | Ana --tokens 0 | Ana --seed -1
    """,
    "tasks.new_job": """
        x --inputs a --targets b --from | {files}/absent | "" -> from
        x --inputs a --from {files} -> --targets
    """,
    "tasks.new_language": """
        klingonese
        ""
        czech --size huge
        czech word
        romanian
        english -> English
    """,
    "convert.run.loss_curve": """
        {files}/absent
        {files}/text.txt
        {files} word
    """,
    "evaluation": """
        {files}/absent --language ro -> absent
        {files} -> --language
        {files} --language | klingonese | ro --max_chars 5000 | ro --seed -1
        {files} --language ro --out {files}/text.txt/out.json
    """,
    "evaluation.finetune": """
        summary --model {files} --out {folder}/out --language ro
        topic --language ro --out {folder}/out --model | {files}/absent -> absent
        topic --language ro --model {files} --out {folder}/out | --sedes 2 | --seeds 0
    """,
    "report": """
        {files}/absent
        {files}/text.txt
        ""
        {files} -o | {folder}/absent/report.html | {folder} | "" | {files}/text.txt/report.html
        {files} -o /proc/report.html
        {files} --png | {files}/text.txt/loss.png | {folder} | {folder}/loss.png -> MODEL_DIR
        {files} --watch | 0 | -5 | nan | soon
        {files} --nosuch
    """,
    "report.misclassified": """
        {files}/absent.jsonl
        {files}/random.jsonl -o {folder}/x.html -> random.jsonl
        {files}/empty.txt -o {folder}/absent/x.html
        {files}/empty.txt --most -1
    """,
    "vocabulary.train": """
        --out {folder}/x.model --corpus {files}/text.txt --size | 100 | 0 | -128 | x
        --corpus {files}/text.txt --size 256 --out | {folder}/x.txt | {files}/text.txt/x.model | ""
        --size 256 --out {folder}/x.model --corpus | {files}/absent*.jsonl | "" | {files}/empty.txt
        --size 256 --out {folder}/x.model | --corpus {files}/random.jsonl
        --size 256 --out {folder}/x.model --corpus {files}/text.txt | --character_coverage 2
        --size 256 --out {folder}/x.model --corpus {files}/text.txt | --max_lines 0
        --size 256 --out {folder}/x.model --corpus {files}/text.txt --max_documents -1
        --size 256 --out {folder}/x.model -> --corpus
    """,
    "vocabulary.check": """
        {files}/absent.model
        {files}/text.txt
        {files}/empty.txt
        {mini} | --vocab_size 0 | --vocab_size x | --extra_ids -1 | --vocab_size 100 -> 1 vocab_size
    """,
    "vocabulary.trim": """
        {mini} --out {folder}/x.model --corpus | {files}/absent.txt | {files}/text.txt --size 0
        {mini} --out {folder}/x.model --corpus {files}/text.txt --size 100
        {mini} --corpus {files}/text.txt --out | {folder}/absent/x.model | {folder}
        {files}/text.txt --corpus {files}/text.txt --out {folder}/x.model -> text.txt
        {mini} --corpus {files}/text.txt --checkpoint {files}/absent --out {folder}/run -> absent
    """,
    "vocabulary.extend": """
        {mini} --out {folder}/x.model --pieces | {files}/absent.txt | {files}/empty.txt
        {mini} --pieces {files}/text.txt --out {folder}/absent/x.model
        {mini} --out {folder}/x.model -> --pieces
        {mini} --pieces {files}/text.txt --out {folder}/x.model --extra_ids -1
    """,
    "tasks.cache": """
        --out {folder}/caches | --task nosuch | --task ""
        --task ro_mini_span_corruption --out | "" | {files}/text.txt
        --task ro_mini_span_corruption --out {folder}/c --epochs | 0 | -1 | 2
        --task ro_mini_span_corruption --out {folder}/c --lengths | inputs=0 | inputs | =5
        --task ro_mini_span_corruption --out {folder}/c --lengths nosuch=5
        --task ro_mini_span_corruption --out {folder}/c --splits | nosuch | ""
        --task ro_mini_span_corruption --out {folder}/c | --seed -1 | --shards -1 | --part_mb -1
        --task ro_mini_span_corruption --out {folder}/c | --module nosuch | --module "" | --epoch 2
        --task ro_mini_span_corruption --out {folder}/c | --runner NoSuchRunner | word
        --task ro_mini_span_corruption --out {folder}/c --gin_bindings | nonsense | x.y=5
        --out {folder}/caches -> --task
    """,
    "tasks.jobs.diacritics.restore": """
        sing -> settings
        write {files}/absent.txt {files}/absent.jsonl -> 1 absent.txt
        write {files}/text.txt {files}/random.jsonl
        write {files}/text.txt -> write
    """,
    "launch/train.sh": """
        nosuch
        ""
        ../ro_t5x_tiny
    """,
    "launch/preflight.sh": """
        nosuch v4-8 -> nosuch
        ""
    """,
    "launch/setup.sh": "word",
    "launch/lock.sh": "word",
    "launch/upstream.sh": "one two -> folder",
    "launch/restore_diacritics.sh": """
        {files}/absent
        {files}/text.txt
        {files}
        gs://bucket/run
        s3://bucket/run/checkpoint_7/
    """,
}


def all_rows() -> Iterator[BadValue]:
    """Yield every row, the rows of one command together."""
    for command, text in COMMANDS.items():
        yield from flag_rows(command, (), text.replace("{mini}", str(MINI / "ro_mini.model")))
    yield from gin_rows("t5x.train", TRAIN, RUN_SETTINGS)
    yield from flag_rows("t5x.train", TRAIN, RUN_FLAGS)
    yield from gin_rows("t5x.eval", EVAL, EVAL_SETTINGS)
    yield from gin_rows("t5x.infer", INFER, INFER_SETTINGS)
    yield from gin_rows("t5x.precompile", PRECOMPILE, PRECOMPILE_SETTINGS)
    others = {"t5x.eval": EVAL, "t5x.infer": INFER, "t5x.precompile": PRECOMPILE}
    for command, base in others.items():
        yield from flag_rows(command, base, "word\n--nosuch")


BAD_VALUES = list(all_rows())
