"""Another module as `__main__`, where gin files look for the functions of a command."""

import contextlib
import importlib
import sys

# They register tasks and configurables when they are first imported, which must not be while a test
# keeps gin's registry apart.
JOBS = ("classification", "diacritics", "downstream", "summarization")
for _module in ("tasks.romanian", *(f"tasks.jobs.{job}" for job in JOBS)):
    importlib.import_module(_module)


@contextlib.contextmanager
def as_main(module):
    """Make a module `__main__`; what is imported meanwhile stays imported."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = before
