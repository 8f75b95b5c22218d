"""An exported model run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crosscut.scorers.exported import ExportedScorer, Run

# Fused operations that are slower on a CPU than their parts.
SLOW_FUSIONS = ["SkipLayerNormFusion", "BiasGeluFusion"]


class OnnxScorer(ExportedScorer):
    """A folder that `crosscut export --backend onnx` wrote. Options: see `ExportedScorer`.

    >>> OnnxScorer(Path("no/such/folder"))
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    backend = "onnx"

    @property
    def batch_tokens(self) -> int:
        # int8 ranges are taken from what is run together: only a pair on its own gets the same score every time.
        return 1 if self.manifest.precision == "int8" else 512

    def _open(self, folder: Path) -> Run:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1  # the threads that share the session are ours
        session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"),
            settings,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=SLOW_FUSIONS,
        )
        names = {wanted.name for wanted in session.get_inputs()}

        def run(ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
            given = {"ids": ids, "mask": mask, "types": types}
            return session.run(None, {name: given[name] for name in names})[0]

        return run
