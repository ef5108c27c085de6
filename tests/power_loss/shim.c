/* What a machine still has after its power went: for each file of a directory its content as of its last sync, and its name if
 * the directory was synced since it was made. Preloaded into a process whose files they are (POWER_LOSS_DIRECTORY), it keeps both
 * in another directory (POWER_LOSS_IMAGES): NAME.data and NAME.entry. All else is the C library's. With POWER_LOSS_SYNC_MS each
 * sync takes so many milliseconds longer.
 *
 * What was not synced is lost whole. With POWER_LOSS_TORN the first half of each write is there without a sync, so that writes
 * are torn and out of order.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what)
{
    perror(what);
    abort();
}

static int image(const char *name, const char *suffix, char *path)
{
    const char *images = getenv("POWER_LOSS_IMAGES");
    if (!images || snprintf(path, PATH_MAX, "%s/%s%s", images, name, suffix) >= PATH_MAX)
        fail("POWER_LOSS_IMAGES");
    return open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

/* Read through the same descriptor: closing another one of the file would drop the locks that the process holds on it. */
static void keep_content(int fd, const char *name)
{
    static char buffer[1 << 20];
    char made[PATH_MAX], kept[PATH_MAX];
    int copy = image(name, ".tmp", made);
    ssize_t length;
    off_t at = 0;
    while ((length = pread(fd, buffer, sizeof buffer, at)) > 0) {
        if (REAL(write)(copy, buffer, length) != length)
            fail("an image");
        at += length;
    }
    if (length < 0 || close(copy))
        fail("an image");
    snprintf(kept, sizeof kept, "%s/%s.data", getenv("POWER_LOSS_IMAGES"), name);
    /* Whole or not at all: the process may be killed here. */
    if (rename(made, kept))
        fail("an image");
}

/* What has been deleted since is gone for good now, too. */
static void forget_names(const char *directory)
{
    const char *images = getenv("POWER_LOSS_IMAGES");
    char path[PATH_MAX], name[NAME_MAX + 1];
    DIR *kept = opendir(images);
    struct dirent *entry;
    while (kept && (entry = readdir(kept))) {
        char *suffix = strstr(entry->d_name, ".entry");
        if (!suffix)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(suffix - entry->d_name), entry->d_name);
        snprintf(path, sizeof path, "%s/%s", directory, name);
        if (access(path, F_OK) == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s.data", images, name);
        unlink(path);
        snprintf(path, sizeof path, "%s/%s.entry", images, name);
        unlink(path);
    }
    if (kept)
        closedir(kept);
}

static void keep_names(const char *directory)
{
    char path[PATH_MAX];
    DIR *synced = opendir(directory);
    struct dirent *entry;
    while (synced && (entry = readdir(synced)))
        if (entry->d_name[0] != '.')
            close(image(entry->d_name, ".entry", path));
    if (synced)
        closedir(synced);
    forget_names(directory);
}

static void keep(int fd)
{
    const char *directory = getenv("POWER_LOSS_DIRECTORY");
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!directory || readlink(link, path, sizeof path - 1) < 0)
        return;
    size_t length = strlen(directory);
    pthread_mutex_lock(&lock);
    if (strcmp(path, directory) == 0)
        keep_names(directory);
    else if (strncmp(path, directory, length) == 0 && path[length] == '/' && !strstr(path, " (deleted)"))
        keep_content(fd, path + length + 1);
    pthread_mutex_unlock(&lock);
}

static int sync_as(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *slowly = getenv("POWER_LOSS_SYNC_MS");
    if (slowly)
        usleep(1000 * atoi(slowly));
    int result = real(fd);
    if (result == 0)
        keep(fd);
    return result;
}

/* The first half of a write reaches the image of a file that has one. */
static void tear(int fd, const char *bytes, ssize_t length, off_t at)
{
    const char *directory = getenv("POWER_LOSS_DIRECTORY"), *images = getenv("POWER_LOSS_IMAGES");
    char link[64], path[PATH_MAX] = "", kept[2 * PATH_MAX];
    if (!getenv("POWER_LOSS_TORN") || !directory || !images || length < 2)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0)
        return;
    size_t prefix = strlen(directory);
    if (strncmp(path, directory, prefix) || path[prefix] != '/')
        return;
    pthread_mutex_lock(&lock);
    snprintf(kept, sizeof kept, "%s/%s.data", images, path + prefix + 1);
    int copy = open(kept, O_WRONLY);
    /* Not by the `pwrite` below. */
    if (copy >= 0 && lseek(copy, at, SEEK_SET) == at && REAL(write)(copy, bytes, length / 2) != length / 2)
        fail("an image");
    if (copy >= 0)
        close(copy);
    pthread_mutex_unlock(&lock);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t wrote = REAL(write)(fd, bytes, length);
    if (at >= 0)
        tear(fd, bytes, wrote, at);
    return wrote;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    ssize_t wrote = REAL(pwrite)(fd, bytes, length, at);
    tear(fd, bytes, wrote, at);
    return wrote;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    ssize_t wrote = REAL(pwrite64)(fd, bytes, length, at);
    tear(fd, bytes, wrote, (off_t)at);
    return wrote;
}

int fsync(int fd) { return sync_as("fsync", fd); }
int fdatasync(int fd) { return sync_as("fdatasync", fd); }
