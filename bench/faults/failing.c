/* Makes writes and syncs of a process fail on demand, below one directory.
 *
 * FAULT_CONTROL names a file of four 64-bit numbers, which the bench maps and changes while the
 * process runs: how many calls pass before one fails (negative: none fails), the error number,
 * how many calls fail then, and how many calls were seen. FAULT_UNDER names the directory.
 * With FAULT_KINDS=sync only syncs are seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct control { volatile int64_t passing, error, failing, seen; };

static struct control *control;
static const char *under;
static size_t under_length;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULT_CONTROL");
    under = getenv("FAULT_UNDER");
    if (!path || !under) return;
    under_length = strlen(under);
    int file = REAL(open)(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

static int is_ours(const char *path) {
    return strncmp(path, under, under_length) == 0 && !strstr(path, "-shm");
}

/* Whether this call is to fail; errno is set then. */
static int fails(void) {
    __sync_fetch_and_add(&control->seen, 1);
    if (control->passing < 0) return 0;
    if (control->passing > 0 && __sync_fetch_and_sub(&control->passing, 1) > 0) return 0;
    if (control->failing <= 0 || __sync_fetch_and_sub(&control->failing, 1) <= 0) return 0;
    errno = (int)control->error;
    return 1;
}

static int file_fails(int file) {
    char link[64], path[PATH_MAX];
    if (!control) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_ours(path) && fails();
}

static int name_fails(const char *path) { return control && is_ours(path) && fails(); }

ssize_t write(int file, const void *data, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = REAL(write);
    return file_fails(file) ? -1 : real(file, data, length);
}
ssize_t pwrite(int file, const void *data, size_t length, off_t at) {
    return file_fails(file) ? -1 : REAL(pwrite)(file, data, length, at);
}
ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) {
    return file_fails(file) ? -1 : REAL(pwrite64)(file, data, length, at);
}
int ftruncate(int file, off_t length) {
    return file_fails(file) ? -1 : REAL(ftruncate)(file, length);
}
int ftruncate64(int file, off64_t length) {
    return file_fails(file) ? -1 : REAL(ftruncate64)(file, length);
}
int fsync(int file) { return file_fails(file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return file_fails(file) ? -1 : REAL(fdatasync)(file); }
int rename(const char *old, const char *new) { return name_fails(new) ? -1 : REAL(rename)(old, new); }
int mkdir(const char *name, mode_t mode) { return name_fails(name) ? -1 : REAL(mkdir)(name, mode); }

#define OPENED(call)                                                                              \
    mode_t mode = 0;                                                                              \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                          \
        va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more);           \
    }                                                                                             \
    if ((flags & O_CREAT) && access(name, F_OK) != 0 && name_fails(name)) return -1;              \
    return call;

int open(const char *name, int flags, ...) { OPENED(REAL(open)(name, flags, mode)) }
int open64(const char *name, int flags, ...) { OPENED(REAL(open64)(name, flags, mode)) }
