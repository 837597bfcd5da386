/*
 * A worker without PHP, for the tests of the ring (crates/ring/tests/workers.rs): ring_worker NUMBER [STEP COUNT].
 * It answers each request with its request head's first value, the body turned to upper case, and, where the path asks
 * for it, a large body. With STEP and COUNT it kills itself with SIGKILL the COUNT-th time it passes that step of
 * ring.c.
 */
#include "records.h"
#include "ring.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int fatal_step = -1;
static long countdown;

void hy_step(int step)
{
	if (step == fatal_step && --countdown <= 0) {
		kill(getpid(), SIGKILL);
	}
}

static void head(struct hy_exchange *exchange, uint16_t status)
{
	struct hy_response_head fixed = {.status = status};
	memcpy(exchange->response_head, &fixed, sizeof fixed);
	hy_response_head(exchange, sizeof fixed);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "ring_worker NUMBER [STEP COUNT]\n");
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (argc >= 4) {
		fatal_step = atoi(argv[2]);
		countdown = atol(argv[3]);
	}
	const char *wrong = hy_ring_map(HY_FD_MEMORY, HY_FD_EVENTS);
	if (wrong != NULL) {
		fprintf(stderr, "%s\n", wrong);
		return 2;
	}
	hy_ring_join((uint32_t)atoi(argv[1]));
	struct hy_exchange exchange;
	while (hy_ring_next(&exchange)) {
		/* All of it, as a host does: whoever disturbs the memory may do so meanwhile. */
		struct cursor cursor = {exchange.request_head, exchange.request_head + exchange.request_head_len};
		struct record first, another;
		if (!next_record(&cursor, &first)) {
			head(&exchange, 400);
			hy_response_complete(&exchange, false);
			hy_release(&exchange);
			continue;
		}
		while (next_record(&cursor, &another)) {
		}
		const char *value = first.value;
		/* "hints N": N informational heads; else one. */
		struct hy_response_head early = {.status = 103};
		long hints = strncmp(value, "hints ", 6) == 0 ? atol(value + 6) % 100000 : 1;
		while (hints-- > 0) {
			hy_response_inform(&exchange, (const char *)&early, sizeof early);
		}
		head(&exchange, 200);
		if (strncmp(value, "large ", 6) == 0) {
			/* "large N": N bytes of a known pattern, more than a ring holds. */
			long n = atol(value + 6) % 100000000;
			char block[1000];
			for (long at = 0; at < n;) {
				size_t len = (size_t)(n - at) < sizeof block ? (size_t)(n - at) : sizeof block;
				for (size_t i = 0; i < len; i++) {
					block[i] = (char)((at + (long)i) % 251);
				}
				if (!hy_body_write(&exchange, block, len)) {
					break;
				}
				at += (long)len;
			}
		} else {
			hy_body_write(&exchange, value, first.value_len);
			char block[777];
			size_t n;
			while ((n = hy_body_read(&exchange, block, sizeof block)) > 0) {
				for (size_t i = 0; i < n; i++) {
					block[i] = (char)toupper((unsigned char)block[i]);
				}
				if (!hy_body_write(&exchange, block, n)) {
					break;
				}
			}
		}
		if (strncmp(value, "late ", 5) == 0) {
			/* The answer is whole, the worker goes on for a while: hayate_finish_request(). */
			hy_response_complete(&exchange, true);
			usleep(2000);
		} else {
			hy_response_complete(&exchange, false);
		}
		hy_release(&exchange);
	}
	return 0;
}
