# Hayate's targets; `make help` lists them. Everything here works on a fresh clone, and may be run again at any time.

PHP ?= 8.2
LISTEN ?= 127.0.0.1:8080
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=

CARGO ?= scripts/cargo
# Debian's own Python: the one that sees the packages scripts/setup installs.
PYTHON ?= /usr/bin/python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
HAYATE := $(RELEASE)/hayate
LAB := $(RELEASE)/hayate-lab
HOST := hayate-php$(PHP)

build: ## Build hayate and the PHP host, both into target/release (the default)
	$(CARGO) build --release --locked
	$(MAKE) -C host PHP=$(PHP)
	install -m 755 host/build/$(HOST) $(RELEASE)/$(HOST)
	install -d $(RELEASE)/boot && install -m 644 php/boot/*.php $(RELEASE)/boot

run: setup build ## Install what is missing, build, and serve the demo on http://127.0.0.1:8080 (WORKER=1: in worker mode)
	$(HAYATE) serve demo --listen $(LISTEN) --dev $(if $(filter-out 0,$(WORKER)),--worker demo/public/worker.php)

setup: ## Install what building needs and is missing (apt, sudo)
	@scripts/setup

setup-test:
	@scripts/setup --test

test: reachable setup-test build ## Everything CI runs: formatting, lints, unit tests, then the servers from outside
	$(MAKE) lint check-docs
	$(CARGO) test --workspace --locked
	$(MAKE) -C host PHP=$(PHP) test
	HAYATE_BIN=$(abspath $(HAYATE)) $(PYTHON) -m pytest tests -q

# The tests of root run servers as www-data; /root is closed to it.
reachable:
	@[ "$$(id -u)" != 0 ] || setpriv --reuid=www-data --regid=www-data --clear-groups test -r $(CURDIR)/Makefile || \
		{ echo 'www-data, as whom tests run servers when they are run by root, cannot read $(CURDIR): clone it elsewhere, below /srv for instance' >&2; exit 1; }

lint: ## Formatting and lints, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	clang-format --dry-run -Werror $(wildcard host/*.[ch] host/rewind/*.[ch] host/tests/*.[ch])
	find demo php lab -name '*.php' -print0 | xargs -0 -n 1 php$(PHP) -l >/dev/null

# docs/configuration.md is made from the source: a change of a key must reach it.
check-docs: build
	$(HAYATE) generate configuration | diff -u docs/configuration.md - || \
		{ echo 'docs/configuration.md is out of date: run make docs and commit it' >&2; exit 1; }

FUZZ_SECONDS ?= 60
fuzz: ## Feed every parser with broken input, and the ring with a worker gone mad (FUZZ_SECONDS=60 for each; FUZZ_SEED repeats a run)
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p hayate-http -p hayate-front -p hayate-pool -p hayate-load -p hayate fuzz \
		-- --nocapture --test-threads=1
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p hayate-load --test fuzz -- --nocapture
	HAYATE_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p hayate-ring --test hostile -- --nocapture

conformance: setup-test build ## PHP's own tests, through php-cgi, php-fpm and Hayate in each mode (about an hour)
	HAYATE_BIN=$(abspath $(HAYATE)) $(PYTHON) tests/conformance/run.py

soak: setup-test build ## Everything at once against a running server for MINUTES=10, then the books (FRONTS=1: fronts are killed as well)
	HAYATE_BIN=$(abspath $(HAYATE)) $(PYTHON) tests/soak/soak.py --minutes $(or $(MINUTES),10) $(if $(FRONTS),--fronts)

torture: setup-test build ## Random PHP programs rewound as under php-fpm, for SECONDS=600 (SEED=N repeats a run)
	HAYATE_BIN=$(abspath $(HAYATE)) HAYATE_TORTURE_SECONDS=$(or $(SECONDS),600) HAYATE_TORTURE_SEED=$(or $(SEED),0) \
		$(PYTHON) -m pytest tests/torture -q -s

bench: setup-test build ## Measure against nginx and php-fpm (about 12 minutes; wants a quiet machine; QUICK=1: a minute)
	HAYATE_BIN=$(abspath $(HAYATE)) $(LAB) reproduce bench --html $(TARGET)/bench.html --json $(TARGET)/bench.json \
		$(if $(filter-out 0,$(QUICK)),--quick)

docs: build ## Make docs/configuration.md, and man pages and completions in target/docs
	mkdir -p $(TARGET)/docs
	$(HAYATE) generate configuration >docs/configuration.md
	$(HAYATE) generate man >$(TARGET)/docs/hayate.1
	$(HAYATE) generate completions bash >$(TARGET)/docs/hayate.bash
	$(HAYATE) generate completions zsh >$(TARGET)/docs/_hayate
	$(HAYATE) generate completions fish >$(TARGET)/docs/hayate.fish
	$(LAB) generate man $(TARGET)/docs
	$(LAB) generate completions bash >$(TARGET)/docs/hayate-lab.bash
	$(LAB) generate completions zsh >$(TARGET)/docs/_hayate-lab
	$(LAB) generate completions fish >$(TARGET)/docs/hayate-lab.fish

# Installs what was built and builds nothing, so that root needs no compiler.
install: ## Install below PREFIX=/usr/local what make build has built; DESTDIR for packagers
	@test -x $(HAYATE) -a -x $(LAB) -a -x $(RELEASE)/$(HOST) || { echo 'nothing is built yet: run make build first' >&2; exit 1; }
	install -D -m 755 $(HAYATE) $(DESTDIR)$(PREFIX)/bin/hayate
	install -D -m 755 $(LAB) $(DESTDIR)$(PREFIX)/bin/hayate-lab
	install -D -m 755 $(RELEASE)/$(HOST) $(DESTDIR)$(PREFIX)/lib/hayate/$(HOST)
	install -d $(DESTDIR)$(PREFIX)/share/hayate/boot
	install -m 644 $(RELEASE)/boot/*.php $(DESTDIR)$(PREFIX)/share/hayate/boot
	install -D -m 644 php/stubs/hayate.php $(DESTDIR)$(PREFIX)/share/hayate/stubs/hayate.php
	cd lab && find . -type f -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX))/share/hayate/lab/{} \;
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/systemd/system share/man/man1 \
		share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d)
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|; s|/etc/hayate/|$(SYSCONFDIR)/hayate/|' packaging/hayate.service \
		>$(DESTDIR)$(PREFIX)/lib/systemd/system/hayate.service
	$(HAYATE) generate man >$(DESTDIR)$(PREFIX)/share/man/man1/hayate.1
	$(HAYATE) generate completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hayate
	$(HAYATE) generate completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hayate
	$(HAYATE) generate completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hayate.fish
	$(LAB) generate man $(DESTDIR)$(PREFIX)/share/man/man1
	$(LAB) generate completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hayate-lab
	$(LAB) generate completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hayate-lab
	$(LAB) generate completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hayate-lab.fish
	install -D -m 644 packaging/hayate.logrotate $(DESTDIR)$(SYSCONFDIR)/logrotate.d/hayate
	install -D -m 644 packaging/hayate.sysusers $(DESTDIR)$(SYSCONFDIR)/sysusers.d/hayate.conf
	install -D -m 644 packaging/hayate.tmpfiles $(DESTDIR)$(SYSCONFDIR)/tmpfiles.d/hayate.conf
	test -e $(DESTDIR)$(SYSCONFDIR)/hayate/hayate.toml || \
		install -D -m 644 packaging/hayate.toml $(DESTDIR)$(SYSCONFDIR)/hayate/hayate.toml

clean: ## Remove what was built
	rm -rf $(TARGET) host/build

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

.PHONY: build run setup setup-test reachable test lint check-docs fuzz conformance soak torture bench docs install clean help
