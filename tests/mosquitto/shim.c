/* A name server that never answers for names that begin with "hangs". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    while (node != NULL && strncmp(node, "hangs", 5) == 0)
        pause();
    return real(node, service, hints, found);
}
