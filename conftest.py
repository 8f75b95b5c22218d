"""Modules whose packages are not installed have no doctests to run."""

from importlib.util import find_spec

NEEDS = {
    "torch": ["scorers/packed", "scorers/torch_models", "scorers/kernels", "export/graph"],
    "triton": ["scorers/kernels"],
    "onnxscript": ["export/graph", "export/onnx", "export/openvino"],
    "onnxruntime": ["export/onnx"],
    "openvino": ["export/openvino"],
}
collect_ignore = [
    f"src/crosscut/{module}.py"
    for package, modules in NEEDS.items()
    for module in modules
    if find_spec(package) is None
]
