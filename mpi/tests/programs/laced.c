/* All ranks write blocks of a file in turns, together: no group may lose what another has written. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 16, BLOCKS = 512, ROUNDS = 12 };

static int rank, size;

static int value(int round, int owner, int at) {
    return round * 10000000 + owner * 100000 + at;
}

/* How many of the file's numbers are not those that their ranks have written. */
static long wrong(int round) {
    long at = 0, count = 0;
    FILE *file = fopen("laced", "r");
    for (int word; fread(&word, sizeof word, 1, file) == 1; at++) {
        int block = at / BLOCK;
        count += word != value(round, block % size, block / size * BLOCK + at % BLOCK);
    }
    fclose(file);
    return count + (at != (long)size * BLOCKS * BLOCK);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static int words[BLOCKS * BLOCK];
    MPI_Datatype laced;
    MPI_Type_vector(BLOCKS, BLOCK, BLOCK * size, MPI_INT, &laced);
    MPI_Type_commit(&laced);
    /* The program's own hints, which no group may follow alone. */
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "romio_cb_write", "enable");
    MPI_Info_set(hints, "romio_ds_write", "enable");
    long lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_File file;
        MPI_File_open(MPI_COMM_WORLD, "laced", MPI_MODE_CREATE | MPI_MODE_RDWR, round % 2 ? hints : MPI_INFO_NULL, &file);
        if (round % 3 == 1)
            MPI_File_set_info(file, hints);
        MPI_Offset first = rank * BLOCK * sizeof(int);
        MPI_File_set_view(file, first, MPI_INT, laced, "native", round % 3 == 2 ? hints : MPI_INFO_NULL);
        for (int i = 0; i < BLOCKS * BLOCK; i++)
            words[i] = value(round, rank, i);
        if (round % 4 == 3)
            MPI_File_write(file, words, BLOCKS * BLOCK, MPI_INT, MPI_STATUS_IGNORE);
        else
            MPI_File_write_all(file, words, BLOCKS * BLOCK, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            lost += wrong(round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("laced: %ld wrong\n", lost);
    MPI_Info_free(&hints);
    MPI_Type_free(&laced);
    MPI_Finalize();
    return 0;
}
