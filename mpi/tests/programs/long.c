/* A message of 300 MiB. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, words = 300 << 18;
    unsigned sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned *contents = malloc(words * sizeof *contents);
    if (rank == 0) {
        for (int i = 0; i < words; i++) contents[i] = i * 2654435761u;
        MPI_Send(contents, words, MPI_UNSIGNED, size - 1, 0, MPI_COMM_WORLD);
    } else if (rank == size - 1) {
        MPI_Recv(contents, words, MPI_UNSIGNED, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < words; i++) sum += contents[i] * (i + 1);
    }
    printf("%d %u\n", rank, sum);
    free(contents);
    MPI_Finalize();
    return 0;
}
