/* A ring of cells divided among groups that are coupled by mlog: a test program for message logging.
 *
 * Each step a cell becomes a mean of itself and its neighbours; the edges come from the neighbouring groups by
 * non-blocking sends and receives. Every ten steps all groups agree on the sum of all cells, and it flows back into
 * them, so that one wrong or missing message changes every bit of the result. Built with -DSTENCIL_MPI, the cells of
 * a group are divided among the ranks of its own MPI; the result is the same.
 */
#include "mlog.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef STENCIL_MPI
#include <mpi.h>
#endif

static const char HELP[] =
    "usage: stencil [OPTIONS]\n"
    "Computes on a ring of cells with the other groups of its run. One process, or one MPI job, for each group.\n"
    "\n"
    "  --cells N      cells of each group (240)\n"
    "  --steps N      time steps (400)\n"
    "  --every N      checkpoint every N steps (50; 0: never)\n"
    "  --step-ms T    rest T milliseconds in each step (0)\n"
    "  --dir PATH     folder of the files below (.)\n"
    "  --help         this text\n"
    "\n"
    "FT_ENERGY_RELAY names the socket of the group's relay.\n"
    "Files: GROUP.ckpt   the newest checkpoint; the program resumes from it by itself\n"
    "       GROUP.out    the result: steps, the last sum and a hash of the cells\n"
    "Needs --group N, or FT_ENERGY_GROUP, for the files of a checkpoint, which are read before the relay is asked.\n"
    "Exit: 0 done, 1 trouble, 2 bad usage; 10 and more: 10 + the error of mlog.\n";

static struct {
    long cells, steps, every, step_ms, group;
    const char *dir;
} opt = {240, 400, 50, 0, -1, "."};

static int rank_, ranks_ = 1;
static long mine;           /* cells of this rank */
static double *now, *next;  /* mine + 2: one neighbour on each side */
static double *whole;       /* rank 0: all cells of the group */
static mlog_t *net;         /* rank 0 */

static void die(int code, const char *what)
{
    fprintf(stderr, "stencil: group %ld: %s\n", opt.group, what);
#ifdef STENCIL_MPI
    MPI_Abort(MPI_COMM_WORLD, code);
#endif
    _exit(code);
}

static void must(int error)
{
    if (error != MLOG_OK)
        die(10 + error, mlog_message());
}

static void gather(void)
{
#ifdef STENCIL_MPI
    MPI_Gather(now + 1, (int)mine, MPI_DOUBLE, whole, (int)mine, MPI_DOUBLE, 0, MPI_COMM_WORLD);
#else
    memcpy(whole, now + 1, (size_t)mine * sizeof *now);
#endif
}

static void scatter(void)
{
#ifdef STENCIL_MPI
    MPI_Scatter(whole, (int)mine, MPI_DOUBLE, now + 1, (int)mine, MPI_DOUBLE, 0, MPI_COMM_WORLD);
#else
    memcpy(now + 1, whole, (size_t)mine * sizeof *now);
#endif
}

static void broadcast(void *bytes, size_t length)
{
#ifdef STENCIL_MPI
    MPI_Bcast(bytes, (int)length, MPI_BYTE, 0, MPI_COMM_WORLD);
#else
    (void)bytes;
    (void)length;
#endif
}

struct header {
    char magic[8]; /* STENCIL1 */
    uint64_t cells, step, number;
    double sum;
};

static void name(char *out, size_t room, const char *end)
{
    if (snprintf(out, room, "%s/%ld.%s", opt.dir, opt.group, end) >= (int)room)
        die(2, "path too long");
}

/* Rank 0: whole and h from the newest checkpoint. False if there is none. */
static int load(struct header *h)
{
    char path[4096];
    name(path, sizeof path, "ckpt");
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    if (fread(h, sizeof *h, 1, f) != 1 || memcmp(h->magic, "STENCIL1", 8) || h->cells != (uint64_t)opt.cells ||
        fread(whole, sizeof *whole, (size_t)opt.cells, f) != (size_t)opt.cells)
        die(1, "the checkpoint is damaged");
    fclose(f);
    return 1;
}

