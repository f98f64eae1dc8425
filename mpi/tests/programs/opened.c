/* A file of each rank alone (own), of the ranks of each group (groups), or of all ranks: it is open as it was opened. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, given, mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    char name[64];
    MPI_Comm group, comm = MPI_COMM_WORLD;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &group);
    if (!strcmp(argv[1], "own"))
        comm = MPI_COMM_SELF;
    else if (!strcmp(argv[1], "groups"))
        comm = group;
    int first = rank;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm);
    snprintf(name, sizeof name, "opened.%s.%d", argv[1], first);
    if (MPI_File_open(comm, name, mode, MPI_INFO_NULL, &file))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_File_get_amode(file, &given);
    MPI_File_write_at_all(file, rank * sizeof rank, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Comm_free(&group);
    printf("rank %d: as opened %d\n", rank, given == mode);
    MPI_Finalize();
    return 0;
}
