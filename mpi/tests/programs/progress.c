/* A long message within a group, whose sender waits meanwhile for a word of another group that hangs on it: in a call, or by
   looking for it again and again. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, word = 7, bytes = 1 << 20, flag = 0, all = 0;
    const char *how = argc > 1 ? argv[1] : "wait";
    MPI_Request request, requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *contents = calloc(1, bytes);
    if (rank == 0) {
        MPI_Isend(contents, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
        requests[1] = request;
        if (*how == 'p') {
            while (!flag) MPI_Iprobe(2, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
        MPI_Irecv(&word, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, &requests[0]);
        while (*how == 't' && !flag) MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
        while (*how == 'a' && !all) MPI_Testall(2, requests, &all, MPI_STATUSES_IGNORE);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(contents, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_INT, 2, 0, MPI_COMM_WORLD);
    } else if (rank == 2) {
        MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    printf("%d %d\n", rank, word);
    free(contents);
    MPI_Finalize();
    return 0;
}
