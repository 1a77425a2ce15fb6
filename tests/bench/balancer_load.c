/* Load for a proxy or a server: `balancer_load PORT MODE CONNECTIONS WARM SECONDS [RATE]`, one thread; MODE is one of

     get, chat   a short GET, a short chat completion (chat2k: of 2 KB, its model behind its messages). Without a RATE each connection asks again as soon as it has an answer; with one,
                 requests begin by a Poisson process, and wait for a connection that is free. Latency counts from when one should begin.
     stream      each connection has a stream of tokens, which say when they were written (balancer_backend.c). Latency is a token's.
     hold        each connection has a request that is never answered.

   It says `begin` once it is warm, and then, after SECONDS, a line of JSON (times in µs); hold waits for its input's end in between. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
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

#define ROOM 65536
#define SLOWEST 10000000 /* µs: what takes longer counts as so much */

struct connection {
    int fd, busy;
    size_t have;
    long long since, heard, stamp;
    int stamped;
    char in[8192 + 1];
};
static struct connection *all;
static int many, events, port, streams, holds, measuring;
static int *idle, idles;
static char request[4096];
static int request_length;
static unsigned *histogram;
static long long answers, errors, reconnects, *backlog;
static unsigned long head, tail;
#define BACKLOG 1048576UL

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void count(long long took) {
    long long us = took / 1000;
    if (!measuring) return;
    answers++;
    histogram[us < 0 ? 0 : us >= SLOWEST ? SLOWEST - 1 : us]++;
}

static double quantile(double part) {
    long long want = answers * part, sum = 0;
    for (int us = 0; us < SLOWEST; us++)
        if ((sum += histogram[us]) > want) return us;
    return SLOWEST;
}

static void open_one(struct connection *c) {
    struct sockaddr_in there = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(c->fd, (struct sockaddr *)&there, sizeof there)) {
        fprintf(stderr, "connect: %s\n", strerror(errno));
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->have = c->stamped = c->stamp = 0;
    epoll_ctl(events, EPOLL_CTL_ADD, c->fd, &event);
}

static void ask(struct connection *c, long long since) {
    c->busy = 1;
    c->since = since;
    if (send(c->fd, request, request_length, MSG_NOSIGNAL) != request_length && measuring) errors++;
}

/* The answer's length, once it is complete; 0 before, -1 if it is no good one. */
static ssize_t complete(struct connection *c) {
    c->in[c->have] = 0;
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) return 0;
    if (strncmp(c->in + 8, " 200", 4)) return -1;
    char *length = strcasestr(c->in, "\ncontent-length:");
    if (length && length < end) {
        size_t whole = end + 4 - c->in + atoi(length + 16);
        return c->have >= whole ? (ssize_t)whole : 0;
    }
    return c->have > 5 && !memcmp(c->in + c->have - 5, "0\r\n\r\n", 5) ? (ssize_t)c->have : 0;
}

static void tokens(struct connection *c, const char *data, ssize_t length, long long time) {
    for (ssize_t i = 0; i < length; i++) {
        if (!c->stamped) {
            const char *next = memchr(data + i, '~', length - i);
            if (!next) return;
            i = next - data;
            c->stamped = 1;
            c->stamp = 0;
        } else if (data[i] == '~') {
            c->stamped = 0;
            c->heard = time;
            count(time - c->stamp);
        } else
            c->stamp = c->stamp * 10 + data[i] - '0';
    }
}

static void lost(struct connection *c) {
    if (c->busy && measuring) errors++;
    close(c->fd);
    c->fd = -1;
    if (streams || holds) return;
    reconnects += measuring;
    open_one(c);
}

static void release(struct connection *c, int closed_loop) {
    c->busy = 0;
    if (closed_loop)
        ask(c, now());
    else if (head != tail)
        ask(c, backlog[head++ % BACKLOG]);
    else
        idle[idles++] = c - all;
}

