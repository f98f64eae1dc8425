/* The measurements of transport.rs with Open MPI: lines of "kind size rounds median_us". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double once(const char *kind, int size, int rank, char *bytes, char *other)
{
    double start = MPI_Wtime();
    if (!strcmp(kind, "allreduce")) {
        MPI_Allreduce(bytes, other, size / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Send(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return 1e6 * (MPI_Wtime() - start);
}

/* usage: mpi KIND SIZE ROUNDS [SIZE ROUNDS ...] */
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 2; i + 1 < argc; i += 2) {
        int size = atoi(argv[i]), rounds = atoi(argv[i + 1]);
        char *bytes = calloc(1, (size_t)size), *other = calloc(1, (size_t)size);
        double *times = calloc((size_t)rounds, sizeof *times);
        for (int round = 0; round < rounds; round++)
            times[round] = once(argv[1], size, rank, bytes, other);
        qsort(times, (size_t)rounds, sizeof *times, ascending);
        if (rank == 0)
            printf("%s %d %d %.3f\n", argv[1], size, rounds, times[rounds / 2]);
        free(bytes);
        free(other);
        free(times);
    }
    MPI_Finalize();
    return 0;
}
