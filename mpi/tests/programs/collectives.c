/* All collectives, blocking and not, in place and not, with operations that do not commute; what each rank got. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

/* Composition of 2x2 matrices: the order counts. */
static void compose(void *in, void *inout, int *n, MPI_Datatype *type) {
    long *a = in, *b = inout;
    (void)type;
    for (int i = 0; i < *n; i++, a += 4, b += 4) {
        long c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        for (int k = 0; k < 4; k++)
            b[k] = c[k] % 1000003;
    }
}

static void show(const char *what, const int *values, int n) {
    char line[512];
    int at = sprintf(line, "%s: %d:", what, rank);
    for (int i = 0; i < n; i++)
        at += sprintf(line + at, " %d", values[i]);
    puts(line);
}

static void blocking(MPI_Comm comm) {
    int own[2] = {rank, 10 * rank}, all[16], counts[8], places[8], word = rank + 1, n;
    MPI_Comm_size(comm, &n);
    for (int root = 0; root < n; root++) {
        int buffer = rank == root ? 7 + root : -1;
        MPI_Bcast(&buffer, 1, MPI_INT, root, comm);
        memset(all, 255, sizeof all);
        MPI_Gather(own, 2, MPI_INT, all, 2, MPI_INT, root, comm);
        show("gather", all, 2 * n);
        MPI_Scatter(all, 2, MPI_INT, own, 2, MPI_INT, root, comm);
        int sum = -1;
        MPI_Reduce(&word, &sum, 1, MPI_INT, MPI_SUM, root, comm);
        show("bcast, scatter, reduce", (int[]){buffer, own[0], own[1], sum}, 4);
    }
    for (int i = 0; i < n; i++)
        counts[i] = i + 1, places[i] = i * (i + 1) / 2;
    int mine[8] = {0};
    for (int i = 0; i <= rank; i++)
        mine[i] = 10 * rank + i;
    memset(all, 255, sizeof all);
    MPI_Allgatherv(mine, rank + 1, MPI_INT, all, counts, places, MPI_INT, comm);
    show("allgatherv", all, n * (n + 1) / 2);
    MPI_Gatherv(mine, rank + 1, MPI_INT, all, counts, places, MPI_INT, n - 1, comm);
    MPI_Scatterv(all, counts, places, MPI_INT, mine, rank + 1, MPI_INT, n - 1, comm);
    show("scatterv", mine, rank + 1);
    all[rank] = rank * rank;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, comm);
    show("allgather", all, n);
    for (int i = 0; i < n; i++)
        all[i] = 100 * rank + i;
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, comm);
    show("alltoall", all, n);
    int back[16] = {0}, ones[8], steps[8];
    MPI_Datatype types[8];
    for (int i = 0; i < n; i++)
        ones[i] = 1, places[i] = n - 1 - i, steps[i] = 4 * i, types[i] = MPI_INT;
    MPI_Alltoallv(all, ones, places, MPI_INT, back, ones, places, MPI_INT, comm);
    show("alltoallv", back, n);
    MPI_Alltoallw(back, ones, steps, types, all, ones, steps, types, comm);
    show("alltoallw", all, n);
    int scanned = -1, before = -1;
    MPI_Scan(&word, &scanned, 1, MPI_INT, MPI_SUM, comm);
    MPI_Exscan(&word, &before, 1, MPI_INT, MPI_SUM, comm);
    show("scan", (int[]){scanned, rank ? before : 0}, 2);
    for (int i = 0; i < n; i++)
        all[i] = rank + i;
    MPI_Reduce_scatter_block(all, &scanned, 1, MPI_INT, MPI_SUM, comm);
    MPI_Reduce_scatter(all, &before, ones, MPI_INT, MPI_MAX, comm);
    show("reduce_scatter", (int[]){scanned, before}, 2);
    MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_PROD, comm);
    show("allreduce", &word, 1);
}

static void order(void) {
    MPI_Datatype matrix;
    MPI_Op op;
    long own[4] = {rank + 1, 2, 3 * rank, 1}, product[4] = {0}, partial[4] = {0};
    MPI_Type_contiguous(4, MPI_LONG, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create(compose, 0, &op);
    MPI_Allreduce(own, product, 1, matrix, op, MPI_COMM_WORLD);
    MPI_Scan(own, partial, 1, matrix, op, MPI_COMM_WORLD);
    printf("order: %d: %ld %ld %ld %ld, %ld %ld\n", rank, product[0], product[1], product[2], product[3], partial[0], partial[3]);
    MPI_Request request;
    MPI_Ireduce(own, product, 1, matrix, op, size - 1, MPI_COMM_WORLD, &request);
    MPI_Op_free(&op);
    MPI_Type_free(&matrix);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    printf("order: %d: %ld\n", rank, product[1]);
}

/* Several at once, ended in another order; one rank comes late, and the others go on with messages meanwhile. */
static void nonblocking(void) {
    MPI_Request requests[6];
    int word = rank + 1, sum, all[8], token = rank == 1 ? 99 : 0, own = rank, got = -1, flag = 0, most;
    MPI_Iallreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    if (rank == 0) { /* the last collective below cannot end without this message */
        int late;
        MPI_Recv(&late, 1, MPI_INT, size - 1, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == size - 1) {
        MPI_Ssend(&word, 1, MPI_INT, 0, 77, MPI_COMM_WORLD);
    }
    MPI_Ibcast(&token, 1, MPI_INT, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Iallgather(&own, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, &requests[2]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[3]);
    MPI_Iscan(&word, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[4]);
    MPI_Ireduce(&word, &most, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD, &requests[5]);
    MPI_Wait(&requests[4], MPI_STATUS_IGNORE);
    while (!flag)
        MPI_Testall(6, requests, &flag, MPI_STATUSES_IGNORE);
    show("nonblocking", (int[]){sum, token, all[0], all[size - 1], got, rank ? 0 : most}, 6);
}

/* The program goes on after an error, if it has said so. */
static void returned(void) {
    MPI_Comm twin;
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN);
    int word = rank, sum = 0, class = 0;
    MPI_Error_class(MPI_Bcast(&word, -1, MPI_INT, 0, twin), &class);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, twin);
    printf("returned: %d: %d, %d\n", rank, class == MPI_ERR_COUNT, sum);
    MPI_Comm_free(&twin);
}

static long memory_kb(void) {
    long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * 4;
}

/* What is freed while a collective is under way does not stay for ever. */
static void freed(void) {
    long before = 0;
    for (int i = 0; i < 600; i++) {
        int sum;
        MPI_Request request;
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        for (int j = 0; j < 60; j++) {
            MPI_Datatype type;
            MPI_Type_contiguous(3, MPI_INT, &type);
            MPI_Type_commit(&type);
            MPI_Type_free(&type);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (i == 100)
            before = memory_kb();
    }
    printf("freed: %d: grew much %d\n", rank, memory_kb() - before > 8000);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    blocking(MPI_COMM_WORLD);
    order();
    nonblocking();
    returned();
    freed();
    MPI_Finalize();
    return 0;
}
