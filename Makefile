# Each target does all the set-up it needs; `make demo` and `make test` work in a fresh clone.

PYTHON ?= python3
# What pip is asked for as torch. The pin is the version the tests run with; any newer one will do.
TORCH ?= torch==2.13.0

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo test lint benchmark clean

demo: $(READY)
	$(RUN) examples/demo.py

test: $(READY)
	$(RUN) -m pytest

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

benchmark: $(READY)
	$(RUN) benchmarks/batching.py

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml CMakeLists.txt $(wildcard native/src/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Noria needs Python 3.10 or newer; this is " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12 ...")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet '$(TORCH)'
	$(RUN) -m pip install --quiet --editable '.[torch,test]'
	touch $(READY)
