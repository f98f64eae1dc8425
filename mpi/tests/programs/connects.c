/* Connects to this machine and to another one, twice, and says why it cannot. */
// SPDX-License-Identifier: GPL-2.0-or-later
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static void connects(const char *to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(4)};
    inet_pton(AF_INET, to, &address.sin_addr);
    int code = connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address);
    printf("%s: %d %d\n", to, code, errno);
}

int main(void) {
    connects("127.0.0.1");
    connects("10.1.2.3");
    connects("10.1.2.3");
    return 0;
}
