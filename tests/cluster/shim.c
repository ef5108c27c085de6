/* Another machine's clock, boot and disk, for one process (LD_PRELOAD). CLUSTER_CLOCK is the number of seconds by which its wall
 * clock is ahead, and CLUSTER_BOOT the text of its boot identifier. Clocks that nobody sets stay as they are. While there is a file
 * CLUSTER_DISK_HANGS, no read and no write of a database or its WAL returns. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    const char *ahead = getenv("CLUSTER_CLOCK");
    if (clock == CLOCK_REALTIME && result == 0 && ahead)
        at->tv_sec += atol(ahead);
    return result;
}

int open64(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    if (!real)
        real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    const char *boot = getenv("CLUSTER_BOOT");
    if (boot && !strcmp(path, "/proc/sys/kernel/random/boot_id")) {
        int file = memfd_create("boot_id", MFD_CLOEXEC);
        if (file >= 0 && write(file, boot, strlen(boot)) >= 0)
            lseek(file, 0, SEEK_SET);
        return file;
    }
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    return real(path, flags, mode);
}

static void await_disk(int file)
{
    const char *hangs = getenv("CLUSTER_DISK_HANGS");
    char link[64], path[PATH_MAX] = "";
    if (!hangs || access(hangs, F_OK))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/homing.db"))
        while (!access(hangs, F_OK))
            usleep(50000);
}

ssize_t pread64(int file, void *bytes, size_t length, off64_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real)
        real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    await_disk(file);
    return real(file, bytes, length, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    await_disk(file);
    return real(file, bytes, length, at);
}
