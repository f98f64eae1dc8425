//! Programs that know nothing of checkpoints, as their users would write them into a script: each runs with one option, and
//! its node dies at half time.

use crate::Site;
use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const USER: &str = "jpalice";

/// A folder for a site of its own: not in `/tmp`, whose files a checkpoint holds whole.
pub fn place() -> PathBuf {
    PathBuf::from(format!("/srv/joulepoint-programs-{}", std::process::id()))
}

/// Longest time of one program, undisturbed or not.
const LIMIT: Duration = Duration::from_secs(300);

/// So many run at once, and so many nodes are dark at once: most of a cluster is never.
const AT_ONCE: usize = 3;
const MOST_DARK: usize = 3;

/// A node that was killed has its power again after this time.
const DARK: Duration = Duration::from_secs(8);

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What to call it.
    pub name: &'static str,
    /// Commands that must be there.
    pub needs: &'static [&'static str],
    /// What its user submits: it leaves what it has computed in the file `result`.
    pub script: &'static str,
    /// Options beside `--ft-energy`.
    pub options: &'static [&'static str],
}

const fn program(name: &'static str, needs: &'static [&'static str], script: &'static str) -> Program {
    Program { name, needs, script, options: &[] }
}

/// All programs: they run for some fifteen seconds each.
pub const PROGRAMS: &[Program] = &[
    program("shell", &[], "s=0; for i in $(seq 60); do s=$((s + i * i)); sleep 0.2; done; echo $s > result"),
    program("pipes", &[], "for i in $(seq 60); do echo $i; sleep 0.2; done | while read -r n; do echo $((n * n)); done | sort -n > result"),
    program("a log that is open", &[], "exec 3>result; for i in $(seq 60); do echo \"line $i\" >&3; sleep 0.2; done"),
    program("python", &["python3"], "python3 -c 'import time
s = 0
for i in range(60): s += i * i; time.sleep(0.2)
open(\"result\", \"w\").write(str(s))'"),
    program("python, threads", &["python3"], "python3 -c 'import threading, time, queue
q = queue.Queue(); total = [0]
def work():
    while (i := q.get()) is not None: total[0] += i * i; time.sleep(0.2)
t = threading.Thread(target=work); t.start()
for i in range(60): q.put(i)
q.put(None); t.join(); open(\"result\", \"w\").write(str(total[0]))'"),
    program("python, subprocesses", &["python3"], "python3 -c 'import subprocess
s = sum(int(subprocess.run([\"sh\", \"-c\", f\"sleep 0.2; echo $(({i} * {i}))\"], capture_output=True).stdout) for i in range(50))
open(\"result\", \"w\").write(str(s))'"),
    program("python, a pool of processes", &["python3"], "python3 -c 'import multiprocessing, time
def f(i): time.sleep(0.4); return i * i
with multiprocessing.Pool(2) as pool: open(\"result\", \"w\").write(str(sum(pool.map(f, range(60), 1))))'"),
    program("python, a server on localhost", &["python3"], "python3 -c 'import socket, threading, time
s = socket.create_server((\"127.0.0.1\", 0)); got = []
def serve():
    c, _ = s.accept()
    while d := c.recv(64): got.append(len(d))
t = threading.Thread(target=serve); t.start(); c = socket.create_connection(s.getsockname())
for i in range(60): c.send(b\"x\" * 8); time.sleep(0.2)
c.close(); t.join(); open(\"result\", \"w\").write(str(sum(got)))'"),
    program("python, a file in TMPDIR", &["python3"], "python3 -c 'import tempfile, time
f = tempfile.NamedTemporaryFile(\"w+\", delete=False); name = f.name; f.close()
for i in range(60):
    with open(name, \"a\") as g: g.write(\"x\")
    time.sleep(0.2)
open(\"result\", \"w\").write(str(len(open(name).read())))'"),
    program("mktemp -d", &[], "d=$(mktemp -d); cd $d; echo start > a; sleep 6; sleep 6; cat a > $SLURM_SUBMIT_DIR/result"),
    program("a file in /tmp", &[], "f=/tmp/mine.$SLURM_JOB_ID; echo kept > $f; for i in $(seq 60); do sleep 0.2; done; cat $f > result; rm $f"),
    program("perl", &["perl"], "perl -e '$s += $_ * $_, select(undef, undef, undef, 0.2) for 1..60; open F, \">result\"; print F $s'"),
    program("awk", &["awk"], "for i in $(seq 60); do echo $i; sleep 0.2; done | awk '{ s += $1 * $1 } END { print s }' > result"),
    program("bc", &["bc"], "(for i in $(seq 60); do echo \"$i * $i\"; sleep 0.2; done) | bc > result"),
    program("R, a temporary file", &["Rscript"], "Rscript -e 'f <- tempfile(); saveRDS(42, f); s <- 0; for (i in 1:60) { s <- s + i * i; Sys.sleep(0.2) }
writeLines(as.character(s + readRDS(f)), \"result\")'"),
    program("Octave", &["octave-cli"], "octave-cli --eval 's = 0; for i = 1:60, s = s + i * i; pause(0.2); end; f = fopen(\"result\", \"w\"); fprintf(f, \"%d\", s); fclose(f);'"),
    program("Java", &["java", "javac"], "cat > Sum.java <<'END'
public class Sum { public static void main(String[] a) throws Exception { long s = 0;
for (int i = 1; i <= 60; i++) { s += i * i; Thread.sleep(200); }
java.nio.file.Files.writeString(java.nio.file.Path.of(\"result\"), \"\" + s); } }
END
javac Sum.java && java Sum"),
    program("Node", &["node"], "node -e 'let s = 0, i = 0; const t = setInterval(() => { i++; s += i * i; if (i == 60) { clearInterval(t); require(\"fs\").writeFileSync(\"result\", \"\" + s); } }, 200)'"),
    program("Ruby", &["ruby"], "ruby -e 's = 0; (1..60).each { |i| s += i * i; sleep 0.2 }; File.write(\"result\", s)'"),
    program("Lua", &["lua5.4"], "lua5.4 -e 's = 0; for i = 1, 60 do s = s + i * i; os.execute(\"sleep 0.2\") end; io.open(\"result\", \"w\"):write(s)'"),
    program("Go", &["go"], "export GOCACHE=$PWD/cache HOME=$PWD; cat > sum.go <<'END'
package main
import (\"fmt\"; \"os\"; \"time\")
func main() { s := 0; for i := 1; i <= 60; i++ { s += i * i; time.Sleep(200 * time.Millisecond) }
os.WriteFile(\"result\", []byte(fmt.Sprint(s)), 0644) }
END
go build -o sum sum.go && ./sum"),
    program("make -j2", &["make"], "printf 'all: %s\\n\\tcat $^ > result\\n' \"$(seq -s ' ' -f 'p%02g' 40)\" > Makefile; printf 'p%%:\\n\\tsleep 0.6; echo $@ > $@\\n' >> Makefile; make -j2"),
    program("GNU parallel", &["parallel"], "export HOME=$PWD; seq 40 | parallel --will-cite -j2 'sleep 0.6; echo $(({} * {}))' | sort -n > result"),
    program("compiler", &["cc"], "for i in $(seq 30); do echo \"int f$i(void) { return $i; }\" > f$i.c; cc -c f$i.c; sleep 0.4; done; ls f*.o | wc -l > result"),
    program("SQLite", &["sqlite3"], "(echo 'create table t (n int);'; for i in $(seq 60); do echo \"insert into t values ($i * $i);\"; sleep 0.2; done; echo 'select sum(n) from t;') | sqlite3 base.db > result"),
    program("xz", &["xz"], "head -c 30000000 /dev/zero | openssl enc -aes-128-ctr -K 1 -iv 1 2>/dev/null > data; xz -9 -k data; xz -9 -c data | sha256sum > result"),
    program("POV-Ray", &["povray"], "echo 'camera { location <0,2,-5> look_at 0 } light_source { <5,9,-9> 1 } sphere { 0, 1 pigment { rgb <1,0,0> } finish { reflection 0.4 } }' > s.pov
povray +Is.pov +Oimage.ppm +FP +W6400 +H4800 -A -D +WT1 2>/dev/null; grep -av '^#' image.ppm | sha256sum > result"),
    program("FFmpeg", &["ffmpeg"], "ffmpeg -v error -f lavfi -i testsrc=duration=160:size=640x480:rate=25 -c:v mpeg4 -threads 1 -fflags +bitexact -flags:v +bitexact -y out.avi; sha256sum < out.avi > result"),
    program("LAMMPS", &["lmp"], "cat > in.lj <<'END'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
thermo 200
run 3000
END
lmp -in in.lj -log none | grep -E '^ +[0-9]+ ' | cut -c1-60 > result"),
    program("mpirun, the node's name", &["mpirun", "python3"], "cat > h.py <<'END'
import os, socket, time
here = socket.gethostname()
if os.environ[\"OMPI_COMM_WORLD_RANK\"] == \"0\":
    c, _ = socket.create_server((here, 34567)).accept()
    open(\"result\", \"w\").write(str(sum(int(c.recv(6, socket.MSG_WAITALL)) for i in range(60))))
else:
    for _ in range(50):
        try: c = socket.create_connection((here, 34567)); break
        except OSError: time.sleep(0.2)
    for i in range(60): c.send(b\"%06d\" % i); time.sleep(0.25)
END
mpirun -H $(hostname):2 --oversubscribe -n 2 python3 h.py"),
    program("mpirun, one after another", &["mpirun", "mpicc"], "cat > m.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int c, char **v) { int rank; long sum = 0, all; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
for (long i = 0; i < 6; i++) { long own = i * (rank + 1) * atoi(v[1]); MPI_Allreduce(&own, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD); sum += all; usleep(200000); }
if (!rank) printf(\"%ld\\n\", sum); MPI_Finalize(); return 0; }
END
mpicc -o m m.c; exec 5>result; for i in $(seq 8); do mpirun --oversubscribe -n 2 ./m $i >&5 || echo \"failed $?\" >&5; done"),
    program("Fortran's MPI under srun", &["mpirun", "mpif90", "gfortran"], "cat > s.f90 <<'END'
program sums
  use mpi_f08
  integer :: rank, i, all, total = 0
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  do i = 1, 60
    call MPI_Allreduce(i * (rank + 1), all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    total = total + all
    call execute_command_line('sleep 0.2')
  end do
  if (rank == 0) print *, total
  call MPI_Finalize()
end program
END
mpif90 -o s s.f90 && srun --mpi=pmix -n2 -O ./s > result"),
    program("mpirun", &["mpirun", "lmp"], "cat > in.lj <<'END'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 200
run 3000
END
mpirun --oversubscribe -n 2 lmp -in in.lj -log none | grep -E '^ +[0-9]+ ' | cut -c1-60 > result"),
    program("python, queues of a spawned process", &["python3"], "cat > queues.py <<'END'
import multiprocessing, threading, time
def work(q, r):
    while (i := q.get()) is not None: time.sleep(0.2); r.put(i * i)
    r.put(None)
if __name__ == \"__main__\":
    spawn = multiprocessing.get_context(\"spawn\"); q, r = spawn.Queue(5), spawn.Queue(5); spawn.Process(target=work, args=(q, r)).start()
    threading.Thread(target=lambda: [q.put(i) for i in [*range(60), None]]).start()
    open(\"result\", \"w\").write(str(sum(iter(r.get, None))))
END
python3 queues.py"),
    program("a timer of 10 ms", &["cc"], "cat > t.c <<'END'
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/timerfd.h>
int main(void) { struct itimerspec ten_ms = {{0, 10000000}, {0, 10000000}}; int t = timerfd_create(CLOCK_MONOTONIC, 0); timerfd_settime(t, 0, &ten_ms, 0);
uint64_t n = 0, more; while (n < 1200) { if (read(t, &more, 8) != 8) return 1; n += more; } puts(\"all\"); return 0; }
END
cc -o t t.c && ./t > result"),
    program("sleeps that are not looked after", &["cc"], "cat > s.c <<'END'
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) { struct timespec second = {1, 0};
for (int i = 0; i < 4; i++) if (usleep(900000) || nanosleep(&second, 0) || poll(0, 0, 800) || sleep(1)) { perror(\"ended early\"); return 1; }
puts(\"all\"); return 0; }
END
cc -o s s.c && ./s > result"),
    program("tmux", &["tmux"], "tmux -L t -f /dev/null new-session -d 'for i in $(seq 60); do sleep 0.2; done; echo done > part; mv part ended'; until [ -s ended ]; do sleep 0.3; done; cp ended result"),
    program("expect", &["expect"], "cat > e.exp <<'END'
set timeout 600
spawn sh -c {for i in 1 2 3 4 5 6; do printf \"name? \"; read n; echo \"hello $n\"; sleep 2; done}
for {set i 0} {$i < 6} {incr i} { expect \"name?\"; send \"u$i\\r\"; expect \"hello u$i\" }
expect eof
END
expect e.exp > said; tr -d '\\r' < said > result"),
    program("a name by the process id", &[], "f=/tmp/mine.$$; echo $SLURM_JOB_NAME > $f; for i in $(seq 60); do sleep 0.2; done; cat $f > result; rm $f"),
    program("a coprocess and a FIFO", &[], "mkfifo p; coproc C { while read -r n; do echo $((n * n)); done; }
(for i in $(seq 60); do echo $i >&${C[1]}; read -r a <&${C[0]}; echo $a; sleep 0.2; done > p) & awk '{ s += $1 } END { print s }' < p > result"),
    program("PARI/GP", &["gp"], "echo 's = 0; for(i = 1, 60, s += nextprime(10^30 + i); system(\"sleep 0.2\")); print(s)' | gp -q > result"),
    program("PHP", &["php"], "php -r '$s = 0; for ($i = 1; $i <= 60; $i++) { $s += $i * $i; usleep(200000); } file_put_contents(\"result\", $s);'"),
    program("Tcl", &["tclsh"], "cat > t.tcl <<'END'
set s 0; set i 0
proc tick {} { global i s done; incr i; incr s [expr {$i * $i}]; if {$i == 60} { set done 1 } else { after 200 tick } }
after 200 tick; vwait done; puts $s
END
tclsh t.tcl > result"),
    program("Redis", &["redis-server"], "rm -f socket; redis-server --port 0 --unixsocket $PWD/socket --save '' > log & until [ -S socket ]; do sleep 0.1; done
for i in $(seq 50); do redis-cli -s socket incrby k $i > /dev/null; sleep 0.2; done; redis-cli -s socket get k > result; redis-cli -s socket shutdown nosave; wait"),
    program("a file with holes", &[], "truncate -s 4G holes; exec 5<>holes; for i in $(seq 60); do echo $i >&5; sleep 0.2; done
[ $(stat -c %b holes) -lt 1000 ] && head -c 200 holes | tr -d '\\0' > result"),
    program("semaphores of System V", &["perl"], "cat > s.pl <<'END'
use IPC::SysV qw(IPC_PRIVATE IPC_CREAT IPC_RMID); my $s = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT) // die $!; my $n = 0;
if (!fork) { for (1..60) { semop($s, pack('s!3', 0, 1, 0)); select(undef, undef, undef, 0.2) } exit }
for (1..60) { semop($s, pack('s!3', 0, -1, 0)) or redo; $n++ } wait; semctl($s, 0, IPC_RMID, 0); print $n;
END
perl s.pl > result"),
    program("python, a file in memory", &["python3"], "python3 -c 'import os, mmap, time
f = os.memfd_create(\"x\"); os.ftruncate(f, 4096); m = mmap.mmap(f, 4096)
for i in range(60): m[i] = i; time.sleep(0.2)
open(\"result\", \"w\").write(str(sum(os.pread(f, 60, 0))))'"),
    program("python, spawned workers with an array", &["python3"], "cat > array.py <<'END'
import multiprocessing, time
def work(a):
    for i in range(50): a[0] += i; time.sleep(0.2)
if __name__ == \"__main__\":
    spawn = multiprocessing.get_context(\"spawn\"); a = spawn.RawArray(\"l\", 4); p = spawn.Process(target=work, args=(a,)); p.start(); p.join()
    open(\"result\", \"w\").write(str(a[0]))
END
python3 array.py"),
    program("valgrind", &["valgrind", "cc"], "printf '#include <unistd.h>\\nint main(void) { for (int i = 0; i < 75; i++) usleep(200000); return write(1, \"all\", 3) != 3; }' > v.c
cc -o v v.c && valgrind -q ./v > result"),
    program("mpirun of MPICH", &["mpicc.mpich", "mpirun.mpich"], "cat > m.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int c, char **v) { int r; long s = 0, y; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r);
for (long i = 0; i < 60; i++) { long x = i * (r + 1); MPI_Allreduce(&x, &y, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD); s += y; usleep(200000); }
if (!r) printf(\"%ld\\n\", s); MPI_Finalize(); return 0; }
END
mpicc.mpich -o m m.c && mpirun.mpich -n 2 ./m > result"),
    program("a loop of srun", &[], "for i in $(seq 8); do srun -n1 sh -c \"sleep 1.5; echo $i\"; done > result"),
    program("scratch storage of the node", &[], "W=/mnt/$SLURM_JOB_ID; mkdir -p $W; trap 'rm -rf $W' EXIT
for i in $(seq 60); do echo $((i * i)) > $W/part.$i; sleep 0.2; done
cat $W/part.* | awk '{ s += $1 } END { print NR, s }' > result"),
    program("a step with a folder in /tmp", &[], "srun -n1 sh -c 'T=$(mktemp -d); for i in $(seq 60); do echo $((i * i)) > $T/$i; sleep 0.2; done
cat $T/* | awk \"{ s += \\$1 } END { print NR, s }\"; rm -r $T' > result"),
    program("a step with a state in /tmp", &[], "F=/tmp/state.$SLURM_JOB_ID; echo 0 > $F
srun -n1 sh -c \"for i in \\$(seq 60); do echo \\$((\\$(cat $F) + 1)) > $F; sleep 0.2; done; cat $F; rm $F\" > result"),
    program("/dev/shm from script to step and back", &[], "D=/dev/shm/$USER.$SLURM_JOB_ID; mkdir -p $D; seq 60 > $D/in
srun -n1 sh -c \"s=0; while read -r x; do s=\\$((s + x)); echo \\$s > $D/sum; sleep 0.2; done < $D/in; cat $D/sum > $D/out\"
cp $D/out result; rm -r $D"),
    program("tasks of a step with memory in common", &["python3"], "#SBATCH -n2
cat > t.py <<'END'
import mmap, os, struct, time
path, rank = '/dev/shm/pair.' + os.environ['SLURM_JOB_ID'], int(os.environ['SLURM_PROCID'])
if rank == 0:
    with open(path + '.new', 'wb') as f: f.write(bytes(64))
    os.rename(path + '.new', path)
while not os.path.exists(path): time.sleep(0.05)
m = mmap.mmap(os.open(path, os.O_RDWR), 64)
for i in range(1, 61):
    m[8 * rank:8 * rank + 8] = struct.pack('q', i)
    while struct.unpack('q', m[8 - 8 * rank:16 - 8 * rank])[0] < i: time.sleep(0.01)
    time.sleep(0.2)
print(rank, struct.unpack('qq', m[:16]))
if rank == 0: time.sleep(0.5); os.remove(path)
END
srun -n2 python3 t.py > lines; sort lines > result"),
    program("a chain of jobs", &[], "for i in $(seq 40); do sleep 0.2; done; sbatch --parsable --wrap=true > id && [ -s id ] && echo submitted > result"),
    program("copies of others' files", &[], "for i in $(seq 40); do cp -p /etc/passwd copy; sleep 0.3; done; tar cf t.tar -C /etc hostname && tar xf t.tar && echo $(stat -c %U copy) > result"),
    program("a FIFO in /tmp", &[], "p=/tmp/pipe.$SLURM_JOB_ID; mkfifo $p
(for i in $(seq 60); do echo $i; sleep 0.2; done > $p) & awk '{ s += $1 } END { print s }' < $p > result; wait; rm -f $p"),
    program("much in /tmp", &[], "d=/tmp/much.$SLURM_JOB_ID; mkdir $d; echo kept > $d/small; truncate -s 2G $d/holes
for i in $(seq 60); do sleep 0.2; done; cat $d/small > result; stat -c %s $d/holes >> result; rm -r $d"),
    program("a file written over by who stands at its end", &["python3"], "python3 -c 'import os, struct, time
with open(\"base\", \"wb\") as f: f.write(bytes(8192 * 3000))
w = os.open(\"base\", os.O_WRONLY)
for i in range(60):
    with open(\"base\", \"rb\") as r: n, = struct.unpack(\"q\", r.read(8))
    os.lseek(w, 0, 0); os.write(w, struct.pack(\"q\", n + 1)); os.lseek(w, 0, 2); time.sleep(0.2)
open(\"result\", \"w\").write(str(n + 1))'"),
    program("a large file that gets its name when it is whole", &["python3"], "python3 -c 'import time
with open(\"out.tmp\", \"wb\") as f:
    for i in range(45): f.write(bytes([i]) * 1000000); time.sleep(0.15)
'; mv out.tmp out.dat; for i in $(seq 40); do sleep 0.2; done; sha256sum < out.dat > result"),
    program("a large log that is rotated", &["python3"], "python3 -c 'import os, time
for k in range(6):
    f = open(\"log\", \"ab\", 0); f.write(bytes([48 + k]) * (20 << 20))
    for i in range(10): time.sleep(0.2); f.write(b\"x%d\" % i)
    f.close(); os.rename(\"log\", \"log.%d\" % k)'; sha256sum log.? > result"),
    program("an eventfd as a semaphore", &["python3"], "python3 -c 'import os, time
e = os.eventfd(60, os.EFD_SEMAPHORE); s = 0
for i in range(60): s += os.eventfd_read(e); time.sleep(0.2)
open(\"result\", \"w\").write(str(s))'"),
    program("a scratch folder for each round", &[], "s=0; for r in $(seq 12); do mkdir w$r; cd w$r; seq $r $((r + 4)) > in
while read -r n; do s=$((s + n * r)); sleep 0.2; done < in; cd ..; rm -r w$r; done; echo $s > result"),
    program("an input that is written anew for each round", &[], "s=0; for r in $(seq 12); do seq $((r + 100)) $((r + 104)) > cur
while read -r n; do s=$((s + n * r)); sleep 0.2; done < cur; done; echo $s > result"),
    program("a script that is edited while it runs", &["bash"], "printf 'for i in $(seq 60); do sleep 0.2; done\necho done\n' > helper.sh
(for i in $(seq 10); do sleep 1; sed -i '1i # an edit' helper.sh; done) & bash helper.sh > result; wait"),
    program("a folder that is renamed when it is whole", &[], "for r in $(seq 10 18); do mkdir run.tmp; exec 5> run.tmp/log
for n in 1 2 3 4 5; do echo $r $n >&5; sleep 0.15; done; mv run.tmp run.$r; for n in 6 7 8; do echo $r $n >&5; sleep 0.2; done; exec 5>&-; done
cat run.*/log > result"),
    program("two names of a file in TMPDIR", &[], "t=${TMPDIR:-$(mktemp -d)}; mkdir $t/h; cd $t/h; echo a > f; ln f g
for i in $(seq 60); do sleep 0.2; done; echo b >> f; cat g > $SLURM_SUBMIT_DIR/result"),
    program("a queue of files", &[], "mkdir -p queue done; for i in $(seq 40); do echo $i > queue/$i; done
for f in $(ls queue | sort -n); do sleep 0.3; echo $((f * f)) >> sums; mv queue/$f done/; done; sort -n sums > result"),
    program("a log by >>", &[], "for i in $(seq 60); do echo \"line $i\" >> result; sleep 0.2; done"),
    program("script(1)", &["script"], "script -qec 'for i in $(seq 60); do echo $i; sleep 0.2; done' /dev/null > /dev/null && echo done > result"),
    program("more namespaces", &["unshare"], "unshare -Ur sh -c 'for i in $(seq 60); do sleep 0.2; done; id -u' > result"),
];

/// Those that do something to files which a restore does not undo: their result may be another, if they are told so.
const REPEATS: [&str; 2] = ["a queue of files", "a log by >>"];

/// What became of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its result is the same, and it went on from a checkpoint.
    Same,
    /// Its result is the same; it began anew, and its user was told that it is not protected, or that it does.
    Anew(String),
    /// Its result is another, and its user was told what is done twice.
    Repeated(String),
    /// It ended otherwise than it should, or silently.
    Wrong(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Same => f.write_str("same result, from its checkpoint"),
            Verdict::Anew(told) => write!(f, "same result, from the beginning; told: {told}"),
            Verdict::Repeated(told) => write!(f, "other result; told: {told}"),
            Verdict::Wrong(why) => write!(f, "WRONG: {why}"),
        }
    }
}

/// Whether all that a program needs is there.
pub fn is_here(program: &Program) -> bool {
    let has = |command: &&&str| Command::new("which").arg(command).output().is_ok_and(|o| o.status.success());
    program.needs.iter().filter(has).count() == program.needs.len()
}

/// A job of a program.
struct Job {
    id: u32,
    folder: PathBuf,
    /// When it was seen to run.
    runs: Option<Instant>,
    /// How long it ran, until its end.
    lasted: Duration,
    /// The node that was killed, and when.
    killed: Option<(String, Instant)>,
    /// Whether the node has had its power back: another job may be there.
    is_back: bool,
}

fn submit(site: &Site, program: &Program, what: &str, options: &[&str]) -> Result<Job> {
    let name: String = program.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let folder = site.folder(USER, &format!("{name}-{what}"))?;
    // An option here would win over the script's own.
    let says = |line: &str| {
        line.starts_with("#SBATCH") && [" -N", " -n", " --nodes", " --ntasks"].iter().any(|o| line.contains(o))
    };
    let one: &[&str] = if program.script.lines().any(says) { &[] } else { &["-n1"] };
    let usual = ["--exclusive", "--output=out", "--error=out"];
    let id = site.submit(USER, &folder, &[one, &usual, options, program.options].concat(), program.script)?;
    Ok(Job { id, folder, runs: None, lasted: Duration::ZERO, killed: None, is_back: false })
}

fn read(folder: &Path, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(folder.join(name)).unwrap_or_default()).into_owned()
}

/// Runs programs undisturbed, then with one option and a dead node each; what became of each, in their order.
///
/// # Errors
/// The cluster does not do what is asked.
pub fn play(site: &mut Site, programs: &[&Program], progress: &mut dyn FnMut(&str)) -> Result<Vec<Verdict>> {
    let plain = all(site, programs, "plain", &[], None)?;
    let lasted: Vec<Duration> = plain.iter().map(|job| job.lasted).collect();
    for (program, job) in programs.iter().zip(&plain) {
        progress(&format!("{}: undisturbed {} in {} s", program.name, site.state(job.id)?, job.lasted.as_secs()));
    }
    let options = ["--ft-energy", "--ft-energy-interval=3s"];
    let jobs = all(site, programs, "protected", &options, Some(&lasted))?;
    let judged = programs.iter().zip(plain.iter().zip(&jobs)).map(|(program, (plain, job))| {
        let verdict = judge(site, program, plain, job)?;
        progress(&format!("{}: {verdict}", program.name));
        Ok(verdict)
    });
    judged.collect()
}

/// Runs all to their ends, a few at once; `kills` says for each how long it takes, if its node is to die at half of that.
fn all(
    site: &mut Site,
    programs: &[&Program],
    what: &str,
    options: &[&str],
    kills: Option<&[Duration]>,
) -> Result<Vec<Job>> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut ended = vec![false; programs.len()];
    let until = Instant::now() + LIMIT * programs.len() as u32;
    while ended.contains(&false) {
        anyhow::ensure!(Instant::now() < until, "the programs do not end");
        let active = jobs.len() - ended.iter().filter(|ended| **ended).count();
        if active < AT_ONCE && jobs.len() < programs.len() {
            jobs.push(submit(site, programs[jobs.len()], what, options)?);
        }
        for i in 0..jobs.len() {
            if !ended[i] {
                let dark = jobs.iter().filter(|job| job.killed.is_some() && !job.is_back).count();
                let may_kill = dark < MOST_DARK;
                let half = kills.filter(|_| may_kill).map(|lasted| (lasted[i] / 2).max(Duration::from_secs(6)));
                ended[i] = follow(site, &mut jobs[i], half)?;
            }
            give_back(site, &mut jobs[i], DARK)?;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    jobs.iter_mut().try_for_each(|job| give_back(site, job, Duration::ZERO))?;
    Ok(jobs)
}

/// Gives a killed node its power back after a time.
fn give_back(site: &Site, job: &mut Job, after: Duration) -> Result<()> {
    match &job.killed {
        Some((node, at)) if at.elapsed() >= after && !job.is_back => {
            site.cluster.give_power(node)?;
            job.is_back = true;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Kills the node of a job once, `half` after it began; whether the job has ended.
fn follow(site: &mut Site, job: &mut Job, half: Option<Duration>) -> Result<bool> {
    match site.state(job.id)?.as_str() {
        "PENDING" | "COMPLETING" | "REQUEUED" => Ok(false),
        "RUNNING" => {
            let runs = *job.runs.get_or_insert_with(Instant::now);
            if job.killed.is_none() && half.is_some_and(|half| runs.elapsed() > half) {
                let run = site.report(job.id)?.context("a report")?;
                let node = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
                site.cluster.kill_node(&node)?;
                job.killed = Some((node, Instant::now()));
            }
            Ok(false)
        }
        _ => {
            job.lasted = job.runs.map_or(Duration::from_secs(1), |runs| runs.elapsed());
            Ok(true)
        }
    }
}

fn judge(site: &Site, program: &Program, plain: &Job, job: &Job) -> Result<Verdict> {
    let (state, before) = (site.state(job.id)?, site.state(plain.id)?);
    let out = read(&job.folder, "out");
    let ours: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("joulepoint: ")).collect();
    let told = |words: &[&str]| ours.iter().find(|l| words.iter().any(|w| l.contains(w))).map(|l| l.to_string());
    let wrong = |why: String| Ok(Verdict::Wrong(format!("{why}: {ours:?}")));
    if job.killed.is_none() {
        return wrong(format!("it ended before its node was killed ({state})"));
    }
    if state != before || before != "COMPLETED" || read(&plain.folder, "result").is_empty() {
        return wrong(format!("{state}, and {before} without us"));
    }
    let is_same = read(&job.folder, "result") == read(&plain.folder, "result");
    let anew = told(&["NOT PROTECTED", "begins anew", "begins again without its steps"]);
    let back = told(&["goes on from checkpoint"]);
    let repeated = told(&["which is not undone", "does again"]);
    match (is_same, anew, back, repeated) {
        (true, _, Some(_), _) => Ok(Verdict::Same),
        (true, Some(told), None, _) => Ok(Verdict::Anew(told)),
        (false, _, _, Some(told)) if REPEATS.contains(&program.name) => Ok(Verdict::Repeated(told)),
        (true, None, None, _) => wrong("silently from the beginning".into()),
        (false, ..) => wrong("another result, and nothing was said".into()),
    }
}
