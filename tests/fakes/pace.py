"""An action of a run that lets it take no step before a file allows it, for a simulated clock.

    import fakes.pace
    train_script.train.actions = {'TRAIN': [@fakes.pace.Pace()]}

In the folder of the variable PACE, `allowed` has the last step that may be taken, and `reached` the
last one that was.
"""

import os
import pathlib
import time


class Pace:
    """Holds the run at each step until it is allowed."""

    def __init__(self):
        self.folder = pathlib.Path(os.environ["PACE"])

    def run(self, train_state, metrics_by_task):
        """Wait until the step of `train_state` is allowed; never end the run."""
        step = int(train_state.step)
        while int((self.folder / "allowed").read_text() or 0) < step:
            time.sleep(0.005)
        (self.folder / "reached.new").write_text(str(step))
        (self.folder / "reached.new").replace(self.folder / "reached")
        return False
