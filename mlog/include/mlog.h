/* mlog: messages between the groups of a program, logged at the sender, so that one group can restart alone.
 *
 * One process of each group calls these functions, from one thread. Inside the group the program uses its own MPI.
 * The relay of the group (joulepoint-relay) must be reachable at the socket that FT_ENERGY_RELAY names.
 *
 * All functions return MLOG_OK or one of the errors below; mlog_message says in words what went wrong last.
 * The program must be deterministic between receives: what it sends may depend on its state and on what it received,
 * not on time, on mlog_test's answers, or on chance that a checkpoint does not keep.
 */
#ifndef MLOG_H
#define MLOG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlog mlog_t;
typedef uint64_t mlog_request_t;

enum mlog_error {
    MLOG_OK = 0,
    MLOG_USAGE = 1,     /* a call that makes no sense */
    MLOG_WILDCARD = 2,  /* receives must name their source: others cannot be replayed */
    MLOG_OPEN = 3,      /* a checkpoint while requests are open */
    MLOG_TOO_LONG = 4,  /* no room for the message, or more than 256 MiB */
    MLOG_AWAY = 5,      /* the relay is away and does not come back */
    MLOG_FULL = 6,      /* the log has reached its bound */
    MLOG_LOST = 7,      /* wanted messages are in no log: the recovery line must go back */
    MLOG_DIVERGED = 8,  /* the program, executed again, sends something else */
    MLOG_UNMARKED = 9,  /* a checkpoint that the relay does not know */
    MLOG_GARBAGE = 10,  /* the relay does not keep to the protocol */
    MLOG_SYSTEM = 11    /* what the operating system says */
};

enum mlog_operation { MLOG_SUM = 0, MLOG_PRODUCT = 1, MLOG_MIN = 2, MLOG_MAX = 3 };

/* Joins the other groups. checkpoint: the one from which the program resumes; 0: from its beginning. */
int mlog_init(mlog_t **out, uint64_t checkpoint);

/* All that was sent is logged; frees m, also if it fails. */
int mlog_finalize(mlog_t *m);

/* What went wrong last; m may be NULL after a failed mlog_init. Valid until the next call of this thread. */
const char *mlog_message(void);

int mlog_group(const mlog_t *m);
int mlog_groups(const mlog_t *m);

/* tag: 0 and above. send returns when the bytes are free; receive when the message is there. got may be NULL. */
int mlog_send(mlog_t *m, int to, int tag, const void *bytes, size_t length);
int mlog_recv(mlog_t *m, int from, int tag, void *bytes, size_t room, size_t *got);

/* The bytes of isend are free at once; those of irecv are written by mlog_wait or mlog_test. */
int mlog_isend(mlog_t *m, int to, int tag, const void *bytes, size_t length, mlog_request_t *request);
int mlog_irecv(mlog_t *m, int from, int tag, void *bytes, size_t room, mlog_request_t *request);
int mlog_wait(mlog_t *m, mlog_request_t request, size_t *got);
int mlog_test(mlog_t *m, mlog_request_t request, int *done, size_t *got);

/* Collectives of all groups. The order of a reduction is fixed: the same values give the same bits. */
int mlog_barrier(mlog_t *m);
int mlog_broadcast(mlog_t *m, int root, void *bytes, size_t length);
int mlog_reduce_f64(mlog_t *m, int root, double *values, size_t count, enum mlog_operation operation);
int mlog_reduce_i64(mlog_t *m, int root, int64_t *values, size_t count, enum mlog_operation operation);
int mlog_allreduce_f64(mlog_t *m, double *values, size_t count, enum mlog_operation operation);
int mlog_allreduce_i64(mlog_t *m, int64_t *values, size_t count, enum mlog_operation operation);

/* Checkpoint k (1 and above), at a point without open requests:
 *   mlog_mark(m, k);     my state as of here will be in checkpoint k
 *   ... write checkpoint k and make it durable ...
 *   mlog_commit(m, k);   checkpoint k is safe; logs that only older ones need may go
 * After a restart: mlog_init(&m, k) with the newest k that is whole on disk. */
int mlog_mark(mlog_t *m, uint64_t checkpoint);
int mlog_commit(mlog_t *m, uint64_t checkpoint);

#ifdef __cplusplus
}
#endif
#endif
