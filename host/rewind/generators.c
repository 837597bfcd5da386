/*
 * Generators of random numbers in libraries, whose state a rewind puts back. As in interpose.h, the host has its own
 * versions of functions that libraries call.
 *
 *   libc's rand(), random(), drand48() and their kin: seeded from the kernel at the first use after a rewind, whatever
 *   the boot seeded them with; a request that seeds them itself is left alone.
 *
 *   libuuid's UUIDs with the time: a sequence number for each process, a time that only goes forward.
 *
 *   Libraries that look whether they have been forked, and seed themselves anew then: the boot is told to them as
 *   another process. Asked after it, they find that they have been forked, and so after each rewind.
 *
 * Without rewinding all of it does what libraries would do by themselves.
 */
#include "internal.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
/* Above every process id: PID_MAX_LIMIT of include/linux/threads.h */
#define NOBODY (1 << 22)
#define MAX_HANDLERS 8

/* What asks getpid() in order to know whether it has been forked. libbson may be part of mongodb.so. */
static const char *const ask_for_pid[] = {"/libgcrypt.so", "/libbson-1.0.so", "/mongodb.so"};
/* What has a handler called in the child of a fork. */
static const char *const have_handlers[] = {"/libgnutls.so"};

static bool boot_over;
static bool random_seeded, rand48_seeded;
static void (*handlers[MAX_HANDLERS])(void);
static size_t handler_count;

/* Whether an address lies in one of these libraries. */
static bool lies_in(const void *address, const char *const *names, size_t count)
{
	Dl_info info;
	if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		if (strstr(info.dli_fname, names[i]) != NULL) {
			return true;
		}
	}
	return false;
}

static void *libc_own(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (found == NULL) {
		abort(); /* libc without one of its own functions */
	}
	return found;
}

static void from_kernel(void *to, size_t size)
{
	if (SYS3(SYS_getrandom, to, size, 0) != (long)size) {
		rewind_die("the kernel gave no random bytes", 0);
	}
}

void rewind_forget_randomness(void)
{
	random_seeded = rand48_seeded = false;
	for (size_t i = 0; i < handler_count; i++) {
		handlers[i]();
	}
	boot_over = true;
}

/* Processes and forks. */

EXPORT pid_t getpid(void)
{
	pid_t pid = (pid_t)SYS1(SYS_getpid, 0);
	bool told = rewind_control == NULL || boot_over ||
	            !lies_in(__builtin_return_address(0), ask_for_pid, sizeof ask_for_pid / sizeof ask_for_pid[0]);
	return told ? pid : pid + NOBODY;
}

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);
EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library)
{
	int (*own)(void (*)(void), void (*)(void), void (*)(void), void *);
	*(void **)&own = libc_own("__register_atfork");
	if (!boot_over && child != NULL && handler_count < MAX_HANDLERS &&
	    lies_in((const void *)child, have_handlers, sizeof have_handlers / sizeof have_handlers[0])) {
		handlers[handler_count++] = child;
	}
	return own(prepare, parent, child, library);
}

/* libc. */

static long (*libc_random)(void);
static void (*libc_srandom)(unsigned);
static long (*libc_lrand48)(void), (*libc_mrand48)(void);
static double (*libc_drand48)(void);
static void (*libc_srand48)(long);
static unsigned short *(*libc_seed48)(unsigned short[3]);
static void (*libc_lcong48)(unsigned short[7]);

/* A constructor of a library may come before ours. */
__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_random = libc_own("random");
	*(void **)&libc_srandom = libc_own("srandom");
	*(void **)&libc_lrand48 = libc_own("lrand48");
	*(void **)&libc_mrand48 = libc_own("mrand48");
	*(void **)&libc_drand48 = libc_own("drand48");
	*(void **)&libc_srand48 = libc_own("srand48");
	*(void **)&libc_seed48 = libc_own("seed48");
	*(void **)&libc_lcong48 = libc_own("lcong48");
}

static inline void ready(void)
{
	if (libc_lcong48 == NULL) {
		look_up();
	}
}

