/* Every way to put a page back that this processor has: each makes the page what the copy is, says truly whether it was
 * not, and touches no byte beside it. */
#include "../rewind/page.c"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t guarded[3 * PAGE_SIZE] __attribute__((aligned(4096)));
static uint8_t copy[PAGE_SIZE] __attribute__((aligned(4096)));

static void try_it(const char *name, page_restore *restore)
{
	uint8_t *page = guarded + PAGE_SIZE;
	for (int round = 0; round < 4000; round++) {
		memset(guarded, 0xa5, sizeof guarded);
		for (size_t i = 0; i < PAGE_SIZE; i++) {
			page[i] = copy[i] = (uint8_t)rand();
		}
		/* None, one, some, all; the first and the last byte of a line among them. */
		int changes = round % 5 == 0 ? 0 : round % 5 == 4 ? (int)PAGE_SIZE : 1 + rand() % 40;
		bool changed = false;
		for (int i = 0; i < changes; i++) {
			size_t at = changes == (int)PAGE_SIZE ? (size_t)i
			            : rand() % 2              ? (size_t)rand() % PAGE_SIZE
			                                      : (size_t)(rand() % 64) * 64 + (rand() % 2 ? 63 : 0);
			uint8_t value = (uint8_t)rand();
			page[at] = value;
		}
		changed = memcmp(page, copy, PAGE_SIZE) != 0;
		if (restore(page, copy) != changed || memcmp(page, copy, PAGE_SIZE) != 0) {
			fprintf(stderr, "%s: round %d: expected the page to be as the copy, and to hear that it %s\n", name, round,
			        changed ? "differed" : "did not differ");
			exit(1);
		}
		for (size_t i = 0; i < PAGE_SIZE; i++) {
			if (guarded[i] != 0xa5 || guarded[2 * PAGE_SIZE + i] != 0xa5) {
				fprintf(stderr, "%s: round %d: a byte beside the page was written\n", name, round);
				exit(1);
			}
		}
	}
	printf("%s: 4000 pages\n", name);
}

int main(void)
{
	srand(1);
#ifdef __x86_64__
	try_it("whole", restore_whole);
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2")) {
		try_it("256 bits", restore_256);
	}
	if (__builtin_cpu_supports("avx512f")) {
		try_it("512 bits", restore_512);
	}
#else
	try_it("128 bits", restore_128);
#endif
	return 0;
}
