/* A window on all ranks. */
#include <mpi.h>

int main(int argc, char **argv) {
    int word = 0;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Win_create(&word, sizeof word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