static void heard(struct connection *c, int closed_loop) {
    static char much[ROOM];
    ssize_t got = streams ? recv(c->fd, much, ROOM, MSG_DONTWAIT) : recv(c->fd, c->in + c->have, 8192 - c->have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        int was_busy = c->busy;
        lost(c);
        if (was_busy && c->fd >= 0) release(c, closed_loop);
        return;
    }
    if (streams) {
        tokens(c, much, got, now());
        return;
    }
    c->have += got;
    ssize_t whole = complete(c);
    if (!whole) return;
    if (whole < 0) {
        if (measuring && !errors++) fprintf(stderr, "%.400s\n", c->in);
        if (holds) return;
        c->busy = 0;
        lost(c);
    } else {
        count(now() - c->since);
        c->have = 0;
    }
    release(c, closed_loop);
}

static void turn(long long until, int closed_loop) {
    struct epoll_event ready[256];
    long long wait = until - now();
    struct timespec timeout = {wait > 0 ? wait / 1000000000LL : 0, wait > 0 ? wait % 1000000000LL : 0};
    int found = epoll_pwait2(events, ready, 256, &timeout, NULL);
    for (int i = 0; i < found; i++) heard(ready[i].data.ptr, closed_loop);
}

static void run(double seconds, double rate) {
    static long long due;
    long long end = now() + (long long)(seconds * 1e9);
    if (!due) due = now();
    for (long long time = now(); time < end; time = now()) {
        while (rate && due <= time) {
            if (idles)
                ask(&all[idle[--idles]], due);
            else
                backlog[tail++ % BACKLOG] = due;
            due += (long long)(-log(1 - drand48()) * 1e9 / rate);
        }
        turn(rate && due < end ? due : end, !rate);
    }
}

static int flowing(long long time) {
    int found = 0;
    for (int i = 0; i < many; i++) found += all[i].fd >= 0 && (holds ? !all[i].have : time - all[i].heard < 500000000LL);
    return found;
}

int main(int argc, char **argv) {
    struct rlimit files = {65536, 65536};
    if (argc < 6) return 2;
    port = atoi(argv[1]);
    const char *mode = argv[2];
    double warm = atof(argv[4]), seconds = atof(argv[5]), rate = argc > 6 ? atof(argv[6]) : 0;
    many = atoi(argv[3]);
    streams = !strcmp(mode, "stream");
    holds = !strcmp(mode, "hold");
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1L);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    srand48(1);
    events = epoll_create1(0);
    all = calloc(many, sizeof *all);
    idle = calloc(many + 1, sizeof *idle);
    backlog = calloc(BACKLOG, sizeof *backlog);
    histogram = calloc(SLOWEST, sizeof *histogram);
    const char *common = "host: chat.demo.test\r\nuser-agent: bench/1\r\naccept: */*\r\nauthorization: Bearer sk-bench\r\n";
    char body[3000], said[2001];
    snprintf(body, sizeof body, "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":16%s}",
        streams ? "STREAM" : holds ? "HOLD" : "Say hello.", streams ? ",\"stream\":true" : "");
    if (!strcmp(mode, "chat2k")) {
        memset(said, 'x', sizeof said - 1);
        said[sizeof said - 1] = 0;
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"model\":\"bench\",\"max_tokens\":16}", said);
    }
    request_length = !strcmp(mode, "get")
        ? sprintf(request, "GET /v1/responses/7 HTTP/1.1\r\n%s\r\n", common)
        : sprintf(request, "POST /v1/chat/completions HTTP/1.1\r\n%scontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
              common, strlen(body), body);
    for (int i = 0; i < many; i++) {
        open_one(&all[i]);
        if (streams || holds) {
            ask(&all[i], now());
            run(0.002, 0); /* streams begin one after the other */
        } else if (rate)
            idle[idles++] = i;
        else
            ask(&all[i], now());
    }
    run(warm, rate);
    measuring = 1;
    printf("begin\n");
    fflush(stdout);
    long long began = now();
    run(seconds, rate);
    measuring = 0;
    long long ended = now();
    if (holds)
        while (getchar() != EOF) {}
    printf("{\"answers\":%lld,\"errors\":%lld,\"reconnects\":%lld,\"seconds\":%.6f,\"p50_us\":%.0f,\"p99_us\":%.0f,\"kept\":%d,"
           "\"waiting\":%lu}\n", answers, errors, reconnects, (ended - began) / 1e9, quantile(0.5), quantile(0.99),
        streams || holds ? flowing(ended) : 0, tail - head);
    return 0;
}
