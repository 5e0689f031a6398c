/* Preloaded into a test: the i-th system call below a directory fails, is interrupted, or does half of its work.
 *
 * It is inactive until fault_arm(). Then every call for a path or descriptor below `root` (or for any socket, if sockets
 * are requested) is counted if its class is in `mask`; number `target` (from 0) fails with `error`, and
 * all later ones as well when `lasting`. `error` SHORT makes a read or write transfer half of its bytes.
 * With $FAULT_CONTROL the switch is in that existing file, and another process sets it.
 * Without fault_arm(): every call below $HANG_BELOW hangs while the file $HANG_WHILE exists.
 * Built by tests/torture/shim.py; never shipped. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, CREATE, READ, WRITE, SYNC, RENAME, UNLINK, LINK, MKDIR, LIST, STAT, ACCESS, CHANGE, ATTRIBUTE, ROOM, MMAP,
       CLOSE, LOCK, SOCKET, CONNECT, SEND, RECEIVE, CLASSES };
#define SHORT (-1)
#define PATH 1024

struct fault {
    atomic_int armed;
    int target, error, lasting;
    unsigned mask;
    char root[PATH], ending[64];
    atomic_int seen, hits;
    atomic_int by_class[CLASSES];
    char call[32], path[PATH];
};
static struct fault own, *fault = &own;

static char hang_below[PATH], hang_while[PATH];

/* Another process switches a JVM's faults through a file that both have mapped. */
static void shared(const char *control) {
    int file = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDWR | O_CLOEXEC);
    if (file < 0) abort();
    long mapped = syscall(SYS_mmap, NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (mapped < 0 && mapped > -4096) abort();
    fault = (struct fault *)mapped;
}

__attribute__((constructor)) static void begin(void) {
    const char *control = getenv("FAULT_CONTROL");
    if (control != NULL) shared(control);
    const char *below = getenv("HANG_BELOW"), *file = getenv("HANG_WHILE");
    if (below == NULL || file == NULL) return;
    snprintf(hang_below, sizeof hang_below, "%s", below);
    snprintf(hang_while, sizeof hang_while, "%s", file);
}

static void hang(const char *path) {
    size_t length = strlen(hang_below);
    if (strncmp(path, hang_below, length) != 0 || (path[length] != '/' && path[length] != 0)) return;
    int before = errno;
    while (syscall(SYS_faccessat, AT_FDCWD, hang_while, F_OK) == 0) usleep(20000);
    errno = before;
}

static void forget_all(void);

void fault_arm(const char *root, int target, int error, int lasting, unsigned mask) {
    atomic_store(&fault->armed, 0);
    snprintf(fault->root, sizeof fault->root, "%s", root);
    fault->target = target;
    fault->error = error;
    fault->lasting = lasting;
    fault->mask = mask;
    fault->call[0] = fault->path[0] = fault->ending[0] = 0;
    atomic_store(&fault->seen, 0);
    atomic_store(&fault->hits, 0);
    for (int row = 0; row < CLASSES; row++) atomic_store(&fault->by_class[row], 0);
    forget_all();
    atomic_store(&fault->armed, 1);
}

void fault_disarm(void) { atomic_store(&fault->armed, 0); }
int fault_seen(void) { return atomic_load(&fault->seen); }
int fault_hits(void) { return atomic_load(&fault->hits); }
int fault_by_class(int row) { return atomic_load(&fault->by_class[row]); }
const char *fault_call(void) { return fault->call; }
const char *fault_path(void) { return fault->path; }

/* A cache of which descriptors are below the root: a query of the kernel costs more than most calls.
 * Only for a process that sets its own switch; a JVM's threads close and open at the same time. */
enum { UNKNOWN, BELOW, ELSEWHERE };
#define KNOWN 1024
static atomic_uchar known[KNOWN];

static int told_of(int descriptor) {
    return fault == &own && descriptor >= 0 && descriptor < KNOWN ? atomic_load(&known[descriptor]) : UNKNOWN;
}

static void tell(int descriptor, int what) {
    if (descriptor >= 0 && descriptor < KNOWN) atomic_store(&known[descriptor], (unsigned char)what);
}

