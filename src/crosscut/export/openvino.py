"""The graph for OpenVINO."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import openvino

from crosscut.export.graph import Samples, quiet
from crosscut.scorers.exported.signals import same_signal_stack
from crosscut.system import needs_extra


def convert(traced: Path, folder: Path, samples: Samples) -> None:
    """Make model.xml and model.bin in `folder` of the graph `traced`; int8, by the ranges of `samples`, if any."""
    model = openvino.Core().read_model(str(traced))
    if samples:
        model = _int8(model, samples)
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)


def _int8(model: Any, samples: Samples) -> Any:
    os.environ.setdefault("NNCF_CI", "1")  # keeps the library from reporting its use over the network
    with needs_extra("export", "int8 for OpenVINO"):
        import nncf
        from nncf.quantization.advanced_parameters import AdvancedSmoothQuantParameters

    names = {name for wanted in model.inputs for name in wanted.get_names()}
    data = nncf.Dataset([{name: sample[name] for name in names} for sample in samples])
    # Its own choice of 0.95 fits the samples so closely that scores of other texts shift by more than 1.
    alphas = AdvancedSmoothQuantParameters(matmul=0.3)
    with quiet(), same_signal_stack():
        return nncf.quantize(
            model,
            data,
            subset_size=len(samples),
            model_type=nncf.ModelType.TRANSFORMER,
            advanced_parameters=nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas),
        )
