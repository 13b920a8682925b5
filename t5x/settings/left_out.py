"""Say of a public name that a module lacks where the names that upstream T5X alone has are listed.

left_out.answer_for(__name__)       # in each module that upstream has too
losses.cross_entropy_with_logits    # UserWarning: t5x.losses has no …; docs/t5x_compatib…
from t5x.losses import cross_entropy_with_logits        # the same, then ImportError
"""

import sys
import warnings
from typing import Any

PAGE = "docs/t5x_compatibility.md says what of upstream T5X is left out, and what to use instead"


def answer_for(module: str) -> None:
    """Let a module warn, with the page's name, when a public name that it lacks is looked up."""
    found = sys.modules[module]

    def lookup(name: str) -> Any:
        if not name.startswith("_"):
            # `from … import` drops the text of an AttributeError, but not a warning.
            warnings.warn(f"{module} has no {name!r}; {PAGE}", stacklevel=2)
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=found)

    # Defined in the module's text, it would tell type checkers that every name exists.
    found.__getattr__ = lookup  # type: ignore[method-assign]
