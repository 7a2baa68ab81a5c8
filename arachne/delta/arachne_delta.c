/* Apply, revert and verify an Arachne delta: the bytes of a model file that a repair changed.
 *
 *     cc -std=c99 -O2 -o arachne_delta arachne_delta.c
 *
 * Same commands, format, journal and exit codes as arachne_delta.py, where they are explained. POSIX and nothing else;
 * no memory is allocated, and files of any length pass through a buffer of 4 KiB.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 84, RUN = 12, DIGEST = 32, BUFFER = 4096 };
enum { DONE = 0, USAGE = 2, MISFIT = 3, DISK = 4 };
enum side { AS_IT_IS, OLD, NEW };
static const uint64_t MAX_DELTA = 1u << 28;

/* ---- sha256 (FIPS 180-4) ---- */

struct sha { uint32_t h[8]; uint64_t n; uint8_t block[64]; };

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha_block(struct sha *s) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 | (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
        uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t, v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

static void sha_start(struct sha *s) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, first, sizeof first), s->n = 0;
}

static void sha_add(struct sha *s, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        s->block[s->n++ % 64] = bytes[i];
        if (s->n % 64 == 0) sha_block(s);
    }
}

static void sha_end(struct sha *s, uint8_t digest[DIGEST]) {
    uint64_t bits = s->n * 8;
    uint8_t mark = 0x80, zero = 0, tail[8];
    sha_add(s, &mark, 1);
    while (s->n % 64 != 56) sha_add(s, &zero, 1);
    for (int i = 0; i < 8; i++) tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_add(s, tail, 8);
    for (int i = 0; i < DIGEST; i++) digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- files ---- */

static int complain(int code, const char *what, const char *path) {
    if (code == DISK) {
        fprintf(stderr, "error: ");
        perror(path);
    } else {
        fprintf(stderr, "error: '%s' %s\n", path, what);
    }
    return code;
}

static int read_at(int fd, uint64_t at, uint8_t *into, size_t n) {
    for (size_t got = 0; got < n;) {
        ssize_t more = pread(fd, into + got, n - got, (off_t)(at + got));
        if (more <= 0) return 0;
        got += (size_t)more;
    }
    return 1;
}

static int write_all(int fd, const uint8_t *bytes, size_t n) {
    for (size_t put = 0; put < n;) {
        ssize_t more = write(fd, bytes + put, n - put);
        if (more <= 0) return 0;
        put += (size_t)more;
    }
    return 1;
}

static int open_plain(const char *path, int flags, uint64_t *size) {
    struct stat found;
    int fd = open(path, flags | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (fd >= 0 && (fstat(fd, &found) || !S_ISREG(found.st_mode))) close(fd), fd = -1, errno = EINVAL;
    if (fd >= 0) *size = (uint64_t)found.st_size;
    return fd;
}

static int create(const char *path) {
    if (unlink(path) && errno != ENOENT) return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
}

static int sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY), ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

/* ---- the delta ---- */

struct delta { int fd, reversed; uint64_t size, length; uint32_t runs; uint8_t old[DIGEST], new[DIGEST]; };
struct run { uint64_t offset, old, new; uint32_t n; }; /* where its bytes are: in the model, and in the delta */

static uint64_t number(const uint8_t *bytes, int n) {
    uint64_t found = 0;
    while (n--) found = found << 8 | bytes[n];
    return found;
}

static int next_run(const struct delta *d, uint64_t *at, struct run *r) {
    uint8_t head[RUN];
    if (!read_at(d->fd, *at, head, RUN)) return 0;
    r->offset = number(head, 8), r->n = (uint32_t)number(head + 8, 4);
    r->old = *at + RUN + (d->reversed ? r->n : 0), r->new = *at + RUN + (d->reversed ? 0 : r->n);
    *at += RUN + 2 * (uint64_t)r->n;
    return 1;
}

/* Where bytes go: into a hash, and into a file if there is one. */
struct sink { struct sha sha; int fd; };

static int pass(struct sink *to, int fd, uint64_t at, uint64_t n) {
    uint8_t buffer[BUFFER];
    while (n) {
        size_t some = n < BUFFER ? (size_t)n : BUFFER;
        if (!read_at(fd, at, buffer, some) || (to->fd >= 0 && !write_all(to->fd, buffer, some))) return 0;
        sha_add(&to->sha, buffer, some);
        at += some, n -= some;
    }
    return 1;
}

static int put(struct sink *to, const uint8_t *bytes, size_t n) {
    sha_add(&to->sha, bytes, n);
    return to->fd < 0 || write_all(to->fd, bytes, n);
}

/* The model, with the runs' bytes of one side in it, hashed and perhaps written. */
static int pass_model(const struct delta *d, int model, uint64_t size, enum side side, int out, uint8_t digest[DIGEST]) {
    struct sink to = {.fd = out};
    struct run r;
    uint64_t at = 0, place = HEAD;
    sha_start(&to.sha);
    if (side != AS_IT_IS && size != d->length) return memset(digest, 0, DIGEST), 1;
    for (uint32_t i = 0; side != AS_IT_IS && i < d->runs; i++) {
        if (!next_run(d, &place, &r) || !pass(&to, model, at, r.offset - at)) return 0;
        if (!pass(&to, d->fd, side == OLD ? r.old : r.new, r.n)) return 0;
        at = r.offset + r.n;
    }
    if (!pass(&to, model, at, size - at)) return 0;
    sha_end(&to.sha, digest);
    return 1;
}

static int open_delta(struct delta *d, const char *path, int reversed) {
    uint8_t head[HEAD], digest[DIGEST], stored[DIGEST];
    struct sink to = {.fd = -1};
    struct run r;
    d->reversed = 0;
    if ((d->fd = open_plain(path, O_RDONLY, &d->size)) < 0) return complain(DISK, "", path);
    if (d->size < HEAD + DIGEST || d->size > MAX_DELTA || !read_at(d->fd, 0, head, HEAD) || memcmp(head, "ARADELT1", 8))
        return complain(MISFIT, "is no Arachne delta", path);
    sha_start(&to.sha);
    if (!pass(&to, d->fd, 0, d->size - DIGEST) || !read_at(d->fd, d->size - DIGEST, stored, DIGEST)) return complain(DISK, "", path);
    sha_end(&to.sha, digest);
    if (memcmp(digest, stored, DIGEST)) return complain(MISFIT, "is damaged: its checksum does not fit", path);
    d->length = number(head + 8, 8), d->runs = (uint32_t)number(head + 80, 4);
    uint64_t at = HEAD, reached = 0, end = d->size - DIGEST;
    for (uint32_t i = 0; i < d->runs; i++) {
        if (end - at < RUN || !next_run(d, &at, &r) || at > end || !r.n || r.offset < reached || r.offset > d->length || r.n > d->length - r.offset)
            return complain(MISFIT, "has a run that does not fit into the file", path);
        reached = r.offset + r.n;
    }
    if (at != end) return complain(MISFIT, "has bytes that belong to no run", path);
    memcpy(d->old, head + (reversed ? 48 : 16), DIGEST), memcpy(d->new, head + (reversed ? 16 : 48), DIGEST);
    d->reversed = reversed;
    return DONE;
}

/* The delta as a file of its own, in the direction in which it is applied. */
static int write_directed(const struct delta *d, int fd) {
    struct sink to = {.fd = fd};
    struct run r;
    uint8_t head[HEAD], digest[DIGEST];
    uint64_t at = HEAD, start = HEAD;
    sha_start(&to.sha);
    if (!read_at(d->fd, 0, head, HEAD)) return 0;
    memcpy(head + 16, d->old, DIGEST), memcpy(head + 48, d->new, DIGEST);
    if (!put(&to, head, HEAD)) return 0;
    for (uint32_t i = 0; i < d->runs; i++, start = at)
        if (!next_run(d, &at, &r) || !pass(&to, d->fd, start, RUN) || !pass(&to, d->fd, r.old, r.n) || !pass(&to, d->fd, r.new, r.n)) return 0;
    sha_end(&to.sha, digest);
    return write_all(fd, digest, DIGEST) && fsync(fd) == 0;
}

/* Put the new bytes into the model and prove that it is the new file; safe to run again after an interruption. */
static int write_runs(const struct delta *d, const char *path) {
    uint8_t digest[DIGEST];
    uint64_t size, place = HEAD;
    struct run r;
    struct sink to;
    int fd = open_plain(path, O_RDWR, &size), code = DONE;
    if (fd < 0) return complain(DISK, "", path);
    for (uint32_t i = 0; i < d->runs && code == DONE; i++) {
        to.fd = fd, sha_start(&to.sha);
        if (!next_run(d, &place, &r) || lseek(fd, (off_t)r.offset, SEEK_SET) < 0 || !pass(&to, d->fd, r.new, r.n)) code = DISK;
    }
    if (code == DONE && (fsync(fd) || !pass_model(d, fd, size, AS_IT_IS, -1, digest))) code = DISK;
    close(fd);
    if (code == DONE && memcmp(digest, d->new, DIGEST)) return complain(MISFIT, "did not become the promised file; its journal stays, recover it", path);
    return code == DONE ? DONE : complain(DISK, "", path);
}

static int remove_journal(const char *journal) {
    return unlink(journal) || !sync_folder(journal) ? complain(DISK, "", journal) : DONE;
}

static int recover(const char *model, const char *journal, int *found) {
    struct delta d;
    struct stat there;
    uint8_t digest[DIGEST];
    uint64_t size;
    *found = lstat(journal, &there) == 0;
    if (!*found) return DONE;
    int code = open_delta(&d, journal, 0), fd = -1, ok;
    if (code) return code;
    if ((fd = open_plain(model, O_RDONLY, &size)) < 0) return complain(DISK, "", model);
    ok = pass_model(&d, fd, size, OLD, -1, digest);
    close(fd);
    if (!ok) return complain(DISK, "", model);
    if (memcmp(digest, d.old, DIGEST)) return complain(MISFIT, "belongs to another file; move it away", journal);
    code = write_runs(&d, model);
    close(d.fd);
    return code ? code : remove_journal(journal);
}

static int write_new(const struct delta *d, int model, uint64_t size, const char *draft, const char *path) {
    uint8_t digest[DIGEST];
    int fd = create(draft), ok = fd >= 0;
    ok = ok && (model < 0 ? write_directed(d, fd) : pass_model(d, model, size, NEW, fd, digest) && fsync(fd) == 0);
    if (fd >= 0) ok = close(fd) == 0 && ok;
    return ok && rename(draft, path) == 0 && sync_folder(path) ? DONE : complain(DISK, "", path);
}

static int change(const char *delta, const char *model, const char *out, const char *journal, const char *draft, int reversed) {
    struct delta d;
    struct stat there;
    uint8_t found[DIGEST], reached[DIGEST];
    uint64_t size;
    if (lstat(journal, &there) == 0) return complain(MISFIT, "says that a change was interrupted; finish it with --recover first", journal);
    int code = open_delta(&d, delta, reversed);
    if (code) return code;
    int fd = open_plain(model, O_RDONLY, &size);
    if (fd < 0 || !pass_model(&d, fd, size, AS_IT_IS, -1, found)) return complain(DISK, "", model);
    if (!out && !memcmp(found, d.new, DIGEST)) return printf("'%s' is the wanted file already\n", model), DONE;
    if (memcmp(found, d.old, DIGEST)) return complain(MISFIT, "is not the file this delta was made for", model);
    if (!pass_model(&d, fd, size, OLD, -1, found) || !pass_model(&d, fd, size, NEW, -1, reached)) return complain(DISK, "", model);
    if (memcmp(found, d.old, DIGEST) || memcmp(reached, d.new, DIGEST))
        return complain(MISFIT, "does not lead from the file it was made for to the one it promises", delta);
    if (out && lstat(out, &there) == 0) return complain(MISFIT, "is there already", out);
    code = out ? write_new(&d, fd, size, draft, out) : write_new(&d, -1, 0, draft, journal);
    close(fd);
    if (!code && !out && !(code = write_runs(&d, model))) code = remove_journal(journal);
    if (!code) printf("%s '%s': %" PRIu32 " runs\n", out ? "wrote" : "changed", out ? out : model, d.runs);
    close(d.fd);
    return code;
}

static int verify(const char *delta, const char *model) {
    struct delta d;
    uint8_t found[DIGEST];
    uint64_t size;
    int code = open_delta(&d, delta, 0), fd = -1;
    if (code) return code;
    if ((fd = open_plain(model, O_RDONLY, &size)) < 0 || !pass_model(&d, fd, size, AS_IT_IS, -1, found)) return complain(DISK, "", model);
    int is_new = !memcmp(found, d.new, DIGEST);
    if (!is_new && memcmp(found, d.old, DIGEST)) return complain(MISFIT, "is neither the old nor the new file of this delta", model);
    return puts(is_new ? "new" : "old"), DONE;
}

int main(int n, char **words) {
    static char journal[PATH_MAX], draft[PATH_MAX];
    const char *mode = n > 1 && !strncmp(words[1], "--", 2) ? words[1] : "--apply";
    char **paths = words + 1 + (n > 1 && mode == words[1]);
    int count = n - (int)(paths - words), interrupted, code;
    int reversed = !strcmp(mode, "--revert"), changes = reversed || !strcmp(mode, "--apply");
    if (changes ? count < 2 || count > 3 : !strcmp(mode, "--verify") ? count != 2 : strcmp(mode, "--recover") || count != 1) {
        fprintf(stderr, "usage: arachne_delta [--revert] DELTA MODEL [OUT] | --verify DELTA MODEL | --recover MODEL\n");
        return USAGE;
    }
    if (!strcmp(mode, "--verify")) return verify(paths[0], paths[1]);
    const char *model = paths[changes], *out = count == 3 ? paths[2] : NULL;
    if (snprintf(journal, sizeof journal, "%s.journal", model) >= (int)sizeof journal ||
        snprintf(draft, sizeof draft, "%s.arachne-draft", out ? out : journal) >= (int)sizeof draft)
        return complain(MISFIT, "is too long a name", model);
    if (changes) return change(paths[0], model, out, journal, draft, reversed);
    code = recover(model, journal, &interrupted);
    if (!code) printf(interrupted ? "finished what was interrupted in '%s'\n" : "nothing was interrupted in '%s'\n", model);
    return code;
}
