# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
DEMO_STAMP := $(VENV)/.demo
STAMP := $(VENV)/.installed
OLDEST := .venv-oldest
LABELS := .venv-labels
RAY := .venv-ray
PIP_INSTALL := -m pip --disable-pip-version-check install --no-compile --progress-bar off
# One line for each package instead of pip's several; pip prints errors on stderr.
SHOW_PACKAGES := awk '/^Collecting/ { print "  fetching " $$2 } /^Installing collected/ { print "  unpacking" } { fflush() }'

WEB_STAMP := web/node_modules/.installed

.PHONY: demo test test-oldest test-labels test-ray soak-ray test-gpu test-labelstudio test-s3-clients test-web web check format bench soak docs wshard-go wshard-js clean

# Installs only what the demo needs; `make test` adds the rest to the same environment.
demo: $(DEMO_STAMP)
	@$(BIN)/warp demo

test: check
	$(BIN)/python -m pytest -n 2 -m "not soak and not browser"

# The tests with the oldest versions that pyproject.toml allows.
test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python -m pytest -n 2 -m "not soak and not browser"

# Exports of labels, read by the libraries of others. They need older libraries, so they have an environment of their own.
test-labels: $(STAMP) $(LABELS)/.installed
	$(BIN)/python -m pytest tests/formats/labels

# The tests of the engine "ray", of Ray Data and of the loaders of other libraries, in an environment of their own.
test-ray: $(RAY)/.installed
	RAY_AUTH_MODE=disabled $(RAY)/bin/python -m pytest -n 0 -m "not soak" tests/ray

# A table of 20 GB on two nodes of 2 GB each. WARP_TEST_GB is another size.
soak-ray: $(RAY)/.installed
	RAY_AUTH_MODE=disabled $(RAY)/bin/python -m pytest -n 0 -m soak -s tests/ray/test_memory_bound.py

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
# PYTHON is one that has torch, torchvision and the libraries of the tests; nothing is installed.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest tests/formats/tensors/test_devices.py tests/datasets/test_image_device.py

# A real Label Studio in an environment of its own, with the gateway and Chromium, which must be installed.
test-labelstudio: $(STAMP) .venv-labelstudio/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	$(BIN)/python -m pytest tests/labelstudio -m soak

.venv-labelstudio/.installed:
	$(PYTHON) -m venv .venv-labelstudio
	.venv-labelstudio/bin/python $(PIP_INSTALL) --quiet 'label-studio>=1.23.2'
	@touch $@

# The gateway with s3fs, which needs a botocore of its own.
test-s3-clients: $(STAMP) .venv-s3fs/.installed
	$(BIN)/python -m pytest tests/server/s3/test_clients.py

.venv-s3fs/.installed:
	$(PYTHON) -m venv .venv-s3fs
	.venv-s3fs/bin/python $(PIP_INSTALL) --quiet 's3fs>=2026.9'
	@touch $@

# The documentation as a site in build/site; broken links and pages outside the navigation are errors.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build --strict

# The web page, built into src/warpdata/server/page, where `warp serve` and the wheel find it; needs node 20.
web: $(WEB_STAMP)
	cd web && npm run --silent check && npm run --silent build

# The page in a real browser, over both databases: needs node, Chromium and PostgreSQL.
test-web: $(STAMP) web
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	$(BIN)/python -m pytest -n 0 -m browser tests/page
	$(BIN)/python -m pytest -n 0 -m browser tests/page --database postgresql

# The Go library: `make test` builds and tests it too, in a directory of its own, where go is.
wshard-go:
	packages/wshard-go/build.sh build

# The TypeScript library: `make test` builds and tests it too, in a directory of its own, where node is.
wshard-js:
	cd packages/wshard-js && npm install --no-package-lock --no-audit --no-fund && npm run build && npm test

clean:
	rm -rf web/node_modules src/warpdata/server/page .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(WEB_STAMP): web/package.json
	cd web && npm install --no-package-lock --no-audit --no-fund
	@touch $@

$(DEMO_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing warpdata and the libraries of the demo into $(VENV), once"
	@set -o pipefail; $(BIN)/python $(PIP_INSTALL) --constraint constraints.txt --editable '.[demo]' | $(SHOW_PACKAGES)
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing warpdata and all libraries of the tests into $(VENV), once: about 2 GB"
	@set -o pipefail; $(BIN)/python $(PIP_INSTALL) --constraint constraints.txt --editable '.[dev,demo]' | $(SHOW_PACKAGES)
	@touch $(DEMO_STAMP) $@

# The CPU build of torch first, so that ultralytics takes no other.
$(LABELS)/.installed: tests/formats/labels/independent/requirements.txt
	@test -x $(LABELS)/bin/python || $(PYTHON) -m venv $(LABELS)
	@echo "installing other readers of labels into $(LABELS), once: about 2 GB"
	@set -o pipefail; $(LABELS)/bin/python $(PIP_INSTALL) --requirement $< | $(SHOW_PACKAGES)
	@touch $@

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@echo "installing the oldest versions into $(OLDEST), once: about 2 GB"
	@set -o pipefail; $(OLDEST)/bin/python $(PIP_INSTALL) --constraint constraints-oldest.txt --editable '.[test]' | $(SHOW_PACKAGES)
	@touch $@

$(RAY)/.installed: pyproject.toml constraints.txt
	@test -x $(RAY)/bin/python || $(PYTHON) -m venv $(RAY)
	@echo "installing Ray and the loaders of other libraries into $(RAY), once: about 3 GB"
	@set -o pipefail; $(RAY)/bin/python $(PIP_INSTALL) --constraint constraints.txt --editable '.[test,loaders,ray]' | $(SHOW_PACKAGES)
	@touch $@
