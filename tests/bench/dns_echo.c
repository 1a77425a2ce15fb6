/* The least a UDP server can do: each packet back, marked as a response. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int count, char **arguments) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned char packet[4096];
    int server = socket(AF_INET, SOCK_DGRAM, 0);

    if (count != 2) return 2;
    here.sin_port = htons(atoi(arguments[1]));
    if (bind(server, (struct sockaddr *)&here, sizeof here)) return 1;
    for (;;) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        ssize_t length = recvfrom(server, packet, sizeof packet, 0, (struct sockaddr *)&peer, &size);
        if (length < 12) continue;
        packet[2] = 0x84;
        sendto(server, packet, length, 0, (struct sockaddr *)&peer, size);
    }
}
