/* Files by the pointer that all ranks share, moved by calls that all ranks make. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECKED(call) do { int code = (call); if (code) { printf("rank %d: %s: %d\n", rank, #call, code); MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)

static int rank, size;

static void told(const char *what, MPI_File file)
{
    MPI_Offset at, own;
    CHECKED(MPI_File_get_position_shared(file, &at));
    CHECKED(MPI_File_get_position(file, &own));
    printf("rank %d: %s: shared %lld, own %lld\n", rank, what, (long long)at, (long long)own);
}

static void seek(MPI_File file, MPI_Offset by, int whence)
{
    /* All must have written before one takes the end. */
    MPI_Barrier(MPI_COMM_WORLD);
    CHECKED(MPI_File_seek_shared(file, by, whence));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void contents(const char *name)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *file = fopen(name, "r");
        long sum = 0, bytes = 0;
        for (int byte; (byte = getc(file)) != EOF; bytes++) sum = (sum * 31 + byte) % 1000003;
        fclose(file);
        printf("%s: %ld bytes, sum %ld\n", name, bytes, sum);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *name = "ordered.out";
    double values[64];
    MPI_File file;
    MPI_Status status;
    int count, got;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 64; i++) values[i] = 100 * rank + i;
    count = 2 + (rank * 3) % 5;

    if (rank == 0) remove(name);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECKED(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    told("opened", file);
    /* Bytes, then doubles behind eight bytes. */
    CHECKED(MPI_File_write_ordered(file, "abcdefgh", rank % 2 ? 3 : 1, MPI_CHAR, &status));
    told("written in bytes", file);
    CHECKED(MPI_File_set_view(file, 8, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL));
    told("view", file);
    for (int turn = 0; turn < 3; turn++) CHECKED(MPI_File_write_ordered(file, values + turn, count, MPI_DOUBLE, &status));
    MPI_Get_count(&status, MPI_DOUBLE, &got);
    printf("rank %d: wrote %d\n", rank, got);
    CHECKED(MPI_File_write_ordered_begin(file, values, rank == 1 ? 0 : 1, MPI_DOUBLE));
    CHECKED(MPI_File_write_ordered_end(file, values, &status));
    told("written", file);
    CHECKED(MPI_File_sync(file));
    contents(name);

    seek(file, 3, MPI_SEEK_SET);
    CHECKED(MPI_File_read_ordered(file, values, count, MPI_DOUBLE, &status));
    printf("rank %d: read %g\n", rank, values[0]);
    seek(file, -size, MPI_SEEK_CUR);
    told("back", file);
    CHECKED(MPI_File_read_ordered_begin(file, values, 2, MPI_DOUBLE));
    CHECKED(MPI_File_read_ordered_end(file, values, &status));
    MPI_Get_count(&status, MPI_DOUBLE, &got);
    printf("rank %d: read %d: %g %g\n", rank, got, values[0], values[1]);
    told("read", file);
    /* Open MPI 4's own end of a view leaves the view's place out. */
    CHECKED(MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL));
    seek(file, -2 * size, MPI_SEEK_END);
    told("before the end", file);
    CHECKED(MPI_File_read_ordered(file, values, 1, MPI_DOUBLE, &status));
    printf("rank %d: read %g\n", rank, values[0]);
    CHECKED(MPI_File_close(&file));

    CHECKED(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
    CHECKED(MPI_File_write_ordered(file, "behind", 6, MPI_CHAR, &status));
    CHECKED(MPI_File_close(&file));
    contents(name);
    MPI_Finalize();
    return 0;
}
