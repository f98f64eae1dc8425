/* Communicators, groups, intercommunicators, topologies, attributes and a file; what each rank sees. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void members(const char *what, MPI_Comm comm) {
    int n, all[16], at;
    char line[256];
    if (comm == MPI_COMM_NULL) {
        printf("%s: %d: none\n", what, rank);
        return;
    }
    MPI_Comm_size(comm, &n);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
    at = sprintf(line, "%s: %d:", what, rank);
    for (int i = 0; i < n; i++)
        at += sprintf(line + at, " %d", all[i]);
    puts(line);
}

static int copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static void made(void) {
    MPI_Comm comm, other;
    MPI_Request request;
    int key, flag, same;
    void *value;
    MPI_Comm_create_keyval(copied, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, (void *)40);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_get_attr(comm, key, &value, &flag);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
    printf("dup: %d: %ld %d %d\n", rank, (long)value, flag, same == MPI_CONGRUENT);
    members("dup", comm);
    MPI_Comm_idup(comm, &other, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    members("idup", other);
    MPI_Comm_free(&other);
    MPI_Comm_free(&comm);
    for (int colors = 1; colors <= size; colors++) {
        MPI_Comm_split(MPI_COMM_WORLD, rank % colors, -rank, &comm);
        members("split", comm);
        MPI_Comm_free(&comm);
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank ? 1 : MPI_UNDEFINED, 0, &comm);
    members("split off", comm);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    MPI_Comm_free_keyval(&key);
}

static void groups(void) {
    MPI_Group world, odd, back, both;
    MPI_Comm comm;
    int ranks[8], n = 0, range[1][3] = {{size - 1, 0, -1}}, to[8], at, same;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = 1; i < size; i += 2)
        ranks[n++] = i;
    MPI_Group_incl(world, n, ranks, &odd);
    MPI_Group_range_incl(world, 1, range, &back);
    MPI_Group_union(odd, back, &both);
    MPI_Group_compare(both, world, &same);
    MPI_Group_rank(both, &at);
    MPI_Group_translate_ranks(world, n, ranks, back, to);
    printf("groups: %d: %d %d %d\n", rank, same == MPI_SIMILAR, at, to[0]);
    MPI_Comm_create(MPI_COMM_WORLD, odd, &comm);
    members("create", comm);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    for (int i = 0; i < 2 && rank % 2; i++) {
        MPI_Comm_create_group(MPI_COMM_WORLD, odd, 5, &comm);
        members("create_group", comm);
        MPI_Comm_free(&comm);
    }
    MPI_Comm_create(MPI_COMM_WORLD, back, &comm);
    members("backwards", comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&world), MPI_Group_free(&odd), MPI_Group_free(&back), MPI_Group_free(&both);
}

static void between(void) {
    MPI_Comm half, inter, merged, twin;
    int low = rank < size / 2, remote, is, all[8] = {0}, sum = 0;
    MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 9, &inter);
    MPI_Comm_remote_size(inter, &remote);
    MPI_Comm_test_inter(inter, &is);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, inter);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter);
    printf("between: %d: %d %d, %d %d, %d\n", rank, remote, is, all[0], all[remote - 1], sum);
    int own, from;
    MPI_Comm_rank(inter, &own);
    MPI_Sendrecv(&rank, 1, MPI_INT, own, 3, &from, 1, MPI_INT, own, 3, inter, MPI_STATUS_IGNORE);
    printf("opposite: %d: %d\n", rank, from);
    MPI_Comm_dup(inter, &twin);
    MPI_Intercomm_merge(twin, low, &merged);
    members("merged", merged);
    MPI_Comm_free(&merged), MPI_Comm_free(&twin), MPI_Comm_free(&inter), MPI_Comm_free(&half);
}

static void topologies(void) {
    MPI_Comm grid, row, graph;
    int dims[2] = {0, 0}, periods[2] = {1, 0}, at[2], down, up, left, right, got[4] = {-1, -1, -1, -1};
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Cart_coords(grid, rank, 2, at);
    MPI_Cart_shift(grid, 0, 1, &down, &up);
    MPI_Cart_shift(grid, 1, 1, &left, &right);
    printf("grid: %d: %d %d, %d %d\n", rank, at[0], at[1], left, right);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, grid);
    printf("neighbours: %d: %d %d %d %d\n", rank, got[0], got[1], got[2], got[3]);
    for (int i = 0; i < 2; i++) {
        int keep[2] = {i == 0, i == 1};
        MPI_Cart_sub(grid, keep, &row);
        members("row", row);
        MPI_Comm_free(&row);
    }
    MPI_Comm_free(&grid);
    int from = (rank + size - 1) % size, to = (rank + 1) % size, weight = 3, in, out, weighted;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, &weight, 1, &to, &weight, MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
    MPI_Neighbor_alltoall(&rank, 1, MPI_INT, got, 1, MPI_INT, graph);
    printf("ring: %d: %d %d %d, %d\n", rank, in, out, weighted, got[0]);
    MPI_Comm_free(&graph);
    int degree = 1;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &to, &degree, &rank, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, graph);
    printf("ring back: %d: %d\n", rank, got[0]);
    MPI_Comm_free(&graph);
}

static void file(void) {
    MPI_File f;
    MPI_Offset length;
    int word = 1000 + rank, back = 0;
    if (rank == 0)
        unlink("words");
    MPI_Barrier(MPI_COMM_WORLD);
    int code = MPI_File_open(MPI_COMM_WORLD, "words", MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    MPI_File_write_at_all(f, (MPI_Offset)4 * rank, &word, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(f);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(f);
    MPI_File_read_at(f, (MPI_Offset)4 * ((rank + 1) % size), &back, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_get_size(f, &length);
    printf("file: %d: %d %d %d\n", rank, code == MPI_SUCCESS, back, (int)length);
    MPI_File_close(&f);
}

/* Called in MPI_Finalize, where MPI is still at work. */
static int ended(MPI_Comm comm, int keyval, void *value, void *extra) {
    int sum, members, finalized;
    MPI_Finalized(&finalized);
    MPI_Comm_size(MPI_COMM_WORLD, &members);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("end: %d: attribute %d, %d ranks, sum %d, finalized %d\n", rank, *(int *)value, members, sum, finalized);
    fflush(stdout);
    return MPI_SUCCESS;
}

static void at_the_end(void) {
    static int values[2] = {1, 2};
    for (int i = 0; i < 2; i++) {
        int keyval;
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, ended, &keyval, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &values[i]);
        MPI_Comm_free_keyval(&keyval);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    made();
    groups();
    between();
    topologies();
    file();
    at_the_end();
    MPI_Finalize();
    return 0;
}
