/* Rank 0 is gone once, in the middle, and begins again: what the others have said of its messages comes before it says them. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <stdio.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, sum = 0, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int i = 0; i < 50; i++) {
        int word = i * size + rank, come;
        if (rank == 0 && i == 30 && open("was-gone", O_CREAT | O_EXCL, 0600) >= 0)
            _exit(75);
        if (i % 2) {
            MPI_Request request;
            MPI_Issend(&word, 1, MPI_INT, to, 0, MPI_COMM_WORLD, &request);
            MPI_Recv(&come, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (rank == 0) {
            MPI_Ssend(&word, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
            MPI_Recv(&come, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&come, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Ssend(&word, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
        }
        sum += come;
    }
    MPI_Reduce(&sum, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %d\n", all);
    MPI_Finalize();
    return 0;
}
