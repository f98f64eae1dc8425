#!/bin/sh
# Installs the third-party programs of `make programs` on Debian 12; needs root, does nothing twice.
set -eu
export DEBIAN_FRONTEND=noninteractive
exec apt-get install --yes --no-install-recommends \
    bc default-jdk-headless ffmpeg golang-go lua5.4 nodejs octave openssl parallel perl povray python3 r-base-core ruby \
    sqlite3 xz-utils
