/* The last rank aborts with the code that is given, while the others wait for a message that never comes. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, word;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1)
        MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    MPI_Recv(&word, 1, MPI_INT, size - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
