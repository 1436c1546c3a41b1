# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-gpu check format bench soak wshard-js clean

demo: $(STAMP)
	$(BIN)/warp demo

test: check
	$(BIN)/python -m pytest -n 2 -m "not soak"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks all
	$(BIN)/python -m benchmarks report

soak: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m pytest -n 2 -m soak --timeout 3600

# The tests that need a CUDA device, beside those that do not: they are skipped by `make test` where there is none.
# PYTHON is one that has torch, numpy, pytest and hypothesis; nothing is installed.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest tests/tensors/test_devices.py

# The TypeScript library: `make test` builds and tests it too, in a folder of its own, where node is.
wshard-js:
	cd packages/wshard-js && npm install --no-package-lock --no-audit --no-fund && npm run build && npm test

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo,pandas,polars,wshard]'
	touch $(STAMP)
