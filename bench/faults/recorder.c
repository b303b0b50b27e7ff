/* Records what a process does to the files below one directory, in the order in which it happens.
 *
 * Preloaded into a Python process. `recorder_start` begins, `recorder_stop` ends. A record is
 *     u8 kind, u32 path length, i64 offset, u64 data length, path, data
 * in the byte order of the machine. One lock is held over each call and its record, so that the
 * order of records is the order of effects. An injected failure is not carried out and not recorded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, LINK };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char under[PATH_MAX];
static size_t under_length;
static int log_file = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_ours(const char *path) {
    return log_file >= 0 && strncmp(path, under, under_length) == 0 && path[under_length] == '/';
}

static int is_root(const char *path) { return log_file >= 0 && strcmp(path, under) == 0; }

static int path_of(int file, char *path) {
    char link[64];
    if (log_file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return (is_ours(path) || is_root(path)) && strstr(path, " (deleted)") == NULL;
}

static void put(const void *bytes, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = REAL(write);
    const char *at = bytes;
    while (length) {
        ssize_t done = real(log_file, at, length);
        if (done <= 0) abort();
        at += done;
        length -= done;
    }
}

static void note(uint8_t kind, const char *path, int64_t offset, const void *data, uint64_t length) {
    uint32_t path_length = strlen(path);
    put(&kind, 1);
    put(&path_length, 4);
    put(&offset, 8);
    put(&length, 8);
    put(path, path_length);
    if (length) put(data, length);
}

int recorder_start(const char *directory, const char *log_path) {
    int opened = REAL(open)(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (opened < 0) return -1;
    pthread_mutex_lock(&lock);
    strncpy(under, directory, sizeof under - 1);
    under_length = strlen(under);
    log_file = opened;
    pthread_mutex_unlock(&lock);
    return 0;
}

void recorder_stop(void) {
    pthread_mutex_lock(&lock);
    if (log_file >= 0) close(log_file);
    log_file = -1;
    pthread_mutex_unlock(&lock);
}

/* Absolute path of a name that is given relative to a directory or absolutely. */
static const char *absolute(int at, const char *name, char *path) {
    if (name[0] == '/') return name;
    char base[PATH_MAX];
    if (at == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return name;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length <= 0) return name;
        base[length] = 0;
    }
    snprintf(path, PATH_MAX, "%.2000s/%.2000s", base, name);
    return path;
}

static int opened(int (*real)(int, const char *, int, ...), int at, const char *name, int flags,
                  mode_t mode) {
    char buffer[PATH_MAX];
    const char *path = log_file >= 0 ? absolute(at, name, buffer) : name;
    if (!(flags & (O_CREAT | O_TRUNC)) || !is_ours(path)) return real(at, name, flags, mode);
    pthread_mutex_lock(&lock);
    int existed = access(path, F_OK) == 0;
    int file = real(at, name, flags, mode);
    if (file >= 0 && log_file >= 0) {
        if (!existed) note(CREATE, path, 0, NULL, 0);
        else if (flags & O_TRUNC) note(TRUNCATE, path, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return file;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *name, int flags, ...) { MODE return opened(REAL(openat), AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(REAL(openat64), AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE return opened(REAL(openat), at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE return opened(REAL(openat64), at, name, flags, mode); }

#define WRITTEN(call, where)                                             \
    char path[PATH_MAX];                                                 \
    if (!path_of(file, path)) return call;                               \
    pthread_mutex_lock(&lock);                                           \
    int64_t offset = where;                                              \
    ssize_t done = call;                                                 \
    if (done > 0 && log_file >= 0) note(WRITE, path, offset, data, done); \
    pthread_mutex_unlock(&lock);                                         \
    return done;

static int64_t place(int file) {
    if (fcntl(file, F_GETFL) & O_APPEND) return lseek(file, 0, SEEK_END);
    return lseek(file, 0, SEEK_CUR);
}

ssize_t write(int file, const void *data, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = REAL(write);
    WRITTEN(real(file, data, length), place(file))
}

ssize_t pwrite(int file, const void *data, size_t length, off_t at) {
    WRITTEN(REAL(pwrite)(file, data, length, at), at)
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) {
    WRITTEN(REAL(pwrite64)(file, data, length, at), at)
}

#define DONE(kind, call)                                                        \
    char path[PATH_MAX];                                                        \
    if (!path_of(file, path)) return call;                                      \
    pthread_mutex_lock(&lock);                                                  \
    int done = call;                                                            \
    if (done == 0 && log_file >= 0) note(kind, path, length, NULL, 0);          \
    pthread_mutex_unlock(&lock);                                                \
    return done;

int ftruncate(int file, off_t length) { DONE(TRUNCATE, REAL(ftruncate)(file, length)) }
int ftruncate64(int file, off64_t length) { DONE(TRUNCATE, REAL(ftruncate64)(file, length)) }
int fsync(int file) { int64_t length = 0; DONE(SYNC, REAL(fsync)(file)) }
int fdatasync(int file) { int64_t length = 0; DONE(SYNC, REAL(fdatasync)(file)) }

#define NAMED(kind, at, name, call, data, size)                                 \
    char buffer[PATH_MAX];                                                      \
    const char *path = log_file >= 0 ? absolute(at, name, buffer) : name;       \
    if (!is_ours(path)) return call;                                            \
    pthread_mutex_lock(&lock);                                                  \
    int done = call;                                                            \
    if (done == 0 && log_file >= 0) note(kind, path, 0, data, size);            \
    pthread_mutex_unlock(&lock);                                                \
    return done;

int unlink(const char *name) { NAMED(UNLINK, AT_FDCWD, name, REAL(unlink)(name), NULL, 0) }
int unlinkat(int at, const char *name, int flags) {
    NAMED(flags & AT_REMOVEDIR ? RMDIR : UNLINK, at, name, REAL(unlinkat)(at, name, flags), NULL, 0)
}
int rmdir(const char *name) { NAMED(RMDIR, AT_FDCWD, name, REAL(rmdir)(name), NULL, 0) }
int mkdir(const char *name, mode_t mode) {
    NAMED(MKDIR, AT_FDCWD, name, REAL(mkdir)(name, mode), NULL, 0)
}
int mkdirat(int at, const char *name, mode_t mode) {
    NAMED(MKDIR, at, name, REAL(mkdirat)(at, name, mode), NULL, 0)
}
int rename(const char *old, const char *new) {
    char target[PATH_MAX];
    const char *to = log_file >= 0 ? absolute(AT_FDCWD, new, target) : new;
    NAMED(RENAME, AT_FDCWD, old, REAL(rename)(old, new), to, strlen(to))
}
int renameat(int from, const char *old, int into, const char *new) {
    char target[PATH_MAX];
    const char *to = log_file >= 0 ? absolute(into, new, target) : new;
    NAMED(RENAME, from, old, REAL(renameat)(from, old, into, new), to, strlen(to))
}
int link(const char *old, const char *new) {
    char target[PATH_MAX];
    const char *to = log_file >= 0 ? absolute(AT_FDCWD, new, target) : new;
    NAMED(LINK, AT_FDCWD, old, REAL(link)(old, new), to, strlen(to))
}
int linkat(int from, const char *old, int into, const char *new, int flags) {
    char target[PATH_MAX];
    const char *to = log_file >= 0 ? absolute(into, new, target) : new;
    NAMED(LINK, from, old, REAL(linkat)(from, old, into, new, flags), to, strlen(to))
}
