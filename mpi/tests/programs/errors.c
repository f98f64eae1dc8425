/* Whose handler hears of an error, what a pending receive of a freed communicator gets, and what the program alone may use. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int rank, size, heard;

static void hears(MPI_Comm *comm, int *code, ...) {
    int class;
    MPI_Error_class(*code, &class);
    heard += 1000 + class;
    (void)comm;
}

static int class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;

    /* The world's handler ends the program; the one of this communicator counts. */
    MPI_Comm twin;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_create_errhandler(hears, &handler);
    MPI_Comm_set_errhandler(twin, handler);
    int codes[6], value = rank, come[4] = {0};
    MPI_Request request;
    MPI_Status status;
    codes[0] = class_of(MPI_Send(&value, 1, MPI_INT, 77, 0, twin));
    codes[1] = class_of(MPI_Recv(come, 1, MPI_INT, 77, 0, twin, MPI_STATUS_IGNORE));
    codes[2] = class_of(MPI_Iprobe(77, 0, twin, &come[1], MPI_STATUS_IGNORE));
    int two[2] = {rank, rank};
    MPI_Irecv(come, 1, MPI_INT, from, 1, twin, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(two, 2, MPI_INT, to, 1, twin);
    codes[3] = class_of(MPI_Wait(&request, &status));
    MPI_Irecv(come, 1, MPI_INT, from, 2, twin, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(two, 2, MPI_INT, to, 2, twin);
    codes[4] = class_of(MPI_Waitall(1, &request, &status));
    codes[5] = class_of(MPI_Bcast(come, -1, MPI_INT, 0, twin));
    printf("rank %d: codes %d %d %d %d %d %d, status %d, heard %d\n", rank, codes[0], codes[1], codes[2], codes[3], codes[4], codes[5],
           class_of(status.MPI_ERROR), heard);

    MPI_Comm_free(&twin);

    /* What is under way on a communicator that is freed comes to its end. */
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Irecv(come, 1, MPI_INT, from, 5, other, &request);
    MPI_Request sent;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank % 2 == 1) usleep(200000);
    MPI_Isend(&value, 1, MPI_INT, to, 5, other, &sent);
    MPI_Comm_free(&other);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    printf("rank %d: from a freed communicator %d\n", rank, come[0]);

    /* Collectives use no message that a receive of the program's could take. */
    int own = -1, all[16], sum;
    MPI_Irecv(&own, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_SELF, &request);
    MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Scan(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gather(&value, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    int self = 100 + rank;
    MPI_Send(&self, 1, MPI_INT, 0, 7, MPI_COMM_SELF);
    MPI_Wait(&request, &status);
    printf("rank %d: from itself %d by tag %d, scan %d\n", rank, own, status.MPI_TAG, sum);
    MPI_Errhandler_free(&handler);
    MPI_Finalize();
    return 0;
}
