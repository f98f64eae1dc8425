/* The type of a message for which a thread waits is freed by another one, which sends only then. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int rank, size;
static MPI_Datatype strided;

static void *frees(void *of) {
    long pair[2] = {rank + 1, rank + 2};
    usleep(20000);
    MPI_Type_free(&strided);
    MPI_Send(pair, 2, MPI_LONG, (rank + 1) % size, 1, MPI_COMM_WORLD);
    return of;
}

int main(int count, char **words) {
    int provided;
    long values[4] = {0, 50, 0, 0};
    pthread_t other;
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_vector(2, 1, 2, MPI_LONG, &strided);
    MPI_Type_commit(&strided);
    pthread_create(&other, NULL, frees, NULL);
    MPI_Recv(values, 1, strided, (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    pthread_join(other, NULL);
    printf("rank %d: %ld %ld %ld %ld\n", rank, values[0], values[1], values[2], values[3]);
    MPI_Finalize();
    return 0;
}
