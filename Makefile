# Two commands: `make demo` shows the main job, `make test` proves it. Both install what is missing (as root).
APP ?= gromacs
CARGO ?= cargo

.PHONY: all packages build demo test accuracy bench bench-simulator fuzz deb install clean

all: build

packages:
	@sh packaging/test-packages.sh

build:
	$(CARGO) build --release --workspace

# A real program loses a node on a private eight-node Slurm: make demo [APP=gromacs|lammps|heat]
demo: packages build
	./target/release/xtask demo --app $(APP)

# All tests: fast ones first, the cluster suite once, other Slurm series last.
test: packages
	sh packaging/test.sh

# Ten jobs, planned before and measured after: make accuracy (ten minutes).
accuracy: packages build
	./target/release/xtask accuracy

# Costs side by side, beside their targets.
bench: packages build
	./target/release/xtask bench
	$(CARGO) bench -p mlog --bench transport

# Ten minutes of fuzzing for everything that reads what others wrote: make fuzz [SECONDS_EACH=600]
fuzz:
	sh fuzz/run.sh

# Debian packages, in target/deb.
deb:
	sh packaging/deb.sh

# The simulator beside the same replay in plain Python.
bench-simulator:
	$(CARGO) run --release -p xtask -- bench-simulator

# For sites without packages: make install [DESTDIR=] [PREFIX=/usr]
PREFIX ?= /usr
LIBDIR ?= $(PREFIX)/lib
install: build
	install -D -m 755 target/release/joulepoint $(DESTDIR)$(PREFIX)/bin/joulepoint
	install -D -m 755 target/release/joulepointd $(DESTDIR)$(PREFIX)/sbin/joulepointd
	install -D -m 644 target/release/libjoulepoint.so $(DESTDIR)$(LIBDIR)/joulepoint/joulepoint.so
	install -D -m 644 conf/joulepoint.toml $(DESTDIR)/etc/joulepoint/joulepoint.toml
	install -D -m 644 conf/plugstack.d/joulepoint.conf $(DESTDIR)$(PREFIX)/share/joulepoint/joulepoint.conf
	install -D -m 644 packaging/joulepoint-controller.service $(DESTDIR)/lib/systemd/system/joulepoint-controller.service
	install -D -m 644 packaging/joulepoint-node.service $(DESTDIR)/lib/systemd/system/joulepoint-node.service

clean:
	$(CARGO) clean
