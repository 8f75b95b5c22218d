"""The graph for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from crosscut.export.graph import Samples, quiet


def convert(traced: Path, folder: Path, samples: Samples) -> None:
    """Make model.onnx in `folder` of the graph `traced`; in int8 if there are `samples`.

    Their ranges are not needed here. Where the weights have a file of their own, they get model.onnx.data.
    """
    model = onnx.load(traced)
    # The exporter's remarks name files of this machine, and its shapes are of no use to the quantiser.
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.value_info[:]
    large = Path(f"{traced}.data").exists()
    clean = traced.with_name("clean.onnx") if samples else folder / "model.onnx"
    onnx.save(model, clean, save_as_external_data=large, location=f"{clean.name}.data")
    if samples:
        with quiet():
            quantize_dynamic(
                clean,
                folder / "model.onnx",
                per_channel=True,
                weight_type=QuantType.QInt8,
                use_external_data_format=large,
            )
