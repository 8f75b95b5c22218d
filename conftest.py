"""Modules whose packages are not installed have no doctests to run; tests hear Ctrl-C."""

import signal
from importlib.util import find_spec

# A shell that runs this in the background ignores Ctrl-C, and every process that a test starts would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

EXPORT = ["export/graph", "export/onnx", "export/openvino", "export/sources"]
TRAIN = ["batches", "callbacks", "compare_task", "imitation", "pairs", "process", "students", "trainer", "vectors"]
TRAIN = [f"train/{module}" for module in TRAIN]
COMPARE = [
    "bi",
    "cmc",
    "comparer",
    "deformer",
    "layers",
    "mix",
    "model",
    "poly",
    "sum_of_max",
    "text_encoder",
    "together",
]
COMPARE = [f"compare/{module}" for module in COMPARE]
NEEDS = {
    "torch": [*COMPARE, "scorers/packed", "scorers/torch_models", "scorers/kernels", *EXPORT, *TRAIN],
    "accelerate": TRAIN,
    "triton": ["scorers/kernels"],
    "onnxscript": EXPORT,
    "onnx": ["export/onnx", "export/rows"],
    "openvino": ["export/openvino"],
}
collect_ignore = [
    f"src/crosscut/{module}.py"
    for package, modules in NEEDS.items()
    for module in modules
    if find_spec(package) is None
]
