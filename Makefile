# Each target does all the set-up it needs; `make demo` and `make test` work in a fresh clone.

PYTHON ?= python3
# What pip is asked for as torch. The pin is the version the tests run with; any newer one will do.
TORCH ?= torch==2.13.0
# ON: a warning of the C++ compiler is an error. CI says so; a newer compiler must never fail a user's build.
WERROR ?= OFF

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
NATIVE := CMakeLists.txt $(wildcard native/src/*)

# The same package with its library built for sanitizers, in an interpreter of its own.
CHECKED := build/sanitize/venv
CHECKED_RUN := $(CHECKED)/bin/python
CHECKED_READY := $(CHECKED)/.ready
# The library is loaded into a Python that was built without sanitizers: their runtime has to come first, and
# libstdc++ with it, whose functions it wraps as it starts. Leaks are not looked for: an interpreter leaves plenty.
# A report ends the process, so pytest must not keep what it wrote (--capture=sys).
RUNTIMES = $(shell $(CXX) -print-file-name=libasan.so):$(shell $(CXX) -print-file-name=libstdc++.so)
SANITIZERS = LD_PRELOAD=$(RUNTIMES) \
	ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# Every kernel and binding; not what runs whole models for their answers' sake, nor what limits memory.
UNCHECKED_TESTS := embedded_accuracy without_torch out_of_memory loading_memory
CHECKED_TESTS := tests/native tests/kernels/test_same_bits.py tests/kernels/test_against_float64.py \
	tests/kernels/test_not_numbers.py \
	tests/kernels/test_encoders.py -k native \
	$(UNCHECKED_TESTS:%=--ignore tests/native/test_%.py)

# lm-eval brings a great many packages, and works over HTTP alone: it has an interpreter of its own.
HARNESS := build/conformance/venv
HARNESS_READY := $(HARNESS)/.ready
LM_EVAL := lm-eval[api]>=0.4.13

.PHONY: demo test conformance chaos lint sanitize benchmark clean

demo: $(READY)
	$(RUN) examples/demo.py

test: $(READY)
	$(RUN) -m pytest

conformance: $(HARNESS_READY)
	LM_EVAL=$(HARNESS)/bin/lm_eval $(RUN) -m pytest conformance

# CHAOS_SOAK_S=1200 lets its last scenario go on for 20 minutes.
chaos: $(READY)
	$(RUN) -m pytest chaos

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

sanitize: $(CHECKED_READY)
	$(SANITIZERS) $(CHECKED_RUN) -m pytest -p no:cacheprovider --capture=sys $(CHECKED_TESTS)

benchmark: $(READY)
	$(RUN) -m noria bench batching

clean:
	rm -rf $(VENV) build

$(READY): pyproject.toml $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Noria needs Python 3.10 or newer; this is " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12 ...")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet '$(TORCH)'
	$(RUN) -m pip install --quiet --config-settings=cmake.define.NORIA_WERROR=$(WERROR) --editable '.[torch,test]'
	touch $(READY)

$(HARNESS_READY): $(READY)
	test -x $(HARNESS)/bin/python || $(RUN) -m venv $(HARNESS)
	$(HARNESS)/bin/python -m pip install --quiet '$(LM_EVAL)'
	touch $(HARNESS_READY)

$(CHECKED_READY): $(READY)
	test -x $(CHECKED_RUN) || $(RUN) -m venv $(CHECKED)
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(CHECKED_RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	CXX=$(CXX) $(CHECKED_RUN) -m pip install --quiet --no-deps --force-reinstall \
		--config-settings=build-dir=build/sanitize/native --config-settings=cmake.build-type=RelWithDebInfo \
		--config-settings=cmake.define.NORIA_SANITIZE=ON --config-settings=cmake.define.NORIA_WERROR=ON .
	touch $(CHECKED_READY)
