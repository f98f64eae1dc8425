#!/bin/sh
# install.sh BUILT [DESTDIR] [PREFIX]: installs without a package manager what the lists of the Debian packages name.
set -eu
cd "$(dirname "$0")/.."
built=$1 destdir=${2:-} prefix=${3:-/usr}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
sh packaging/made.sh "$built" "$made"

# place SOURCE FOLDER: what is for usr goes below the prefix; a folder is copied with all that is in it.
place() {
    case $2 in
    usr/*) to=$destdir$prefix/${2#usr/} ;;
    *) to=$destdir/$2 ;;
    esac
    mkdir -p "$to"
    if [ -d "$1" ]; then
        cp -R "$1" "$to/"
        return
    fi
    mode=644
    [ ! -x "$1" ] || mode=755
    install -m "$mode" "$1" "$to/"
}

# Where the lists say debian/made they mean what was just gathered.
sed "s|^debian/made|$made|" packaging/debian/*.install | while read -r source folder; do
    place "$source" "$folder"
done
for page in "$made"/man/*; do
    place "$page" "usr/share/man/man${page##*.}"
done
while read -r document; do
    place "$document" usr/share/doc/joulepoint
done < packaging/debian/joulepoint-doc.docs
