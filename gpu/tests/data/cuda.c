/* NVIDIA's libraries as far as we and a program use them, without a GPU: libcuda.so.1 and libnvidia-ml.so.1 in one.
 *
 * As the real one does, it serves other processes by a thread of the process that uses it, found through /proc. What a
 * program has "on its GPU" is System V shared memory, which CRIU refuses to dump, as it does NVIDIA's devices; it is taken into
 * ordinary memory by a checkpoint and put back by a restore. The file DEVICE is open meanwhile. The file GPUS has a line for
 * each GPU: a digit that fills its number, and its name. The file FAULT, if it is there, has the name of a call and the code
 * with which it fails; 0 means that it never returns. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef PROGRAM
/* A program that counts on its GPU, with the library beside it. */
int cuInit(unsigned flags);
int cuMemAlloc_v2(void **at, size_t bytes);
int fakeCount(void *at, int *first);
int main(int argc, char **argv) {
    void *at; int counts = argc > 2 ? atoi(argv[1]) : 0, first = 0;
    if (cuInit(0) || cuMemAlloc_v2(&at, 1 << 20)) return 2;
    for (int i = 1; i <= counts; i++) {
        fakeCount(at, &first);
        if (first != i) return 3;
        printf("%d\n", first); fflush(stdout);
        if (access(argv[2], F_OK)) usleep(50000);
    }
    return 7;
}
#else
enum { ASK = 210, ANSWER = 211, NOT_INITIALIZED = 3, ILLEGAL_STATE = 401, NOT_READY = 600 };
enum { STATE, THREAD, LOCK, CHECKPOINT, RESTORE, UNLOCK };
struct order { int what; unsigned timeout_ms; char gpu; };
struct answer { int code, value; };

static int fault(const char *call) {
    char name[32]; int code = 0;
    FILE *f = fopen(FAULT, "r");
    if (!f) return -1;
    int found = fscanf(f, "%31s %d", name, &code) == 2 && !strcmp(name, call);
    fclose(f);
    if (found && code == 0) pause();
    return found ? code : -1;
}
static int line(int want, char *number, char *name) {
    FILE *f = fopen(GPUS, "r"); int n = 0; char digit, text[100];
    if (!f) return 0;
    while (fscanf(f, " %c %99[^\n]", &digit, text) == 2) {
        if (n++ == want) { *number = digit; strcpy(name, text); }
    }
    fclose(f);
    return n;
}

