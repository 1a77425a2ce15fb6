/* The least a model server can do: `balancer_backend PORT...`, one thread, a server on each loopback port.

   What a POST asks for is told by words in its body, which every proxy carries: HOLD: nothing is ever answered; STREAM: an event of one
   token every 20 ms, for as long as somebody listens; otherwise a short chat completion. Each token of a stream is `~n~`, where n is when
   it was written (CLOCK_MONOTONIC, ns). Streams run at phases of their own, as they began. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PERIOD 20000000LL /* ns between a stream's tokens */
#define TOGETHER 100000LL /* ns: tokens that are due so soon go out in the same turn */
#define ROOM 16384

struct connection {
    int fd, listens, streams;
    size_t have;
    long long due;
    struct connection *before, *after;
    char in[ROOM + 1];
};
static struct connection *first, *last;
static int events;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void unlink_stream(struct connection *c) {
    *(c->before ? &c->before->after : &first) = c->after;
    *(c->after ? &c->after->before : &last) = c->before;
    c->before = c->after = NULL;
}

static void append_stream(struct connection *c) {
    c->before = last;
    *(last ? &last->after : &first) = c;
    last = c;
}

static void drop(struct connection *c) {
    if (c->streams) unlink_stream(c);
    close(c->fd);
    free(c);
}

static void add(int fd, int listens) {
    struct connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->fd = fd;
    c->listens = listens;
    epoll_ctl(events, EPOLL_CTL_ADD, fd, &event);
}

static int event_of(char *out, const char *content) {
    char data[512];
    int length = snprintf(data, sizeof data,
        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":"
        "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"%s\"},\"finish_reason\":null}]}\n\n", content);
    return sprintf(out, "%x\r\n%s\r\n", length, data);
}

static void answer(struct connection *c, const char *method, const char *body) {
    static const char completion[] =
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"bench\",\"choices\":[{\"index\":0,"
        "\"message\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"total_tokens\":10}}";
    static const char models[] =
        "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1,\"owned_by\":\"bench\"}],"
        "\"model_path\":\"bench\",\"is_generation\":true}";
    char out[1024];
    int length;
    if (*method == 'P' && strstr(body, "HOLD")) return;
    if (*method == 'P' && strstr(body, "STREAM")) {
        length = sprintf(out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        length += event_of(out + length, "");
        if (!c->streams) append_stream(c);
        c->streams = 1;
        c->due = now() + PERIOD;
    } else {
        const char *text = *method == 'P' ? completion : models;
        length = sprintf(out, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
            strlen(text), text);
    }
    send(c->fd, out, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Answer the requests that are complete; 0 if the connection is of no more use. */
static int serve(struct connection *c) {
    for (;;) {
        c->in[c->have] = 0;
        char *end = strstr(c->in, "\r\n\r\n"), *whole;
        if (!end) return c->have < ROOM;
        char *body = end + 4, *length = strcasestr(c->in, "\ncontent-length:"), *coding = strcasestr(c->in, "\ntransfer-encoding:");
        if (coding && coding < end) {
            if (!(whole = strstr(body, "0\r\n\r\n"))) return c->have < ROOM;
            whole += 5;
        } else {
            whole = body + (length && length < end ? atoi(length + 16) : 0);
            if (whole > c->in + c->have) return c->have < ROOM;
        }
        char kept = *whole;
        *whole = 0;
        answer(c, c->in, body);
        *whole = kept;
        c->have -= whole - c->in;
        memmove(c->in, whole, c->have);
        if (!c->have) return 1;
    }
}

static void tokens(void) {
    char stamp[32], out[1024];
    long long time = now();
    while (first && first->due <= time + TOGETHER) {
        struct connection *c = first;
        unlink_stream(c);
        snprintf(stamp, sizeof stamp, "~%lld~", now());
        send(c->fd, out, event_of(out, stamp), MSG_DONTWAIT | MSG_NOSIGNAL);
        c->due = c->due + PERIOD > time ? c->due + PERIOD : time;
        append_stream(c);
    }
}

static void take(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        add(fd, 0);
    }
}

int main(int count, char **ports) {
    struct rlimit files = {65536, 65536};
    struct epoll_event ready[256];
    int on = 1;
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1L);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    events = epoll_create1(0);
    while (--count) {
        struct sockaddr_in here = {AF_INET, htons(atoi(ports[count])), {htonl(INADDR_LOOPBACK)}, {0}};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, 4096)) return 1;
        add(fd, 1);
    }
    for (;;) {
        long long wait = first ? first->due - now() : 1000000000LL;
        struct timespec timeout = {wait > 0 ? wait / 1000000000LL : 0, wait > 0 ? wait % 1000000000LL : 0};
        int found = epoll_pwait2(events, ready, 256, &timeout, NULL);
        for (int i = 0; i < found; i++) {
            struct connection *c = ready[i].data.ptr;
            if (c->listens) {
                take(c->fd);
                continue;
            }
            ssize_t got = recv(c->fd, c->in + c->have, ROOM - c->have, MSG_DONTWAIT);
            if (got > 0) c->have += got;
            if (got <= 0 || !serve(c)) drop(c);
        }
        tokens();
    }
}
