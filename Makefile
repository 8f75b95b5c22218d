# `make demo` and `make test` set themselves up: a virtual environment in .venv, nothing else to do first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench clean

demo: $(VENV)/core
	$(BIN)/crosscut demo

test: $(VENV)/dev lint
	$(BIN)/python -m pytest

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf $(VENV) build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	@touch $@

# torch first, and pinned: whatever asks for it afterwards is content with what is there.
$(VENV)/dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) -e ".[train,faiss,remote,export]" pytest pytest-timeout hypothesis ruff mypy
	$(PIP) "ray>=2.30" || echo "Ray has no package for this Python: its tests will be skipped"
	$(PIP) "triton>=3.0" || echo "Triton has no package for this system: the tests of its kernels will be skipped"
	@touch $@ $(VENV)/core