/* The process that uses it. */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static int state, thread_id, segment = -1;
static char *memory, *kept, on = '?';
static size_t size;
static int is_here(char gpu) {
    char number, name[100];
    for (int i = 0, n = line(-1, &number, name); i < n; i++) { line(i, &number, name); if (number == gpu) return 1; }
    return 0;
}
static void hold(void) {
    shmdt(memory);
    mmap(memory, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static int device = -1;
static int take(void) {
    void *at = memory;
    device = open(DEVICE, O_RDONLY | O_CLOEXEC);
    if (at) munmap(at, size);
    segment = shmget(IPC_PRIVATE, size, 0600 | IPC_CREAT);
    memory = segment < 0 ? (void *)-1 : shmat(segment, at, 0);
    if (memory == (void *)-1) return 2;
    return shmctl(segment, IPC_RMID, NULL), 0;
}
static int obey(struct order o, int *value) {
    int code;
    switch (o.what) {
    case STATE: return *value = state, 0;
    case THREAD: return *value = thread_id, 0;
    case LOCK:
        if (state) return ILLEGAL_STATE;
        for (unsigned ms = 0; pthread_mutex_trylock(&calls); ms++) { if (ms > o.timeout_ms) return NOT_READY; usleep(1000); }
        return state = 1, 0;
    case CHECKPOINT:
        if ((code = fault("checkpoint")) >= 0) return code;
        if (state != 1) return ILLEGAL_STATE;
        if (size) { kept = malloc(size); memcpy(kept, memory, size); hold(); }
        close(device);
        return state = 2, 0;
    case RESTORE:
        if ((code = fault("restore")) >= 0) return code;
        if (state != 2) return ILLEGAL_STATE;
        if (o.gpu) on = o.gpu;
        if (!is_here(on)) return 101;
        if (size && (code = take())) return code;
        if (size) { memcpy(memory, kept, size); free(kept); }
        return state = 1, 0;
    case UNLOCK:
        if (state != 1) return ILLEGAL_STATE;
        return pthread_mutex_unlock(&calls), state = 0, 0;
    }
    return 1;
}
static void *serve(void *unused) {
    struct order o; struct answer a;
    thread_id = syscall(SYS_gettid);
    while (read(ASK - 10, &o, sizeof o) == sizeof o) {
        a.value = 0; a.code = obey(o, &a.value);
        if (write(ANSWER - 10, &a, sizeof a) != sizeof a) break;
    }
    return unused;
}
int cuInit(unsigned flags) { char number, name[100]; return (void)flags, line(0, &number, name) ? 0 : 100; }
int cuMemAlloc_v2(void **at, size_t bytes) {
    int asked[2], answered[2]; pthread_t thread; char name[100];
    if (pipe2(asked, O_CLOEXEC) || pipe2(answered, O_CLOEXEC)) return 1;
    dup2(asked[0], ASK - 10); dup2(asked[1], ASK); dup2(answered[0], ANSWER); dup2(answered[1], ANSWER - 10);
    line(0, &on, name); size = bytes; memory = NULL;
    if (take()) return 2;
    *at = memory;
    pthread_create(&thread, NULL, serve, NULL);
    while (!thread_id) usleep(1000);
    return 0;
}
/* One kernel: every number of the memory grows by one; the first of them. */
int fakeCount(void *at, int *first) {
    pthread_mutex_lock(&calls);
    int *number = at;
    for (size_t i = 0; i < size / sizeof *number; i++) number[i]++;
    *first = number[0] == number[size / sizeof *number - 1] ? number[0] : -1;
    pthread_mutex_unlock(&calls);
    return 0;
}

/* Another process. */
static int ask(int pid, struct order o, int *value) {
    char path[64]; struct answer a;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, ASK);
    int to = open(path, O_WRONLY);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, ANSWER);
    int from = open(path, O_RDONLY);
    if (to < 0 || from < 0) return NOT_INITIALIZED;
    int done = write(to, &o, sizeof o) == sizeof o && read(from, &a, sizeof a) == sizeof a;
    close(to); close(from);
    if (value && done) *value = a.value;
    return done ? a.code : 304;
}
int cuGetErrorName(int code, const char **name) { static char text[32]; snprintf(text, 32, "CUDA_ERROR_%d", code); return *name = text, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { char number, name[100]; return *count = line(-1, &number, name), 0; }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDeviceGetName(char *name, int length, int device) { char number, text[100]; line(device, &number, text); return strncpy(name, text, length), 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { char number, text[100]; line(device, &number, text); return memset(uuid, number, 16), 0; }
#ifndef OLD
int cuCheckpointProcessGetState(int pid, unsigned *state) { return ask(pid, (struct order){STATE, 0, 0}, (int *)state); }
int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) { return ask(pid, (struct order){THREAD, 0, 0}, tid); }
int cuCheckpointProcessLock(int pid, unsigned *args) { return ask(pid, (struct order){LOCK, args ? args[0] : 0, 0}, NULL); }
int cuCheckpointProcessCheckpoint(int pid, void *args) { return (void)args, ask(pid, (struct order){CHECKPOINT, 0, 0}, NULL); }
struct args { char (*pairs)[2][16]; unsigned count; };
int cuCheckpointProcessRestore(int pid, struct args *args) {
    return ask(pid, (struct order){RESTORE, 0, args && args->count ? args->pairs[0][1][0] : 0}, NULL);
}
int cuCheckpointProcessUnlock(int pid, void *args) { return (void)args, ask(pid, (struct order){UNLOCK, 0, 0}, NULL); }
#endif

/* The management library. */
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return (void)uuid, *device = (void *)1, 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *m) {
    (void)device;
    m->total = 80ull << 30; m->used = fault("memory") >= 0 ? 1ull << 50 : 64 << 20; m->free = m->total - m->used;
    return 0;
}
#endif
