# Each target sets up what it needs: a fresh machine has Python 3.11 or newer, and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
TRACES ?=

.PHONY: tour test notebooks figures deep clean

tour: $(STAMP)
	$(BIN)/xlab tour $(if $(TRACES),--traces '$(TRACES)')

test: $(STAMP)
	$(BIN)/python tests/stages.py

notebooks: $(STAMP)
	$(BIN)/xlab notebooks

figures: $(STAMP)
	$(BIN)/python notebooks/figures/rebuild.py

deep: $(STAMP)
	EXPERIENTIAL_LAB_DEEP=1 $(BIN)/python -m pytest -q

clean:
	rm -rf $(VENV) .lab dist build tour

# uv when it stands on the machine (it is about ten times faster), else pip of this venv, made new enough for --group.
$(STAMP): pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
		uv venv -q --seed --allow-existing --python $(PYTHON) $(VENV) && \
		uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[notebooks]' --group dev; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install -q --upgrade 'pip>=25.1' && \
		$(BIN)/python -m pip install -q -c constraints.txt -e '.[notebooks]' --group dev; \
	fi
	@touch $(STAMP)
