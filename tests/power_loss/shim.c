/* What a machine still has after its power went: for each file of a directory its content as of its last sync, and for each
 * directory its names as of its last sync. Preloaded into a process whose files they are (POWER_LOSS_DIRECTORY), it keeps both in
 * another directory (POWER_LOSS_IMAGES). All else is the C library's. With POWER_LOSS_SYNC_MS each sync takes so many milliseconds
 * longer.
 *
 *   KEY.data    the content of a file, in place; a file without one is empty. The key is of the inode, so that a rename, which
 *               lasts from the sync of its directory on, takes the content along.
 *   PATH.names  lines "KEY NAME" of a directory: "." is the one of POWER_LOSS_DIRECTORY, and "log" is one below.
 *
 * What was not synced is lost whole. With POWER_LOSS_TORN the first half of each write is there without a sync, so that writes
 * are torn and out of order.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
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

/* The places of a file that were written since its last sync. */
struct place { off_t at, end; };
struct file { char key[64]; struct place *places; size_t count, room; struct file *next; };
static struct file *files;

static void fail(const char *what)
{
    perror(what);
    abort();
}

/* The path of a file below the directory, "." for itself, or NULL for any other. */
static const char *below(int fd, char *path)
{
    const char *directory = getenv("POWER_LOSS_DIRECTORY");
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = directory ? readlink(link, path, PATH_MAX - 1) : -1;
    if (length < 0)
        return NULL;
    path[length] = 0;
    size_t prefix = strlen(directory);
    if (strncmp(path, directory, prefix))
        return NULL;
    if (!path[prefix])
        return ".";
    return path[prefix] == '/' ? path + prefix + 1 : NULL;
}

/* The moment of its birth tells a file from an earlier one of its inode. */
static void key_of(int fd, const char *name, char *key)
{
    struct statx facts;
    if (statx(fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &facts))
        snprintf(key, 64, "gone");
    else
        snprintf(key, 64, "%llu-%lld-%u", (unsigned long long)facts.stx_ino, (long long)facts.stx_btime.tv_sec,
            facts.stx_btime.tv_nsec);
}

static void image(const char *name, const char *suffix, char *path)
{
    const char *images = getenv("POWER_LOSS_IMAGES");
    if (!images || snprintf(path, PATH_MAX, "%s/%s%s", images, name, suffix) >= PATH_MAX)
        fail("POWER_LOSS_IMAGES");
}

static struct file *file_of(const char *key)
{
    struct file *file;
    for (file = files; file; file = file->next)
        if (strcmp(file->key, key) == 0)
            return file;
    file = calloc(1, sizeof *file);
    if (!file)
        fail("a file");
    snprintf(file->key, sizeof file->key, "%s", key);
    file->next = files;
    return files = file;
}

static void copy_place(int from, int to, off_t at, off_t end)
{
    static char buffer[1 << 20];
    while (at < end) {
        size_t some = end - at < (off_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;
        ssize_t length = pread(from, buffer, some, at);
        if (length <= 0)
            return;
        if (REAL(pwrite)(to, buffer, length, at) != length)
            fail("an image");
        at += length;
    }
}

/* Read through the same descriptor: closing another one of the file would drop the locks that the process holds on it. The first
 * time all of it is copied, and then what was written since. */
static void keep_content(int fd)
{
    char key[64], path[PATH_MAX], made[PATH_MAX];
    struct stat now;
    key_of(fd, "", key);
    struct file *file = file_of(key);
    if (fstat(fd, &now))
        return;
    image(key, ".data", path);
    int copy = open(path, O_WRONLY);
    if (copy >= 0) {
        for (size_t n = 0; n < file->count; n++)
            copy_place(fd, copy, file->places[n].at, file->places[n].end);
        if (ftruncate(copy, now.st_size) || close(copy))
            fail("an image");
    } else {
        image(key, ".tmp", made);
        copy = open(made, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        for (off_t at = 0, end; (at = lseek64(fd, at, SEEK_DATA)) >= 0; at = end) {
            end = lseek64(fd, at, SEEK_HOLE);
            if (end <= at)
                break;
            copy_place(fd, copy, at, end);
        }
        if (copy < 0 || ftruncate(copy, now.st_size) || close(copy) || rename(made, path))
            fail("an image");
    }
    file->count = 0;
}

static void keep_names(int fd, const char *name)
{
    char path[PATH_MAX], made[PATH_MAX], key[64];
    int own = dup(fd);
    DIR *synced = own < 0 ? NULL : fdopendir(own);
    struct dirent *entry;
    image(name, ".names.tmp", made);
    image(name, ".names", path);
    FILE *names = fopen(made, "w");
    if (!names || !synced)
        fail("names");
    rewinddir(synced);
    while ((entry = readdir(synced))) {
        if (entry->d_name[0] == '.')
            continue;
        key_of(fd, entry->d_name, key);
        fprintf(names, "%s %s\n", key, entry->d_name);
    }
    closedir(synced);
    if (fclose(names) || rename(made, path))
        fail("names");
}

static void keep(int fd)
{
    char path[PATH_MAX];
    struct stat what;
    const char *name = below(fd, path);
    if (!name || fstat(fd, &what))
        return;
    pthread_mutex_lock(&lock);
    if (S_ISDIR(what.st_mode))
        keep_names(fd, name);
    else
        keep_content(fd);
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

/* Remembers the place of a write. Of a torn one the first half reaches the image of a file that has one. */
static void wrote(int fd, const char *bytes, ssize_t length, off_t at)
{
    char path[PATH_MAX], key[64];
    int saved_errno = errno;
    if (length > 0 && at >= 0 && below(fd, path)) {
        pthread_mutex_lock(&lock);
        key_of(fd, "", key);
        struct file *file = file_of(key);
        if (file->count == file->room) {
            file->room = 2 * file->room + 16;
            file->places = realloc(file->places, file->room * sizeof *file->places);
            if (!file->places)
                fail("places");
        }
        file->places[file->count++] = (struct place){ at, at + length };
        if (getenv("POWER_LOSS_TORN")) {
            image(key, ".data", path);
            int copy = open(path, O_WRONLY);
            if (copy >= 0 && REAL(pwrite)(copy, bytes, length / 2, at) != length / 2)
                fail("an image");
            if (copy >= 0)
                close(copy);
        }
        pthread_mutex_unlock(&lock);
    }
    errno = saved_errno;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t result = REAL(write)(fd, bytes, length);
    wrote(fd, bytes, result, at);
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    ssize_t result = REAL(pwrite)(fd, bytes, length, at);
    wrote(fd, bytes, result, at);
    return result;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    ssize_t result = REAL(pwrite64)(fd, bytes, length, at);
    wrote(fd, bytes, result, (off_t)at);
    return result;
}

int fsync(int fd) { return sync_as("fsync", fd); }
int fdatasync(int fd) { return sync_as("fdatasync", fd); }
