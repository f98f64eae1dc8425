/* Communicators are made while duplicates and collectives are under way that some ranks wait for before, and others after. */
#include <mpi.h>
#include <stdio.h>

enum { DUPLICATES = 5, TURNS = 9 };

static int sum_over(MPI_Comm comm)
{
    int one = 1, sum = 0;
    if (comm == MPI_COMM_NULL) return 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    return sum;
}

/* Duplicates of the world, and meanwhile communicators of each kind of another one. */
static int duplicates(MPI_Comm other, int rank, int size)
{
    MPI_Comm made[DUPLICATES], one, between;
    MPI_Request requests[DUPLICATES];
    MPI_Group all, even;
    int first[] = {0, size - 1, 2}, sum = 0;
    for (int i = 0; i < DUPLICATES; i++) MPI_Comm_idup(MPI_COMM_WORLD, &made[i], &requests[i]);
    MPI_Comm_dup(other, &one);
    sum += sum_over(one);
    MPI_Comm_split(other, rank % 2, size - rank, &one);
    sum += sum_over(one);
    MPI_Comm_group(other, &all);
    MPI_Group_range_incl(all, 1, &first, &even);
    MPI_Comm_create(other, even, &one);
    sum += sum_over(one);
    one = MPI_COMM_NULL;
    if (rank % 2 == 0) MPI_Comm_create_group(other, even, 0, &one);
    sum += sum_over(one);
    MPI_Comm_split(other, rank % 2, rank, &one);
    MPI_Intercomm_create(one, 0, other, 1 - rank % 2, 9, &between);
    MPI_Comm_free(&one);
    MPI_Intercomm_merge(between, rank % 2, &one);
    MPI_Comm_free(&between);
    sum += sum_over(one);
    MPI_Waitall(DUPLICATES, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < DUPLICATES; i++) sum += sum_over(made[i]);
    MPI_Group_free(&all);
    MPI_Group_free(&even);
    return sum;
}

/* The first rank of a group makes a communicator before it waits for a sum, to which it carries what the others have. */
static int late(int rank, int size, int turn)
{
    int in = rank + turn, sum = 0, count[] = {0, size - 1, 1};
    MPI_Request request;
    MPI_Comm one;
    MPI_Group all, same;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_range_incl(all, 1, &count, &same);
    MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank % 2) MPI_Wait(&request, MPI_STATUS_IGNORE);
    switch (turn % 3) {
    case 0: MPI_Comm_dup(MPI_COMM_WORLD, &one); break;
    case 1: MPI_Comm_create(MPI_COMM_WORLD, same, &one); break;
    default: MPI_Comm_create_group(MPI_COMM_WORLD, same, 3, &one);
    }
    if (rank % 2 == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Group_free(&all);
    MPI_Group_free(&same);
    return sum + sum_over(one);
}

/* Some begin a duplicate before they make a communicator with the others, who begin it after that. */
static int crossed(int rank)
{
    MPI_Comm made, group;
    MPI_Request request;
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    if (rank % 2 == 0) MPI_Comm_create_group(MPI_COMM_WORLD, all, 0, &group);
    MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
    if (rank % 2) MPI_Comm_create_group(MPI_COMM_WORLD, all, 0, &group);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Group_free(&all);
    return sum_over(made) + sum_over(group);
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int turn = 0; turn < TURNS; turn++) sum += duplicates(other, rank, size) + late(rank, size, turn);
    sum += crossed(rank);
    printf("%d %d\n", rank, sum);
    MPI_Comm_free(&other);
    MPI_Finalize();
    return 0;
}
