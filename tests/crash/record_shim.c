/* Preloaded into a broker's JVM, or into the staging process: records every change of names below a directory, and every flush there, in order.
 *
 * One line each in $RECORD_TO: the call, the path, for a rename the target. Of writes, truncations and mappings only the
 * name is recorded: the files of a swap were written and flushed before. Built by tests/crash/live_swap.py; never shipped. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH 1024

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH];
static int out = -1;

__attribute__((constructor)) static void begin(void) {
    const char *to = getenv("RECORD_TO"), *below = getenv("RECORD_BELOW");
    if (to == NULL || below == NULL) return;
    snprintf(root, sizeof root, "%s", below);
    out = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static int is_below(const char *path) { return out >= 0 && path != NULL && strncmp(path, root, strlen(root)) == 0; }

static void record(const char *call, const char *path, const char *target) {
    char line[3 * PATH];
    int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", call, path, target);
    int before = errno;
    if (syscall(SYS_write, out, line, (size_t)length) != length) abort();
    errno = before;
}

static void descriptor_path(int descriptor, char *path) {
    char link[40];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH - 1);
    path[length < 0 ? 0 : length] = 0;
    errno = before;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* The call and its line belong together: the lines are in the order of the calls. */
#define TOLD(call, path, target, doing) \
    pthread_mutex_lock(&one_at_a_time); \
    int result = doing; \
    if (result >= 0) record(call, path, target); \
    pthread_mutex_unlock(&one_at_a_time); \
    return result

int rename(const char *path, const char *to) {
    REAL(int, rename, const char *, const char *);
    if (!is_below(path)) return real(path, to);
    TOLD("rename", path, to, real(path, to));
}

static void named_path(int directory, const char *name, char *path) {
    if (name[0] == '/') { snprintf(path, PATH, "%s", name); return; }
    descriptor_path(directory, path);
    size_t length = strlen(path);
    snprintf(path + length, PATH - length, "/%s", name);
}

int renameat(int directory, const char *path, int there, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    char from[PATH], target[PATH];
    named_path(directory, path, from);
    named_path(there, to, target);
    if (!is_below(from)) return real(directory, path, there, to);
    TOLD("rename", from, target, real(directory, path, there, to));
}

int unlinkat(int directory, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    char gone[PATH];
    named_path(directory, path, gone);
    if (!is_below(gone)) return real(directory, path, flags);
    TOLD(flags & AT_REMOVEDIR ? "rmdir" : "unlink", gone, "", real(directory, path, flags));
}

#define REMOVING(name, call) \
    int name(const char *path) { \
        REAL(int, name, const char *); \
        if (!is_below(path)) return real(path); \
        TOLD(call, path, "", real(path)); \
    }
REMOVING(unlink, "unlink")
REMOVING(remove, "unlink")
REMOVING(rmdir, "rmdir")

#define FLUSHING(name) \
    int name(int file) { \
        REAL(int, name, int); \
        char path[PATH]; \
        descriptor_path(file, path); \
        if (!is_below(path)) return real(file); \
        TOLD("fsync", path, "", real(file)); \
    }
FLUSHING(fsync)
FLUSHING(fdatasync)

/* Other changes of a file: they are recorded, and the reader checks that no file of the swap is among them. */
#define CHANGING(type, name, parameters, arguments, ...) \
    type name parameters { \
        REAL(type, name, __VA_ARGS__); \
        char path[PATH]; \
        descriptor_path(file, path); \
        if (is_below(path)) record("change", path, ""); \
        return real arguments; \
    }
CHANGING(int, ftruncate64, (int file, off64_t size), (file, size), int, off64_t)
CHANGING(ssize_t, write, (int file, const void *data, size_t size), (file, data, size), int, const void *, size_t)
CHANGING(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at), int,
         const void *, size_t, off64_t)
CHANGING(ssize_t, pwritev64, (int file, const struct iovec *parts, int count, off64_t at), (file, parts, count, at), int,
         const struct iovec *, int, off64_t)
CHANGING(ssize_t, sendfile64, (int file, int from, off64_t *at, size_t size), (file, from, at, size), int, int, off64_t *,
         size_t)
CHANGING(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count), int,
         const struct iovec *, int)

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (!(flags & O_CREAT) || !is_below(path) || syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0) \
            return real(path, flags, mode); \
        TOLD("create", path, "", real(path, flags, mode)); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        char made[PATH] = ""; \
        if (flags & O_CREAT) named_path(directory, path, made); \
        if (!is_below(made) || syscall(SYS_faccessat, AT_FDCWD, made, F_OK) == 0) \
            return real(directory, path, flags, mode); \
        TOLD("create", made, "", real(directory, path, flags, mode)); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)
