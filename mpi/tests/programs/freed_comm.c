/* Communicators that are freed while a file is open on them, and while a callback uses them. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <stdio.h>

static int deleted(MPI_Comm comm, int key, void *value, void *extra) {
    int rank, sum;
    (void)key, (void)value, (void)extra;
    MPI_Comm_rank(comm, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    printf("rank %d: deleted, sum %d\n", rank, sum);
    return MPI_SUCCESS;
}

int main(int count, char **words) {
    int rank, size, key, value = 1;
    MPI_Comm comm, other;
    MPI_File file;
    MPI_Offset bytes;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_File_open(comm, "freed_comm.out", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_File_write_at_all(file, rank * sizeof rank, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &bytes);
    MPI_File_close(&file);
    MPI_Comm_free(&other);

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &key, NULL);
    MPI_Comm_set_attr(comm, key, &value);
    MPI_Comm_free(&comm);
    printf("rank %d of %d: %d bytes, %d\n", rank, size, (int)bytes, comm == MPI_COMM_NULL);
    MPI_Finalize();
    return 0;
}
