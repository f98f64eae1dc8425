/* A program that has functions of MPI of its own, which call MPI's by their profiling names. */
#include <mpi.h>
#include <stdio.h>

static int sums, sent;

int MPI_Allreduce(const void *from, void *into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    sums++;
    return PMPI_Allreduce(from, into, count, type, op, comm);
}

int MPI_Send(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    sent++;
    return PMPI_Send(from, count, type, to, tag, comm);
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0, got = -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < 3; turn++) {
        int own = rank + turn;
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank % 2 == 0) MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    else MPI_Recv(&got, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("rank %d: sum %d, got %d, %d sums, %d sent\n", rank, sum, got, sums, sent);
    MPI_Finalize();
    return 0;
}