/* Rank 0: says where the program is, writes the checkpoint, says that it is safe. */
static void save(const struct header *h)
{
    char path[4096], fresh[4096];
    must(mlog_mark(net, h->number));
    name(path, sizeof path, "ckpt");
    name(fresh, sizeof fresh, "new");
    FILE *f = fopen(fresh, "wb");
    if (!f || fwrite(h, sizeof *h, 1, f) != 1 ||
        fwrite(whole, sizeof *whole, (size_t)opt.cells, f) != (size_t)opt.cells || fflush(f) || fsync(fileno(f)) ||
        fclose(f) || rename(fresh, path))
        die(1, "cannot write the checkpoint");
    must(mlog_commit(net, h->number));
    printf("checkpoint number=%" PRIu64 " step=%" PRIu64 "\n", h->number, h->step);
    fflush(stdout);
}

/* Rank 0: gives the group's edges to its neighbours on the ring and gets theirs. */
static void exchange(double left, double right, double *from_left, double *from_right)
{
    int groups = mlog_groups(net), me = mlog_group(net);
    int to_left = (me + groups - 1) % groups, to_right = (me + 1) % groups;
    if (groups == 1) {
        *from_left = right;
        *from_right = left;
        return;
    }
    mlog_request_t in[2], out[2];
    must(mlog_irecv(net, to_left, 1, from_left, sizeof *from_left, &in[0]));
    must(mlog_irecv(net, to_right, 2, from_right, sizeof *from_right, &in[1]));
    must(mlog_isend(net, to_right, 1, &right, sizeof right, &out[0]));
    must(mlog_isend(net, to_left, 2, &left, sizeof left, &out[1]));
    for (int i = 0; i < 2; i++)
        must(mlog_wait(net, out[i], NULL));
    for (int i = 0; i < 2; i++)
        must(mlog_wait(net, in[i], NULL));
}

