/* Apply, revert and verify an Arachne delta: the bytes of a model file that a repair changed.
 *
 *     cc -std=c99 -O2 -o arachne_delta arachne_delta.c
 *
 * Same commands, format, journal and exit codes as arachne_delta.py, where they are explained. POSIX and nothing else;
 * no memory is allocated, and files of any length pass through a buffer of 4 KiB. A check that fails ends the program
 * on the spot: that leaves no more than a loss of power would, and --recover finishes it.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 84, RUN = 12, DIGEST = 32, BUFFER = 4096, MAX_DELTA = 1 << 28 };
enum { DONE = 0, USAGE = 2, MISFIT = 3, DISK = 4 };
enum side { OLD, NEW, AS_IT_IS };

/* ---- sha256 (FIPS 180-4) ---- */

struct digest { uint8_t bytes[DIGEST]; };
struct sha { uint32_t h[8], w[64]; uint64_t n; };

static const struct sha START = {.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha_add(struct sha *s, uint8_t byte) {
    uint32_t v[8], *w = s->w, *word = w + s->n / 4 % 16;
    *word = *word << 8 | byte;
    if (++s->n % 64) return; /* the block is not full */
    memcpy(v, s->h, sizeof v);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
        uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t, v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

static struct digest sha_end(struct sha *s) {
    struct digest digest;
    uint64_t bits = s->n * 8;
    sha_add(s, 0x80);
    while (s->n % 64 != 56) sha_add(s, 0);
    for (int shift = 56; shift >= 0; shift -= 8) sha_add(s, (uint8_t)(bits >> shift));
    for (int i = 0; i < DIGEST; i++) digest.bytes[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
}

static int same(struct digest a, struct digest b) { return !memcmp(a.bytes, b.bytes, DIGEST); }

/* ---- files ---- */

struct file { const char *path; int fd; uint64_t size; };
struct sink { struct sha sha; const struct file *out; }; /* where bytes go: into a hash, and into a file if there is one */

/* End the program unless something holds; where there is no other sentence, the disk says why it does not. */
static void check(int holds, const char *path, const char *otherwise) {
    if (holds) return;
    fprintf(stderr, "error: '%s'%s %s\n", path, otherwise ? "" : ":", otherwise ? otherwise : strerror(errno));
    exit(otherwise ? MISFIT : DISK);
}

static int exists(const char *path) {
    struct stat found;
    return lstat(path, &found) == 0;
}

static struct file open_file(const char *path, int flags) {
    struct stat found;
    int fd = open(path, flags | O_NONBLOCK, 0644); /* a pipe is refused, not waited for */
    check(fd >= 0 && fstat(fd, &found) == 0, path, NULL);
    check(S_ISREG(found.st_mode), path, "is no ordinary file");
    return (struct file){path, fd, (uint64_t)found.st_size};
}

static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY);
    check(fd >= 0 && fsync(fd) == 0 && close(fd) == 0, folder, NULL);
}

static void read_at(const struct file *file, uint64_t at, uint8_t *into, size_t n) {
    errno = EIO; /* if the file has become shorter */
    check(pread(file->fd, into, n, (off_t)at) == (ssize_t)n, file->path, NULL);
}

static void put(struct sink *to, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) sha_add(&to->sha, bytes[i]);
    errno = ENOSPC; /* if only some of them fit */
    if (to->out) check(write(to->out->fd, bytes, n) == (ssize_t)n, to->out->path, NULL);
}

static void copy(struct sink *to, const struct file *from, uint64_t at, uint64_t n) {
    uint8_t buffer[BUFFER];
    for (size_t some; n; at += some, n -= some) {
        some = n < BUFFER ? (size_t)n : BUFFER;
        read_at(from, at, buffer, some);
        put(to, buffer, some);
    }
}

/* ---- the delta ---- */

struct delta { struct file file; int reversed; uint64_t length, runs; struct digest sha[2]; };
struct run { uint64_t before, offset, n, side[2], next, count; };
static const struct run FIRST = {.next = HEAD};

static uint64_t number(const uint8_t *bytes, int n) {
    uint64_t found = 0;
    while (n--) found = found << 8 | bytes[n];
    return found;
}

/* Places in the model: `before`, where the last run ended, and `offset`; in the delta: both sides' bytes, and the next run. */
static int next_run(const struct delta *d, struct run *r) {
    uint8_t head[RUN];
    r->before = r->offset + r->n;
    if (r->count++ == d->runs) return 0;
    read_at(&d->file, r->next, head, RUN);
    r->offset = number(head, 8), r->n = number(head + 8, 4);
    r->side[d->reversed] = r->next + RUN, r->side[!d->reversed] = r->next + RUN + r->n;
    r->next += RUN + 2 * r->n;
    return 1;
}

static struct delta open_delta(const char *path, int reversed) {
    struct delta d = {.file = open_file(path, O_RDONLY), .reversed = reversed};
    struct sink all = {START, NULL};
    struct run r = FIRST;
    struct digest stored;
    uint8_t head[HEAD] = {0};
    uint64_t end = d.file.size - DIGEST;
    if (d.file.size >= HEAD + DIGEST && d.file.size <= MAX_DELTA) read_at(&d.file, 0, head, HEAD);
    check(!memcmp(head, "ARADELT1", 8), path, "is no Arachne delta");
    copy(&all, &d.file, 0, end);
    read_at(&d.file, end, stored.bytes, DIGEST);
    check(same(sha_end(&all.sha), stored), path, "is damaged: its checksum does not fit");
    d.length = number(head + 8, 8), d.runs = number(head + 80, 4);
    memcpy(d.sha[reversed].bytes, head + 16, DIGEST), memcpy(d.sha[!reversed].bytes, head + 48, DIGEST);
    while (next_run(&d, &r)) { /* the checksum is longer than the head of a run, so there is one to read */
        int fits = r.next <= end && r.n && r.offset >= r.before && r.offset <= d.length && r.n <= d.length - r.offset;
        check(fits, path, "has a run that does not fit into the file");
    }
    check(r.next == end, path, "has bytes that belong to no run");
    return d;
}

