/* A disk that fails: while a file that FAILING_DISK_FAULT names holds "error", "sync" or "full", writes to files of the directory
 * FAILING_DISK fail with EIO, syncs do, or what would make a file longer fails with ENOSPC. Preloaded; all else is the C
 * library's, and the reserve, which is taken by a system call of its own, is granted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first letter of what the control file holds; 0 without one. */
static char fault(void)
{
    const char *path = getenv("FAILING_DISK_FAULT");
    char letter = 0;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    if (read(fd, &letter, 1) != 1)
        letter = 0;
    close(fd);
    return letter;
}

static int is_ours(int fd)
{
    const char *directory = getenv("FAILING_DISK");
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return directory && readlink(link, path, sizeof path - 1) > 0
        && strncmp(path, directory, strlen(directory)) == 0 && path[strlen(directory)] == '/';
}

static int refuses(int fd, off_t end)
{
    struct stat file;
    if (!is_ours(fd))
        return 0;
    char letter = fault();
    if (letter == 'e')
        errno = EIO;
    else if (letter == 'f' && (fstat(fd, &file) || end > file.st_size))
        errno = ENOSPC;
    else
        return 0;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

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
    int refused = is_ours(fd) && fault() == 's';
    if (refused)
        errno = EIO;
    return refused;
}

int fsync(int fd) { return sync_refused(fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return sync_refused(fd) ? -1 : REAL(fdatasync)(fd); }
