"""Names that gin files expect under `utils`, as in T5X; nothing is defined here."""

from t5x.checkpointing.config import CheckpointConfig, RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.input_pipeline.config import DatasetConfig
from t5x.schedules import create_learning_rate_scheduler
