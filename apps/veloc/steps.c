/* steps CONFIG STEPS SECONDS: adds up numbers under VELOC, with a checkpoint every twenty steps; a state for each rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <veloc.h>

static char ballast[1 << 20];

int main(int argc, char **argv) {
    int rank, step = 0, steps = atoi(argv[2]);
    unsigned long total = 0;
    double pause = atof(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
    VELOC_Mem_protect(0, &step, 1, sizeof step);
    VELOC_Mem_protect(1, &total, 1, sizeof total);
    VELOC_Mem_protect(2, ballast, sizeof ballast, 1);
    int version = VELOC_Restart_test("steps", 0);
    if (version > 0 && VELOC_Restart("steps", version) != VELOC_SUCCESS) {
        printf("version %d cannot be restored\n", version);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    if (rank == 0) printf("begins at step %d\n", step);
    fflush(stdout);
    while (step < steps) {
        for (int k = 0; k < 1000000; k++) total = (total * 31 + k + rank) % 1000003;
        usleep(pause * 1e6);
        step++;
        MPI_Barrier(MPI_COMM_WORLD);
        if (step % 20 == 0 && VELOC_Checkpoint("steps", step) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 5);
    }
    printf("TOTAL %d %lu\n", rank, total);
    fflush(stdout);
    VELOC_Finalize(1);
    MPI_Finalize();
    return 0;
}