/* Fills the neighbours of this rank's cells. */
static void halo(void)
{
#ifdef STENCIL_MPI
    double right = now[mine];
    int up = rank_ + 1 < ranks_ ? rank_ + 1 : MPI_PROC_NULL, down = rank_ > 0 ? rank_ - 1 : MPI_PROC_NULL;
    MPI_Sendrecv(&now[mine], 1, MPI_DOUBLE, up, 0, &now[0], 1, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[1], 1, MPI_DOUBLE, down, 1, &now[mine + 1], 1, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (ranks_ > 1 && rank_ == ranks_ - 1)
        MPI_Send(&right, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
    if (ranks_ > 1 && rank_ == 0)
        MPI_Recv(&right, 1, MPI_DOUBLE, ranks_ - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double from_right = 0;
    if (rank_ == 0)
        exchange(now[1], right, &now[0], ranks_ > 1 ? &from_right : &now[mine + 1]);
    if (ranks_ > 1 && rank_ == 0)
        MPI_Send(&from_right, 1, MPI_DOUBLE, ranks_ - 1, 3, MPI_COMM_WORLD);
    if (ranks_ > 1 && rank_ == ranks_ - 1)
        MPI_Recv(&now[mine + 1], 1, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#else
    exchange(now[1], now[mine], &now[0], &now[mine + 1]);
#endif
}

/* The sum of all cells of all groups, added in the same order whatever the number of ranks. */
static double total(void)
{
    double sum = 0;
    gather();
    if (rank_ == 0) {
        for (long i = 0; i < opt.cells; i++)
            sum += whole[i];
        must(mlog_allreduce_f64(net, &sum, 1, MLOG_SUM));
    }
    broadcast(&sum, sizeof sum);
    return sum;
}

static void result(const struct header *h)
{
    char path[4096], fresh[4096];
    uint64_t hash = 14695981039346656037u;
    for (long i = 0; i < opt.cells; i++) {
        uint64_t word;
        memcpy(&word, &whole[i], sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    name(path, sizeof path, "out");
    name(fresh, sizeof fresh, "out.new");
    FILE *f = fopen(fresh, "w");
    if (!f || fprintf(f, "steps=%" PRIu64 " sum=%a hash=%016" PRIx64 "\n", h->step, h->sum, hash) < 0 || fclose(f) ||
        rename(fresh, path))
        die(1, "cannot write the result");
}

static void compute(struct header *h)
{
    while (h->step < (uint64_t)opt.steps) {
        halo();
        for (long i = 1; i <= mine; i++)
            next[i] = 0.25 * now[i - 1] + 0.5 * now[i] + 0.25 * now[i + 1] + 1e-6 * h->sum;
        double *swap = now;
        now = next;
        next = swap;
        h->step++;
        if (h->step % 10 == 0)
            h->sum = total();
        if (opt.every && h->step % (uint64_t)opt.every == 0) {
            gather();
            h->number = h->step / (uint64_t)opt.every;
            if (rank_ == 0)
                save(h);
        }
        if (opt.step_ms) {
            struct timespec rest = {opt.step_ms / 1000, opt.step_ms % 1000 * 1000000};
            nanosleep(&rest, NULL);
        }
    }
}

static void parse(int argc, char **argv)
{
    struct { const char *name; long *value; } longs[] = {{"--cells", &opt.cells}, {"--steps", &opt.steps},
        {"--every", &opt.every}, {"--step-ms", &opt.step_ms}, {"--group", &opt.group}};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            fputs(HELP, stdout);
            exit(0);
        }
        int known = 0;
        for (size_t j = 0; i + 1 < argc && j < sizeof longs / sizeof *longs; j++)
            if (!strcmp(argv[i], longs[j].name)) {
                *longs[j].value = atol(argv[i + 1]);
                known = 1;
            }
        if (i + 1 < argc && !strcmp(argv[i], "--dir")) {
            opt.dir = argv[i + 1];
            known = 1;
        }
        if (!known) {
            fprintf(stderr, "stencil: %s: unknown, or without its value; see --help\n", argv[i]);
            exit(2);
        }
        i++;
    }
    if (opt.group < 0 || opt.cells < 1) {
        fputs("stencil: --group N is needed, and at least one cell; see --help\n", stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    const char *group = getenv("FT_ENERGY_GROUP");
    if (group)
        opt.group = atol(group);
    parse(argc, argv);
#ifdef STENCIL_MPI
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    if (opt.cells % ranks_)
        die(2, "--cells is not a multiple of the ranks");
#endif
    mine = opt.cells / ranks_;
    now = calloc((size_t)mine + 2, sizeof *now);
    next = calloc((size_t)mine + 2, sizeof *next);
    whole = calloc((size_t)opt.cells, sizeof *whole);
    if (!now || !next || !whole)
        die(1, "no memory");
    struct header h = {"STENCIL1", (uint64_t)opt.cells, 0, 0, 0};
    if (rank_ == 0) {
        memcpy(h.magic, "STENCIL1", 8);
        if (!load(&h))
            for (long i = 0; i < opt.cells; i++)
                whole[i] = (double)((opt.group * 131 + i * 17) % 101) / 101.0;
        must(mlog_init(&net, h.number));
        if (mlog_group(net) != opt.group)
            die(2, "--group is not the group of the relay");
        printf("begins step=%" PRIu64 "\n", h.step);
        fflush(stdout);
    }
    broadcast(&h, sizeof h);
    scatter();
    compute(&h);
    gather();
    if (rank_ == 0) {
        must(mlog_barrier(net));
        result(&h);
        must(mlog_finalize(net));
    }
#ifdef STENCIL_MPI
    MPI_Finalize();
#endif
    return 0;
}
