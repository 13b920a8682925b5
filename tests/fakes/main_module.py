"""Another module as `__main__`, where gin files look for the functions of a command."""

import importlib

from preflight.aot.recipe import as_main as as_main

# They register tasks and configurables when they are first imported, which must not be while a test
# keeps gin's registry apart.
JOBS = ("classification", "diacritics", "downstream", "summarization")
for _module in ("tasks.romanian", *(f"tasks.jobs.{job}" for job in JOBS)):
    importlib.import_module(_module)
