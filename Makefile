# Each target sets up what it needs: a fresh machine has Python 3.11 or newer, and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
ORACLE := .venv-oracle
TRACES ?=

.PHONY: tour test notebooks figures deep oracle clean

tour: $(STAMP)
	$(BIN)/xlab tour $(if $(TRACES),--traces '$(TRACES)')

test: $(STAMP)
	$(BIN)/python tests/stages.py

notebooks: $(STAMP)
	$(BIN)/xlab notebooks

figures: $(STAMP)
	$(BIN)/python notebooks/figures/rebuild.py

deep: $(STAMP) oracle
	EXPERIENTIAL_LAB_DEEP=1 $(BIN)/python -m pytest -q

# A second opinion on Inspect's logs, no dependency: inspect_ai in an environment of its own. Without it its tests are left
# out, and say so.
oracle:
	@if [ -e $(ORACLE)/.made ]; then exit 0; fi; \
	if command -v uv >/dev/null 2>&1; then \
		uv venv -q --allow-existing --python $(PYTHON) $(ORACLE) && \
		uv pip install -q --python $(ORACLE)/bin/python 'inspect_ai>=0.3.285,<0.4'; \
	else \
		$(PYTHON) -m venv $(ORACLE) && $(ORACLE)/bin/python -m pip install -q 'inspect_ai>=0.3.285,<0.4'; \
	fi && echo '*' > $(ORACLE)/.gitignore && touch $(ORACLE)/.made || { rm -rf $(ORACLE); echo 'no inspect_ai to be had'; }

clean:
	rm -rf $(VENV) $(ORACLE) .lab dist build tour

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
