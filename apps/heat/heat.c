/* Heat spreading on a square plate: a small MPI program that can checkpoint, for Joulepoint's tests and demo.
 *
 * Jacobi steps on an N x N grid, rows divided among the ranks. No sum depends on the number of ranks, so the result
 * is the same to the last bit for any number of them and after any number of restarts.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char HELP[] =
    "usage: heat [OPTIONS]\n"
    "Computes how heat spreads on a square plate. Run it alone, with mpirun, or with srun --mpi=pmix.\n"
    "\n"
    "  --size N          grid points on a side (256)\n"
    "  --steps N         time steps (1000)\n"
    "  --step-ms T       let every step last at least T milliseconds (0)\n"
    "  --dir PATH        folder of the files below (.)\n"
    "  --interval S      checkpoint every S seconds; 'env' takes FT_ENERGY_INTERVAL_S, if it is set (off)\n"
    "  --report N        print a line every N steps (100; 0: never)\n"
    "  --help            this text\n"
    "\n"
    "SIGUSR1 to any rank: all ranks checkpoint at the end of the same step, and go on.\n"
    "Files: heat.ckpt   the newest checkpoint, replaced in one go; the program resumes from it by itself\n"
    "       heat.out    the result: steps, size and a hash of the whole grid\n"
    "Prints 'checkpoint step=N bytes=B seconds=S' when a checkpoint is on disk, 'resumed step=N' after a restart.\n"
    "Exit: 0 done, 1 trouble with files or memory, 2 bad usage, 3 the checkpoint is damaged or of another grid.\n";

struct options {
    long size, steps, step_ms, report;
    double interval_s; /* 0: none */
    const char *dir;
};

struct header {
    char magic[8]; /* HEATCKP1 */
    uint64_t size, step, hash;
};

struct plate {
    int rank, ranks, mpi;
    long size, first, rows; /* my rows are first .. first + rows - 1 of the whole grid */
    double *now, *next;     /* rows + 2 rows: one of each neighbour around mine */
};

static volatile sig_atomic_t asked;

static void on_usr1(int signal_number)
{
    (void)signal_number;
    asked = 1;
}

static void die(const struct plate *p, int code, const char *what, const char *name)
{
    fprintf(stderr, "heat: %s%s%s%s%s\n", what, *name ? " " : "", name, errno ? ": " : "", errno ? strerror(errno) : "");
    if (p && p->mpi)
        MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FNV-1a over 64-bit words. */
static uint64_t hash_more(uint64_t h, const double *v, long count)
{
    for (long i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, &v[i], sizeof word);
        h = (h ^ word) * 1099511628211u;
    }
    return h;
}

static const uint64_t HASH_START = 14695981039346656037u;

static void rows_of(const struct plate *p, int rank, long *first, long *rows)
{
    long each = p->size / p->ranks, left = p->size % p->ranks;
    *first = rank * each + (rank < left ? rank : left);
    *rows = each + (rank < left);
}

static double *row(double *grid, const struct plate *p, long local)
{
    return grid + (local + 1) * p->size;
}

/* A hot spot, a cold one, and a ripple that keeps every number busy. */
static double start_value(long size, long y, long x)
{
    double v = (double)((y * 31 + x * 17) % 101) / 101.0;
    if (y > size / 8 && y < size / 4 && x > size / 8 && x < size / 2)
        v += 100.0;
    if (y > size / 2 && x > size / 2)
        v -= 50.0;
    return v;
}

static void path(char *out, size_t room, const struct options *o, const char *name)
{
    if (snprintf(out, room, "%s/%s", o->dir, name) >= (int)room)
        die(NULL, 2, "path too long:", o->dir);
}

