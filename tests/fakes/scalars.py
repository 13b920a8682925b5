"""What a run has logged, as TensorBoard reads it."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

LOSS = "loss_per_nonpadding_target_token"


def scalars(folder, name: str = LOSS) -> dict[int, float]:
    """Return the values of a metric in a folder of event files by step, as last written."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    return {e.step: float(make_ndarray(e.tensor_proto)) for e in events.Tensors(name)}
