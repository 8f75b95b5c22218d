"""Modules whose packages are not installed have no doctests to run."""

from importlib.util import find_spec

NEEDS = {
    "torch": ["packed", "torch_models", "kernels"],
    "triton": ["kernels"],
}
collect_ignore = [
    f"src/crosscut/scorers/{module}.py"
    for package, modules in NEEDS.items()
    for module in modules
    if find_spec(package) is None
]
