# Everything runs in .venv, which any target makes when it is missing or out of date.
# Any suitable Python will do, whatever it is called: make PYTHON=python3.13 chooses one.
# PyTorch is the build for this machine's GPU, or without one its CPU build: 1.5 GB in place of 6.
# TORCH=cpu takes the CPU build in any case, TORCH=default whatever pip's own index has.
SUITABLE := for p in python3.11 python3.12 python3.13 python3.14 python3 python; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done
PYTHON ?= $(shell $(SUITABLE))
TORCH ?= auto
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.ready-demo
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# uv knows where PyTorch's builds are. torch and torchvision are named together so that they match.
INSTALL_TORCH = $(INSTALL) uv && UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_RETRIES=1 $(BIN)/python -m uv pip install \
	--quiet --python $(BIN)/python --torch-backend $(TORCH) --constraint constraints.txt torch torchvision

.PHONY: install develop demo test slow federation mutants check format bench bench-gpu figures docs clean

install: $(DEMO)  ## what the main job needs, in .venv
develop: $(READY)  ## all extras and the development tools

demo: $(DEMO)  ## the main job on embedded data
	$(BIN)/fedpriv

test: $(READY)  ## the whole fast suite
	$(BIN)/pytest -n auto --dist loadgroup --no-loadscope-reorder  # the last files are small ones

slow: $(READY)  ## long experiments
	$(BIN)/pytest -m slow

federation: $(READY)  ## sites of a study in separate network namespaces (as root), and their other tests
	$(BIN)/pytest tests/sites -m 'slow or not slow'

mutants: $(READY)  ## hours: break the code that privacy rests on, one place at a time (FILES=fedpriv/mechanisms/gaussian.py)
	$(BIN)/python -m scripts.mutants $(FILES)

check: $(READY)  ## format, lint, types, who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## speed, side by side with plain PyTorch
	$(BIN)/python -m benchmarks

bench-gpu: $(READY)  ## a round on a GPU beside the processor and beside uldp-fl (ULDP_FL=/elsewhere/uldp-fl/src)
	@test -n "$(ULDP_FL)" || { echo "bench-gpu: name a checkout of uldp-fl, ULDP_FL=/elsewhere/uldp-fl/src" >&2; exit 2; }
	$(BIN)/python -m benchmarks.peers.gpu $(ULDP_FL)

figures: $(READY)  ## the quick profile of all figures that need no data set of their own, or with FEDPRIV_DATA set of every one
	$(BIN)/fedpriv reproduce --jobs 2 $(if $(FEDPRIV_DATA),all)

docs: $(READY)  ## the pages of docs/ as a site, in site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet  # the variable: without the theme's news
	@echo site/index.html

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "fedpriv needs Python 3.11 or newer: none is on the path; make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# What the main job needs: no Ray, no development tools.
$(DEMO): pyproject.toml constraints.txt | $(VENV)/bin/python
ifeq ($(TORCH),cpu)
	$(INSTALL_TORCH)
else ifeq ($(TORCH),auto)
	@{ $(INSTALL_TORCH); } > $(VENV)/torch.log 2>&1 || \
		echo "PyTorch's own index gave no build ($(VENV)/torch.log says why): pip's index gives the one that it has" >&2
endif
	$(INSTALL) torch torchvision --editable .
	touch $@

$(READY): $(DEMO)
	$(INSTALL) --editable ".[dev,docs,private-weighting,ray,sites,sweeps,tensorboard]"
	touch $@

clean:
	rm -rf $(VENV) site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
