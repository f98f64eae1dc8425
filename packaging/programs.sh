#!/bin/sh
# Installs the third-party programs of `make programs` and of docs/recipes.md on Debian 12; needs root, does nothing twice.
# Lightning and Transformers are not in Debian: pip has them.
set -eu
export DEBIAN_FRONTEND=noninteractive
exec apt-get install --yes --no-install-recommends \
    bc default-jdk-headless expect ffmpeg golang-go lua5.4 mpich nodejs octave openfoam openssl parallel pari-gp perl php-cli \
    povray python3 python3-torch quantum-espresso quantum-espresso-data r-base-core redis-server ruby snakemake sqlite3 \
    tcl tmux valgrind xz-utils
