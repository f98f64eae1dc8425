#!/bin/sh
# Puts a CRIU that runs on newer kernels into a folder, without installing it: packaging/criu.sh FOLDER
#
# Debian 12's own CRIU (3.17.1) cannot read the vDSO of newer kernels, and Debian 13's (4.1.1) cannot dump TCP sockets on
# some, so no MPI. This takes forky's (4.2.1) or else Debian 13's from the mirror that apt knows already, with all its
# libraries, and writes FOLDER/criu, which runs it by its own loader. Needs no root.
#
# Where compiler and headers are there, forky's source is built instead, with criu.patch: programs that map removed files
# (the semaphores of Python's pools, of Open MPI) can be dumped, semaphores that have names stay common to their processes,
# short sleeps and polls do not end at a checkpoint, a timer whose time has come meanwhile goes on (timerfd), a lock on a
# file that is mapped is held after a restore (SQLite, LMDB), and shared memory of which two processes have parts, or of which
# little is used, comes back as it was; daemons stay below the script, data that a connection has not sent yet comes back, and a
# dump is refused where messages that wait in a socket, or a session, would be lost.
# Ends with 77 and a reason where there is no such mirror.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
# One at a time; what is there counts if it was made with this patch, or could not be.
mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
stamp=$(cksum <"$here/criu.patch")
is_made() {
    [ -x "$folder/criu" ] && [ "$(cat "$folder/patch" 2>/dev/null)" = "$stamp" ]
}
! is_made || exit 0
exec 9>"$folder.lock"
flock 9
! is_made || exit 0
skip() {
    echo "criu.sh: $1" >&2
    exit 77
}

command -v apt-get >/dev/null && command -v dpkg >/dev/null || skip "this machine has no apt"
mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    sed -n 's/^Debian|Debian|//p' | head -n 1)
[ -n "$mirror" ] || skip "apt knows no Debian mirror here (apt-get update first)"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || skip "$keys is not there"

wanted=$folder
folder=$folder.new
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# ready: what was made takes its place.
ready() {
    echo "$stamp" >"$folder/patch"
    rm -rf "$wanted"
    mv "$folder" "$wanted"
}
apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc/preferences.d" "$apt/etc/trusted.gpg.d" "$apt/etc/apt.conf.d"
touch "$apt/status"
# A frozen mirror, or a clock that is ahead of it, is no reason to stop; signatures are still checked.
cat >"$apt/apt.conf" <<END
Dir::Etc "$apt/etc";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt/cache";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "1";
APT::Sandbox::User "";
END
APT_CONFIG=$apt/apt.conf
export APT_CONFIG
# The upstream source, which apt verifies; Debian's own changes are not needed.
build() {
    for command in make cc protoc protoc-c patch xz; do
        command -v "$command" >/dev/null || { echo "there is no $command"; return 1; }
    done
    work=$folder/build
    mkdir -p "$work"
    echo "deb-src [signed-by=$keys] $mirror forky main" >"$apt/sources.list"
    timeout -s KILL 120 apt-get update -qq >"$work/log" 2>&1 || { tail -n 1 "$work/log"; return 1; }
    (cd "$work" && timeout -s KILL 120 apt-get source -qq --download-only criu >"$work/log" 2>&1) || true
    tar -xf "$work"/criu_4.2*.orig.tar.* -C "$work" 2>>"$work/log" || { grep -m 1 '^E:' "$work/log"; return 1; }
    (cd "$work"/criu-4.2* && patch -s -p1 <"$here/criu.patch" && make -j2 criu NO_GNUTLS=1) >"$work/log" 2>&1 ||
        { grep -m 1 -i 'error' "$work/log"; return 1; }
    mkdir -p "$folder/root/lib" || return 1
    cp "$work"/criu-4.2*/criu/criu "$folder/root/criu" || return 1
    # shellcheck disable=SC2046  # a list of words
    cp -L $(ldd "$folder/root/criu" | grep -o '/[^ ]*') "$folder/root/lib" || return 1
    launcher "lib/$(basename "$(ldd "$folder/root/criu" | grep -o '/[^ ]*ld-linux[^ ]*')")" lib criu
    "$folder/criu" --version >"$work/log" 2>&1 || { tail -n 1 "$work/log"; return 1; }
    # What the patch keeps whole; criu/src/tool.rs asks for the number.
    echo 5 >"$folder/root/patch"
    rm -rf "$work" "$apt"
}

# launcher LOADER LIBRARIES PROGRAM: all below root; the folder may be moved or copied.
launcher() {
    cat >"$folder/criu" <<END
#!/bin/sh
root=\$(dirname "\$(readlink -f "\$0")")/root
exec "\$root/$1" --library-path "\$root/$2" "\$root/$3" "\$@"
END
    chmod 755 "$folder/criu"
}

if reason=$(build); then
    ready
    exit 0
fi
echo "criu.sh: not built with our patch ($reason); Debian's own is taken" >&2
rm -rf "$folder/build" "$folder/root" "$folder/criu"

# With nothing installed by its status file, apt fetches all that CRIU needs.
fetch() {
    rm -f "$apt"/cache/archives/*.deb
    echo "deb [signed-by=$keys] $mirror $1 main" >"$apt/sources.list"
    timeout -s KILL 120 apt-get update -qq >"$apt/log" 2>&1 &&
        timeout -s KILL 200 apt-get install -qq --yes --download-only --no-install-recommends criu >"$apt/log" 2>&1
}
fetch forky || fetch trixie || skip "$mirror has no criu for us: $(grep -m 1 '^E:' "$apt/log" || tail -n 1 "$apt/log")"
cd "$apt/cache/archives"
for package in ./*.deb; do
    dpkg -x "$package" "$folder/root"
done
rm -rf "$apt"

root=$folder/root
libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")
loader=$(find "$root/usr/lib64" "$root/lib" "$libraries" -maxdepth 1 -name 'ld-linux*' 2>/dev/null | head -n 1)
[ -n "$loader" ] || skip "libc6 came without a loader"
launcher "${loader#"$root/"}" "${libraries#"$root/"}" usr/sbin/criu
if ! said=$("$folder/criu" --version 2>&1); then
    rm -f "$folder/criu"
    skip "it does not start: $said"
fi
ready
