/* Several threads of each rank are in MPI at once: messages, collectives, new communicators, windows, files. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define TURNS 50

static int rank, size;
static MPI_Comm own[THREADS];
static MPI_Win shared;
static long counters[THREADS];
static char lines[THREADS][512];

/* A ring of messages that all threads send on one communicator, told apart by their tags. */
static long ring(int of) {
    long token = rank + 10 * of, come = 0, sum = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        int to = (rank + 1) % size, from = (rank + size - 1) % size;
        if (turn % 3 == 0) {
            MPI_Sendrecv(&token, 1, MPI_LONG, to, of, &come, 1, MPI_LONG, from, of, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (turn % 3 == 1) {
            MPI_Request both[2];
            MPI_Irecv(&come, 1, MPI_LONG, from, of, MPI_COMM_WORLD, &both[0]);
            MPI_Isend(&token, 1, MPI_LONG, to, of, MPI_COMM_WORLD, &both[1]);
            MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        } else {
            MPI_Request sent;
            MPI_Message message;
            MPI_Issend(&token, 1, MPI_LONG, to, of, MPI_COMM_WORLD, &sent);
            MPI_Mprobe(MPI_ANY_SOURCE, of, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            MPI_Mrecv(&come, 1, MPI_LONG, &message, MPI_STATUS_IGNORE);
            MPI_Wait(&sent, MPI_STATUS_IGNORE);
        }
        token = come + turn;
        sum += token;
    }
    return sum;
}

/* What a thread alone waits for, another one sends. */
static long handed(int of) {
    long value = 0, sent = 100 * rank + of;
    int partner = (of + 1) % THREADS;
    MPI_Request request;
    MPI_Isend(&sent, 1, MPI_LONG, (rank + 1) % size, 1000 + partner, MPI_COMM_WORLD, &request);
    MPI_Recv(&value, 1, MPI_LONG, MPI_ANY_SOURCE, 1000 + of, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return value;
}

static long collectives(int of) {
    long sum = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        long value = rank * turn + of, all = 0, *each = malloc(size * sizeof *each);
        MPI_Allreduce(&value, &all, 1, MPI_LONG, MPI_SUM, own[of]);
        MPI_Allgather(&all, 1, MPI_LONG, each, 1, MPI_LONG, own[of]);
        MPI_Request request;
        MPI_Ibcast(&value, 1, MPI_LONG, turn % size, own[of], &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(own[of]);
        sum += each[size - 1] + value;
        free(each);
    }
    return sum;
}

static long communicators(int of) {
    long sum = 0;
    for (int turn = 0; turn < 5; turn++) {
        MPI_Comm half, twin, node;
        int members, place;
        MPI_Comm_split(own[of], (rank + of) % 2, -rank, &half);
        MPI_Comm_dup(half, &twin);
        MPI_Comm_split(twin, rank, 0, &node);
        MPI_Comm_size(twin, &members);
        MPI_Comm_rank(twin, &place);
        long value = rank, all = 0;
        MPI_Allreduce(&value, &all, 1, MPI_LONG, MPI_SUM, twin);
        sum += 1000 * members + 100 * place + all;
        MPI_Comm_free(&node);
        MPI_Comm_free(&twin);
        MPI_Comm_free(&half);
    }
    return sum;
}

/* Of the same ranks by all threads at once, in another order on each rank: the tag tells which belong together. */
static int subset(int of) {
    MPI_Group all, some;
    MPI_Comm made;
    int first[2] = {0, size - 1}, members = 0;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 2, first, &some);
    if (rank == 0 || rank == size - 1) {
        MPI_Comm_create_group(MPI_COMM_WORLD, some, of, &made);
        MPI_Comm_size(made, &members);
        MPI_Barrier(made);
        MPI_Comm_free(&made);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return members;
}

static void add_to_others(int of) {
    long one = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        MPI_Accumulate(&one, 1, MPI_LONG, turn % size, of, 1, MPI_LONG, MPI_SUM, shared);
        MPI_Win_flush(turn % size, shared);
    }
}

/* Of one thread: MPICH keeps its lock of all files while it opens one with others. */
static long file(int of) {
    char name[64];
    long value = 7 * rank + of, come = 0;
    MPI_File file;
    snprintf(name, sizeof name, "threads-%d-%d", of, size);
    MPI_File_open(own[of], name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write_at_all(file, rank * sizeof value, &value, 1, MPI_LONG, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(own[of]);
    MPI_File_read_at(file, (rank + 1) % size * sizeof value, &come, 1, MPI_LONG, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    return come;
}

static void *work(void *given) {
    int of = *(int *)given;
    long r = ring(of), h = handed(of), c = collectives(of), m = communicators(of), f = of == 0 ? file(of) : 0;
    m += of < 2 ? subset(of) : 0;
    add_to_others(of);
    snprintf(lines[of], sizeof lines[of], "rank %d thread %d: ring %ld handed %ld collectives %ld communicators %ld file %ld\n",
             rank, of, r, h, c, m, f);
    return NULL;
}

int main(int count, char **words) {
    int provided, asked, main_thread;
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Query_thread(&asked);
    MPI_Is_thread_main(&main_thread);
    for (int of = 0; of < THREADS; of++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[of]);
    MPI_Win_create(counters, sizeof counters, sizeof counters[0], MPI_INFO_NULL, MPI_COMM_WORLD, &shared);
    MPI_Win_lock_all(0, shared);

    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int of = 0; of < THREADS; of++) {
        numbers[of] = of;
        pthread_create(&threads[of], NULL, work, &numbers[of]);
    }
    for (int of = 0; of < THREADS; of++)
        pthread_join(threads[of], NULL);

    MPI_Win_unlock_all(shared);
    void *base;
    MPI_Aint *bytes;
    int *unit, *flavor, found[4];
    MPI_Win_get_attr(shared, MPI_WIN_BASE, &base, &found[0]);
    MPI_Win_get_attr(shared, MPI_WIN_SIZE, &bytes, &found[1]);
    MPI_Win_get_attr(shared, MPI_WIN_DISP_UNIT, &unit, &found[2]);
    MPI_Win_get_attr(shared, MPI_WIN_CREATE_FLAVOR, &flavor, &found[3]);
    printf("rank %d: provided %d %d main %d window %d %ld %d %d %d%d%d%d\n", rank, provided, asked, main_thread,
           base == counters, (long)*bytes, *unit, *flavor, found[0], found[1], found[2], found[3]);
    MPI_Win_free(&shared);
    for (int of = 0; of < THREADS; of++)
        printf("%srank %d counter %d: %ld\n", lines[of], rank, of, counters[of]);
    for (int of = 0; of < THREADS; of++)
        MPI_Comm_free(&own[of]);
    MPI_Finalize();
    return 0;
}
