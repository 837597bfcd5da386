/*
 * The rewinder's hot set, without PHP: which pages become hot, and that no write is lost when one ceases to be.
 *
 *   rewind_hot [--tracking uffd|soft-dirty] [NAME …]
 *
 * Each program is a process that writes, rewinds, and has all memory compared with the snapshot after each rewind:
 *
 *   mixed    each piece of work writes the same few pages; one in twenty, at random, writes thousands of others. Those
 *            must not become hot: it would be all others that pay for them
 *   cooling  pages that become hot and are then left alone until they are called cold; then one is written, by a piece
 *            of work that does nothing else, so that nothing but that write can make the rewinder look
 *   apart    one piece of work in ten writes thousands of pages, none beside another: each counts once
 *   same     pages to which each piece of work writes what they held before: they look unwritten, and are hot all the
 *            same, or each of them would be a fault each time
 *
 * Exits with 0 when all is well, with 77 if this kernel has no tracking.
 */
#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define FEW 20
#define MANY 5000
/* Pages that are hot in any process: the stack's neighbours, libc's, ours. */
#define OWN 64

/* Lives outside what is put back. */
struct notes {
	uint64_t random;
	uint64_t cold_pages; /* so far */
};
static struct notes *notes;
static uint8_t *pages;

static uint64_t random_number(void)
{
	/* xorshift64*, Vigna 2016 */
	uint64_t x = notes->random;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	notes->random = x;
	return x * 2685821657736338717ull;
}

static void fail(const char *what, long after, unsigned long figure)
{
	fprintf(stderr, "%s: %lu, after %ld rewinds\n", what, figure, after);
	_exit(1);
}

static void differs(const char *line)
{
	fprintf(stderr, "%s\n", line);
	_exit(1);
}

static void write_page(size_t n)
{
	pages[n * PAGE + 8]++;
}

static void mixed(long done, enum rewind_tracking tracking)
{
	if (done == 2000) {
		/* soft-dirty cannot protect single pages, so that what was written stays in the set until it is learned
		 * anew. */
		uint32_t hot = rewind_counters()->hot_pages;
		if (tracking == REWIND_UFFD && hot > FEW + OWN) {
			fail("hot pages", done, hot);
		}
		_exit(0);
	}
	for (size_t n = 0; n < FEW; n++) {
		write_page(n);
	}
	if (random_number() % 20 == 0) {
		for (size_t n = FEW; n < MANY; n++) {
			write_page(n);
		}
	}
}

static void cooling(long done, enum rewind_tracking tracking)
{
	long in_round = done % 1000;
	if (done == 3000) {
		_exit(0);
	}
	if (in_round < 40) {
		for (size_t n = 0; n < FEW; n++) {
			write_page(n);
		}
	} else if (in_round >= 900) {
		write_page((size_t)in_round % FEW);
	}
}

static void apart(long done, enum rewind_tracking tracking)
{
	if (done == 100) {
		_exit(0);
	}
	if (done % 10 == 1 && rewind_counters()->last_cold > MANY / 2 + OWN) {
		fail("pages that one piece of work wrote", done, rewind_counters()->last_cold);
	}
	if (done % 10 == 0) {
		for (size_t n = 0; n < MANY; n += 2) {
			write_page(n);
		}
	}
}

static void same(long done, enum rewind_tracking tracking)
{
	if (done == 1000) {
		notes->cold_pages = rewind_counters()->cold_pages;
	} else if (done == 3000) {
		uint64_t cold = rewind_counters()->cold_pages - notes->cold_pages;
		if (cold > 2000) {
			fail("faults of pages that are written each time", done, cold);
		}
		_exit(0);
	}
	for (size_t n = 0; n < FEW; n++) {
		volatile uint8_t *byte = &pages[n * PAGE];
		*byte = *byte;
	}
}

static const struct {
	const char *name;
	void (*work)(long done, enum rewind_tracking tracking);
	unsigned verify; /* every so many rewinds */
	size_t pages;
} programs[] = {
    {"mixed", mixed, 100, MANY}, {"cooling", cooling, 1, FEW}, {"apart", apart, 10, MANY}, {"same", same, 10, FEW}};
#define PROGRAMS (sizeof programs / sizeof programs[0])

static void run(size_t program, enum rewind_tracking tracking)
{
	const char *wrong = rewind_init();
	notes = wrong == NULL ? rewind_keep(sizeof *notes) : NULL;
	pages = mmap(NULL, programs[program].pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (notes == NULL || pages == MAP_FAILED) {
		differs(wrong == NULL ? "no memory" : wrong);
	}
	notes->random = 1;
	memset(pages, 1, programs[program].pages * PAGE);
	rewind_verify(programs[program].verify, differs);
	wrong = rewind_snapshot(tracking, NULL, 0);
	if (wrong != NULL) {
		differs(wrong);
	}
	long done = rewind_point();
	if (done < 0) {
		differs(rewind_error());
	}
	programs[program].work(done, tracking);
	rewind_back();
}

int main(int argc, char **argv)
{
	struct arguments read = arguments(argc, argv);
	bool failed = false;
	for (size_t i = 0; i < PROGRAMS; i++) {
		if (is_wanted(&read, programs[i].name)) {
			failed |= program_fails(programs[i].name, i, read.tracking, run);
		}
	}
	return failed;
}
