/* NVIDIA's library as far as we use it; each line of the file COUNTERS is a GPU: its counter in mJ and, if wanted,
 * the number of its device file and whether it is cut into instances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int line(unsigned want, char *out) {
    FILE *f = fopen(COUNTERS, "r");
    if (!f) return -1;
    unsigned n = 0; char text[64]; int found = 0;
    while (fgets(text, sizeof text, f)) { if (n == want && out) { strcpy(out, text); found = 1; } n++; }
    fclose(f);
    return out ? found : (int)n;
}
int nvmlInit_v2(void) { return line(0, NULL) < 0 ? 9 /* driver not loaded */ : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { int n = line(0, NULL); *count = n; return n < 0 ? 15 /* lost */ : 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    char text[64];
    if (line((unsigned)(size_t)device - 1, text) != 1) return 15 /* GPU is lost */;
    if (!strncmp(text, "old", 3)) return 3 /* not supported */;
    *mj = strtoull(text, NULL, 10);
    return 0;
}
static int field(void *device, unsigned skip, unsigned *value) {
    char text[64], *at = text;
    if (line((unsigned)(size_t)device - 1, text) != 1) return 15;
    while (skip-- && at) at = strchr(at + 1, ' ');
    if (!at) return 3;
    *value = (unsigned)strtoul(at, NULL, 10);
    return 0;
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { return field(device, 1, minor); }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) { *later = 0; return field(device, 2, now); }
