/* Counts the calls that change files below a folder, and strikes one of them, or sets the clock there.

   The library is loaded before libc, by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define YEAR (365 * 24 * 3600L)

enum action { COUNT, KILL, TEAR, FULL, FAIL, BACK, FORTH };

static char folder[PATH_MAX];
static size_t length;
static enum action action = COUNT;
static atomic_long calls = 0, shift = 0;
static long chosen = 0;
static atomic_int armed = 0, full = 0;

/* Strike the `number`-th call below a folder; 0 only counts. */
void faults_arm(const char *below, long number, int what) {
    snprintf(folder, sizeof folder, "%s/", below);
    length = strlen(folder);
    chosen = number;
    action = what;
    calls = shift = full = 0;
    armed = 1;
}

long faults_calls(void) { return calls; }

static void die(void) {
    for (;;) kill(getpid(), SIGKILL);
}

static int is_below(const char *path) {
    char whole[PATH_MAX];
    if (!path) return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        if (snprintf(whole, sizeof whole, "%s/%s", here, path) >= (int)sizeof whole) return 0;
        path = whole;
    }
    return strncmp(path, folder, length) == 0;
}

static int is_file_below(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t read = readlink(link, path, sizeof path - 1);
    if (read < 0) return 0;
    path[read] = 0;
    return is_below(path);
}

/* Whether this call is the chosen one; a killing strike on a whole call does not return. */
static int is_struck(int grows) {
    long number = ++calls;
    if (full && grows) return 1;
    if (!chosen || number != chosen) return 0;
    if (action == KILL || (action == TEAR && !grows)) die();
    if (action == FULL) full = 1;
    if (action == BACK) shift = -YEAR;
    if (action == FORTH) shift = YEAR;
    return action == TEAR || action == FAIL || (action == FULL && grows);
}

static int refused(void) {
    errno = action == FAIL ? EIO : ENOSPC;
    return -1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* A struck write leaves its first half: then the process dies, or the rest finds no room. */
#define WRITE(name, arguments, half, size) \
    if (armed && is_file_below(file)) { \
        int began = full; \
        if (is_struck(1)) { \
            if (action == TEAR) { (void)!(half); die(); } \
            if (action == FULL && !began && (size) > 1) return half; \
            return refused(); \
        } \
    } \
    return real arguments

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    WRITE(write, (file, data, size), real(file, data, size / 2), size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    REAL(pwrite);
    WRITE(pwrite, (file, data, size, offset), real(file, data, size / 2, offset), size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    WRITE(pwrite64, (file, data, size, offset), real(file, data, size / 2, offset), size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    WRITE(writev, (file, parts, count), real(file, parts, count / 2), (size_t)count);
}

ssize_t sendfile(int file, int source, off_t *offset, size_t size) {
    REAL(sendfile);
    WRITE(sendfile, (file, source, offset, size), real(file, source, offset, size / 2), size);
}

ssize_t sendfile64(int file, int source, off64_t *offset, size_t size) {
    REAL(sendfile64);
    WRITE(sendfile64, (file, source, offset, size), real(file, source, offset, size / 2), size);
}

#define CALL(below, grows, arguments) \
    if (armed && (below) && is_struck(grows)) { \
        if (action == TEAR) die(); \
        return refused(); \
    } \
    return real arguments

int rename(const char *old, const char *new) { REAL(rename); CALL(is_below(new), 0, (old, new)); }
int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat);
    CALL(is_below(new), 0, (from, old, to, new));
}
int unlink(const char *path) { REAL(unlink); CALL(is_below(path), 0, (path)); }
int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    CALL(at == AT_FDCWD ? is_below(path) : is_file_below(at), 0, (at, path, flags));
}
int rmdir(const char *path) { REAL(rmdir); CALL(is_below(path), 0, (path)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); CALL(is_below(path), 1, (path, mode)); }
int link(const char *old, const char *new) { REAL(link); CALL(is_below(new), 1, (old, new)); }
int truncate(const char *path, off_t size) { REAL(truncate); CALL(is_below(path), 0, (path, size)); }
int truncate64(const char *path, off64_t size) { REAL(truncate64); CALL(is_below(path), 0, (path, size)); }
int ftruncate(int file, off_t size) { REAL(ftruncate); CALL(is_file_below(file), 0, (file, size)); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); CALL(is_file_below(file), 0, (file, size)); }
int fsync(int file) { REAL(fsync); CALL(is_file_below(file), 0, (file)); }
int fdatasync(int file) { REAL(fdatasync); CALL(is_file_below(file), 0, (file)); }

#define OPEN(name, at, ...) \
    REAL(name); \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    } \
    if (!(flags & (O_CREAT | O_TRUNC))) return real(__VA_ARGS__, flags, mode); \
    CALL(is_below(path), 1, (__VA_ARGS__, flags, mode))

int open(const char *path, int flags, ...) { OPEN(open, AT_FDCWD, path); }
int open64(const char *path, int flags, ...) { OPEN(open64, AT_FDCWD, path); }
int openat(int at, const char *path, int flags, ...) { OPEN(openat, at, at, path); }
int openat64(int at, const char *path, int flags, ...) { OPEN(openat64, at, at, path); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += shift;
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    REAL(gettimeofday);
    int status = real(now, zone);
    now->tv_sec += shift;
    return status;
}

time_t time(time_t *place) {
    REAL(time);
    time_t now = real(NULL) + shift;
    if (place) *place = now;
    return now;
}
