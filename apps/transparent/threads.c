/* Four threads in step with each other: threads STEPS. Its output depends on every step of each of them. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4 };

static pthread_barrier_t barrier;
static uint64_t value[THREADS];
static int steps;

static void *work(void *argument) {
    long me = (long)argument;
    for (int step = 1; step <= steps; step++) {
        uint64_t next = 3 * value[me] + value[(me + 1) % THREADS] + me * step;
        for (int i = 0; i < 1000000; i++)
            next = next * 6364136223846793005u + 1442695040888963407u;
        usleep(20000);
        pthread_barrier_wait(&barrier);
        value[me] = next;
        pthread_barrier_wait(&barrier);
        if (me == 0) {
            uint64_t sum = 0;
            for (int t = 0; t < THREADS; t++)
                sum ^= value[t];
            printf("step %d %016llx\n", step, (unsigned long long)sum);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[THREADS];
    steps = argc > 1 ? atoi(argv[1]) : 100;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long t = 0; t < THREADS; t++)
        pthread_create(&thread[t], NULL, work, (void *)t);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    return 3;
}