/* Read the model, with one side's bytes where the runs are, and write what is read if there is a file for it. */
static struct digest pass_model(const struct delta *d, const struct file *model, enum side side, const struct file *out) {
    struct sink to = {START, out};
    struct run r = FIRST;
    while (side != AS_IT_IS && next_run(d, &r)) {
        copy(&to, model, r.before, r.offset - r.before);
        copy(&to, &d->file, r.side[side], r.n);
    }
    copy(&to, model, r.before, model->size - r.before);
    return sha_end(&to.sha);
}

static int leads_to(const struct delta *d, const struct file *model, enum side side) {
    return model->size == d->length && same(pass_model(d, model, side, NULL), d->sha[side]);
}

/* Write the delta in the direction in which it is applied. */
static void write_journal(const struct delta *d, const struct file *out) {
    struct sink to = {START, out};
    struct run r = FIRST;
    copy(&to, &d->file, 0, 16);
    put(&to, (const uint8_t *)d->sha, sizeof d->sha);
    copy(&to, &d->file, 80, 4);
    while (next_run(d, &r)) {
        copy(&to, &d->file, r.side[d->reversed] - RUN, RUN);
        copy(&to, &d->file, r.side[OLD], r.n);
        copy(&to, &d->file, r.side[NEW], r.n);
    }
    struct digest digest = sha_end(&to.sha);
    put(&to, digest.bytes, DIGEST);
}

/* Put the journal's new bytes into the model, prove that it is the new file, and remove the journal; safe to run again. */
static void recover(const char *path, const char *journal) {
    struct delta d = open_delta(journal, 0);
    struct file model = open_file(path, O_RDWR);
    struct sink to = {START, &model};
    struct run r = FIRST;
    check(leads_to(&d, &model, OLD), journal, "belongs to another file; move it away");
    while (next_run(&d, &r)) {
        check(lseek(model.fd, (off_t)r.offset, SEEK_SET) >= 0, path, NULL);
        copy(&to, &d.file, r.side[NEW], r.n);
    }
    check(fsync(model.fd) == 0, path, NULL);
    int reached = same(pass_model(&d, &model, AS_IT_IS, NULL), d.sha[NEW]);
    check(reached, path, "did not become the promised file; its journal stays, recover it");
    check(unlink(journal) == 0, journal, NULL);
    sync_folder(journal);
}

/* Write the copy, or the journal and then the model; either file is whole before it has its name. */
static void change(const struct delta *d, const struct file *model, const char *out, const char *journal, const char *draft) {
    int leads = leads_to(d, model, OLD) && leads_to(d, model, NEW);
    check(leads, d->file.path, "does not lead from the file it was made for to the one it promises");
    check(!out || !exists(out), out, "is there already");
    check(unlink(draft) == 0 || errno == ENOENT, draft, NULL);
    struct file written = open_file(draft, O_WRONLY | O_CREAT | O_EXCL);
    if (out) pass_model(d, model, NEW, &written);
    else write_journal(d, &written);
    check(fsync(written.fd) == 0 && close(written.fd) == 0 && rename(draft, out ? out : journal) == 0, draft, NULL);
    sync_folder(draft);
    if (!out) recover(model->path, journal);
    printf("%s '%s': %" PRIu64 " runs\n", out ? "wrote" : "changed", out ? out : model->path, d->runs);
}

int main(int n, char **words) {
    static char journal[PATH_MAX], draft[PATH_MAX];
    int named = n > 1 && !strncmp(words[1], "--", 2), count = n - 1 - named;
    const char *mode = named ? words[1] : "--apply";
    int reverts = !strcmp(mode, "--revert"), verifies = !strcmp(mode, "--verify"), recovers = !strcmp(mode, "--recover");
    int changes = reverts || !strcmp(mode, "--apply");
    if (!(changes ? count == 2 || count == 3 : verifies ? count == 2 : recovers && count == 1)) {
        fprintf(stderr, "usage: arachne_delta [--revert] DELTA MODEL [OUT] | --verify DELTA MODEL | --recover MODEL\n");
        return USAGE;
    }
    const char *path = words[n - 1 - (count == 3)], *out = count == 3 ? words[n - 1] : NULL;
    int length = snprintf(journal, sizeof journal, "%s.journal", path);
    int longest = snprintf(draft, sizeof draft, "%s.arachne-draft", out ? out : journal);
    check(length < PATH_MAX && longest < PATH_MAX, path, "is too long a name");
    int interrupted = exists(journal);
    check(!changes || !interrupted, journal, "says that a change was interrupted; finish it with --recover first");
    if (recovers) {
        if (interrupted) recover(path, journal);
        printf(interrupted ? "finished what was interrupted in '%s'\n" : "nothing was interrupted in '%s'\n", path);
        return DONE;
    }
    struct delta d = open_delta(words[1 + named], reverts);
    struct file model = open_file(path, O_RDONLY);
    struct digest found = pass_model(&d, &model, AS_IT_IS, NULL);
    int is_old = same(found, d.sha[OLD]), is_new = same(found, d.sha[NEW]);
    check(changes || is_old || is_new, path, "is neither the old nor the new file of this delta");
    check(verifies || is_old || (is_new && !out), path, "is not the file this delta was made for");
    if (verifies) puts(is_new ? "new" : "old");
    else if (is_new && !out) printf("'%s' is the wanted file already\n", path);
    else change(&d, &model, out, journal, draft);
    return DONE;
}
