/*
 * Requests made beforehand, sent to a server of Kafka's protocol at a given rate, and how long each
 * took: a client that costs so little that what is measured is the server.
 *
 *     driver load PORT FRAMES OUT CONNECTIONS RATE IN_FLIGHT WARM_UP SECONDS RAMP ERROR_AT
 *     driver null ANSWER
 *
 * FRAMES is a file of requests with their sizes; connection i sends the frame i modulo their number
 * over and over. With a RATE (a second, over all connections) the schedule is fixed beforehand: a
 * request counts from when it was due, even if IN_FLIGHT earlier ones of its connection are still
 * unanswered then. With RATE 0 each connection keeps IN_FLIGHT requests unanswered; the first ones
 * of all connections are spread over RAMP seconds. Each answer has an int16 at ERROR_AT that must
 * be 0. What is due in the SECONDS after WARM_UP is measured.
 *
 * Prints "measuring" when the warm-up is over, "measured" at the end of the window, and then, in a
 * line: answers in all, answers in the window, own processor time in the window in seconds. OUT gets
 * a uint32 for each request that was due in the window, in units of 100 ns; one that is unanswered
 * a second after its end counts with as long as it has waited.
 *
 * `null` is the server that does nothing: it prints its port, and answers each request with the
 * bytes of ANSWER.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_IN_FLIGHT 64
#define MAX_HEAD 512
#define EVENTS 256
#define SECOND 1000000000LL
#define UNIT 100
#define GRACE SECOND

typedef int64_t ns; /* of CLOCK_MONOTONIC */

struct connection {
    int fd, is_full; /* whether the socket takes no more just now */
    const char *frame;
    size_t size, written; /* of the frame, and of its last copy, which is partly sent if not 0 */
    int64_t next; /* the number of its next request, among those of all connections */
    ns due[MAX_IN_FLIGHT]; /* of those in flight, a ring */
    int first, in_flight;
    unsigned char head[MAX_HEAD];
    size_t got, length; /* of an answer: bytes received, and its whole length, known from 4 on */
};

static char buffer[1 << 18];
static struct connection *connections;
static int count, in_flight;
static size_t error_at;
static double rate;
static ns begin, window, end, ramp;
static int64_t answers, answers_in_window;
static FILE *out;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static ns now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static double own_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data;
    if (file == NULL || fseek(file, 0, SEEK_END))
        fail(path);
    *size = ftell(file);
    rewind(file);
    data = malloc(*size);
    if (data == NULL || fread(data, 1, *size, file) != *size)
        fail(path);
    fclose(file);
    return data;
}

static uint32_t frame_size(const void *frame)
{
    uint32_t size;
    memcpy(&size, frame, 4);
    return 4 + ntohl(size);
}

/* When a request is due; without a rate, only the first one of each connection. */
static ns due_of(int64_t number)
{
    if (rate > 0)
        return begin + (ns)(number * (SECOND / rate));
    return number < count ? begin + number * ramp / count : INT64_MAX;
}

static void record(ns due, ns answered)
{
    uint32_t units = (answered - due) / UNIT;
    if (due >= window && due < end && fwrite(&units, sizeof units, 1, out) != 1)
        fail("writing");
}

static void send_due(struct connection *each, ns time, int epoll)
{
    while (!each->is_full && each->in_flight < in_flight) {
        ns due = rate > 0 ? due_of(each->next) : time;
        ssize_t sent;
        if (!each->written && (due > time || due >= end))
            return;
        sent = send(each->fd, each->frame + each->written, each->size - each->written,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            fail("send");
        if (!each->written) {
            each->due[(each->first + each->in_flight) % MAX_IN_FLIGHT] = due;
            each->next += count;
        }
        each->written += sent < 0 ? 0 : sent;
        if (each->written == each->size) {
            each->written = 0;
            each->in_flight++;
        } else {
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = each};
            if (!each->written)
                each->next -= count; /* not even a byte: as if it had not been tried */
            each->is_full = 1;
            epoll_ctl(epoll, EPOLL_CTL_MOD, each->fd, &event);
        }
    }
}

static void take(struct connection *each, const char *data, size_t size, ns time)
{
    while (size) {
        size_t part = each->length ? each->length - each->got : 4 - each->got;
        if (part > size)
            part = size;
        if (each->got < MAX_HEAD)
            memcpy(each->head + each->got, data,
                   part < MAX_HEAD - each->got ? part : MAX_HEAD - each->got);
        each->got += part;
        data += part;
        size -= part;
        if (!each->length && each->got == 4)
            each->length = frame_size(each->head);
        if (each->got != each->length)
            continue;
        if (each->length < error_at + 2 || each->head[error_at] || each->head[error_at + 1]) {
            fprintf(stderr, "an answer of %zu bytes with an error\n", each->length);
            exit(1);
        }
        record(each->due[each->first], time);
        each->first = (each->first + 1) % MAX_IN_FLIGHT;
        each->in_flight--;
        each->got = each->length = 0;
        answers++;
        answers_in_window += time >= window && time < end;
    }
}

static void receive(struct connection *each)
{
    ssize_t got;
    do {
        got = recv(each->fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            errno = got ? errno : 0;
            fail("the server closed a connection");
        }
        if (got > 0)
            take(each, buffer, got, now());
    } while (got == sizeof buffer);
}

