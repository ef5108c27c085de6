/* A disk that fails: while a file that FAILING_DISK_FAULT names holds "error", "sync", "full" or "rename", writes to files of the
 * directory FAILING_DISK fail with EIO, syncs do, what would make a file longer and new files of the log fail with ENOSPC, or
 * renames fail with EIO. With a second word, "log" or "database", only for the files below FAILING_DISK/log, or for the others.
 * Preloaded; all else is the C library's, and the reserves, which are taken by a system call of its own, are granted once there
 * is a file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The first letter of what the control file holds, if it is for the files that a path is of; 0 else. */
static char fault_at(const char *path)
{
    const char *directory = getenv("FAILING_DISK"), *control = getenv("FAILING_DISK_FAULT");
    char words[32] = "";
    size_t length = directory ? strlen(directory) : 0;
    if (!directory || !control || strncmp(path, directory, length) || path[length] != '/')
        return 0;
    int fd = REAL(open)(control, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, words, sizeof words - 1);
    close(fd);
    int is_log = strncmp(path + length, "/log/", 5) == 0;
    if (got <= 0 || (strstr(words, " log") && !is_log) || (strstr(words, " database") && is_log))
        return 0;
    return words[0];
}

static char fault(int fd)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 ? fault_at(path) : 0;
}

static int refuses(int fd, off_t end)
{
    struct stat file;
    char letter = fault(fd);
    if (letter == 'e')
        errno = EIO;
    else if (letter == 'f' && (fstat(fd, &file) || end > file.st_size))
        errno = ENOSPC;
    else
        return 0;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at >= 0 && refuses(fd, at + (off_t)length) ? -1 : REAL(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    return refuses(fd, at + (off_t)length) ? -1 : REAL(pwrite)(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    return refuses(fd, (off_t)at + (off_t)length) ? -1 : REAL(pwrite64)(fd, bytes, length, at);
}

static int sync_refused(int fd)
{
    int refused = fault(fd) == 's';
    if (refused)
        errno = EIO;
    return refused;
}

int fsync(int fd) { return sync_refused(fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return sync_refused(fd) ? -1 : REAL(fdatasync)(fd); }

/* A new file of the log takes room at once. */
static int is_without_room(const char *path, int flags)
{
    int refused = (flags & O_CREAT) && strstr(path, "/log/") && fault_at(path) == 'f' && access(path, F_OK);
    if (refused)
        errno = ENOSPC;
    return refused;
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return is_without_room(path, flags) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return is_without_room(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}

int rename(const char *from, const char *to)
{
    if (fault_at(from) == 'r') {
        errno = EIO;
        return -1;
    }
    return REAL(rename)(from, to);
}
