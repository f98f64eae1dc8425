/* Preloaded into a daemon: its clock is ahead by as many seconds as the file $JP_CLOCK says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead_s(void) {
    long s = 0;
    FILE *file = fopen(getenv("JP_CLOCK"), "r");
    if (file) {
        if (fscanf(file, "%ld", &s) != 1) s = 0;
        fclose(file);
    }
    return s;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, id, now);
    if (result == 0 && id == CLOCK_REALTIME) now->tv_sec += ahead_s();
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