static void open_connections(int port, char *frames, size_t size, int epoll)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timespec pause = {.tv_nsec = 1000000}; /* so that the server's queue never overflows */
    char *frame = frames;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    for (int i = 0; i < count; i++) {
        struct connection *each = &connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = each};
        int one = 1;
        each->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (each->fd < 0 || connect(each->fd, (struct sockaddr *)&address, sizeof address))
            fail("connect");
        setsockopt(each->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_ctl(epoll, EPOLL_CTL_ADD, each->fd, &event);
        each->frame = frame;
        each->size = frame_size(frame);
        each->next = i;
        frame += each->size;
        if (frame == frames + size)
            frame = frames;
        nanosleep(&pause, NULL);
    }
}

static void load(char **arguments)
{
    size_t size;
    int epoll = epoll_create1(0), is_measuring = 0;
    char *frames = read_file(arguments[1], &size);
    int64_t number = 0;
    double own = 0;
    ns time;
    out = fopen(arguments[2], "wb");
    if (out == NULL)
        fail(arguments[2]);
    count = atoi(arguments[3]);
    rate = atof(arguments[4]);
    in_flight = atoi(arguments[5]);
    ramp = atof(arguments[8]) * SECOND;
    error_at = atoi(arguments[9]);
    connections = calloc(count, sizeof *connections);
    if (connections == NULL || in_flight > MAX_IN_FLIGHT || error_at + 2 > MAX_HEAD)
        fail("arguments");
    prctl(PR_SET_TIMERSLACK, 1000);
    open_connections(atoi(arguments[0]), frames, size, epoll);
    begin = now();
    window = begin + (ns)(atof(arguments[6]) * SECOND);
    end = window + (ns)(atof(arguments[7]) * SECOND);
    for (time = begin; time < end + GRACE; time = now()) {
        struct epoll_event events[EVENTS];
        ns wait = due_of(number), next = is_measuring ? end : window;
        int ready, unanswered = 0;
        if (!is_measuring && time >= window) {
            is_measuring = 1;
            own = own_seconds();
            puts("measuring");
            next = end;
        }
        if (is_measuring && time >= end) {
            if (is_measuring == 1) {
                is_measuring = 2;
                own = own_seconds() - own;
                puts("measured");
            }
            for (int i = 0; i < count; i++)
                unanswered += connections[i].in_flight || connections[i].written ||
                              (rate > 0 && due_of(connections[i].next) < end);
            if (!unanswered || rate == 0)
                break;
            next = end + GRACE;
            wait = INT64_MAX;
        }
        while (wait <= time && wait < end) {
            send_due(&connections[number % count], time, epoll);
            wait = due_of(++number);
        }
        if (wait > next)
            wait = next;
        struct timespec timeout = {.tv_sec = 0};
        if (wait > (time = now()))
            timeout = (struct timespec){(wait - time) / SECOND, (wait - time) % SECOND};
        ready = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < ready; i++) {
            struct connection *each = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                struct epoll_event event = {.events = EPOLLIN, .data.ptr = each};
                each->is_full = 0;
                epoll_ctl(epoll, EPOLL_CTL_MOD, each->fd, &event);
            }
            if (events[i].events & ~EPOLLOUT)
                receive(each);
            send_due(each, now(), epoll);
        }
    }
    for (int i = 0; rate > 0 && i < count; i++) { /* what has waited in vain */
        struct connection *each = &connections[i];
        each->in_flight += each->written > 0;
        for (; each->in_flight; each->in_flight--, each->first++)
            record(each->due[each->first % MAX_IN_FLIGHT], time);
        for (; due_of(each->next) < end; each->next += count)
            record(due_of(each->next), time);
    }
    if (fclose(out))
        fail("writing");
    printf("%lld %lld %.6f\n", (long long)answers, (long long)answers_in_window, own);
}

static void null_server(const char *path)
{
    size_t size;
    char *answer = read_file(path, &size);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), one = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1000) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *each = events[i].data.ptr;
            if (each == NULL) {
                each = calloc(1, sizeof *each);
                each->fd = accept(listener, NULL, NULL);
                setsockopt(each->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.ptr = each;
                epoll_ctl(epoll, EPOLL_CTL_ADD, each->fd, &event);
                continue;
            }
            ssize_t got = recv(each->fd, buffer, sizeof buffer, 0);
            if (got <= 0) {
                close(each->fd);
                free(each);
                continue;
            }
            for (char *data = buffer; data < buffer + got;) {
                size_t part = each->length ? each->length - each->got : 4 - each->got;
                if (part > (size_t)(buffer + got - data))
                    part = buffer + got - data;
                if (!each->length)
                    memcpy(each->head + each->got, data, part);
                each->got += part;
                data += part;
                if (!each->length && each->got == 4)
                    each->length = frame_size(each->head);
                if (each->got == each->length) {
                    each->got = each->length = 0;
                    if (send(each->fd, answer, size, MSG_NOSIGNAL) < 0)
                        break;
                }
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setlinebuf(stdout);
    if (argc == 12 && !strcmp(argv[1], "load"))
        load(argv + 2);
    else if (argc == 3 && !strcmp(argv[1], "null"))
        null_server(argv[2]);
    else
        fail("usage: see the source");
    return 0;
}
