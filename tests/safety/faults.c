/* Faults of a disk, on purpose: the n-th call that changes something under a folder fails, or ends the process.
 *
 * Loaded before the C library (LD_PRELOAD), so that it stands between any program and the system. `faults_arm` says
 * which call it is to be; `faults_seen` tells how many there were. With `faults_swap`, something changes its place just
 * before that call. See faults.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL = -1, SYMLINK = -2, LINK = -3, RENAME = -4 };

static char folder[PATH_MAX], swapped[PATH_MAX], aside[PATH_MAX], other[PATH_MAX];
static long wanted, seen;
static int action, stays;

void faults_arm(const char *under, long number, int what, int for_good) {
    seen = 0, wanted = number, action = what, stays = for_good;
    snprintf(folder, sizeof folder, "%s", under);
}

/* What is moved away, where to, and what takes its name when the call comes; the call itself goes on. */
void faults_swap(const char *what, const char *away, const char *instead) {
    snprintf(swapped, sizeof swapped, "%s", what);
    snprintf(aside, sizeof aside, "%s", away);
    snprintf(other, sizeof other, "%s", instead);
}

long faults_seen(void) { return seen; }

/* A program that cannot call `faults_arm` itself is armed by its environment: "NUMBER ACTION FOLDER". */
__attribute__((constructor)) static void arm_from_environment(void) {
    const char *text = getenv("ARACHNE_FAULTS");
    char under[PATH_MAX];
    long number;
    int what;
    if (text && sscanf(text, "%ld %d %4095[^\n]", &number, &what, under) == 3) faults_arm(under, number, what, 0);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int swap(void) {
    REAL(rename)(swapped, aside);
    if (action == SYMLINK) REAL(symlink)(other, swapped);
    if (action == LINK) REAL(link)(other, swapped);
    if (action == RENAME) REAL(rename)(other, swapped);
    return 0;
}

/* Whether this call is to fail; it does not return where the process is to end. */
static int struck(void) {
    seen++;
    if (wanted <= 0 || (stays ? seen < wanted : seen != wanted)) return 0;
    if (action == KILL) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    if (action < 0) return swap();
    errno = action;
    return 1;
}

static int below(const char *path) {
    size_t n = strlen(folder);
    return n && strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static int name_of(int fd, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, into, PATH_MAX - 1);
    if (n < 0) return 0;
    into[n] = 0;
    return 1;
}

static int path_below(int at, const char *path) {
    char start[PATH_MAX], whole[2 * PATH_MAX];
    if (!folder[0] || !path) return 0;
    if (strncmp(path, "/proc/self/fd/", 14) == 0) { /* through an open folder */
        int fd = atoi(path + 14);
        const char *rest = strchr(path + 14, '/');
        return name_of(fd, start) && snprintf(whole, sizeof whole, "%s%s", start, rest ? rest : "") > 0 && below(whole);
    }
    if (path[0] == '/') return below(path);
    if (at == AT_FDCWD ? !getcwd(start, sizeof start) : !name_of(at, start)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", start, path);
    return below(whole);
}

static int open_below(int fd) {
    char path[PATH_MAX];
    return folder[0] && name_of(fd, path) && below(path);
}

#define ON_PATH(result, name, at, path, given, passed) \
    result name given { return path_below(at, path) && struck() ? -1 : REAL(name) passed; }
#define ON_FILE(result, name, given, passed) \
    result name given { return open_below(fd) && struck() ? -1 : REAL(name) passed; }

ON_FILE(ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
ON_FILE(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
ON_FILE(ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at))
ON_FILE(ssize_t, pwrite64, (int fd, const void *bytes, size_t n, off64_t at), (fd, bytes, n, at))
ON_FILE(int, fsync, (int fd), (fd))
ON_FILE(int, fdatasync, (int fd), (fd))
ON_FILE(int, ftruncate, (int fd, off_t size), (fd, size))
ON_FILE(int, ftruncate64, (int fd, off64_t size), (fd, size))
ON_FILE(int, fchmod, (int fd, mode_t mode), (fd, mode))
ON_PATH(int, chmod, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, fchmodat, at, path, (int at, const char *path, mode_t mode, int flags), (at, path, mode, flags))
ON_PATH(int, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, mkdirat, at, path, (int at, const char *path, mode_t mode), (at, path, mode))
ON_PATH(int, unlink, AT_FDCWD, path, (const char *path), (path))
ON_PATH(int, unlinkat, at, path, (int at, const char *path, int flags), (at, path, flags))
ON_PATH(int, rmdir, AT_FDCWD, path, (const char *path), (path))
ON_PATH(int, rename, AT_FDCWD, path, (const char *old, const char *path), (old, path))
ON_PATH(int, renameat, at, path, (int from, const char *old, int at, const char *path), (from, old, at, path))
ON_PATH(int, renameat2, at, path, (int from, const char *old, int at, const char *path, unsigned int flags),
        (from, old, at, path, flags))
ON_PATH(int, link, AT_FDCWD, path, (const char *old, const char *path), (old, path))
ON_PATH(int, symlink, AT_FDCWD, path, (const char *old, const char *path), (old, path))

#define CHANGES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define OPENER(name, at, given, passed)                                       \
    int name given {                                                          \
        mode_t mode = 0;                                                      \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                \
            va_list rest;                                                     \
            va_start(rest, flags);                                            \
            mode = va_arg(rest, mode_t);                                      \
            va_end(rest);                                                     \
        }                                                                     \
        return CHANGES(flags) && path_below(at, path) && struck() ? -1 : REAL(name) passed; \
    }

OPENER(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENER(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENER(openat, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENER(openat64, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))