/* The path of a descriptor; "" if it is unknown. */
static void descriptor_path(int descriptor, char *path) {
    char link[40];
    if (descriptor == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void named_path(int directory, const char *name, char *path) {
    if (name == NULL) { path[0] = 0; return; }
    if (name[0] == '/') { snprintf(path, PATH, "%s", name); return; }
    descriptor_path(directory, path);
    size_t length = strlen(path);
    snprintf(path + length, PATH - length, "/%s", name);
}

static int is_below(const char *path) {
    size_t length = strlen(fault->root);
    return strncmp(path, fault->root, length) == 0 && (path[length] == '/' || path[length] == 0 || path[length] == ' ');
}

static void forget_all(void) {
    for (int descriptor = 0; descriptor < KNOWN; descriptor++) tell(descriptor, UNKNOWN);
}

/* Whether calls with this path may fail: any, unless an ending is given. */
static int is_wanted(const char *path) {
    size_t length = strlen(path), ending = strlen(fault->ending);
    return length >= ending && strcmp(path + length - ending, fault->ending) == 0;
}

/* Whether the next call of this class is the one, or one of those, that are to fail. */
static int is_next(int row) {
    atomic_fetch_add(&fault->by_class[row], 1);
    if (!(fault->mask >> row & 1)) return 0;
    int number = atomic_fetch_add(&fault->seen, 1);
    return fault->target >= 0 && number >= fault->target && (number == fault->target || fault->lasting);
}

static int hit(const char *call, const char *path) {
    if (atomic_fetch_add(&fault->hits, 1) == 0) {
        snprintf(fault->call, sizeof fault->call, "%s", call);
        snprintf(fault->path, sizeof fault->path, "%s", path);
    }
    return 1;
}

/* Whether this call is to fail; `path` is empty for a socket. */
static int strikes(int row, const char *call, const char *path) {
    if (row < SOCKET && !is_below(path)) return 0;
    if (!is_wanted(path)) {
        atomic_fetch_add(&fault->by_class[row], 1);
        return 0;
    }
    return is_next(row) && hit(call, path);
}

static int strikes_named(int row, const char *call, int directory, const char *name) {
    if (hang_below[0] != 0) {
        char where[PATH];
        named_path(directory, name, where);
        hang(where);
    }
    if (!atomic_load(&fault->armed)) return 0;
    int before = errno;
    char path[PATH];
    /* No caller uses "..". */
    if (name != NULL && name[0] != '/' && told_of(directory) == BELOW && !is_next(row)) return 0;
    named_path(directory, name, path);
    int yes = told_of(directory) == BELOW && name != NULL && name[0] != '/' ? hit(call, path) : strikes(row, call, path);
    errno = yes ? fault->error : before;
    return yes;
}

static int strikes_open(int row, const char *call, int descriptor) {
    if (hang_below[0] != 0) {
        char where[PATH];
        descriptor_path(descriptor, where);
        hang(where);
    }
    if (!atomic_load(&fault->armed)) return 0;
    int told = told_of(descriptor), before = errno, yes;
    if (told == ELSEWHERE || (told == BELOW && !is_next(row))) return 0;
    char path[PATH];
    descriptor_path(descriptor, path);
    if (told == BELOW) yes = hit(call, path);
    else {
        int socket = strncmp(path, "socket:", 7) == 0;
        if (socket) row = row == READ ? RECEIVE : row == WRITE ? SEND : row;
        else tell(descriptor, is_below(path) ? BELOW : ELSEWHERE);
        yes = strikes(row, call, path);
    }
    errno = yes ? fault->error : before;
    return yes;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (strikes_named(flags & O_CREAT ? CREATE : OPEN, #name, AT_FDCWD, path)) return -1; \
        return real(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (strikes_named(flags & O_CREAT ? CREATE : OPEN, #name, directory, path)) return -1; \
        return real(directory, path, flags, mode); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

/* Half of the bytes read or written, but at least one: none would mean the end of the file. */
static size_t half(size_t count) { return count < 2 ? count : count / 2; }

ssize_t read(int file, void *data, size_t count) {
    REAL(ssize_t, read, int, void *, size_t);
    if (!strikes_open(READ, "read", file)) return real(file, data, count);
    if (fault->error != SHORT) return -1;
    ssize_t got = real(file, data, count);
    if (got < 2) return got;
    off_t back = got - (ssize_t)half((size_t)got);
    if (lseek(file, -back, SEEK_CUR) < 0) return got; /* bytes that cannot be unread must not be lost */
    return got - back;
}

#define READING_AT(name, offset_type) \
    ssize_t name(int file, void *data, size_t count, offset_type offset) { \
        REAL(ssize_t, name, int, void *, size_t, offset_type); \
        if (!strikes_open(READ, #name, file)) return real(file, data, count, offset); \
        if (fault->error != SHORT) return -1; \
        ssize_t got = real(file, data, count, offset); \
        return got < 2 ? got : (ssize_t)half((size_t)got); \
    }
READING_AT(pread, off_t)
READING_AT(pread64, off64_t)

#define READING_PARTS(name, offset_type) \
    ssize_t name(int file, const struct iovec *parts, int count, offset_type offset) { \
        REAL(ssize_t, name, int, const struct iovec *, int, offset_type); \
        if (!strikes_open(READ, #name, file)) return real(file, parts, count, offset); \
        if (fault->error != SHORT) return -1; \
        ssize_t got = real(file, parts, count, offset); \
        return got < 2 ? got : (ssize_t)half((size_t)got); \
    }
READING_PARTS(preadv, off_t)
READING_PARTS(preadv64, off64_t)

ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t offset, int flags) {
    REAL(ssize_t, preadv64v2, int, const struct iovec *, int, off64_t, int);
    if (!strikes_open(READ, "preadv2", file)) return real(file, parts, count, offset, flags);
    if (fault->error != SHORT) return -1;
    ssize_t got = real(file, parts, count, offset, flags);
    return got < 2 ? got : (ssize_t)half((size_t)got);
}

ssize_t write(int file, const void *data, size_t count) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (!strikes_open(WRITE, "write", file)) return real(file, data, count);
    return fault->error == SHORT ? real(file, data, half(count)) : -1;
}

#define WRITING_AT(name, offset_type) \
    ssize_t name(int file, const void *data, size_t count, offset_type offset) { \
        REAL(ssize_t, name, int, const void *, size_t, offset_type); \
        if (!strikes_open(WRITE, #name, file)) return real(file, data, count, offset); \
        return fault->error == SHORT ? real(file, data, half(count), offset) : -1; \
    }
WRITING_AT(pwrite, off_t)
WRITING_AT(pwrite64, off64_t)

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (!strikes_open(WRITE, "writev", file)) return real(file, parts, count);
    return fault->error == SHORT && count > 0 ? write(file, parts[0].iov_base, half(parts[0].iov_len)) : -1;
}

#define BY_DESCRIPTOR(row, type, name, parameters, arguments, types) \
    type name parameters { \
        REAL(type, name, types); \
        return strikes_open(row, #name, file) ? -1 : real arguments; \
    }
#define C ,
BY_DESCRIPTOR(SYNC, int, fsync, (int file), (file), int)
BY_DESCRIPTOR(SYNC, int, fdatasync, (int file), (file), int)
BY_DESCRIPTOR(ROOM, int, ftruncate, (int file, off_t size), (file, size), int C off_t)
BY_DESCRIPTOR(ROOM, int, ftruncate64, (int file, off64_t size), (file, size), int C off64_t)
BY_DESCRIPTOR(ROOM, int, fallocate, (int file, int mode, off_t at, off_t size), (file, mode, at, size),
              int C int C off_t C off_t)
BY_DESCRIPTOR(CHANGE, int, fchmod, (int file, mode_t mode), (file, mode), int C mode_t)
BY_DESCRIPTOR(CHANGE, int, fchown, (int file, uid_t user, gid_t group), (file, user, group), int C uid_t C gid_t)
BY_DESCRIPTOR(CHANGE, int, futimens, (int file, const struct timespec times[2]), (file, times),
              int C const struct timespec *)
BY_DESCRIPTOR(CHANGE, int, futimes, (int file, const struct timeval times[2]), (file, times),
              int C const struct timeval *)
BY_DESCRIPTOR(STAT, int, fstat, (int file, struct stat *found), (file, found), int C struct stat *)
BY_DESCRIPTOR(STAT, int, fstat64, (int file, struct stat64 *found), (file, found), int C struct stat64 *)
BY_DESCRIPTOR(STAT, int, fstatvfs, (int file, struct statvfs *found), (file, found), int C struct statvfs *)
BY_DESCRIPTOR(STAT, int, fstatvfs64, (int file, struct statvfs64 *found), (file, found), int C struct statvfs64 *)
BY_DESCRIPTOR(ATTRIBUTE, ssize_t, fgetxattr, (int file, const char *name, void *value, size_t size),
              (file, name, value, size), int C const char * C void * C size_t)
BY_DESCRIPTOR(ATTRIBUTE, ssize_t, flistxattr, (int file, char *list, size_t size), (file, list, size),
              int C char * C size_t)
BY_DESCRIPTOR(ATTRIBUTE, int, fsetxattr, (int file, const char *name, const void *value, size_t size, int flags),
              (file, name, value, size, flags), int C const char * C const void * C size_t C int)
BY_DESCRIPTOR(SEND, ssize_t, send, (int file, const void *data, size_t size, int flags), (file, data, size, flags),
              int C const void * C size_t C int)
BY_DESCRIPTOR(CONNECT, int, connect, (int file, const struct sockaddr *to, socklen_t size), (file, to, size),
              int C const struct sockaddr * C socklen_t)

ssize_t recv(int file, void *data, size_t size, int flags) {
    REAL(ssize_t, recv, int, void *, size_t, int);
    if (!strikes_open(RECEIVE, "recv", file)) return real(file, data, size, flags);
    return fault->error == SHORT ? real(file, data, half(size), flags) : -1;
}

/* Linux releases the descriptor whatever close() returns: a second close() would hit another file. */
int close(int file) {
    REAL(int, close, int);
    int yes = strikes_open(CLOSE, "close", file), error = errno;
    tell(file, UNKNOWN);
    int code = real(file);
    if (!yes) return code;
    errno = error;
    return -1;
}

BY_DESCRIPTOR(LOCK, int, flock, (int file, int operation), (file, operation), int C int)

static int is_lock(int operation) {
    return operation == F_SETLK || operation == F_SETLKW || operation == F_GETLK || operation == F_OFD_SETLK ||
           operation == F_OFD_SETLKW || operation == F_OFD_GETLK || operation == F_SETLEASE || operation == F_GETLEASE;
}

#define CONTROLLING(name) \
    int name(int file, int operation, ...) { \
        REAL(int, name, int, int, ...); \
        va_list more; va_start(more, operation); void *argument = va_arg(more, void *); va_end(more); \
        if (is_lock(operation) && strikes_open(LOCK, #name, file)) return -1; \
        return real(file, operation, argument); \
    }
CONTROLLING(fcntl)
CONTROLLING(fcntl64)

int socket(int domain, int type, int protocol) {
    REAL(int, socket, int, int, int);
    int before = errno;
    if (atomic_load(&fault->armed) && strikes(SOCKET, "socket", "")) { errno = fault->error; return -1; }
    errno = before;
    return real(domain, type, protocol);
}

int posix_fallocate64(int file, off64_t at, off64_t size) { /* returns the error that others store in errno */
    REAL(int, posix_fallocate64, int, off64_t, off64_t);
    return strikes_open(ROOM, "posix_fallocate", file) ? fault->error : real(file, at, size);
}

#define MAPPING(name, offset_type) \
    void *name(void *at, size_t size, int protection, int flags, int file, offset_type offset) { \
        REAL(void *, name, void *, size_t, int, int, int, offset_type); \
        if (file >= 0 && strikes_open(MMAP, #name, file)) return MAP_FAILED; \
        return real(at, size, protection, flags, file, offset); \
    }
MAPPING(mmap64, off64_t)

#define BY_NAME(row, type, name, parameters, arguments, types) \
    type name parameters { \
        REAL(type, name, types); \
        return strikes_named(row, #name, AT_FDCWD, path) ? -1 : real arguments; \
    }
BY_NAME(RENAME, int, rename, (const char *path, const char *to), (path, to), const char * C const char *)
BY_NAME(UNLINK, int, unlink, (const char *path), (path), const char *)
BY_NAME(UNLINK, int, remove, (const char *path), (path), const char *)
BY_NAME(ACCESS, int, access, (const char *path, int mode), (path, mode), const char * C int)
BY_NAME(CHANGE, int, utimes, (const char *path, const struct timeval times[2]), (path, times),
        const char * C const struct timeval *)
BY_NAME(UNLINK, int, rmdir, (const char *path), (path), const char *)
BY_NAME(LINK, int, link, (const char *path, const char *to), (path, to), const char * C const char *)
BY_NAME(MKDIR, int, mkdir, (const char *path, mode_t mode), (path, mode), const char * C mode_t)
BY_NAME(CHANGE, int, chmod, (const char *path, mode_t mode), (path, mode), const char * C mode_t)
BY_NAME(CHANGE, int, chown, (const char *path, uid_t user, gid_t group), (path, user, group),
        const char * C uid_t C gid_t)
BY_NAME(STAT, int, stat, (const char *path, struct stat *found), (path, found), const char * C struct stat *)
BY_NAME(STAT, int, stat64, (const char *path, struct stat64 *found), (path, found), const char * C struct stat64 *)
BY_NAME(STAT, int, lstat, (const char *path, struct stat *found), (path, found), const char * C struct stat *)
BY_NAME(STAT, int, lstat64, (const char *path, struct stat64 *found), (path, found), const char * C struct stat64 *)
BY_NAME(STAT, int, statvfs, (const char *path, struct statvfs *found), (path, found),
        const char * C struct statvfs *)
BY_NAME(STAT, int, statvfs64, (const char *path, struct statvfs64 *found), (path, found),
        const char * C struct statvfs64 *)

#define BELOW(row, type, name, parameters, arguments, types) \
    type name parameters { \
        REAL(type, name, types); \
        return strikes_named(row, #name, directory, path) ? -1 : real arguments; \
    }
BELOW(RENAME, int, renameat, (int directory, const char *path, int there, const char *to), (directory, path, there, to),
      int C const char * C int C const char *)
BELOW(RENAME, int, renameat2, (int directory, const char *path, int there, const char *to, unsigned flags),
      (directory, path, there, to, flags), int C const char * C int C const char * C unsigned)
BELOW(UNLINK, int, unlinkat, (int directory, const char *path, int flags), (directory, path, flags),
      int C const char * C int)
BELOW(LINK, int, linkat, (int directory, const char *path, int there, const char *to, int flags),
      (directory, path, there, to, flags), int C const char * C int C const char * C int)
BELOW(MKDIR, int, mkdirat, (int directory, const char *path, mode_t mode), (directory, path, mode),
      int C const char * C mode_t)
BELOW(CHANGE, int, fchmodat, (int directory, const char *path, mode_t mode, int flags), (directory, path, mode, flags),
      int C const char * C mode_t C int)
BELOW(CHANGE, int, fchownat, (int directory, const char *path, uid_t user, gid_t group, int flags),
      (directory, path, user, group, flags), int C const char * C uid_t C gid_t C int)
BELOW(CHANGE, int, utimensat, (int directory, const char *path, const struct timespec times[2], int flags),
      (directory, path, times, flags), int C const char * C const struct timespec * C int)
BELOW(STAT, int, fstatat, (int directory, const char *path, struct stat *found, int flags),
      (directory, path, found, flags), int C const char * C struct stat * C int)
BELOW(STAT, int, fstatat64, (int directory, const char *path, struct stat64 *found, int flags),
      (directory, path, found, flags), int C const char * C struct stat64 * C int)
BELOW(STAT, int, statx, (int directory, const char *path, int flags, unsigned wanted, struct statx *found),
      (directory, path, flags, wanted, found), int C const char * C int C unsigned C struct statx *)

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    return strikes_named(LIST, "opendir", AT_FDCWD, path) ? NULL : real(path);
}

struct dirent64 *readdir64(DIR *directory) { /* NULL with an error, or without one at the end */
    REAL(struct dirent64 *, readdir64, DIR *);
    return strikes_open(LIST, "readdir", dirfd(directory)) ? NULL : real(directory);
}

int closedir(DIR *directory) { /* closes its descriptor without our close() */
    REAL(int, closedir, DIR *);
    tell(dirfd(directory), UNKNOWN);
    return real(directory);
}

int dup2(int file, int to) { /* whatever `to` was before */
    REAL(int, dup2, int, int);
    tell(to, UNKNOWN);
    return real(file, to);
}

int dup3(int file, int to, int flags) {
    REAL(int, dup3, int, int, int);
    tell(to, UNKNOWN);
    return real(file, to, flags);
}
