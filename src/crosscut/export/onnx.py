"""The graph for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import onnx

from crosscut.export.graph import Samples
from crosscut.export.rows import to_int8


def convert(traced: Path, folder: Path, samples: Samples) -> None:
    """Make model.onnx in `folder` of the graph `traced`; in int8 if there are `samples`.

    Their ranges are not needed here. Where the weights have a file of their own, they get model.onnx.data.
    """
    model = onnx.load(traced)
    # The exporter's remarks name files of this machine, and its shapes are not those of int8.
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.value_info[:]
    large = Path(f"{traced}.data").exists()
    if samples:
        to_int8(model)
    onnx.save(model, folder / "model.onnx", save_as_external_data=large, location="model.onnx.data")
