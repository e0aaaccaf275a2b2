/* Preloaded into one process, it counts the calls that change files or make changes durable, and strikes at one.

   STRIKE_AT, STRIKE_UNTIL  from which call on and until which (default: the same); 1 is the first
   STRIKE_PATH              count only calls on files whose path has this in it
   STRIKE_ERRNO             what the calls fail with, 0 (default): SIGKILL as the call is entered
   STRIKE_TORN              1: half of what a killed write was to write goes out first
   STRIKE_CLOCK_S           how far the clock of the day is off, now ahead and now behind; the monotonic one is not
   STRIKE_TRACE             a file for one line a call: its name and its file

   Its children run without it. Beside strace's fault injection, which would do the same from outside: this takes no
   time, counts all kinds of calls together, tears writes, and needs no rights to trace. What a library calls inside of
   libc goes unseen; what the harness does is seen: tests/benchmarks/test_faults.py compares with strace's own count. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long counted, at, until, clock_s;
static int failure, torn, trace = -1;
static const char *only;
static pid_t self;  /* a fork that has not become another program yet is not the one that is meant */

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

/* Called as the library is loaded, and again in a fork that is to be struck from there on. */
__attribute__((constructor)) void begin(void) {
    self = getpid();
    counted = 0;
    at = number("STRIKE_AT", 0);
    until = number("STRIKE_UNTIL", at);
    failure = number("STRIKE_ERRNO", 0);
    torn = number("STRIKE_TORN", 0);
    clock_s = number("STRIKE_CLOCK_S", 0);
    only = getenv("STRIKE_PATH");
    const char *file = getenv("STRIKE_TRACE");
    if (file && *file) trace = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unsetenv("LD_PRELOAD");
}

/* Does this call count? */
static int seen(const char *call, int fd, const char *path) {
    char line[PATH_MAX + 64], link[32], target[PATH_MAX];
    if (trace < 0 && !only) return 1;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        path = target;
    }
    if (only && !strstr(path, only)) return 0;
    if (trace < 0) return 1;
    int length = snprintf(line, sizeof line, "%s %s\n", call, path);
    syscall(SYS_write, trace, line, length < (int)sizeof line ? length : (int)sizeof line - 1);
    return 1;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Is this call struck? 1: it is to fail, and errno says how; 2: it is to be the last one. */
static int struck(const char *call, int fd, const char *path) {
    if (getpid() != self || !seen(call, fd, path)) return 0;
    long now = __sync_add_and_fetch(&counted, 1);
    if (now < at || now > until) return 0;
    if (!failure) return 2;
    /* a full or broken disk has nothing to say about terminals, and removing always works */
    if ((!path && fd <= 2) || strstr(call, "unlink") || strstr(call, "rmdir")) return 0;
    errno = failure;
    return 1;
}

#define CALL(type, name, parameters, arguments, fd, path, half)                                                        \
    type name parameters {                                                                                             \
        static type(*real) parameters;                                                                                 \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                 \
        switch (struck(#name, fd, path)) {                                                                             \
        case 1: return -1;                                                                                             \
        case 2:                                                                                                        \
            if (torn) { half; }                                                                                        \
            die();                                                                                                     \
        }                                                                                                              \
        return real arguments;                                                                                         \
    }

#define WRITE (int fd, const void *data, size_t count)
#define PWRITE (int fd, const void *data, size_t count, off_t offset)
#define SENDFILE (int out, int in, off_t *offset, size_t count)
#define COPY (int in, off_t *in_at, int out, off_t *out_at, size_t count, unsigned flags)

CALL(ssize_t, write, WRITE, (fd, data, count), fd, 0, real(fd, data, count / 2))
CALL(ssize_t, pwrite, PWRITE, (fd, data, count, offset), fd, 0, real(fd, data, count / 2, offset))
CALL(ssize_t, pwrite64, PWRITE, (fd, data, count, offset), fd, 0, real(fd, data, count / 2, offset))
CALL(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), fd, 0, (void)0)
CALL(ssize_t, sendfile, SENDFILE, (out, in, offset, count), out, 0, real(out, in, offset, 100))
CALL(ssize_t, sendfile64, SENDFILE, (out, in, offset, count), out, 0, real(out, in, offset, 100))
CALL(ssize_t, copy_file_range, COPY, (in, in_at, out, out_at, count, flags), out, 0, (void)0)
CALL(int, fsync, (int fd), (fd), fd, 0, (void)0)
CALL(int, fdatasync, (int fd), (fd), fd, 0, (void)0)
CALL(int, ftruncate, (int fd, off_t length), (fd, length), fd, 0, (void)0)
CALL(int, ftruncate64, (int fd, off_t length), (fd, length), fd, 0, (void)0)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, path, (void)0)
CALL(int, rmdir, (const char *path), (path), -1, path, (void)0)
CALL(int, unlink, (const char *path), (path), -1, path, (void)0)
CALL(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), -1, path, (void)0)
CALL(int, rename, (const char *old, const char *new), (old, new), -1, new, (void)0)
CALL(int, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new), -1, new, (void)0)
CALL(int, link, (const char *old, const char *new), (old, new), -1, new, (void)0)
CALL(int, symlink, (const char *old, const char *new), (old, new), -1, new, (void)0)

/* Every fifth of the calls above turns the clock. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += counted / 5 % 2 ? clock_s : -clock_s;
    return result;
}
