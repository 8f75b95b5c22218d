"""An exported model run by OpenVINO."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from crosscut.scorers.exported import ExportedScorer, Run


class OpenVinoScorer(ExportedScorer):
    """A folder that `crosscut export --backend openvino` wrote. Options: see `ExportedScorer`.

    >>> OpenVinoScorer(Path("no/such/folder"))
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: there is no model folder no/such/folder
    """

    backend = "openvino"
    batch_tokens = 512

    def _open(self, folder: Path) -> Run:
        import openvino

        settings = {
            "INFERENCE_PRECISION_HINT": "f32",  # bfloat16 would be taken where the processor has it
            "NUM_STREAMS": self.threads,
            "INFERENCE_NUM_THREADS": self.threads,
            "ENABLE_CPU_PINNING": False,  # or two processes would sit on the same core
        }
        model = openvino.Core().compile_model(str(folder / "model.xml"), "CPU", settings)
        names = {name for wanted in model.inputs for name in wanted.get_names()}
        free: SimpleQueue[Any] = SimpleQueue()  # a request serves one thread at a time
        for _ in range(self.threads):
            free.put(model.create_infer_request())

        def run(ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
            given = {"ids": ids, "mask": mask, "types": types}
            request = free.get()
            try:
                return request.infer({name: given[name] for name in names}, share_inputs=True)[0]
            finally:
                free.put(request)

        return run