/* Rank 0 hands out the rows of a stored grid, or of the first state. Returns the step. */
static uint64_t load(struct plate *p, const struct options *o)
{
    uint64_t step = 0;
    FILE *f = NULL;
    struct header h = {{0}, 0, 0, 0};
    if (p->rank == 0) {
        char name[4096];
        path(name, sizeof name, o, "heat.ckpt");
        f = fopen(name, "rb");
        if (!f && errno != ENOENT)
            die(p, 1, "cannot read", name);
        errno = 0;
        if (f && (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.magic, "HEATCKP1", 8) || h.size != (uint64_t)p->size))
            die(p, 3, "not a checkpoint of this grid:", name);
        step = f ? h.step : 0;
        uint64_t hash = HASH_START;
        for (int r = 0; r < p->ranks; r++) {
            long first, rows;
            rows_of(p, r, &first, &rows);
            double *to = r == 0 ? row(p->now, p, 0) : malloc((size_t)rows * p->size * sizeof *to + 1);
            if (!to)
                die(p, 1, "no memory", "");
            if (!f)
                for (long y = 0; y < rows; y++)
                    for (long x = 0; x < p->size; x++)
                        to[y * p->size + x] = start_value(p->size, first + y, x);
            else if (fread(to, sizeof *to, (size_t)(rows * p->size), f) != (size_t)(rows * p->size))
                die(p, 3, "the checkpoint is too short:", name);
            hash = hash_more(hash, to, rows * p->size);
            if (r > 0) {
                MPI_Send(to, (int)(rows * p->size), MPI_DOUBLE, r, 1, MPI_COMM_WORLD);
                free(to);
            }
        }
        if (f && hash != h.hash)
            die(p, 3, "the checkpoint is damaged:", name);
        if (f) {
            fclose(f);
            printf("resumed step=%" PRIu64 "\n", step);
            fflush(stdout);
        }
    } else {
        MPI_Recv(row(p->now, p, 0), (int)(p->rows * p->size), MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (p->mpi)
        MPI_Bcast(&step, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return step;
}

/* Rank 0 sees all rows in order: writes them to `f` if there is one, and returns their hash. */
static uint64_t gather(struct plate *p, FILE *f, const char *name)
{
    uint64_t hash = HASH_START;
    if (p->rank != 0) {
        MPI_Send(row(p->now, p, 0), (int)(p->rows * p->size), MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
        return 0;
    }
    for (int r = 0; r < p->ranks; r++) {
        long first, rows;
        rows_of(p, r, &first, &rows);
        size_t count = (size_t)(rows * p->size);
        double *from = r == 0 ? row(p->now, p, 0) : malloc(count * sizeof *from + 1);
        if (!from)
            die(p, 1, "no memory", "");
        if (r > 0)
            MPI_Recv(from, (int)count, MPI_DOUBLE, r, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        hash = hash_more(hash, from, (long)count);
        if (f && fwrite(from, sizeof *from, count, f) != count)
            die(p, 1, "cannot write", name);
        if (r > 0)
            free(from);
    }
    return hash;
}

static void sync_folder(const struct plate *p, const struct options *o)
{
    int fd = open(o->dir, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fsync(fd) != 0)
        die(p, 1, "cannot sync", o->dir);
    close(fd);
}

/* The new file takes the old one's name only when all of it is on disk. */
static void publish(const struct plate *p, const struct options *o, FILE *f, const char *from, const char *to)
{
    if (fflush(f) != 0 || fsync(fileno(f)) != 0 || fclose(f) != 0 || rename(from, to) != 0)
        die(p, 1, "cannot write", to);
    sync_folder(p, o);
}

static void checkpoint(struct plate *p, const struct options *o, uint64_t step)
{
    char name[4096] = "", temporary[4096] = "";
    FILE *f = NULL;
    double begin = clock_s();
    struct header h = {"HEATCKP", (uint64_t)p->size, step, 0};
    h.magic[7] = '1';
    if (p->rank == 0) {
        path(name, sizeof name, o, "heat.ckpt");
        path(temporary, sizeof temporary, o, "heat.ckpt.tmp");
        f = fopen(temporary, "wb");
        if (!f || fwrite(&h, sizeof h, 1, f) != 1)
            die(p, 1, "cannot write", temporary);
    }
    h.hash = gather(p, f, temporary);
    if (p->rank == 0) {
        if (fseek(f, 0, SEEK_SET) != 0 || fwrite(&h, sizeof h, 1, f) != 1)
            die(p, 1, "cannot write", temporary);
        publish(p, o, f, temporary, name);
        long bytes = (long)sizeof h + p->size * p->size * (long)sizeof(double);
        printf("checkpoint step=%" PRIu64 " bytes=%ld seconds=%.3f\n", step, bytes, clock_s() - begin);
        fflush(stdout);
    }
}

static void exchange(struct plate *p)
{
    int n = (int)p->size, up = p->rank - 1, down = p->rank + 1;
    if (up < 0)
        up = MPI_PROC_NULL;
    if (down == p->ranks)
        down = MPI_PROC_NULL;
    MPI_Sendrecv(row(p->now, p, 0), n, MPI_DOUBLE, up, 3, row(p->now, p, p->rows), n, MPI_DOUBLE, down, 3,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(p->now, p, p->rows - 1), n, MPI_DOUBLE, down, 4, row(p->now, p, -1), n, MPI_DOUBLE, up, 4,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void advance(struct plate *p)
{
    if (p->ranks > 1)
        exchange(p);
    for (long y = 0; y < p->rows; y++) {
        const double *above = row(p->now, p, y - 1), *here = row(p->now, p, y), *below = row(p->now, p, y + 1);
        double *to = row(p->next, p, y);
        int edge = p->first + y == 0 || p->first + y == p->size - 1;
        to[0] = here[0];
        to[p->size - 1] = here[p->size - 1];
        for (long x = 1; x < p->size - 1; x++)
            to[x] = edge ? here[x] : here[x] + 0.2 * (above[x] + below[x] + here[x - 1] + here[x + 1] - 4.0 * here[x]);
    }
    double *swap = p->now;
    p->now = p->next;
    p->next = swap;
}

static void rest_until(double when)
{
    double left = when - clock_s();
    while (left > 0) {
        struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&t, NULL); /* a signal ends it early: look again */
        left = when - clock_s();
    }
}

static void run(struct plate *p, const struct options *o)
{
    uint64_t step = load(p, o);
    double last_checkpoint = clock_s();
    while (step < (uint64_t)o->steps) {
        double begin = clock_s();
        advance(p);
        step++;
        rest_until(begin + 1e-3 * (double)o->step_ms);
        int want = asked;
        if (p->rank == 0 && o->interval_s > 0 && clock_s() - last_checkpoint >= o->interval_s)
            want = 1;
        /* Every rank learns at the same step that one of them was asked. */
        if (p->mpi)
            MPI_Allreduce(MPI_IN_PLACE, &want, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (want) {
            asked = 0;
            checkpoint(p, o, step);
            last_checkpoint = clock_s();
        }
        if (p->rank == 0 && o->report > 0 && step % (uint64_t)o->report == 0) {
            printf("step %" PRIu64 " of %ld\n", step, o->steps);
            fflush(stdout);
        }
    }
    uint64_t hash = gather(p, NULL, "");
    if (p->rank == 0) {
        char name[4096], temporary[4096];
        path(name, sizeof name, o, "heat.out");
        path(temporary, sizeof temporary, o, "heat.out.tmp");
        FILE *f = fopen(temporary, "w");
        if (!f || fprintf(f, "steps=%ld size=%ld hash=%016" PRIx64 "\n", o->steps, o->size, hash) < 0)
            die(p, 1, "cannot write", temporary);
        publish(p, o, f, temporary, name);
        printf("finished steps=%ld hash=%016" PRIx64 "\n", o->steps, hash);
    }
}

static long number(const char *name, const char *text, long least, long most)
{
    char *end = NULL;
    errno = 0;
    long v = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || v < least || v > most) {
        fprintf(stderr, "heat: %s %s: a number from %ld to %ld is needed\n", name, text ? text : "", least, most);
        exit(2);
    }
    return v;
}

static double interval(const char *text)
{
    if (text && strcmp(text, "env") == 0) {
        text = getenv("FT_ENERGY_INTERVAL_S");
        if (!text || !*text)
            return 0;
    }
    char *end = NULL;
    double v = text ? strtod(text, &end) : -1;
    if (!text || end == text || *end || !(v > 0)) {
        fprintf(stderr, "heat: --interval %s: seconds above 0 are needed\n", text ? text : "");
        exit(2);
    }
    return v;
}

static struct options parse(int argc, char **argv)
{
    struct options o = {256, 1000, 0, 100, 0, "."};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--help") == 0) {
            fputs(HELP, stdout);
            exit(0);
        }
        i++;
        if (strcmp(name, "--size") == 0)
            o.size = number(name, value, 3, 20000);
        else if (strcmp(name, "--steps") == 0)
            o.steps = number(name, value, 1, 1000000000);
        else if (strcmp(name, "--step-ms") == 0)
            o.step_ms = number(name, value, 0, 3600000);
        else if (strcmp(name, "--report") == 0)
            o.report = number(name, value, 0, 1000000000);
        else if (strcmp(name, "--interval") == 0)
            o.interval_s = interval(value);
        else if (strcmp(name, "--dir") == 0 && value)
            o.dir = value;
        else {
            fprintf(stderr, "heat: %s is not understood; see heat --help\n", name);
            exit(2);
        }
    }
    return o;
}

/* Without a launcher there is one rank, and MPI is left alone: no helper processes, no sockets. */
static int launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    struct plate p = {0, 1, launched(), o.size, 0, 0, NULL, NULL};
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = on_usr1;
    act.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &act, NULL); /* before MPI_Init: an early signal must not kill a rank */
    if (p.mpi) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    }
    if (p.ranks > p.size / 2)
        die(&p, 2, "more ranks than pairs of rows", "");
    rows_of(&p, p.rank, &p.first, &p.rows);
    p.now = calloc((size_t)(p.rows + 2) * (size_t)p.size, sizeof *p.now);
    p.next = calloc((size_t)(p.rows + 2) * (size_t)p.size, sizeof *p.next);
    if (!p.now || !p.next)
        die(&p, 1, "no memory", "");
    run(&p, &o);
    free(p.now);
    free(p.next);
    if (p.mpi)
        MPI_Finalize();
    return 0;
}
