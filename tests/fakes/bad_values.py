"""Values that every command must refuse: one sentence, a status, and nothing written.

BAD_VALUES[0]           # BadValue("preflight", ("--slice", "v4-7"))

In arguments `{folder}` is an empty folder, and `{files}` one with the files of
`refusals.write_files`.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from fakes.paths import MINI


@dataclasses.dataclass(frozen=True)
class BadValue:
    """A command and its arguments; the bad one is the last, unless `shown` names it."""

    command: str
    arguments: tuple[str, ...]
    shown: str = ""

    @property
    def value(self) -> str:
        """The bad value as a user writes it."""
        return self.shown or " ".join(self.arguments[-1:])

    def filled(self, folder: pathlib.Path, files: pathlib.Path) -> list[str]:
        """Return the arguments with the places in them."""
        places = {"{folder}": str(folder), "{files}": str(files)}
        found = list(self.arguments)
        for mark, path in places.items():
            found = [argument.replace(mark, path) for argument in found]
        return found


def gin_rows(command: str, base: Sequence[str], text: str) -> Iterator[BadValue]:
    """Yield a row for each line `NAME = value`."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, value = line.split(" = ", 1)
        yield BadValue(command, (*base, f"--gin.{name}={value}"), f"{name} = {value}")


def flag_rows(command: str, base: Sequence[str], text: str) -> Iterator[BadValue]:
    """Yield a row for each line of arguments, separated by blanks; "" is an empty one."""
    for line in filter(None, map(str.strip, text.splitlines())):
        words = ("" if word == '""' else word for word in line.split())
        yield BadValue(command, (*base, *words), line)


TINY = ("--gin_file=gin/ro_t5x_tiny.gin",)
TRAIN = (*TINY, "--gin.MODEL_DIR='{folder}/run'")
EVAL = (*TINY, "--gin_file=t5x/configs/runs/eval.gin", "--gin.MIXTURE_OR_TASK_SPLIT='validation'")
EVAL += ("--gin.CHECKPOINT_PATH='{files}/absent'", "--gin.EVAL_OUTPUT_DIR='{folder}/out'")
INFER = (*TINY, "--gin_file=t5x/configs/runs/infer.gin", "--gin.MIXTURE_OR_TASK_SPLIT='validation'")
INFER += ("--gin.CHECKPOINT_PATH='{files}/absent'", "--gin.INFER_OUTPUT_DIR='{folder}/out'")
PRECOMPILE = ("--gin_file=t5x/configs/runs/precompile.gin", *TRAIN)

