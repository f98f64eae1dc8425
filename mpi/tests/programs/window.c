/* Windows: fences, post and start, locks, values that are combined, requests, types, dynamic windows. What each rank says does not
   depend on who was first. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                     \
    do {                                                                \
        int code = (call);                                              \
        if (code != MPI_SUCCESS) printf("rank %d: %s: %d\n", rank, #call, code); \
    } while (0)

static int rank, ranks;

static long sum(const int *words, int count) {
    long all = 0;
    for (int i = 0; i < count; i++) all = all * 31 + words[i];
    return all;
}

/* What is in the window, while nobody writes to it. */
static void look(const char *what, const int *words, MPI_Win window) {
    printf("rank %d: %s %ld\n", rank, what, sum(words, 64));
    CHECK(MPI_Win_fence(0, window));
}

static void fences(void) {
    int words[64], mine[64], got[64];
    MPI_Win window;
    for (int i = 0; i < 64; i++) words[i] = 1000 * rank + i, mine[i] = rank * 7 + i;
    CHECK(MPI_Win_create(words, sizeof words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
    CHECK(MPI_Put(mine, 8, MPI_INT, (rank + 1) % ranks, 8 * rank, 8, MPI_INT, window));
    CHECK(MPI_Win_fence(0, window));
    look("put", words, window);
    CHECK(MPI_Get(got, 64, MPI_INT, (rank + ranks - 1) % ranks, 0, 64, MPI_INT, window));
    CHECK(MPI_Win_fence(0, window));
    printf("rank %d: got %ld\n", rank, sum(got, 64));
    for (int to = 0; to < ranks; to++)
        CHECK(MPI_Accumulate(mine, 16, MPI_INT, to, 0, 16, MPI_INT, MPI_SUM, window));
    CHECK(MPI_Win_fence(0, window));
    look("accumulated", words, window);
    for (int to = 0; to < ranks; to++)
        CHECK(MPI_Accumulate(mine, 16, MPI_INT, to, 16, 16, MPI_INT, MPI_MAX, window));
    CHECK(MPI_Win_fence(0, window));
    CHECK(MPI_Accumulate(mine, 4, MPI_INT, (rank + 2) % ranks, 40, 4, MPI_INT, MPI_REPLACE, window));
    CHECK(MPI_Win_fence(0, window));
    look("most", words, window);
    /* Every other word of the target, the last first here. */
    MPI_Datatype vector, backwards;
    int blocks[8], places[8];
    for (int i = 0; i < 8; i++) blocks[i] = 1, places[i] = 7 - i;
    MPI_Type_vector(8, 1, 2, MPI_INT, &vector);
    MPI_Type_indexed(8, blocks, places, MPI_INT, &backwards);
    MPI_Type_commit(&vector);
    MPI_Type_commit(&backwards);
    CHECK(MPI_Win_fence(0, window));
    CHECK(MPI_Put(mine, 1, backwards, (rank + 1) % ranks, 3, 1, vector, window));
    CHECK(MPI_Win_fence(0, window));
    CHECK(MPI_Accumulate(mine, 1, backwards, (rank + 3) % ranks, 20, 1, vector, MPI_PROD, window));
    CHECK(MPI_Win_fence(0, window));
    look("types", words, window);
    MPI_Type_free(&vector);
    MPI_Type_free(&backwards);
    CHECK(MPI_Win_free(&window));
    if (window != MPI_WIN_NULL) printf("rank %d: the handle stays\n", rank);
}

#ifndef OPEN_MPI
/* Open MPI 4.1 itself ends such a program. */
static void most_of_all(void) {
    struct { double value; int where; } best = {0, -1}, mine = {(rank * 37) % 11, rank};
    MPI_Win window;
    CHECK(MPI_Win_create(&best, sizeof best, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK(MPI_Win_fence(0, window));
    for (int to = 0; to < ranks; to++) CHECK(MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, to, 0, 1, MPI_DOUBLE_INT, MPI_MAXLOC, window));
    CHECK(MPI_Win_fence(0, window));
    printf("rank %d: best %g at %d\n", rank, best.value, best.where);
    CHECK(MPI_Win_free(&window));
}
#endif

static void posts(void) {
    int *words, others[2], *whole;
    MPI_Win window;
    MPI_Group all, both;
    CHECK(MPI_Win_allocate(32 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window));
    memset(words, 0, 32 * sizeof(int));
    CHECK(MPI_Win_get_group(window, &all));
    int members, flag;
    MPI_Group_size(all, &members);
    MPI_Win_get_attr(window, MPI_WIN_BASE, &whole, &flag);
    printf("rank %d: %d members, base %d\n", rank, members, flag && whole == words);
    others[0] = (rank + 1) % ranks;
    others[1] = (rank + ranks - 1) % ranks;
    MPI_Group_incl(all, ranks > 2 ? 2 : 1, others, &both);
    for (int turn = 1; turn <= 3; turn++) {
        int mine[4] = {rank, turn, rank * turn, 5};
        CHECK(MPI_Win_post(both, 0, window));
        CHECK(MPI_Win_start(both, 0, window));
        for (int i = 0; i < (ranks > 2 ? 2 : 1); i++) CHECK(MPI_Put(mine, 4, MPI_INT, others[i], 4 * (rank % 8), 4, MPI_INT, window));
        CHECK(MPI_Win_complete(window));
        if (turn == 2) {
            for (flag = 0; !flag;) CHECK(MPI_Win_test(window, &flag));
        } else {
            CHECK(MPI_Win_wait(window));
        }
        printf("rank %d: turn %d %ld\n", rank, turn, sum(words, 32));
    }
    MPI_Group_free(&both);
    MPI_Group_free(&all);
    CHECK(MPI_Win_free(&window));
}

static void locks(void) {
    long *words, got[4], one = 1, before, compared, swapped;
    MPI_Win window;
    CHECK(MPI_Win_allocate(8 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window));
    memset(words, 0, 8 * sizeof(long));
    MPI_Barrier(MPI_COMM_WORLD);
    /* A counter that is read and written under a lock of one. */
    for (int i = 0; i < 25; i++) {
        CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
        CHECK(MPI_Get(&before, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window));
        CHECK(MPI_Win_flush(1, window));
        before++;
        CHECK(MPI_Put(&before, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window));
        CHECK(MPI_Win_unlock(1, window));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Win_lock_all(0, window));
    for (int i = 0; i < 25; i++) {
        CHECK(MPI_Fetch_and_op(&one, &before, MPI_LONG, i % ranks, 1, MPI_SUM, window));
        CHECK(MPI_Win_flush(i % ranks, window));
        if (before < 0 || before >= 25 * ranks) printf("rank %d: %ld before\n", rank, before);
    }
    /* A number of its own for each: whoever swaps is told what was there. */
    do {
        CHECK(MPI_Get_accumulate(NULL, 0, MPI_LONG, &compared, 1, MPI_LONG, 0, 2, 1, MPI_LONG, MPI_NO_OP, window));
        CHECK(MPI_Win_flush_local(0, window));
        before = compared + rank + 1;
        CHECK(MPI_Compare_and_swap(&before, &compared, &swapped, MPI_LONG, 0, 2, window));
        CHECK(MPI_Win_flush(0, window));
    } while (swapped != compared);
    MPI_Request requests[3];
    MPI_Status statuses[3];
    long mine[2] = {rank + 1, 2};
    CHECK(MPI_Raccumulate(mine, 2, MPI_LONG, ranks - 1, 4, 2, MPI_LONG, MPI_SUM, window, &requests[0]));
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(MPI_Win_flush_all(window));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Rget(got, 4, MPI_LONG, ranks - 1, 2, 4, MPI_LONG, window, &requests[0]));
    CHECK(MPI_Rput(mine, 1, MPI_LONG, rank, 6, 1, MPI_LONG, window, &requests[1]));
    CHECK(MPI_Rget_accumulate(mine, 1, MPI_LONG, &before, 1, MPI_LONG, (rank + 1) % ranks, 7, 1, MPI_LONG, MPI_SUM, window, &requests[2]));
    CHECK(MPI_Waitall(3, requests, statuses));
    printf("rank %d: far %ld %ld, there was %ld\n", rank, got[2], got[3], before);
    CHECK(MPI_Win_flush_local_all(window));
    CHECK(MPI_Win_unlock_all(window));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
    printf("rank %d: locked", rank);
    for (int i = 0; i < 8; i++) printf(" %ld", words[i]);
    printf("\n");
    CHECK(MPI_Win_unlock(rank, window));
    CHECK(MPI_Win_free(&window));
}

static void dynamic(void) {
    int words[8];
    MPI_Aint at, all[64];
    MPI_Win window;
    for (int i = 0; i < 8; i++) words[i] = rank * 10 + i;
    CHECK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK(MPI_Win_attach(window, words, sizeof words));
    MPI_Get_address(words, &at);
    MPI_Allgather(&at, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    int got = 0, to = (rank + 1) % ranks;
    CHECK(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window));
    CHECK(MPI_Get(&got, 1, MPI_INT, to, MPI_Aint_add(all[to], 4 * sizeof(int)), 1, MPI_INT, window));
    CHECK(MPI_Win_unlock(to, window));
    printf("rank %d: dynamic %d\n", rank, got);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Win_detach(window, words));
    CHECK(MPI_Win_free(&window));
}

/* The upper half of the ranks, and those of one node by themselves. */
static void parts(void) {
    MPI_Comm half;
    MPI_Win window;
    int word = rank, got = -1, own, size;
    MPI_Group group, other;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &own);
    MPI_Comm_size(half, &size);
    CHECK(MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, half, &window));
    CHECK(MPI_Win_fence(0, window));
    CHECK(MPI_Get(&got, 1, MPI_INT, (own + 1) % size, 0, 1, MPI_INT, window));
    CHECK(MPI_Win_fence(0, window));
    printf("rank %d: neighbour %d\n", rank, got);
    int to = (own + 1) % size, from = (own + size - 1) % size;
    MPI_Win_get_group(window, &group);
    MPI_Group_incl(group, 1, &from, &other);
    CHECK(MPI_Win_post(other, 0, window));
    MPI_Group_free(&other);
    MPI_Group_incl(group, 1, &to, &other);
    CHECK(MPI_Win_start(other, 0, window));
    got = -rank;
    CHECK(MPI_Put(&got, 1, MPI_INT, to, 0, 1, MPI_INT, window));
    CHECK(MPI_Win_complete(window));
    CHECK(MPI_Win_wait(window));
    printf("rank %d: told %d\n", rank, word);
    MPI_Group_free(&other);
    MPI_Group_free(&group);
    CHECK(MPI_Win_free(&window));
    MPI_Comm_free(&half);
}

static void errors(void) {
    int word = 0, one = 1, code, class;
    MPI_Win window;
    CHECK(MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    CHECK(MPI_Win_fence(0, window));
    code = MPI_Put(&one, 1, MPI_INT, ranks, 0, 1, MPI_INT, window);
    MPI_Error_class(code, &class);
    printf("rank %d: no such rank %d\n", rank, class == MPI_ERR_RANK);
    code = MPI_Put(&one, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window);
    printf("rank %d: nobody %d\n", rank, code == MPI_SUCCESS);
    CHECK(MPI_Win_fence(0, window));
    CHECK(MPI_Win_free(&window));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fences();
#ifndef OPEN_MPI
    most_of_all();
#endif
    posts();
    locks();
    dynamic();
    parts();
    errors();
    MPI_Finalize();
    return 0;
}
