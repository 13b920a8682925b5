"""Where the repository, its packages, its tests' golden numbers and its bundled corpus are."""

import importlib.metadata
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
MINI = ROOT / "data" / "ro_mini"
PYTHONPATH = f"{ROOT}:{ROOT / 'tests'}"  # for processes that import `fakes`
PACKAGES = (
    *("common", "convert", "evaluation", "preflight"),
    *("report", "t5x", "tasks", "vocabulary"),
)
_CONTRACT = json.loads((GOLDEN / "contract.json").read_text())
_SHIPPED = {*_CONTRACT["gin files"]}
_SHIPPED |= {f"{folder}/{name}" for folder, names in _CONTRACT["scripts"].items() for name in names}
_JAXLIB = importlib.metadata.version("jaxlib")
# Flags of XLA for programs that run for a moment. Without LLVM's optimizations, the emitters of
# fusions and code in 32 parts, a train step of the golden model compiles in 1.8 s of CPU time
# instead of 5.7 s with the first flag alone.
FAST_COMPILATION = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        # jaxlib 0.12 does not know it, and ends the process for that.
        *(["--xla_cpu_use_fusion_emitters=false"] if _JAXLIB < "0.11" else []),
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)


def is_shipped(path: pathlib.Path) -> bool:
    """Return whether a file is the repository's.

    A user adds gin files, scripts and modules of tasks/; golden/contract.json has those of the
    repository, and make_contract.py takes new ones into it.
    """
    name = path.relative_to(ROOT)
    is_open = name.suffix in (".gin", ".sh") or name.parts[0] == "tasks"
    return not is_open or str(name) in _SHIPPED or "/".join(name.parts[:2]) in _SHIPPED