RUN_SETTINGS = """
BATCH_SIZE = '16'
BATCH_SIZE = 16.5
BATCH_SIZE = None
BATCH_SIZE = True
BATCH_SIZE = 0
BATCH_SIZE = -16
BATCH_SIZE = [16]
BATCH_SIZE = {}
BATCH_SIZE = %BATCH_SIZE
BATCH_SIZE = sixteen
RANDOM_SEED = 'a'
RANDOM_SEED = 1.5
RANDOM_SEED = [1]
RANDOM_SEED = -1
RANDOM_SEED = 18446744073709551616
TRAIN_STEPS = '300'
TRAIN_STEPS = 1.5
TRAIN_STEPS = -1
TRAIN_STEPS = None
TRAIN_STEPS = %TRAIN_STEPS
TRAIN_STEPS = [%TRAIN_STEPS]
TRAIN_STEPS = %NOTHING
EVAL_STEPS = 0
EVAL_STEPS = -1
EVAL_STEPS = '3'
EVAL_STEPS = None
EVAL_PERIOD = -1
EVAL_PERIOD = 'a'
EVAL_PERIOD = 2.5
EVAL_PERIOD = 70
DROPOUT_RATE = 2.0
DROPOUT_RATE = -0.1
DROPOUT_RATE = 1.0
DROPOUT_RATE = 1e400
DROPOUT_RATE = 'a'
DROPOUT_RATE = None
DROPOUT_RATE = True
DROPOUT_RATE = [0.1]
TASK_FEATURE_LENGTHS = None
TASK_FEATURE_LENGTHS = 5
TASK_FEATURE_LENGTHS = 'x'
TASK_FEATURE_LENGTHS = [128, 29]
TASK_FEATURE_LENGTHS = {}
TASK_FEATURE_LENGTHS = {'inputs': 0, 'targets': 29}
TASK_FEATURE_LENGTHS = {'inputs': 128, 'targets': -29}
TASK_FEATURE_LENGTHS = {'inputs': '128', 'targets': 29}
TASK_FEATURE_LENGTHS = {'inputs': 128}
TASK_FEATURE_LENGTHS = {1: 128, 2: 29}
MIXTURE_OR_TASK_NAME = 'nosuch'
MIXTURE_OR_TASK_NAME = ''
MIXTURE_OR_TASK_NAME = 5
MIXTURE_OR_TASK_NAME = None
MIXTURE_OR_TASK_MODULE = 'nosuch'
MIXTURE_OR_TASK_MODULE = 5
MIXTURE_OR_TASK_MODULE = '.relative'
MODEL_DIR = ''
MODEL_DIR = 5
MODEL_DIR = None
MODEL_DIR = '/proc/nothing/run'
MODEL_DIR = '{files}/text.txt/run'
USE_CACHED_TASKS = 'yes'
USE_CACHED_TASKS = 1
SHUFFLE_TRAIN_EXAMPLES = 'yes'
USE_HARDWARE_RNG = 'no'
WRITERS = ('nosuch',)
WRITERS = 'tensorboard'
WRITERS = 5
INFILL_SENTENCES = ('no gap',)
INFILL_SENTENCES = 'Un <extra_id_0>.'
INFILL_SENTENCES = (5,)
INFILL_PERIOD = 0
INFILL_PERIOD = -1
INFILL_PERIOD = 'a'
EXPECTED_LOSS = {'a': 1}
EXPECTED_LOSS = {0: 'x'}
EXPECTED_LOSS = 5
EXPECTED_LOSS = [8.15]
OPTIMIZER = 5
OPTIMIZER = 'adam'
OPTIMIZER = None
OPTIMIZER = @adafactor.Adafactor
OPTIMIZER = @adafactor.Nothing()
MODEL = 5
MODEL = None
MODEL = @models.EncoderDecoderModel
VOCABULARY = 5
Z_LOSS = -1
Z_LOSS = 'x'
LABEL_SMOOTHING = 1.5
LABEL_SMOOTHING = 'x'
LOSS_NORMALIZING_FACTOR = 'x'
LOSS_NORMALIZING_FACTOR = 0
NOSUCH = 1
network.T5Config.nosuch = 1
network.T5Config.emb_dim = 0
network.T5Config.emb_dim = '128'
network.T5Config.emb_dim = 1.5
network.T5Config.num_heads = 0
network.T5Config.num_heads = -4
network.T5Config.head_dim = 0
network.T5Config.mlp_dim = 0
network.T5Config.mlp_dim = None
network.T5Config.vocab_size = 0
network.T5Config.vocab_size = 100
network.T5Config.vocab_size = '2048'
network.T5Config.dtype = 'float99'
network.T5Config.dtype = 5
network.T5Config.dtype = 'int32'
network.T5Config.num_encoder_layers = 0
network.T5Config.num_decoder_layers = -1
network.T5Config.num_decoder_layers = 'all'
network.T5Config.mlp_activations = ('nosuch',)
network.T5Config.mlp_activations = ()
network.T5Config.mlp_activations = 'relu'
network.T5Config.mlp_activations = 5
network.T5Config.remat_policy = 'some'
network.T5Config.remat_policy = 5
network.T5Config.attention = 'some'
network.T5Config.logits_via_embedding = 'no'
partitioning.PjitPartitioner.num_partitions = 0
partitioning.PjitPartitioner.num_partitions = -1
partitioning.PjitPartitioner.num_partitions = 3
partitioning.PjitPartitioner.num_partitions = 'all'
partitioning.PjitPartitioner.model_parallel_submesh = (0, 1, 1, 1)
partitioning.PjitPartitioner.model_parallel_submesh = 5
partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 3)
partitioning.PjitPartitioner.backend = 'nosuch'
partitioning.PjitPartitioner.backend = 5
partitioning.PjitPartitioner.params_on_devices = False
partitioning.PjitPartitioner.logical_axis_rules = 5
partitioning.PjitPartitioner.logical_axis_rules = [('batch',)]
partitioning.PjitPartitioner.logical_axis_rules = [('batch', 'data')]
partitioning.standard_logical_axis_rules.activation_partitioning_dims = 3
partitioning.standard_logical_axis_rules.parameter_partitioning_dims = 'x'
trainer.Trainer.num_microbatches = -1
trainer.Trainer.num_microbatches = 'x'
trainer.Trainer.num_microbatches = 1.5
trainer.Trainer.num_microbatches = 3
trainer.Trainer.bad_steps = 'ignore'
trainer.Trainer.bad_steps = 5
trainer.Trainer.learning_rate_fn = 5
trainer.Trainer.learning_rate_fn = None
utils.SaveCheckpointConfig.period = 0
utils.SaveCheckpointConfig.period = -1
utils.SaveCheckpointConfig.period = '100'
utils.SaveCheckpointConfig.period = 70
utils.SaveCheckpointConfig.keep = 0
utils.SaveCheckpointConfig.keep = 'all'
utils.SaveCheckpointConfig.dtype = 'float99'
utils.SaveCheckpointConfig.dtype = 5
utils.SaveCheckpointConfig.timeout = 0
utils.SaveCheckpointConfig.timeout = 'never'
utils.SaveCheckpointConfig.when_failed = 'ignore'
utils.SaveCheckpointConfig.keep_best = 1
utils.SaveCheckpointConfig.metric = 'loss'
utils.SaveCheckpointConfig.mode = 'most'
utils.SaveCheckpointConfig.checkpoint_steps = 5
utils.SaveCheckpointConfig.checkpoint_steps = ['a']
utils.SaveCheckpointConfig.checkpoint_steps = [-1]
utils.SaveCheckpointConfig.save_dataset = 'yes'
utils.RestoreCheckpointConfig.path = 5
utils.RestoreCheckpointConfig.path = [5]
utils.RestoreCheckpointConfig.path = '{files}/absent'
utils.RestoreCheckpointConfig.mode = 'newest'
utils.RestoreCheckpointConfig.dtype = 'float99'
utils.RestoreCheckpointConfig.assignment_map = 5
utils.RestoreCheckpointConfig.assignment_map = [('(', 'a')]
utils.RestoreCheckpointConfig.assignment_map = [('a',)]
utils.RestoreCheckpointConfig.strict = 'no'
utils.create_learning_rate_scheduler.factors = 'nosuch'
utils.create_learning_rate_scheduler.factors = ''
utils.create_learning_rate_scheduler.factors = 5
utils.create_learning_rate_scheduler.base_learning_rate = -1.0
utils.create_learning_rate_scheduler.base_learning_rate = 'x'
utils.create_learning_rate_scheduler.warmup_steps = -5
utils.create_learning_rate_scheduler.warmup_steps = 0
utils.create_learning_rate_scheduler.warmup_steps = 'x'
utils.create_learning_rate_scheduler.step_offset = -1
utils.create_learning_rate_scheduler.min_learning_rate = -1e-3
adafactor.Adafactor.decay_rate = 0.0
adafactor.Adafactor.decay_rate = 'x'
adafactor.Adafactor.beta1 = 2.0
adafactor.Adafactor.beta1 = -0.5
adafactor.Adafactor.clipping_threshold = 0
adafactor.Adafactor.epsilon1 = -1e-30
adafactor.Adafactor.weight_decay_rate = -0.1
adafactor.Adafactor.dtype_momentum = 'float99'
adafactor.Adafactor.logical_factor_rules = 5
adafactor.Adafactor.factored = 'yes'
adafactor.Adafactor.multiply_by_parameter_scale = 'yes'
train_script.train.stats_period = -1
train_script.train.stats_period = 70
train_script.train.relative_steps = -1
train_script.train.actions = 5
train_script.train.actions = {'NOSUCH': []}
train_script.train.actions = {'TRAIN_EVAL': 5}
train_script.train.checkpoint_cfg = 5
train_script.train.partitioner = 5
train_script.train.partitioner = @partitioning.PjitPartitioner
train_script.train.trainer_cls = 5
train_script.train.train_dataset_cfg = None
train_script.train.train_dataset_cfg = 'ro'
train_script.train.watch = 5
train_script.train.run_eval_before_training = 'yes'
train_script.train.model_dirs = 'x'
train_script.trian.model_dir = 'x'
train/utils.DatasetConfig.split = 'nosuch'
train/utils.DatasetConfig.split = ''
train/utils.DatasetConfig.split = 5
train/utils.DatasetConfig.pack = 'yes'
train/utils.DatasetConfig.use_custom_packing_ops = True
train_eval/utils.DatasetConfig.seed = 'x'
train_eval/utils.DatasetConfig.batch_size = -1
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{files}/absent.model'
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{files}/text.txt'
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
--gin_bindings=TRAIN_STEPS
--gin_file=absent.gin
--gin_file=gin
--gin_file=data/ro_mini/ro_mini.model
--gin_file={files}/self.gin
--gin_file={files}/a.gin
--gin_file={files}/broken.gin
--process_count=2
--process_count=x
--process_index=0.5
--process_count=-1
--coordinator_address=nowhere --process_count=2 --process_index=0 --roll_call_seconds=1
--roll_call_seconds=soon
--interrupted_status=x
"""

