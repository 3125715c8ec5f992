# The inner loop is `make` (about a minute). `make help` lists the rest.
.DEFAULT_GOAL := quick
.PHONY: quick test run format proto scenarios swarm reach mutants fuzz cluster clients spark bench packaging containers clean help

quick: ## checks, and the tests that are nearest to the change, for half a minute
	@scripts/test quick

test: ## everything a contributor must see green
	@scripts/test

run: ## the main job: a cluster, a data set, two kills, a verdict
	@scripts/run

format: ## format and fix what ruff can fix
	@$$(dirname $$(scripts/venv dev flights))/ruff format . && $$(dirname $$(scripts/venv dev flights))/ruff check --fix .

proto: ## regenerate kraftlite/_pb from proto/
	@$$(scripts/venv dev flights) scripts/gen_proto.py

scenarios: ## rewrite the golden scenarios with what the code does now; read the diff
	@$$(scripts/venv dev flights) -m pytest tests/scenarios --rewrite

swarm: ## simulated clusters with faults, SEEDS=500 of them
	@scripts/swarm --seeds $(or $(SEEDS),500)

reach: ## the same with SEEDS=100, and which functions and branches of the packages that decide none of them reached
	@scripts/swarm --coverage-missing --seeds $(or $(SEEDS),100)

mutants: ## mistakes put into the protocol: each must be caught; SEEDS=200 at most for each, AFRESH=1, writes docs/MUTANTS.md
	@$$(scripts/venv dev flights) -m tests.sim.mutants --seeds $(or $(SEEDS),200) $(if $(AFRESH),--afresh)

fuzz: ## whatever comes in at any door: MINUTES=10 SEED=… DOOR=kafka|controller|grpc|metrics|files|config; what is found is a failing test
	@$$(scripts/venv dev flights) -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(DOOR),--door $(DOOR))

clients: ## every client that this machine can run, and a table of what they can do: docs/CLIENTS.md
	@scripts/clients

cluster: ## only the tests that start real processes
	@$$(scripts/venv dev flights) -m pytest -m "cluster and not slow" tests

spark: ## all tests on Spark, the slow ones too (needs Java 17)
	@$$(scripts/venv dev flights spark) -m pytest -m spark -n 2 --dist worksteal tests/spark

bench: ## measure; prints a table and JSON, asserts nothing
	@$$(scripts/venv dev flights spark) -m tests.bench

packaging: ## build sdist and wheel twice, and try them in empty environments (needs the package index)
	@$$(scripts/venv dev flights) -m pytest -m slow tests/packaging

containers: ## build the image and try docker-compose.yml for real (needs a Docker engine)
	@scripts/containers

clean: ## remove what builds and tests leave behind
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

help:
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14
