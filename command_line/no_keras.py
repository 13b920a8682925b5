"""Keep Keras out of processes that import TensorFlow.

`import tensorflow` imports Keras, with Matplotlib, to register its optimizers; tensorflow_text and
TensorBoard import it for a layer and a callback of Keras. Together that is a fifth of the time of
`import t5x.train`, and nothing here uses any of it. Importing this module makes `import keras` an
ImportError, which TensorFlow takes as "not installed", and leaves out the layer and the callback.
It does nothing if Keras was imported before.
"""

import sys
import types

# Modules that are imported for Keras alone, and what is taken from them.
_FOR_KERAS = {
    "tensorflow_text.python.keras": (),
    "tensorboard.plugins.hparams._keras": ("Callback",),
}


def provide() -> None:
    """Make `import keras` raise ImportError."""
    if sys.modules.setdefault("keras", None):  # type: ignore[arg-type]  # as the import system means it
        return
    for name, taken in _FOR_KERAS.items():
        module = types.ModuleType(name)
        vars(module).update(dict.fromkeys(taken))
        sys.modules.setdefault(name, module)


provide()
