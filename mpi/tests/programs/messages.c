/* Messages in all modes, from anybody, probed, cancelled, persistent, of derived types; what each rank got. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void modes(void) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, got[8], count;
    char *buffer = malloc(1 << 16);
    MPI_Request requests[8];
    MPI_Status statuses[8];
    MPI_Buffer_attach(buffer, 1 << 16);
    for (int i = 0; i < 8; i++)
        MPI_Irecv(&got[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    int words[8];
    MPI_Request sends[4];
    for (int i = 0; i < 8; i++)
        words[i] = 100 * rank + i;
    MPI_Isend(&words[0], 1, MPI_INT, to, 0, MPI_COMM_WORLD, &sends[0]);
    MPI_Issend(&words[1], 1, MPI_INT, to, 1, MPI_COMM_WORLD, &sends[1]);
    MPI_Ibsend(&words[2], 1, MPI_INT, to, 2, MPI_COMM_WORLD, &sends[2]);
    MPI_Irsend(&words[3], 1, MPI_INT, to, 3, MPI_COMM_WORLD, &sends[3]);
    MPI_Send(&words[4], 1, MPI_INT, to, 4, MPI_COMM_WORLD);
    MPI_Bsend(&words[5], 1, MPI_INT, to, 5, MPI_COMM_WORLD);
    MPI_Rsend(&words[6], 1, MPI_INT, to, 6, MPI_COMM_WORLD);
    MPI_Ssend(&words[7], 1, MPI_INT, to, 7, MPI_COMM_WORLD);
    MPI_Waitall(8, requests, statuses);
    MPI_Waitall(4, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 8; i++) {
        MPI_Get_count(&statuses[i], MPI_INT, &count);
        printf("mode %d: %d has %d from %d tag %d count %d\n", i, rank, got[i], statuses[i].MPI_SOURCE, statuses[i].MPI_TAG, count);
    }
    MPI_Buffer_detach(&buffer, &count);
    free(buffer);
}

/* Rank 0 hears the others in any order, and says their sum; each by a synchronous send. */
static void anybody(void) {
    MPI_Status status;
    int word, sum = 0, tags = 0, flag = 0;
    if (rank != 0) {
        MPI_Ssend(&rank, 1, MPI_INT, 0, 10 + rank, MPI_COMM_WORLD);
        MPI_Send(&rank, 1, MPI_INT, 0, 30, MPI_COMM_WORLD);
        MPI_Send(&rank, 1, MPI_INT, 0, 31, MPI_COMM_WORLD);
        MPI_Send(&rank, 1, MPI_INT, 0, 32, MPI_COMM_WORLD);
        return;
    }
    for (int i = 1; i < size; i++) {
        MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        sum += word, tags += status.MPI_TAG - status.MPI_SOURCE;
        MPI_Recv(&word, 1, MPI_INT, status.MPI_SOURCE, 30, MPI_COMM_WORLD, &status);
        sum += word;
        while (!flag)
            MPI_Iprobe(status.MPI_SOURCE, 31, MPI_COMM_WORLD, &flag, &status);
        flag = 0;
        MPI_Recv(&word, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        MPI_Message message;
        MPI_Mprobe(status.MPI_SOURCE, 32, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(&word, 1, MPI_INT, &message, &status);
        sum += word;
    }
    printf("anybody: %d %d\n", sum, tags);
}

static void persistent(void) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, out, in, sum = 0, index, done, flag;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Send_init(&out, 1, MPI_INT, to, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, from, 1, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 20; i++) {
        out = i * size + rank;
        MPI_Startall(2, requests);
        if (i % 3 == 0) {
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else if (i % 3 == 1) {
            MPI_Waitany(2, requests, &index, &status);
            MPI_Waitany(2, requests, &index, &status);
            MPI_Waitany(2, requests, &index, &status);
            if (index != MPI_UNDEFINED)
                printf("WRONG index %d\n", index);
        } else {
            for (done = 0; done < 2; done += flag) {
                MPI_Testany(2, requests, &index, &flag, &status);
                if (flag && index == MPI_UNDEFINED)
                    printf("WRONG end\n");
            }
        }
        sum += in;
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    printf("persistent: %d has %d\n", rank, sum);
}

/* Columns of a matrix, exchanged and replaced; and a receive that nobody answers. */
static void types(void) {
    int to = (rank + size / 2) % size, matrix[16], cancelled, elements;
    MPI_Datatype column, freed;
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < 16; i++)
        matrix[i] = 1000 * rank + i;
    MPI_Type_vector(4, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Type_dup(column, &freed);
    MPI_Irecv(&matrix[3], 1, freed, to, 2, MPI_COMM_WORLD, &request);
    MPI_Type_free(&freed);
    MPI_Send(&matrix[0], 1, column, to, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    MPI_Get_elements(&status, column, &elements);
    MPI_Sendrecv_replace(&matrix[1], 1, column, to, 3, to, 3, MPI_COMM_WORLD, &status);
    printf("types: %d:", rank);
    for (int i = 0; i < 16; i++)
        printf(" %d", matrix[i]);
    printf(" (%d)\n", elements);
    MPI_Irecv(matrix, 16, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    printf("cancelled: %d %d\n", rank, cancelled);
    MPI_Type_free(&column);
}

/* A type of addresses, at MPI_BOTTOM. */
static void bottom(void) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, word = 10 * rank, three[4] = {rank, rank + 1, -1, rank + 2};
    int lengths[3] = {1, 2, 1};
    MPI_Aint places[3];
    MPI_Datatype parts, pieces[3] = {MPI_INT, MPI_INT, MPI_INT};
    MPI_Get_address(&word, &places[0]);
    MPI_Get_address(&three[0], &places[1]);
    MPI_Get_address(&three[3], &places[2]);
    MPI_Type_create_struct(3, lengths, places, pieces, &parts);
    MPI_Type_commit(&parts);
    MPI_Sendrecv_replace(MPI_BOTTOM, 1, parts, to, 8, from, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("bottom: %d: %d, %d %d %d %d\n", rank, word, three[0], three[1], three[2], three[3]);
    int packed[4];
    MPI_Sendrecv(MPI_BOTTOM, 1, parts, to, 9, packed, 4, MPI_INT, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Bcast(MPI_BOTTOM, 1, parts, 1, MPI_COMM_WORLD);
    printf("bottom: %d: %d, %d %d %d %d, %d\n", rank, word, three[0], three[1], three[2], three[3], packed[3]);
    MPI_Type_free(&parts);
}

/* Long messages both ways at once, and one that is longer than its receiver expects. */
static void lengths(void) {
    int to = (rank + size / 2) % size, n = 3 << 20;
    char *out = malloc(n), *in = malloc(n);
    MPI_Request request;
    memset(out, rank + 1, n);
    MPI_Irecv(in, n, MPI_CHAR, to, 4, MPI_COMM_WORLD, &request);
    MPI_Send(out, n, MPI_CHAR, to, 4, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    printf("long: %d %d %d\n", rank, in[0] == to + 1, in[n - 1] == to + 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Sendrecv(out, 8, MPI_CHAR, to, 5, in, 8, MPI_CHAR, to, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int class = 0, code = MPI_Sendrecv(out, 8, MPI_CHAR, to, 6, in, 4, MPI_CHAR, to, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(code, &class);
    printf("truncated: %d %d\n", rank, class == MPI_ERR_TRUNCATE);
    code = MPI_Send(out, 1, MPI_CHAR, size, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    printf("no such rank: %d %d\n", rank, class == MPI_ERR_RANK);
    free(out), free(in);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    modes();
    MPI_Barrier(MPI_COMM_WORLD);
    anybody();
    MPI_Barrier(MPI_COMM_WORLD);
    persistent();
    types();
    bottom();
    lengths();
    MPI_Finalize();
    return 0;
}
