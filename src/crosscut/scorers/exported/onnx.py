"""Exported models run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crosscut.scorers.exported.model import Run

# Fused operations that are slower on a CPU than their parts.
SLOW_FUSIONS = ["SkipLayerNormFusion", "BiasGeluFusion"]


def open_model(graph: Path, threads: int) -> Run:
    """The model in the file `graph`.onnx; any number of threads may share it."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1  # the threads that share the session are ours
    session = onnxruntime.InferenceSession(
        str(graph.with_suffix(".onnx")),
        settings,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=SLOW_FUSIONS,
    )
    names = [wanted.name for wanted in session.get_inputs()]

    def run(given: dict[str, np.ndarray]) -> np.ndarray:
        return session.run(None, {name: given[name] for name in names})[0]

    return run
