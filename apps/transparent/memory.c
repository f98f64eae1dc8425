/* A program with much memory that changes: memory MEGABYTES STEPS [PERCENT of the pages, all if absent]. Its output depends
   on every page. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    size_t words = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 17;
    int steps = argc > 2 ? atoi(argv[2]) : 100;
    size_t changing = (argc > 3 ? words * strtoul(argv[3], NULL, 10) / 100 : words);
    uint64_t *memory = malloc(words * sizeof *memory), random = 1;
    if (!memory)
        return 1;
    for (size_t i = 0; i < words; i++)
        memory[i] = random = random * 6364136223846793005u + 1442695040888963407u;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int step = 1; step <= steps; step++) {
        uint64_t sum = 0;
        for (size_t i = step % 512; i < changing; i += 512)
            sum += memory[i] = memory[i] * 6364136223846793005u + step;
        printf("step %d %016llx\n", step, (unsigned long long)sum);
        usleep(50000);
    }
    for (size_t i = 0; i < words; i++)
        random = random * 31 + memory[i];
    printf("all %016llx\n", (unsigned long long)random);
    return 0;
}
