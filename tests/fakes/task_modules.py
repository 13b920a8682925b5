"""Run the module of tasks that a command has written."""

import contextlib
import importlib.util

import seqio


@contextlib.contextmanager
def registered_by(file):
    """Execute a module; what it registers is gone at the end."""
    registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
    before = [{*registry.names()} for registry in registries]
    spec = importlib.util.spec_from_file_location("written_by_a_command", file)
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        yield
    finally:
        for registry, names in zip(registries, before, strict=True):
            for name in {*registry.names()} - names:
                registry.remove(name)
