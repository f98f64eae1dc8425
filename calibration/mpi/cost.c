/* Times a barrier of all ranks, or active polling while a message drains; the first rank of each node tells when. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static double clock_s(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec + 1e-6 * now.tv_usec;
}

static int rank, size;

/* Ranks of the first half send to those of the second, who poll. */
static void drain(char *buffer, int bytes)
{
    MPI_Request request;
    int half = size / 2, done = 0;
    if (rank < half)
        MPI_Isend(buffer, bytes, MPI_CHAR, rank + half, 0, MPI_COMM_WORLD, &request);
    else if (rank < 2 * half)
        MPI_Irecv(buffer, bytes, MPI_CHAR, rank - half, 0, MPI_COMM_WORLD, &request);
    else
        return;
    while (!done)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

static void repeat(int polling, char *buffer, int bytes, long times)
{
    for (long i = 0; i < times; i++) {
        if (polling)
            drain(buffer, bytes);
        else
            MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* cost synchro|polling BYTES_OF_EACH_RANK WINDOW_S WINDOWS */
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5) {
        fprintf(stderr, "usage: cost synchro|polling BYTES WINDOW_S WINDOWS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int polling = strcmp(argv[1], "polling") == 0, bytes = atoi(argv[2]), windows = atoi(argv[4]);
    double window_s = atof(argv[3]);
    char *buffer = calloc(1, bytes > 0 ? bytes : 1);
    const char *local = getenv("SLURM_LOCALID");
    long times = 1;
    double took_s = 0.0;
    /* Doubles until a tenth of the window is filled, then scales; all ranks agree by the slowest. */
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun_s = MPI_Wtime(), mine_s;
        repeat(polling, buffer, bytes, times);
        mine_s = MPI_Wtime() - begun_s;
        MPI_Allreduce(&mine_s, &took_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (took_s > 0.1 * window_s)
            break;
        times *= 2;
    }
    times = (long)(times * window_s / took_s) + 1;
    for (int w = 0; w < windows; w++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun_s = clock_s(), before_s = MPI_Wtime();
        repeat(polling, buffer, bytes, times);
        double mine_s = (MPI_Wtime() - before_s) / times;
        if (local && strcmp(local, "0") == 0) {
            printf("%.6f %.6f %.9g\n", begun_s, clock_s(), mine_s);
            fflush(stdout);
        }
    }
    free(buffer);
    MPI_Finalize();
    return 0;
}
