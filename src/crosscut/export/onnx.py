"""The graph for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from crosscut.export.graph import Samples, quiet


def convert(folder: Path, samples: Samples) -> None:
    """Make model.onnx in `folder` ready to run; in int8 if there are `samples`, whose ranges it does not need."""
    path = folder / "model.onnx"
    model = onnx.load(path)
    # The exporter's remarks name files of this machine, and its shapes are of no use to the quantiser.
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.value_info[:]
    onnx.save(model, path)
    if samples:
        with quiet():
            quantize_dynamic(path, path, per_channel=True, weight_type=QuantType.QInt8)
