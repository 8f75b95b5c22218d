"""Exported models run by OpenVINO."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from crosscut.scorers.exported.model import Run
from crosscut.scorers.exported.signals import same_signal_stack
from crosscut.system import needs_extra


def open_model(graph: Path, threads: int) -> Run:
    """The model in the file `graph`.xml, for so many threads."""
    with needs_extra("openvino", f"the exported model {graph.parent}"):
        import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",  # bfloat16 would be taken where the processor has it
        "NUM_STREAMS": threads,
        "INFERENCE_NUM_THREADS": threads,
        "CPU_RUNTIME_CACHE_CAPACITY": "1000",  # kernels by shape of a batch; the default of 5000 takes gigabytes
        "ENABLE_CPU_PINNING": False,  # or two processes would sit on the same core
    }
    with same_signal_stack():
        model = openvino.Core().compile_model(str(graph.with_suffix(".xml")), "CPU", settings)
    names = {name for wanted in model.inputs for name in wanted.get_names()}
    free: SimpleQueue[Any] = SimpleQueue()  # a request serves one thread at a time
    for _ in range(threads):
        free.put(model.create_infer_request())

    def run(given: dict[str, np.ndarray]) -> np.ndarray:
        request = free.get()
        try:
            return request.infer({name: given[name] for name in names}, share_inputs=True)[0]
        finally:
            free.put(request)

    return run