static void before_random(void)
{
	ready();
	if (!random_seeded && rewind_control != NULL) {
		unsigned seed;
		from_kernel(&seed, sizeof seed);
		random_seeded = true;
		libc_srandom(seed);
	}
}

static void before_rand48(void)
{
	ready();
	if (!rand48_seeded && rewind_control != NULL) {
		unsigned short seed[3];
		from_kernel(seed, sizeof seed);
		rand48_seeded = true;
		libc_seed48(seed);
	}
}

/* In glibc rand() is random() by another name, and srand() srandom(). */
EXPORT long random(void)
{
	before_random();
	return libc_random();
}

EXPORT int rand(void)
{
	before_random();
	return (int)libc_random();
}

EXPORT void srandom(unsigned seed)
{
	ready();
	random_seeded = true;
	libc_srandom(seed);
}

EXPORT void srand(unsigned seed)
{
	srandom(seed);
}

EXPORT long lrand48(void)
{
	before_rand48();
	return libc_lrand48();
}

EXPORT long mrand48(void)
{
	before_rand48();
	return libc_mrand48();
}

EXPORT double drand48(void)
{
	before_rand48();
	return libc_drand48();
}

EXPORT void srand48(long seed)
{
	ready();
	rand48_seeded = true;
	libc_srand48(seed);
}

EXPORT unsigned short *seed48(unsigned short seed[3])
{
	ready();
	rand48_seeded = true;
	return libc_seed48(seed);
}

EXPORT void lcong48(unsigned short parameters[7])
{
	ready();
	rand48_seeded = true;
	libc_lcong48(parameters);
}

/* libuuid. RFC 4122: time_low, time_mid, time_hi and version, each with the high byte first; then 14 bits of sequence
 * number beside two bits of variant; then the node. */

void rewind_uuid_sequence(unsigned number)
{
	if (rewind_control != NULL) {
		rewind_control->uuid_sequence = (uint16_t)(number & 0x3fff);
		rewind_control->uuid_numbered = true;
	}
}

static uint64_t get_time(const uint8_t *uuid)
{
	static const uint8_t order[8] = {6, 7, 4, 5, 0, 1, 2, 3};
	uint64_t time = 0;
	for (int i = 0; i < 8; i++) {
		time = time << 8 | uuid[order[i]];
	}
	return time & 0x0fffffffffffffffull;
}

static void put_time(uint8_t *uuid, uint64_t time)
{
	static const uint8_t order[8] = {3, 2, 1, 0, 5, 4, 7, 6};
	for (int i = 0; i < 8; i++) {
		uuid[order[i]] = (uint8_t)(time >> (8 * i));
	}
	uuid[6] = (uint8_t)(uuid[6] | 0x10);
}

static void number_uuid(uint8_t *uuid)
{
	struct control *c = rewind_control;
	if (c == NULL || !c->uuid_numbered) {
		return;
	}
	uint64_t time = get_time(uuid);
	c->uuid_time = time > c->uuid_time ? time : c->uuid_time + 1;
	put_time(uuid, c->uuid_time);
	uuid[8] = (uint8_t)(0x80 | c->uuid_sequence >> 8);
	uuid[9] = (uint8_t)c->uuid_sequence;
}

static void *libuuid_own(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	void *library = found == NULL ? dlopen("libuuid.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
	return library == NULL ? found : dlsym(library, name);
}

void uuid_generate_time(unsigned char *to);
EXPORT void uuid_generate_time(unsigned char *to)
{
	void (*own)(unsigned char *);
	*(void **)&own = libuuid_own("uuid_generate_time");
	if (own == NULL) {
		abort(); /* who calls it without having loaded it? */
	}
	own(to);
	number_uuid(to);
}

int uuid_generate_time_safe(unsigned char *to);
EXPORT int uuid_generate_time_safe(unsigned char *to)
{
	int (*own)(unsigned char *);
	*(void **)&own = libuuid_own("uuid_generate_time_safe");
	if (own == NULL) {
		abort();
	}
	int result = own(to);
	number_uuid(to);
	return result;
}