EVAL_SETTINGS = """
CHECKPOINT_PATH = ''
CHECKPOINT_PATH = 5
CHECKPOINT_PATH = []
CHECKPOINT_PATH = None
CHECKPOINT_PATH = '{files}/text.txt'
EVAL_OUTPUT_DIR = ''
EVAL_OUTPUT_DIR = None
EVAL_OUTPUT_DIR = '{files}/text.txt/out'
BATCH_SIZE = 0
eval_script.evaluate.length_buckets = 0
eval_script.evaluate.fallback_init_rng = 'x'
utils.DatasetConfig.split = 'nosuch'
utils.RestoreCheckpointConfig.mode = 'some'
"""

INFER_SETTINGS = """
CHECKPOINT_PATH = 5
CHECKPOINT_PATH = '{files}/absent/checkpoint_1'
INFER_MODE = 'guess'
INFER_MODE = 5
INFER_OUTPUT_DIR = ''
infer_script.infer.checkpoint_period = 0
infer_script.infer.checkpoint_period = 'x'
infer_script.infer.shard_id = 1
infer_script.infer.shard_id = -1
infer_script.infer.num_shards = 0
infer_script.infer.input_file = '{files}/absent.txt'
infer_script.infer.input_file = ''
infer_script.infer.input_file = '{files}/empty.txt'
infer_script.infer.input_file = '{files}/random.jsonl'
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
        --slice v4-7
        --slice ""
        --slice v4-8 --compare v4-8
        --compare ""
        --compare v4-8,nosuch
        --sweep
        --slice v4-8 word
        --slice v4-8 --ofline
        --slice v4-8 --json {folder}
        --slice v4-8 --json {folder}/absent/x.json
        --slice v4-8 --json ""
        --slice v4-8 --json {files}/text.txt/x.json
        --slice v4-8 --cache {files}/text.txt
        --slice v4-8 --gin_file absent.gin
        --slice v4-8 --gin_file {files}/self.gin
        --slice v4-8 --gin.BATCH_SIZE
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.BATCH_SIZE='16'
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.DROPOUT_RATE=2.0
        --slice v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.OPTIMIZER=5
        --compare v4-8 --gin_file gin/ro_t5x_tiny.gin --gin.network.T5Config.emb_dim=0
    """,
    "convert": """
        {files}/absent
        {files}/text.txt
        {folder}
        ""
        {files} --average 0
        {files} --average -1
        {files} --average x
        {files} --dtype float99
        {files} --formats nosuch
        {files} --model_type nosuch
        {files} --out ""
        {files} --out {files}/text.txt
        {files} --out /proc/nothing
        {files} --vocabulary ""
        {files} --config ""
        {files} --nosuch
        {files} word
        from_hf {files}/absent {folder}/out
        from_hf {files} {folder}/out
        from_hf {files} {folder}/out --step -1
        from_hf {files} {folder}/out --step x
        from_hf {files} {files}/text.txt
        from_hf {files}
    """,
    "convert.fill_masks": """
        {files}/absent Un_<extra_id_0>.
        {files} no_mask
        {files}
    """,
    "convert.continue_text": """
        {files}/absent Ana
        {files}
        {files} ""
        {files} Ana --tokens 0
        {files} Ana --seed -1
    """,
    "tasks.new_language": """
        klingonese
        ""
        czech --size huge
        czech word
        romanian
        english
    """,
    "convert.run.loss_curve": """
        {files}/absent
        {files}/text.txt
        {files} word
    """,
    "evaluation": """
        {files}/absent --language ro
        {files} --language klingonese
        {files}
        {files} --language ro --max_chars 5000
        {files} --language ro --seed -1
        {files} --language ro --out {files}/text.txt/out.json
    """,
    "report": """
        {files}/absent
        {files}/text.txt
        ""
        {files} -o {folder}/absent/report.html
        {files} -o {folder}
        {files} -o ""
        {files} -o {files}/text.txt/report.html
        {files} -o /proc/report.html
        {files} --png {files}/text.txt/loss.png
        {files} --png {folder}
        {files} --png {folder}/loss.png
        {files} --watch 0
        {files} --watch -5
        {files} --watch nan
        {files} --watch soon
        {files} --nosuch
    """,
    "report.misclassified": """
        {files}/absent.jsonl
        {files}/random.jsonl -o {folder}/x.html
        {files}/empty.txt -o {folder}/absent/x.html
        {files}/empty.txt --most -1
    """,
    "vocabulary.train": """
        --corpus {files}/text.txt --size 100 --out {folder}/x.model
        --corpus {files}/text.txt --size 0 --out {folder}/x.model
        --corpus {files}/text.txt --size -128 --out {folder}/x.model
        --corpus {files}/text.txt --size x --out {folder}/x.model
        --corpus {files}/text.txt --size 256 --out {folder}/x.txt
        --corpus {files}/text.txt --size 256 --out {files}/text.txt/x.model
        --corpus {files}/text.txt --size 256 --out ""
        --corpus {files}/absent*.jsonl --size 256 --out {folder}/x.model
        --corpus "" --size 256 --out {folder}/x.model
        --corpus {files}/empty.txt --size 256 --out {folder}/x.model
        --corpus {files}/random.jsonl --size 256 --out {folder}/x.model
        --corpus {files}/text.txt --size 256 --character_coverage 2 --out {folder}/x.model
        --corpus {files}/text.txt --size 256 --max_lines 0 --out {folder}/x.model
        --corpus {files}/text.txt --size 256 --max_documents -1 --out {folder}/x.model
        --size 256 --out {folder}/x.model
    """,
    "vocabulary.check": """
        {files}/absent.model
        {files}/text.txt
        {mini} --vocab_size 0
        {mini} --vocab_size x
        {mini} --extra_ids -1
        {mini} --vocab_size 100
    """,
    "vocabulary.trim": """
        {mini} --corpus {files}/text.txt --size 0 --out {folder}/x.model
        {mini} --corpus {files}/text.txt --size 100 --out {folder}/x.model
        {mini} --corpus {files}/text.txt --out {folder}/absent/x.model
        {mini} --corpus {files}/text.txt --out {folder}
        {mini} --corpus {files}/absent.txt --out {folder}/x.model
        {files}/text.txt --corpus {files}/text.txt --out {folder}/x.model
        {mini} --corpus {files}/text.txt --checkpoint {files}/absent --out {folder}/run
    """,
    "vocabulary.extend": """
        {mini} --pieces {files}/absent.txt --out {folder}/x.model
        {mini} --pieces {files}/empty.txt --out {folder}/x.model
        {mini} --pieces {files}/text.txt --out {folder}/absent/x.model
        {mini} --out {folder}/x.model
        {mini} --pieces {files}/text.txt --extra_ids -1 --out {folder}/x.model
    """,
    "tasks.cache": """
        --task nosuch --out {folder}/caches
        --task "" --out {folder}/caches
        --task ro_mini_span_corruption --out ""
        --task ro_mini_span_corruption --out {files}/text.txt
        --task ro_mini_span_corruption --out {folder}/c --epochs 0
        --task ro_mini_span_corruption --out {folder}/c --epochs -1
        --task ro_mini_span_corruption --out {folder}/c --epochs 2
        --task ro_mini_span_corruption --out {folder}/c --lengths inputs=0
        --task ro_mini_span_corruption --out {folder}/c --lengths inputs
        --task ro_mini_span_corruption --out {folder}/c --lengths =5
        --task ro_mini_span_corruption --out {folder}/c --lengths nosuch=5
        --task ro_mini_span_corruption --out {folder}/c --splits nosuch
        --task ro_mini_span_corruption --out {folder}/c --splits ""
        --task ro_mini_span_corruption --out {folder}/c --seed -1
        --task ro_mini_span_corruption --out {folder}/c --shards -1
        --task ro_mini_span_corruption --out {folder}/c --part_mb -1
        --task ro_mini_span_corruption --out {folder}/c --module nosuch
        --task ro_mini_span_corruption --out {folder}/c --module ""
        --task ro_mini_span_corruption --out {folder}/c --gin_bindings nonsense
        --task ro_mini_span_corruption --out {folder}/c --gin_bindings x.y=5
        --task ro_mini_span_corruption --out {folder}/c --runner NoSuchRunner
        --task ro_mini_span_corruption --out {folder}/c --epoch 2
        --task ro_mini_span_corruption --out {folder}/c word
        --out {folder}/caches
    """,
    "tasks.diacritics.restore": """
        sing
        write {files}/absent.txt {files}/absent.jsonl
        write {files}/text.txt {files}/random.jsonl
        write {files}/text.txt
    """,
    "launch/train.sh": """
        nosuch
        ""
        ro_t5x_tiny word
        ro_t5x_tiny --gin.TRAIN_STEPS=5 word
        ../ro_t5x_tiny
    """,
    "launch/preflight.sh": """
        nosuch v4-8
        ""
    """,
    "launch/ro_t5x_tiny.sh": """
        word
        --dry_run word
    """,
    "launch/quickstart.sh": "word",
    "launch/setup.sh": "word",
    "launch/lock.sh": "word",
    "launch/upstream.sh": "one two",
    "launch/tpu_create.sh": "name type",
    "launch/tpu_delete.sh": "name",
    "launch/tpu_logs.sh": "name",
    "launch/tpu_run.sh": "name zone nosuch",
    "launch/tpu_setup.sh": "name",
    "launch/tpu_status.sh": "name",
    "launch/tpu_stop.sh": "name",
    "launch/tpu_supervise.sh": "name zone",
    "launch/tpu_worker.sh": "dance",
    "launch/restore_diacritics.sh": """
        {files}/absent
        {files}/text.txt
        gs://bucket/run
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
